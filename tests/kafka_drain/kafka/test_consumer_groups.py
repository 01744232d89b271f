"""What a cluster is asked about consumer groups, and what its answers mean; without a broker."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.errors import (
    AuthorizationError,
    ConfigError,
    GroupError,
    GroupInUseError,
    KafkaDrainError,
    TopicError,
)
from kafka_drain.kafka import consumer_groups
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups, Group, Member, OffsetReader
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.fake_admin import FakeAdmin

SECONDS = 7.0
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = SimpleNamespace(client_id="c-1", host="/10.0.0.1")


class Coordinator:
    """Answers for the group `g`, and notes what it is asked to change.

    Attributes:
        code: The error of each answer; None for none.
        in_partition: The error of partition 1.
        state: The group's state.
        members: Its members.
        listed: The groups that the request lists that knows all types.
        committed: Its offsets.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self.in_partition: int | None = None
        self.state = "EMPTY"
        self.members: list[Any] = []
        self.listed: list[str] = []
        self.committed: dict[TopicPartition, tuple[int, str | None]] = {}
        self.changed: list[Any] = []
        self.consumers: list[dict[str, Any]] = []
        self.closed = 0

    def poll(self, _: float) -> int:
        return 0

    def _answer(self, value: Any, how: dict[str, Any]) -> dict[str, Future[Any]]:
        assert how == {"request_timeout": SECONDS}
        future: Future[Any] = Future()
        if self.code is None:
            future.set_result(value)
        else:
            future.set_exception(KafkaException(KafkaError(self.code, "why")))
        return {"g": future}

    def describe_consumer_groups(self, names: list[str], **how: Any) -> dict[str, Future[Any]]:
        assert names == ["g"]
        state = SimpleNamespace(name=self.state)
        return self._answer(SimpleNamespace(state=state, members=self.members), how)

    def list_groups(self, *names: str, timeout: float) -> list[str]:
        assert (names, timeout) == (("g",), SECONDS)
        return self.listed

    def alter_consumer_group_offsets(
        self, requests: list[Any], **how: Any
    ) -> dict[str, Future[Any]]:
        [request] = requests
        partitions = request.topic_partitions
        self.changed.append(
            (request.group_id, [(p.topic, p.partition, p.offset, p.metadata) for p in partitions])
        )
        return self._answer(SimpleNamespace(topic_partitions=self._told(partitions)), how)

    def delete_consumer_groups(self, names: list[str], **how: Any) -> dict[str, Future[Any]]:
        self.changed.append(names)
        return self._answer(None, how)

    def list_topics(self, *, timeout: float) -> Any:
        assert timeout == SECONDS
        topics = {"t": [1], **{name: [0] for name in INTERNAL_TOPICS}}
        return SimpleNamespace(
            topics={name: SimpleNamespace(partitions=numbers) for name, numbers in topics.items()}
        )

    def _told(self, partitions: list[Any]) -> list[Any]:
        code = self.in_partition
        return [
            SimpleNamespace(
                topic=each.topic,
                partition=each.partition,
                offset=offset,
                metadata=metadata,
                error=KafkaError(code, "why") if code is not None and each.partition == 1 else None,
            )
            for each in partitions
            for offset, metadata in [
                self.committed.get(TopicPartition(each.topic, each.partition), (-1001, None))
            ]
        ]

    def consumer(self, settings: dict[str, Any]) -> Any:
        self.consumers.append(settings)

        def committed(wanted: list[KafkaTopicPartition], timeout: float) -> list[Any]:
            assert timeout == SECONDS
            return self._told(wanted)

        def poll(_: float) -> None:
            settings["error_cb"](KafkaError(KafkaError._AUTHENTICATION, "refused"))

        def close() -> None:
            self.closed += 1

        return SimpleNamespace(committed=committed, poll=poll, close=close)


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    """The cluster that answers."""
    made = Coordinator()
    monkeypatch.setattr(consumer_groups, "Consumer", made.consumer)
    return made


@pytest.fixture
def groups(kafka: Coordinator) -> ConsumerGroups:
    """Its groups."""
    made = ConsumerGroups(KafkaConfig({"bootstrap.servers": "k:1"}), SECONDS)
    cast(Any, made).admin = FakeAdmin(cast(Any, kafka), SECONDS)
    return made


@pytest.mark.parametrize(
    ("state", "code", "listed", "found"),
    [
        ("EMPTY", None, [], "EMPTY"),
        ("STABLE", None, [], "STABLE"),
        # A group of another type is described as if there were none.
        ("DEAD", None, ["g"], "UNTOLD"),
        ("DEAD", None, [], "DEAD"),
        ("EMPTY", KafkaError.GROUP_ID_NOT_FOUND, ["g"], "UNTOLD"),
        ("EMPTY", KafkaError.GROUP_ID_NOT_FOUND, [], "DEAD"),
    ],
)
def test_describe(
    state: str,
    code: int | None,
    listed: list[str],
    found: str,
    kafka: Coordinator,
    groups: ConsumerGroups,
) -> None:
    """A group that can't be described isn't taken for one that doesn't exist."""
    kafka.state, kafka.code, kafka.listed = state, code, listed

    assert groups.describe("g") == Group("g", found)


@pytest.mark.parametrize(
    ("state", "members", "is_idle", "exists"),
    [
        ("EMPTY", (), True, True),
        ("DEAD", (), True, False),
        ("STABLE", (), False, True),
        ("UNTOLD", (), False, True),
        ("PREPARING_REBALANCING", (), False, True),
        ("EMPTY", (Member("c", "h"),), False, True),
    ],
)
def test_is_idle(state: str, members: tuple[Member, ...], is_idle: bool, exists: bool) -> None:
    """Only of a group without members, or that doesn't exist, nobody reads."""
    group = Group("g", state, members)

    assert (group.is_idle, group.exists) == (is_idle, exists)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (0, "is STABLE with 0 members"),
        (1, "is STABLE with 1 member: c-1 at 10.0.0.1"),
        (2, "is STABLE with 2 members: c-1 at 10.0.0.1, c-1 at 10.0.0.1"),
        (10, "is STABLE with 10 members: " + ", ".join(["c-1 at 10.0.0.1"] * 10)),
        (11, "is STABLE with 11 members: " + ", ".join(["c-1 at 10.0.0.1"] * 10) + " …"),
    ],
)
def test_who(members: int, said: str) -> None:
    """Ten members are named at most; where nobody can know them, that is said."""
    assert Group("g", "UNTOLD").who().startswith("is of a type that this client can't describe")
    assert Group("g", "STABLE", (Member("c-1", "/10.0.0.1"),) * members).who() == said


def test_idle(kafka: Coordinator, groups: ConsumerGroups) -> None:
    """A group with members is refused, with who they are."""
    assert groups.idle("g", "x") == Group("g", "EMPTY")
    kafka.state, kafka.members = "STABLE", [MEMBER]

    with pytest.raises(GroupInUseError, match=r"g is STABLE .* c-1 at 10.0.0.1; x needs a group"):
        groups.idle("g", "x")


def test_committed(kafka: Coordinator, groups: ConsumerGroups) -> None:
    """Offsets that are pending in a transaction are waited for; a partition may have none."""
    kafka.committed = {T0: (5, "m"), TopicPartition("t", 3): (0, None)}
    wanted = [T0, T1, TopicPartition("t", 3)]

    assert groups.committed("g", wanted) == {
        T0: Committed(5, "m"),
        TopicPartition("t", 3): Committed(0),
    }

    [settings] = kafka.consumers
    assert (
        settings
        | {
            "group.id": "g",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
        == settings
    )
    assert kafka.closed == 1
    assert groups.committed("g", []) == {}
    assert len(kafka.consumers) == 1


def test_all_committed(kafka: Coordinator, groups: ConsumerGroups) -> None:
    """All partitions of all topics are asked for, listed or not, but not of Kafka's own."""
    internal = TopicPartition(min(INTERNAL_TOPICS), 0)
    kafka.committed = {T0: (5, ""), T1: (6, ""), internal: (7, "")}

    assert groups.all_committed("g") == {T0: Committed(5), T1: Committed(6)}


def test_commit(kafka: Coordinator, groups: ConsumerGroups) -> None:
    """Offsets are committed with their metadata."""
    groups.commit("g", {})
    assert kafka.changed == []

    groups.commit("g", {T0: Committed(5, "m"), T1: Committed(0)})

    assert kafka.changed == [("g", [("t", 0, 5, "m"), ("t", 1, 0, "")])]


def test_delete(kafka: Coordinator, groups: ConsumerGroups) -> None:
    """A group that isn't there is deleted already."""
    groups.delete("g")
    kafka.code = KafkaError.GROUP_ID_NOT_FOUND
    groups.delete("g")

    assert kafka.changed == [["g"]] * 2


Ask = Callable[[ConsumerGroups], object]
ASKS: dict[str, Ask] = {
    "READ": lambda groups: groups.commit("g", {T1: Committed(5)}),
    "DELETE": lambda groups: groups.delete("g"),
    "DESCRIBE": lambda groups: groups.describe("g"),
}


@pytest.mark.parametrize("operation", ASKS)
@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError.UNKNOWN_MEMBER_ID, GroupInUseError, "has members by now"),
        (KafkaError.NON_EMPTY_GROUP, GroupInUseError, "has members by now"),
        (KafkaError.REBALANCE_IN_PROGRESS, GroupInUseError, "has members by now"),
        (KafkaError.ILLEGAL_GENERATION, GroupInUseError, "has members by now"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, AuthorizationError, "the ACL {} on Group g; add"),
        (KafkaError.INVALID_GROUP_ID, ConfigError, "group 'g' or the Kafka connection's settings"),
        (KafkaError._INVALID_ARG, ConfigError, "group 'g' or the Kafka connection's settings"),
        (KafkaError.OFFSET_METADATA_TOO_LARGE, GroupError, "raise offset.metadata.max.bytes"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicError, "whether it was deleted in the meantime"),
        (KafkaError._UNKNOWN_TOPIC, TopicError, "whether it was deleted in the meantime"),
        (KafkaError.INVALID_REQUEST, GroupError, "responded for group g: why"),
    ],
)
def test_refused(
    operation: str,
    code: int,
    kind: type[KafkaDrainError],
    says: str,
    kafka: Coordinator,
    groups: ConsumerGroups,
) -> None:
    """What Kafka refuses is told by what helps: nothing, a stopped consumer, an ACL, a setting."""
    kafka.code = code

    with pytest.raises(kind, match=says.format(operation)) as caught:
        ASKS[operation](groups)

    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("ask", "acl"),
    [
        (ASKS["READ"], "READ"),
        (lambda groups: groups.committed("g", [T0, T1]), "DESCRIBE"),
    ],
)
def test_refused_in_partition(
    ask: Ask, acl: str, kafka: Coordinator, groups: ConsumerGroups
) -> None:
    """What is refused in one partition isn't done."""
    kafka.in_partition = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(AuthorizationError, match=f"the ACL {acl} on each topic"):
        ask(groups)
    kafka.in_partition = KafkaError.GROUP_AUTHORIZATION_FAILED
    with pytest.raises(AuthorizationError, match=f"the ACL {acl} on Group g; add"):
        ask(groups)
    kafka.in_partition = KafkaError.UNKNOWN_TOPIC_OR_PART
    with pytest.raises(TopicError):
        ask(groups)

    assert kafka.closed == len(kafka.consumers)


def test_offset_reader_notes(kafka: Coordinator) -> None:
    """A refused login is heard while offsets are waited for."""
    noted = list[int]()
    kafka.in_partition = KafkaError._TRANSPORT
    config = KafkaConfig({"bootstrap.servers": "k:1"})

    reader = OffsetReader(config, "g", lambda error: noted.append(error.code()))
    with reader, pytest.raises(KafkaException):
        reader.committed([KafkaTopicPartition("t", 1)], SECONDS)

    assert noted == [KafkaError._AUTHENTICATION]
    with OffsetReader(config, "g"):
        assert "error_cb" not in kafka.consumers[-1]
