"""What a consumer's error becomes, and up to where records are read; without a broker."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from kafka_drain.errors import (
    AuthorizationError,
    KafkaDrainError,
    KafkaUnavailableError,
    SourceRecordError,
)
from kafka_drain.kafka import records
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.records import consumer_error, read_records
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.fake_message import FakeMessage


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (KafkaError.GROUP_AUTHORIZATION_FAILED, AuthorizationError, "READ on Group kafka-drain-v"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError, "a-1 .* READ on Topic a; add"),
        (KafkaError._BAD_MSG, SourceRecordError, "a-1 offset 5"),
        (KafkaError.INVALID_MSG, SourceRecordError, "a-1 offset 5"),
        (KafkaError._BAD_COMPRESSION, SourceRecordError, "batch of a-1 at offset 5.*700 MB unpack"),
        (KafkaError.UNKNOWN, KafkaUnavailableError, "a-1 from offset 5; the log of.*remote store"),
        (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaUnavailableError, "from offset 5; try again$"),
    ],
)
def test_consumer_error(code: int, kind: type[KafkaDrainError], says: str) -> None:
    """It names partition and offset; one without a reason says where the reason may be."""
    error = consumer_error(KafkaError(code, "why"), TopicPartition("a", 1), 5)

    assert type(error) is kind
    with pytest.raises(kind, match=says):
        raise error


def test_read_records_replica_behind() -> None:
    """A replica that hasn't learned yet of what the leader told doesn't lack its records."""
    tp = TopicPartition("a", 0)
    producer = Producer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "replaced:1", "log_level": 0}
    )

    def send(records: int) -> None:
        for _ in range(records):
            producer.produce(tp.topic, b"value", partition=tp.partition)
        producer.flush(10)

    send(5)
    [broker] = producer.list_topics(tp.topic).brokers.values()
    config = KafkaConfig({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    later = Timer(1, send, [1])
    later.start()

    batches = list(read_records(config, tp, OffsetRange(0, 6), "read_uncommitted"))

    later.join()
    assert [at for batch in batches for at in batch["offset"].to_pylist()] == [0, 1, 2, 3, 4, 5]


class Message(FakeMessage):
    """A record, or an event with the code of an error."""

    def __init__(self, offset: int, code: int | None = None, *, kind: int = 1) -> None:
        super().__init__(
            offset,
            code,
            topic="a",
            partition=0,
            key=None,
            value=b"v%d" % offset,
            headers=[("h", b"1"), ("h", None)],
            timestamp=(kind, 1_000 + offset),
        )


class Reader:
    """A `ReadingClient` with answers, of which an empty one takes 15 seconds.

    Attributes:
        read: The offsets that were read from.
        outdated_after: Numbers of answers after which another consumer is needed.
    """

    outdated_after: tuple[int, ...] = ()

    def __init__(self, clock: list[float], answers: Iterable[list[Message]]) -> None:
        self._clock, self._answers = clock, list(answers)
        self.settings: dict[str, Any] = {}
        self.read: list[tuple[TopicPartition, int]] = []
        self.taken = self.closed = 0

    def __call__(self, config: KafkaConfig, settings: dict[str, Any]) -> Reader:
        self.settings = settings
        return self

    def read_from(self, tp: TopicPartition, offset: int, *, heard: Callable[[str], None]) -> None:
        heard('{"topics": {}}')
        self.read.append((tp, offset))

    @property
    def is_outdated(self) -> bool:
        return self.taken in self.outdated_after

    def take(self, most: int, seconds: float) -> list[Message]:
        self.taken += 1
        answer = self._answers.pop(0) if self._answers else []
        self._clock[0] += 0 if answer else 15
        return answer

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Reader]:
    """Makes the client that is used."""
    clock = [0.0]
    monkeypatch.setattr("kafka_drain.kafka.fetch_watch.time.monotonic", lambda: clock[0])

    def make(*answers: list[Message]) -> Reader:
        made = Reader(clock, answers)
        monkeypatch.setattr(records, "ReadingClient", made)
        return made

    return make


A0 = TopicPartition("a", 0)
CONFIG = KafkaConfig({"bootstrap.servers": "k:1"})


def read(first: int, end: int, isolation_level: str = "read_committed") -> list[int]:
    found = read_records(CONFIG, A0, OffsetRange(first, end), isolation_level)
    return [offset for batch in found for offset in batch["offset"].to_pylist()]


def test_read_records(reader: Callable[..., Reader]) -> None:
    """Records have the columns of data files, and none is given that isn't wanted."""
    made = reader([Message(2), Message(3, kind=2), Message(5)])

    [batch] = read_records(CONFIG, A0, OffsetRange(2, 5), "read_committed")

    assert batch.to_pylist() == [
        {
            "key": None,
            "value": value,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "topic": "a",
            "partition": 0,
            "offset": offset,
            "timestamp": datetime(1970, 1, 1, 0, 0, 1, offset * 1_000, timezone.utc),
            "timestampType": kind,
        }
        for offset, value, kind in ((2, b"v2", 0), (3, b"v3", 1))
    ]
    assert (made.read, made.taken, made.closed) == ([(A0, 2)], 1, 1)
    # Nobody else's group is joined, and no record is skipped or taken unchecked.
    assert (
        made.settings
        | {
            "isolation.level": "read_committed",
            "group.id": records.GROUP,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
        == made.settings
    )


END, DAMAGED, AWAY = (
    KafkaError._PARTITION_EOF,
    KafkaError._BAD_MSG,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([[Message(2)], [Message(3), Message(4)]], [2, 3, 4]),
        # What follows the span isn't waited for, and may be unreadable.
        ([[Message(4), Message(5, DAMAGED)]], [4]),
        # The partition ends at the span's end, with markers or aborted records before.
        ([[Message(2), Message(5, END)]], [2]),
        ([[Message(6, END)]], []),
        # A replica that has yet to learn of the rest.
        ([[Message(2)], [Message(4, END)], [Message(4)]], [2, 4]),
        # The first record behind it shows that nothing more comes.
        ([[Message(2)], [Message(7)]], [2]),
    ],
)
def test_read_records_ends(
    answers: list[list[Message]], found: list[int], reader: Callable[..., Reader]
) -> None:
    """The last record of the span ends it, or what shows that there is none."""
    made = reader(*answers)

    assert read(2, 5) == found

    assert (made.taken, made.closed) == (len(answers), 1)


@pytest.mark.parametrize(
    ("answers", "kind", "says"),
    [
        ([[Message(2)], [Message(3, DAMAGED)]], SourceRecordError, "a-0 offset 3"),
        ([[Message(2), Message(3, AWAY)]], KafkaUnavailableError, "from offset 3; try again"),
        ([[Message(2)], [], []], KafkaUnavailableError, "within 20 s .* a-0 from offset 3"),
    ],
)
def test_read_records_fails(
    answers: list[list[Message]],
    kind: type[KafkaDrainError],
    says: str,
    reader: Callable[..., Reader],
) -> None:
    """An error, or a silence, before the span's end is told with the offset that was reached."""
    made = reader(*answers)

    with pytest.raises(kind, match=says):
        read(2, 5)

    assert made.closed == 1


def test_read_records_outdated(reader: Callable[..., Reader]) -> None:
    """Another consumer reads on where the one before has come to."""
    made = reader([Message(2), Message(3)], [], [Message(4)])
    made.outdated_after = (1,)

    assert read(2, 5, "read_uncommitted") == [2, 3, 4]
    assert made.read == [(A0, 2), (A0, 4)]
    assert made.settings["isolation.level"] == "read_uncommitted"


def test_read_records_used_slowly(reader: Callable[..., Reader]) -> None:
    """The time that the caller takes for a batch isn't Kafka's silence."""
    made = reader([Message(2)], [], [Message(4)])

    for _ in read_records(CONFIG, A0, OffsetRange(2, 5), "read_committed"):
        made._clock[0] += 30


@pytest.mark.parametrize(
    ("milliseconds", "expected"),
    [(5, 5_000), (-1, -1_000), ((1 << 63) - 1, -1_000), (-(1 << 63), 0)],
)
def test_microseconds(milliseconds: int, expected: int) -> None:
    """A time that doesn't fit into 64 bits gets another one that does."""
    assert records.microseconds(milliseconds) == expected
