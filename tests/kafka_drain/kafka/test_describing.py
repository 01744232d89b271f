"""What a cluster's answers and errors come to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ConfigEntry,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
)

from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.kafka import describing
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster_state import (
    ASKED,
    UNAVAILABLE_PARTS,
    Acl,
    Broker,
    ClusterState,
    GroupOffset,
    GroupState,
    Part,
    PartOutcome,
    PartResult,
    ScramUser,
    Settings,
)
from kafka_drain.kafka.describing import ClusterDescriber, _topic_state, outcome_of


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, PartOutcome.NOT_AUTHORISED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, PartOutcome.NOT_AUTHORISED),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, PartOutcome.NOT_AUTHORISED),
        (KafkaError.UNSUPPORTED_VERSION, PartOutcome.UNSUPPORTED),
        (KafkaError._UNSUPPORTED_FEATURE, PartOutcome.UNSUPPORTED),
        (KafkaError.INVALID_REQUEST, PartOutcome.UNSUPPORTED),
        (KafkaError.SECURITY_DISABLED, PartOutcome.UNSUPPORTED),
        (KafkaError._TIMED_OUT, PartOutcome.UNANSWERED),
        (KafkaError._TRANSPORT, PartOutcome.UNANSWERED),
        (KafkaError.NOT_COORDINATOR, PartOutcome.UNANSWERED),
    ],
)
def test_outcome_of(code: int, outcome: PartOutcome) -> None:
    """Missing rights and missing requests are told from a broker that doesn't answer."""
    assert outcome_of(code) == outcome


def test_topic_state_config() -> None:
    """What is set on the topic and by brokers is kept apart; defaults and secrets are left out."""
    own, static = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
    entries = [
        ConfigEntry("retention.ms", "5", own.value),
        ConfigEntry("cleanup.policy", "compact", own.value),
        ConfigEntry("min.insync.replicas", "2", static.value),
        ConfigEntry("max.message.bytes", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value),
        ConfigEntry("segment.bytes", "7", ConfigSource.DEFAULT_CONFIG.value, is_default=True),
        ConfigEntry("secret", "x", own.value, is_sensitive=True),
        ConfigEntry("none", None, own.value),
    ]
    # A broker that has just started needn't list each partition.
    partitions = [SimpleNamespace(id=2, replicas=[1, 2]), SimpleNamespace(id=0, replicas=[])]
    described = SimpleNamespace(topic_id="id", partitions=partitions)

    found = _topic_state("orders", described, entries)

    assert [*found.config.items()] == [("cleanup.policy", "compact"), ("retention.ms", "5")]
    assert found.inherited == {"max.message.bytes": "9", "min.insync.replicas": "2"}
    assert (found.partitions, found.replication_factor, found.id) == (3, 2, "id")


def answered(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


class AclsOnly:
    """A cluster with an ACL on a topic and one on a group."""

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(cluster_id="c")

    def describe_cluster(self, **_: object) -> Future[Any]:
        allowed = [AclOperation.DESCRIBE]
        return answered(SimpleNamespace(cluster_id="c", authorized_operations=allowed))

    def describe_acls(self, *_: object, **__: object) -> Future[Any]:
        allows = (AclOperation.READ, AclPermissionType.ALLOW)
        return answered(
            [
                AclBinding(kind, name, ResourcePatternType.LITERAL, "User:a", "*", *allows)
                for kind, name in ((ResourceType.TOPIC, "t"), (ResourceType.GROUP, "g"))
            ]
        )


@pytest.mark.parametrize(
    ("about", "expected", "detail"),
    [
        (None, {"t"}, "without those on groups, which weren't captured"),
        (lambda acl: acl.is_about(["t"], ["g"]), {"t", "g"}, ""),
        (lambda acl: acl.is_about([], ["g"]), {"g"}, ""),
    ],
)
def test_describe_acls(
    about: Callable[[Acl], bool] | None, expected: set[str], detail: str
) -> None:
    """Without the groups it isn't known which ACLs on groups count, unless that is said."""
    describer = ClusterDescriber(KafkaConfig({"bootstrap.servers": "x:1"}))
    describer.__dict__["_admin"] = AclsOnly()

    found = describer.describe(["t"], [Part.ACLS], about)

    assert {acl.name for acl in found.settings.acls or ()} == expected
    assert (found.parts[Part.ACLS].outcome, found.parts[Part.ACLS].detail) == (
        PartOutcome.CAPTURED,
        detail,
    )


class Told(AclsOnly):
    """A cluster with a broker, two topics and some groups, of which it may refuse to tell.

    Attributes:
        refused: The code for each topic, group or request.
        may: Whether this user may describe the cluster.
        known: The groups that the client knows.
        others: Groups of other types: their protocols.
        offsets: The committed offsets of each group in partition 0 of a topic.
    """

    def __init__(self, **refused: int) -> None:
        self.refused = refused
        self.may = True
        self.known = ["b", "a"]
        self.others = dict[str, str]()
        self.offsets = {"a": {"t": 5, "u": -1001}, "b": dict[str, int]()}

    def answer(self, name: str, value: Any) -> Future[Any]:
        if name not in self.refused:
            return answered(value)
        future: Future[Any] = Future()
        future.set_exception(KafkaException(KafkaError(self.refused[name], "broker 7 at 12:00")))
        return future

    def list_topics(self, timeout: float) -> Any:
        topics = {name: SimpleNamespace(partitions=[0]) for name in ("t", "u", "v")}
        return SimpleNamespace(cluster_id="c", topics=topics)

    def describe_cluster(self, **how: object) -> Future[Any]:
        assert how.pop("include_authorized_operations")
        nodes = [SimpleNamespace(id=n, host=f"h{n}", port=9, rack=None) for n in (2, 1)]
        may = [AclOperation.DESCRIBE] if self.may else None
        return self.answer(
            "cluster", SimpleNamespace(cluster_id="c", authorized_operations=may, nodes=nodes)
        )

    def describe_topics(self, _: object, **__: object) -> dict[str, Future[Any]]:
        described = SimpleNamespace(topic_id="i", partitions=[SimpleNamespace(id=0, replicas=[1])])
        return {name: self.answer(name, described) for name in ("t", "u")}

    def describe_configs(self, resources: Any, **_: object) -> dict[Any, Future[Any]]:
        return {each: answered({}) for each in resources}

    def list_consumer_groups(self, **_: object) -> Future[Any]:
        type_, state = SimpleNamespace(name="CLASSIC"), SimpleNamespace(name="EMPTY")
        listed = [SimpleNamespace(group_id=name, type=type_, state=state) for name in self.known]
        errors = [KafkaError(self.refused[name]) for name in ("listing",) if name in self.refused]
        return answered(SimpleNamespace(valid=listed, errors=errors))

    def list_groups(self, **_: object) -> list[Any]:
        known = dict.fromkeys(self.known, "consumer")
        return [
            SimpleNamespace(id=name, protocol_type=protocol)
            for name, protocol in {**known, **self.others}.items()
        ]

    def describe_user_scram_credentials(self, **_: object) -> Future[Any]:
        info = SimpleNamespace(mechanism=SimpleNamespace(name="SCRAM_SHA_512"), iterations=4096)
        return self.answer("users", {"me": SimpleNamespace(scram_credential_infos=[info])})

    def describe_acls(self, *_: object, **__: object) -> Future[Any]:
        return self.answer("acls", super().describe_acls().result())

    def reader(self, _: KafkaConfig, group: str) -> Any:
        def committed(wanted: Any, timeout: float) -> list[Any]:
            self.answer(group, None).result()
            return [
                SimpleNamespace(
                    topic=each.topic,
                    partition=each.partition,
                    offset=self.offsets.get(group, {}).get(each.topic, -1001),
                    leader_epoch=3,
                    metadata=None,
                )
                for each in wanted
            ]

        return nullcontext(SimpleNamespace(committed=committed))


@pytest.fixture
def describe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ClusterState]:
    """Describes a cluster, as far as it concerns its topics `t` and `u`."""

    def ask(told: Told, **options: Any) -> ClusterState:
        monkeypatch.setattr(describing, "OffsetReader", told.reader)
        describer = ClusterDescriber(KafkaConfig({"bootstrap.servers": "x:1"}))
        describer.__dict__["_admin"] = told
        return describer.describe(["u", "t"], **options)

    return ask


Describe = Callable[..., ClusterState]
DENIED = KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_describe_partition_not_listed(describe: Describe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's offsets in a partition that a broker doesn't list, but must have, are asked for."""
    listed = SimpleNamespace(cluster_id="c", topics={"t": SimpleNamespace(partitions=[2, 0])})
    monkeypatch.setattr(Told, "list_topics", lambda *_, **__: listed)

    [group] = describe(Told()).groups or ()

    assert [(each.topic, each.partition) for each in group.offsets] == [("t", n) for n in range(3)]


def test_describe(describe: Describe) -> None:
    """All parts are told, in an order that doesn't depend on the answers'."""
    found = describe(Told())

    assert found.cluster_id == "c"
    assert found.parts == {
        part: PartResult(PartOutcome.CAPTURED, "")
        if part in ASKED
        else PartResult(PartOutcome.UNSUPPORTED, UNAVAILABLE_PARTS[part])
        for part in Part
    }
    assert found.groups == (GroupState("a", "classic", "empty", (GroupOffset("t", 0, 5, 3, ""),)),)
    settings = found.settings
    assert [topic.name for topic in settings.topics or ()] == ["t", "u"]
    assert settings.brokers == (Broker(1, "h1", 9, None), Broker(2, "h2", 9, None))
    assert settings.users == (ScramUser("me", "SCRAM-SHA-512", 4096),)
    # The other one is on a group without offsets.
    assert [acl.name for acl in settings.acls or ()] == ["t"]


@pytest.mark.parametrize(
    ("refused", "part", "outcome", "detail"),
    [
        ({"t": DENIED}, Part.TOPICS, PartOutcome.CAPTURED, "t: not_authorised"),
        (
            {"t": DENIED, "u": DENIED},
            Part.TOPICS,
            PartOutcome.NOT_AUTHORISED,
            "TOPIC_AUTHORIZATION_FAILED",
        ),
        ({"a": KafkaError._TRANSPORT}, Part.GROUPS, PartOutcome.CAPTURED, "a: unanswered"),
        # Groups of a broker that doesn't answer aren't gone.
        ({"listing": KafkaError._TRANSPORT}, Part.GROUPS, PartOutcome.UNANSWERED, "_TRANSPORT"),
        (
            {"acls": KafkaError.SECURITY_DISABLED},
            Part.ACLS,
            PartOutcome.UNSUPPORTED,
            "SECURITY_DISABLED",
        ),
        ({"users": KafkaError._TIMED_OUT}, Part.USERS, PartOutcome.UNANSWERED, "_TIMED_OUT"),
    ],
)
def test_describe_refused(
    refused: dict[str, int], part: Part, outcome: PartOutcome, detail: str, describe: Describe
) -> None:
    """What isn't told is noted in its part, in words that are the same each time."""
    found = describe(Told(**refused))

    assert found.parts[part] == PartResult(outcome, detail)
    captured = {each for each, result in found.parts.items() if result.outcome == "captured"}
    assert captured | {part} == set(ASKED)
    if refused.keys() == {"t"}:
        assert [topic.name for topic in found.settings.topics or ()] == ["u"]


def test_describe_unseen(describe: Describe) -> None:
    """Who may not describe the cluster sees some groups, and asks for neither ACLs nor users."""
    told = Told()
    told.may = False

    found = describe(told).parts

    assert found[Part.GROUPS].outcome == PartOutcome.CAPTURED
    assert "lacks DESCRIBE on the cluster" in found[Part.GROUPS].detail
    for part in (Part.ACLS, Part.USERS):
        assert found[part].outcome == PartOutcome.NOT_AUTHORISED


def test_describe_nobody(describe: Describe) -> None:
    """Without an answer, nothing is known, and nothing raised."""
    found = describe(Told(cluster=KafkaError._TRANSPORT), parts=[Part.TOPICS])

    assert (found.cluster_id, found.groups, found.settings) == ("", None, Settings())
    assert {found.parts[part].outcome for part in ASKED} == {PartOutcome.UNANSWERED}


def test_describe_groups_of_other_types(describe: Describe) -> None:
    """A group that the client can't describe counts by its offsets; without any, it is named."""
    told = Told()
    told.others = {"share": "", "streams": "", "connect": "connect"}
    told.offsets["streams"] = {"t": 0}

    found = describe(told)

    assert [(group.name, group.type, group.state) for group in found.groups or ()] == [
        ("a", "classic", "empty"),
        ("streams", "unknown", "unknown"),
    ]
    assert found.parts[Part.GROUPS].detail.startswith("share: of a type that this client can't")


def test_describe_groups_asked_for(describe: Describe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the groups that count are asked for, and so many at most."""
    told = Told()
    told.others = {"share": "", "streams": ""}
    told.offsets |= {"streams": {"t": 0}, "b": {"t": 1}}

    found = describe(told, parts=[Part.GROUPS], only=["a", "streams"])

    assert [group.name for group in found.groups or ()] == ["a", "streams"]
    assert found.parts[Part.GROUPS].detail == ""
    assert found.parts[Part.TOPICS].outcome == PartOutcome.OFF
    monkeypatch.setattr(describing, "MOST_GROUPS", 2)
    found = describe(told, parts=[Part.GROUPS])
    assert [group.name for group in found.groups or ()] == ["a", "b"]
    assert found.parts[Part.GROUPS].detail.endswith(
        "only the first 2 of the cluster's groups by name"
    )
    monkeypatch.setattr(describing, "MOST_GROUPS", 4)
    assert "only the first" not in describe(told).parts[Part.GROUPS].detail
    monkeypatch.setattr(describing, "GROUPS_SECONDS", -1)
    assert describe(told).parts[Part.GROUPS].detail.startswith("a: unanswered; b: unanswered")


def test_describe_groups_without_coordinator(
    describe: Describe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups that no broker lists, as their partition has no leader, aren't gone."""
    leaders = {n: SimpleNamespace(leader=at) for n, at in enumerate((1, -1))}
    topics = {
        "t": SimpleNamespace(partitions=[0]),
        "__consumer_offsets": SimpleNamespace(partitions=leaders),
    }
    listed = SimpleNamespace(cluster_id="c", topics=topics)
    monkeypatch.setattr(Told, "list_topics", lambda *_, **__: listed)

    found = describe(Told())

    assert (found.groups, found.parts[Part.GROUPS].outcome) == (None, PartOutcome.UNANSWERED)


def test_describe_acls_beside_untold_group(describe: Describe) -> None:
    """Which ACLs on an untold group count isn't known."""
    found = describe(Told(b=KafkaError.GROUP_AUTHORIZATION_FAILED))

    assert found.parts[Part.ACLS] == PartResult(
        PartOutcome.CAPTURED, "without those on groups that weren't described"
    )


def test_describe_deleted_topic(describe: Describe, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that there isn't any more leaves nothing unanswered."""
    listed = SimpleNamespace(cluster_id="c", topics={"u": SimpleNamespace(partitions=[0])})
    monkeypatch.setattr(Told, "list_topics", lambda *_, **__: listed)

    found = describe(Told(t=KafkaError.UNKNOWN_TOPIC_OR_PART))

    assert found.parts[Part.TOPICS] == PartResult(PartOutcome.CAPTURED, "")


def test_describe_without_token(describe: Describe) -> None:
    """A group's client that gets no token leaves that group unanswered."""

    def refuse(*_: object) -> Any:
        raise KafkaUnavailableError("there is no token for Kafka")

    told = Told()
    told.reader = refuse  # type: ignore[method-assign]

    found = describe(told)

    assert "a: unanswered" in found.parts[Part.GROUPS].detail


def test_describe_deleted_topics(describe: Describe, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many topics are gone, the list is asked for once."""
    asked: list[int] = []
    listed = SimpleNamespace(cluster_id="c", topics={})

    def told(*_: object, **__: object) -> Any:
        asked.append(1)
        return listed

    monkeypatch.setattr(Told, "list_topics", told)
    gone = KafkaError.UNKNOWN_TOPIC_OR_PART

    describe(Told(t=gone, u=gone))

    # The cluster's id, what is gone, and the groups' partitions.
    assert len(asked) == 3
