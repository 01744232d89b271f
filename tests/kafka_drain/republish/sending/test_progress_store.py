"""Reading progress: whose it is, what is waited for, and what is no progress; without a broker."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.errors import (
    AuthorizationError,
    DeliveryError,
    KafkaDrainError,
    KafkaUnavailableError,
    ProgressError,
)
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.shards import ProgressSlot
from kafka_drain.republish.sending import progress_store as module
from kafka_drain.republish.sending.progress_store import (
    MAX_CONSUMERS,
    ProgressStore,
    ShardProgress,
    entry,
)

SETTINGS = {"bootstrap.servers": "a:1", "client.id": "me"}
SLOT = ProgressSlot("g", TopicPartition("t", 0))
AT = ShardProgress(7, 5, "plan")


class Kafka:
    """The target's groups, and the consumers that ask for them.

    Attributes:
        held: What groups hold.
        now: Seconds that pass only where somebody waits.
        failing: What the next answers are instead; the last one again and again.
        refusal: What a poll says of why there is no answer.
        asked: Each question: its group, partitions and time-out.
        made: Settings of each consumer.
        closed: Groups of consumers that were closed.
    """

    def __init__(self) -> None:
        self.held: dict[ProgressSlot, Any] = {}
        self.now = 0.0
        self.failing: Callable[[], KafkaError | None] = lambda: None
        self.refusal: KafkaError | None = None
        self.asked: list[tuple[str, list[tuple[str, int]], float]] = []
        self.made: list[dict[str, Any]] = []
        self.closed: list[str] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 600, "waits for ever"

    def consumer(self, settings: dict[str, Any]) -> Any:
        self.made.append(settings)
        group = settings["group.id"]
        is_open = [True]

        def committed(asked: list[Any], timeout: float) -> list[Any]:
            assert is_open[0]
            self.asked.append((group, [(at.topic, at.partition) for at in asked], timeout))
            error = self.failing()
            if error is not None:
                self.now += timeout
                raise KafkaException(error)
            slots = [ProgressSlot(group, TopicPartition(at.topic, at.partition)) for at in asked]
            none = KafkaTopicPartition("", 0, OFFSET_INVALID)
            return [self.held.get(slot, none) for slot in slots]

        def poll(_: float) -> Any:
            error = self.refusal
            return None if error is None else SimpleNamespace(error=lambda: error)

        def close() -> None:
            is_open[0] = False
            self.closed.append(group)

        return SimpleNamespace(
            committed=committed,
            poll=poll,
            close=close,
            consumer_group_metadata=lambda: f"of {group}",
        )


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Kafka:
    kafka = Kafka()
    monkeypatch.setattr(module, "Consumer", kafka.consumer)
    monkeypatch.setattr(module, "time", kafka)
    return kafka


def test_read_of_each_group(kafka: Kafka) -> None:
    """Each slot gets what its own group holds of its own partition, asked for once."""
    slots = [
        ProgressSlot(group, TopicPartition(topic, partition))
        for group in ("g", "h")
        for topic, partition in (("t", 1), ("t", 0), ("u", 0))
    ]
    there = {slot: ShardProgress(at, 10 * at, f"p{at}") for at, slot in enumerate(slots[1:])}
    kafka.held = {slot: entry(slot, progress) for slot, progress in there.items()}

    found = ProgressStore(SETTINGS).read([*slots, slots[0]])

    assert found == {slots[0]: None, **there}
    asked = [("t", 1), ("t", 0), ("u", 0)]
    assert [question[:2] for question in kafka.asked] == [("g", asked), ("h", asked)]


@pytest.mark.parametrize("waits", [True, False])
def test_read_settings(kafka: Kafka, waits: bool) -> None:
    """A reader is in the group, commits nothing, and waits for transactions if it decides."""
    ProgressStore(SETTINGS, waits=waits).read([SLOT])

    [made] = kafka.made
    assert made.items() >= SETTINGS.items()
    assert (made["group.id"], made["enable.auto.commit"]) == ("g", False)
    assert made["isolation.level"] == ("read_committed" if waits else "read_uncommitted")
    # What a run that sends decides by is read by default.
    assert ProgressStore({})._isolation == "read_committed"


@pytest.mark.parametrize(
    "metadata",
    [None, "", "of a consumer", "[]", "{}", '{"records": 5}', '{"plan": "p", "records": "x"}'],
)
def test_read_foreign_metadata(kafka: Kafka, metadata: str | None) -> None:
    """An offset that a republish didn't commit is no progress, and nothing is sent after it."""
    kafka.held = {SLOT: SimpleNamespace(offset=0, metadata=metadata, error=None)}

    with pytest.raises(ProgressError, match=r"group g holds offset 0 of t.*another client"):
        ProgressStore(SETTINGS).read([SLOT])


@pytest.mark.parametrize("in_answer", [False, True])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaUnavailableError),
        (KafkaError._TIMED_OUT, KafkaUnavailableError),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (KafkaError.INVALID_GROUP_ID, DeliveryError),
    ],
)
def test_read_fails(kafka: Kafka, code: int, kind: type[KafkaDrainError], in_answer: bool) -> None:
    """What passes is asked again until the time is up, then it is an error, and never no answer."""
    waits = kind is KafkaUnavailableError
    error = KafkaError(code, "why")
    answer = SimpleNamespace(error=error, offset=OFFSET_INVALID)
    kafka.held = {SLOT: answer}
    kafka.failing = lambda: None if in_answer else error

    with pytest.raises(kind, match=r"the progress in group g.*why"):
        ProgressStore(SETTINGS).read([SLOT], timeout=30.0)

    assert len(kafka.asked) > 1 if waits else len(kafka.asked) == 1
    assert (30.0 <= kafka.now <= 35.1) if waits else kafka.now <= 5.0
    # No question is waited for longer than that, as one may be that nobody answers.
    assert {question[2] for question in kafka.asked} == {5.0}


def test_read_answer_later(kafka: Kafka) -> None:
    """What is answered within the time is progress, whatever came before."""
    errors = [KafkaError(code) for code in (KafkaError._TRANSPORT, KafkaError.NOT_COORDINATOR)]
    kafka.failing = lambda: errors.pop() if errors else None
    kafka.held = {SLOT: entry(SLOT, AT)}

    assert ProgressStore(SETTINGS).read([SLOT]) == {SLOT: AT}


def test_read_short_time(kafka: Kafka) -> None:
    """Who has less time isn't kept waiting for longer by a single question."""
    kafka.failing = lambda: KafkaError(KafkaError._TIMED_OUT)

    with pytest.raises(KafkaUnavailableError):
        ProgressStore(SETTINGS).read([SLOT], timeout=1.0)

    assert kafka.now == 1.0


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, AuthorizationError),
        (KafkaError._TRANSPORT, KafkaUnavailableError),
    ],
)
def test_read_refused_coordinator(kafka: Kafka, code: int, kind: type[KafkaDrainError]) -> None:
    """A refusal that the client hears of besides is told, and not waited for as silence is."""
    kafka.failing = lambda: KafkaError(KafkaError._TIMED_OUT, "silence")
    kafka.refusal = KafkaError(code, "refused")
    is_terminal = kind is AuthorizationError

    with pytest.raises(kind, match="refused" if is_terminal else "silence"):
        ProgressStore(SETTINGS).read([SLOT], timeout=20.0)

    assert (len(kafka.asked) == 1) is is_terminal


def test_read_connections(kafka: Kafka) -> None:
    """The least recently used group's connection is closed for one more; all of them at the end."""
    slots = [ProgressSlot(f"g{n}", TopicPartition("t", 0)) for n in range(MAX_CONSUMERS + 1)]
    store = ProgressStore(SETTINGS)

    store.read(slots[:-1])
    store.read(slots[:1])
    assert (len(kafka.made), kafka.closed) == (MAX_CONSUMERS, [])

    store.read(slots[-1:])
    assert (len(kafka.made), kafka.closed) == (MAX_CONSUMERS + 1, ["g1"])

    store.close()
    assert sorted(kafka.closed) == sorted(slot.group for slot in slots)
    store.close()
    assert len(kafka.closed) == len(slots)


def test_group_metadata_without_brokers(kafka: Kafka) -> None:
    """A group's name is all that is needed for it: nothing is connected, nor left open."""
    store = ProgressStore(SETTINGS)

    assert [store.group_metadata(group) for group in ("g", "h", "g")] == ["of g", "of h", "of g"]
    assert [made.get("bootstrap.servers") for made in kafka.made] == [None, None]
    assert kafka.closed == ["g", "h"]
