"""An archive of one cluster, restored to another one: other version, partitions, limits, rights."""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.cluster_moments import note_moment
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_changes import ClusterChanges
from kafka_drain.kafka.cluster_state import ASKED, Acl
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups
from kafka_drain.kafka.describing import ClusterDescriber
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.proof.cluster_capture import describe_with
from kafka_drain.proof.validation import validate_archive
from tests.faults.injection import wait_for
from tests.faults.republishing import read_topic
from tests.integration.command_line import Ended, kafka_drain
from tests.integration.test_translate_group import take

pytestmark = pytest.mark.integration

RECORDS, PARTITIONS = 40, 3
NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds
#: Larger than what the other cluster takes unless its topic says otherwise, also compressed.
LARGE = random.Random(1).randbytes(300_000)


@dataclass(frozen=True)
class Restore:
    """A drained topic, whose group has read a part of it, and the cluster to restore it to."""

    archive: Archive
    topic: str
    group: str
    other: KafkaCluster

    def command(self, name: str, *arguments: str) -> Ended:
        servers = self.other.config.bootstrap_servers
        return kafka_drain(name, self.archive.root, "--bootstrap-servers", servers, *arguments)

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        ended = self.command("plan-recovery", "--json", *arguments)
        return list(json.loads(ended.out)["rows"])

    def republish(self, run: str, *arguments: str) -> Ended:
        return self.command("republish", "--run-name", run, "--apply", *arguments)

    def translate(self, run: str, *arguments: str) -> dict[str, Any]:
        named = ("--run", run, "--group", self.group, "--from-archive", "--json")
        ended = self.command("translate-group", *named, "--apply", *arguments)
        assert ended.code == 0, ended.err
        return dict(json.loads(ended.out))


@pytest.fixture
def restore(
    tmp_path: Path,
    make_topic: Any,
    send: Any,
    drain: Any,
    cluster: KafkaCluster,
    other_cluster: KafkaCluster,
) -> Callable[..., Restore]:
    """Fill and drain a topic; its group has read ten records of each partition.

    After the description, `later` more records of each partition are drained.
    """

    def make(*, large: bool = False, later: int = 0) -> Restore:
        config = {"max_message_bytes": "1000000"} if large else {}
        topic = make_topic(partitions=PARTITIONS, segment_ms="3600000", **config)
        for partition in range(PARTITIONS):
            records = [
                (b"key %d" % (n % 5), b"%d-%d" % (partition, n), None, NOON + n)
                for n in range(RECORDS)
            ]
            if large and partition == 1:
                records[7] = (b"key", LARGE, None, NOON + 7)
            send(topic, records, partition)
        group = f"g-{uuid.uuid4().hex[:8]}"
        at = {TopicPartition(topic, p): Committed(10, "mine") for p in range(PARTITIONS)}
        ConsumerGroups(cluster.config).commit(group, at)
        pipeline = Pipeline(name="restored", topics=[topic], archive=str(tmp_path / "archive"))
        drain(pipeline)
        archive = Archive.at(pipeline.archive)
        describe = describe_with(cluster.config, ASKED)
        report = validate_archive(archive, cluster, describe=describe)
        assert report.complete
        assert all(receipt.cluster for receipt in archive.generation(1).receipts())
        if later:
            for partition in range(PARTITIONS):
                send(topic, [(None, b"later", None, NOON)] * later, partition)
            drain(pipeline)
            assert validate_archive(archive, cluster).complete
        return Restore(archive, topic, group, other_cluster)

    return make


def values(first: int, end: int) -> list[str]:
    return [f"{partition}-{n}" for partition in range(PARTITIONS) for n in range(first, end)]


def test_restore_whole(restore: Callable[..., Restore]) -> None:
    """Topic, settings, records and a group come back; its consumers go on as new records arrive."""
    made = restore()
    rows = [row for row in made.rows() if row["name"] == made.topic]
    (row,) = [row for row in rows if row["kind"] == "topics"]
    assert (row["action"], row["lowers_safety"]) == ("add", "")
    assert {row["kind"] for row in rows} <= {"topics", "configs"}
    assert not made.other.has_topic(made.topic)

    applied = made.command("plan-recovery", "--apply", "topics,configs,acls")
    assert applied.code == 0, applied.err
    settings = made.other.topic_settings(made.topic)
    assert settings.partitions == PARTITIONS
    assert settings.config["segment.ms"] == "3600000"

    sent = made.republish("restore", "--same-topics")
    assert sent.code == 0, sent.err
    plan = made.translate("restore")
    assert (plan["read_again"], plan["result"]) == (0, "applied")
    assert all("exact" in each["note"] or not each["read_again"] for each in plan["rows"])

    servers = made.other.config.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for n in range(5):
        producer.produce(made.topic, b"new %d" % n, partition=n % PARTITIONS)
    assert producer.flush(30) == 0
    expected = sorted([*values(10, RECORDS), *(f"new {n}" for n in range(5))])
    assert take(servers, made.group, made.topic, len(expected)) == expected
    found = read_topic(servers, made.topic)
    assert sum(map(len, found.values())) == PARTITIONS * RECORDS + 5
    # What was set for the restore is left, until it is set back.
    mine = (made.topic, made.group)
    left = [(r["kind"], r["action"]) for r in made.rows() if r["name"] in mine]
    assert left == [("configs", "change"), ("groups", "done")]
    ended = made.command("plan-recovery", "--apply", "configs", "--accept-lower-safety")
    assert ended.code == 0, ended.err
    left = [(r["kind"], r["action"]) for r in made.rows() if r["name"] in mine]
    assert left == [("groups", "done")]


def test_restore_drained_since(restore: Callable[..., Restore]) -> None:
    """With records that were drained after the description, nothing is called exact."""
    made = restore(later=5)
    assert made.command("plan-recovery", "--apply", "topics").code == 0
    assert made.republish("since", "--same-topics").code == 0

    plan = made.translate("since")

    count = RECORDS - 10 + 5
    assert plan["summary"] == f"up to {PARTITIONS * count} may be read again; none is skipped"
    assert {row["may_be_read_again"] for row in plan["rows"]} == {count}
    assert not any("exact" in row["note"] for row in plan["rows"])
    assert {row["metadata"] for row in plan["rows"]} == {"mine"}


def test_restore_other_partitions(restore: Callable[..., Restore]) -> None:
    """Into a topic with more partitions, placed by key, the group skips nothing."""
    made = restore()
    made.other.create_topic(made.topic, TopicSettings(5, 1, config={"retention.ms": "-1"}))
    shown = [row for row in made.rows() if row["name"] == made.topic and row["kind"] == "topics"]
    assert [(r["action"], r["archived"], r["target"]) for r in shown] == [
        ("leave", "3 partitions", "5 partitions")
    ]

    sent = made.republish("by-key", "--same-topics", "--placement", "key")
    assert sent.code == 0, sent.err
    plan = made.translate("by-key")

    count = PARTITIONS * (RECORDS - 10) + plan["read_again"]
    read = take(made.other.config.bootstrap_servers, made.group, made.topic, count)
    assert set(values(10, RECORDS)) <= set(read)


def test_restore_too_large(restore: Callable[..., Restore]) -> None:
    """A record that the target wouldn't take is refused by its offset before anything is sent."""
    made = restore(large=True)
    made.other.create_topic(made.topic, TopicSettings(PARTITIONS, 1, config={"retention.ms": "-1"}))
    rows = {r["setting"]: r for r in made.rows() if r["name"] == made.topic}
    assert (rows["max.message.bytes"]["target"], rows["max.message.bytes"]["archived"]) == (
        "100000",
        "1000000",
    )

    refused = made.republish("large", "--same-topics")

    assert refused.code != 0
    for word in (made.topic, "offset 7", "max.message.bytes=100000", "Nothing was sent"):
        assert word in refused.err
    tps = [TopicPartition(made.topic, p) for p in range(PARTITIONS)]
    assert set(made.other.latest(tps, "read_uncommitted").values()) == {0}
    # As the archived topic had it, it takes them.
    assert made.command("plan-recovery", "--apply", "configs").code == 0
    again = made.republish("large", "--same-topics")
    assert again.code == 0, again.err
    found = read_topic(made.other.config.bootstrap_servers, made.topic)
    assert sum(map(len, found.values())) == PARTITIONS * RECORDS


def test_restore_acls(other_cluster: KafkaCluster, tmp_path: Path) -> None:
    """ACLs that were lost come back, those of groups too; one for everybody only if accepted."""
    topic = f"acls-{uuid.uuid4().hex[:8]}"
    other_cluster.create_topic(topic, TopicSettings(1, 1, config={"retention.ms": "-1"}))
    group = f"group of {topic}"
    ConsumerGroups(other_cluster.config).commit(group, {TopicPartition(topic, 0): Committed(0)})
    narrow = {
        Acl("topic", topic, "literal", "User:a", "*", "read", "allow"),
        Acl("group", group, "literal", "User:a", "*", "read", "allow"),
    }
    wide = Acl("topic", topic[:8], "prefixed", "User:*", "*", "describe", "allow")
    for acl in (*narrow, wide):
        ClusterChanges(other_cluster).add_acl(acl)

    def there() -> set[Acl]:
        described = ClusterDescriber(other_cluster.config).describe([topic])
        return set(described.settings.acls or ())

    wait_for(lambda: there() >= {*narrow, wide}, "the ACLs")
    archive = Archive.at(str(tmp_path / "archive"))
    archive.create(
        pipeline="a",
        cluster_id=other_cluster.cluster_id(),
        topic_ids={topic: "id"},
        source={"topics": [topic]},
    )
    state = ClusterDescriber(other_cluster.config).describe([topic])
    now = utc_now().isoformat()
    note_moment(archive.root, state, asked_at=now, answered_at=now)
    admin = AdminClient({"bootstrap.servers": other_cluster.config.bootstrap_servers})
    everything = AclBindingFilter(
        *(ResourceType.ANY, None, ResourcePatternType.ANY, None, None),
        *(AclOperation.ANY, AclPermissionType.ANY),
    )
    for future in admin.delete_acls([everything]).values():
        future.result(30)
    wait_for(lambda: not there(), "no ACL")
    made = Restore(archive, topic, "", other_cluster)

    held = made.command("plan-recovery", "--apply", "acls")
    wait_for(lambda: there() == narrow, "the narrow ACLs")
    assert held.code == 1
    assert "allows everybody" in held.err
    assert made.command("plan-recovery", "--apply", "acls", "--accept-lower-safety").code == 0
    wait_for(lambda: there() == {*narrow, wide}, "all ACLs")
    assert [row for row in made.rows() if row["kind"] == "acls"] == []
