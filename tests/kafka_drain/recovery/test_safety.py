"""Which changes lower safety: a table of settings, and of ACLs."""

from __future__ import annotations

from kafka_drain.kafka.cluster_state import Acl, TopicState
from kafka_drain.recovery.safety import lost_defaults, lowered_by, opened_by
from tests.tables import each_of


@each_of(
    "name, now, then, lowers",
    [
        ("retention.ms", "-1", "604800000", "deletes records that it keeps now"),
        ("retention.ms", "604800000", "-1", ""),
        ("retention.ms", "1000", "999", "deletes records that it keeps now"),
        ("retention.ms", "999", "1000", ""),
        ("retention.ms", "-1", "-1", ""),
        ("retention.ms", None, "1", ""),
        ("retention.bytes", "-1", "1", "deletes records that it keeps now"),
        ("retention.bytes", "2", "-1", ""),
        ("min.insync.replicas", "2", "1", "acknowledges records that fewer replicas hold"),
        ("min.insync.replicas", "1", "2", ""),
        ("max.message.bytes", "10", "9", "refuses records that it takes now"),
        ("max.message.bytes", "9", "10", ""),
        ("delete.retention.ms", "10", "9", "forgets deletions sooner"),
        ("unclean.leader.election.enable", "false", "true", "may lose acknowledged records"),
        ("unclean.leader.election.enable", "true", "false", ""),
        ("cleanup.policy", "delete", "compact", "removes records by compact"),
        ("cleanup.policy", "compact", "delete", "removes records by delete"),
        ("cleanup.policy", "delete", "compact,delete", "removes records by compact"),
        ("cleanup.policy", "compact, delete", "delete", ""),
        ("cleanup.policy", "delete,compact", "compact,delete", ""),
        ("cleanup.policy", "", "delete,compact", "removes records by compact and delete"),
        # Kafka 4.1 and later may remove nothing.
        ("cleanup.policy", "delete", "", ""),
        ("message.timestamp.type", "LogAppendTime", "CreateTime", ""),
        (
            *("message.timestamp.type", "CreateTime", "LogAppendTime"),
            "replaces the timestamps of records",
        ),
        ("min.compaction.lag.ms", "2592000000", "3600000", "compacts records sooner"),
        ("min.compaction.lag.ms", "3600000", "2592000000", ""),
        ("max.compaction.lag.ms", "9223372036854775807", "1", "compacts records sooner"),
        ("compression.type", "zstd", "producer", ""),
        ("segment.bytes", "10", "9", ""),
    ],
)
def test_lowered_by(name: str, now: str | None, then: str, lowers: str) -> None:
    """A change is told from its inverse; what can't be judged, or is the same, lowers nothing."""
    assert lowered_by(name, now, then) == lowers


def test_lost_defaults() -> None:
    """Only what a topic had by default counts, and only where brokers set something less safe."""
    brokers = {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "-1",
        "unclean.leader.election.enable": "true",
    }
    own, theirs = {"cleanup.policy": "delete"}, {"unclean.leader.election.enable": "false"}

    found = lost_defaults(TopicState("t", "id", 1, 1, own, theirs), brokers)

    assert found == {"message.timestamp.type": "CreateTime"}
    assert lost_defaults(TopicState("t", "id", 1, 1, {}, {}), {}) == {}


WHOLE = "allows to change the whole cluster, ACLs included"


@each_of("permission", ["allow", "deny"])
@each_of("principal", ["User:a", "User:*"])
@each_of(
    "resource, operation, wide",
    [
        ("topic", "read", ""),
        ("topic", "all", ""),
        ("topic", "alter_configs", ""),
        ("group", "read", ""),
        ("cluster", "describe", ""),
        ("cluster", "alter", WHOLE),
        ("cluster", "all", WHOLE),
        ("cluster", "cluster_action", WHOLE),
        # Also a listener's logins, for example.
        ("cluster", "alter_configs", "allows to change the brokers' settings, and quotas"),
    ],
)
def test_opened_by(
    permission: str, principal: str, resource: str, operation: str, wide: str
) -> None:
    """Access for everybody, and to the whole cluster, is never given without being told."""
    acl = Acl(resource, "name", "literal", principal, "*", operation, permission)
    opened = "allows everybody" if principal == "User:*" else wide

    assert opened_by(acl) == (opened if permission == "allow" else "")
