"""Single records, and their sizes, from a few places of a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Timer
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from kafka_drain.data_files.record_hash import record_hash
from kafka_drain.errors import AuthorizationError, KafkaUnavailableError, SourceRecordError
from kafka_drain.kafka import single_records
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.records import GROUP
from kafka_drain.kafka.single_records import (
    RecordSample,
    read_single_records,
    read_times,
    sample_records,
)
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.fake_message import FakeMessage

A0 = TopicPartition("a.b-1", 0)


@pytest.fixture
def servers() -> Iterator[str]:
    """A broker of librdkafka, with 60 MB in a partition: batches of a megabyte in 250 bytes."""
    producer = Producer(
        {
            "test.mock.num.brokers": 1,
            "bootstrap.servers": "replaced:1",
            "compression.type": "zstd",
            "linger.ms": 60_000,
            "queue.buffering.max.kbytes": 100_000,
            "log_level": 0,
        }
    )
    for number in range(600):
        producer.produce(A0.topic, b"%010d" % number + b"x" * 99_990, partition=A0.partition)
    assert producer.flush(60) == 0
    [broker] = producer.list_topics(A0.topic).brokers.values()
    yield f"{broker.host}:{broker.port}"
    # The broker ends with its producer.
    del producer


def test_sample_records(servers: str) -> None:
    """Several places of a partition are looked at one after another; behind its end is none."""
    config = KafkaConfig({"bootstrap.servers": servers})

    samples = sample_records(config, [{A0: 0}, {A0: 300}, {A0: 599}, {A0: 600}])

    assert samples == [RecordSample(A0, 100_000)] * 3


def test_single_records_replica_behind() -> None:
    """A replica that hasn't learned yet of what the leader told doesn't lack a record."""
    producer = Producer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "replaced:1", "log_level": 0}
    )

    def send(records: int) -> None:
        for _ in range(records):
            producer.produce(A0.topic, b"value", partition=A0.partition)
        producer.flush(10)

    send(5)
    [broker] = producer.list_topics(A0.topic).brokers.values()
    config = KafkaConfig({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    later = Timer(1, send, [1])
    later.start()

    found = read_single_records(config, {A0: 5}, ends={A0: 6})

    later.join()
    assert found[A0].offset == 5
    assert read_single_records(config, {A0: 6}, ends={A0: 6}) == {}


class Message(FakeMessage):
    """A record of a partition, or an event; one without a partition is of the client."""

    def __init__(self, partition: int | None, offset: int = 0, code: int | None = None) -> None:
        super().__init__(
            offset,
            code,
            topic=None if partition is None else "t",
            partition=partition,
            timestamp=(2, 1_000 + offset),
            key=None,
            value=b"12345",
            headers=[("h", b"1")],
            leader_epoch=-1 if offset == 7 else 3,
        )


class Reader:
    """A consumer that returns messages; then nothing more, for a second each time."""

    def __init__(self, clock: list[float], *messages: Message) -> None:
        self._clock, self._messages = clock, list(messages)
        self.settings: dict[str, Any] = {}
        self.assigned: list[list[tuple[int, int]]] = []
        self.unassigned: list[int] = []
        self.opened = self.closed = 0

    def __call__(self, settings: dict[str, Any]) -> Reader:
        self.settings = settings
        self.opened += 1
        return self

    def assign(self, partitions: list[Any]) -> None:
        self.assigned.append([(each.partition, each.offset) for each in partitions])

    def incremental_unassign(self, partitions: list[Any]) -> None:
        self.unassigned += [each.partition for each in partitions]

    def poll(self, seconds: float) -> Message | None:
        if not self._messages:
            self._clock[0] += seconds
            return None
        return self._messages.pop(0)

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Reader]:
    """Makes the consumer that is used."""
    clock = [0.0]
    monkeypatch.setattr("kafka_drain.kafka.fetch_watch.time.monotonic", lambda: clock[0])

    def make(*messages: Message) -> Reader:
        made = Reader(clock, *messages)
        monkeypatch.setattr(single_records, "Consumer", made)
        return made

    return make


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = KafkaConfig({"bootstrap.servers": "k:1"})
EOF = KafkaError._PARTITION_EOF


def test_read_single_records(reader: Callable[..., Reader]) -> None:
    """One record of each partition, as its hash with headers and without; later ones are left."""
    made = reader(Message(1, 7), Message(1, 8), Message(0, 5))

    found = read_single_records(CONFIG, {T1: 6, T0: 5}, "read_committed")

    assert {tp: (seen.offset, seen.leader_epoch) for tp, seen in found.items()} == {
        T1: (7, None),
        T0: (5, 3),
    }
    of_record = ("t", 0, 5, 1_005_000, 1, None, b"12345")
    hashes = (record_hash(*of_record), record_hash(*of_record, [("h", b"1")]))
    assert found[T0].hashes == {f"{value:016x}" for value in hashes}
    assert made.assigned == [[(0, 5), (1, 6)]]
    assert (made.unassigned, made.closed) == ([1, 0], 1)
    assert (
        made.settings
        | {
            "isolation.level": "read_committed",
            "group.id": GROUP,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
        == made.settings
    )


@pytest.mark.parametrize(
    ("events", "found"),
    [
        # The end, an offset that was deleted meanwhile: there is nothing.
        ([Message(0, 5, EOF)], {}),
        ([Message(0, 0, KafkaError._AUTO_OFFSET_RESET)], {}),
        ([Message(0, 0, KafkaError.OFFSET_OUT_OF_RANGE)], {}),
        # Not of a partition, or of the group, of which nothing is needed.
        ([Message(None, 0, KafkaError._TRANSPORT), Message(0, 5)], {T0: 5}),
        ([Message(None, 0, KafkaError.GROUP_AUTHORIZATION_FAILED), Message(0, 5)], {T0: 5}),
        ([Message(0, 0, KafkaError.GROUP_AUTHORIZATION_FAILED), Message(0, 5)], {T0: 5}),
    ],
)
def test_read_single_records_events(
    events: list[Message], found: dict[TopicPartition, int], reader: Callable[..., Reader]
) -> None:
    """An event ends the search of a partition only if it says that there is no record."""
    made = reader(*events)

    records = read_single_records(CONFIG, {T0: 5}, ends={T0: 5})

    assert {tp: seen.offset for tp, seen in records.items()} == found
    assert made.closed == 1


@pytest.mark.parametrize(
    ("events", "kind", "says"),
    [
        ([Message(0, 0, KafkaError._BAD_MSG)], SourceRecordError, "t-0 offset 5"),
        ([Message(0, 0, KafkaError.UNKNOWN)], KafkaUnavailableError, "t-0 from offset 5"),
        ([], KafkaUnavailableError, "within 20 s when reading t-0 from offset 5"),
        # A replica that never learns of the rest.
        ([Message(0, 5, EOF)], KafkaUnavailableError, "within 20 s"),
    ],
)
def test_read_single_records_fails(
    events: list[Message], kind: type[Exception], says: str, reader: Callable[..., Reader]
) -> None:
    """What can't be read isn't a record that is missing."""
    made = reader(*events)

    with pytest.raises(kind, match=says):
        read_single_records(CONFIG, {T0: 5}, ends={T0: 6})

    assert made.closed == 1


def test_read_times(reader: Callable[..., Reader]) -> None:
    """So many records of each partition as are wanted, or as it has."""
    reader(Message(0, 5), Message(1, 5), Message(0, 6), Message(0, 7), Message(1, 6, EOF))

    found = read_times(CONFIG, {T0: 5, T1: 5}, 2, {T0: 8, T1: 6})

    assert found == {T0: [(5, 1005), (6, 1006)], T1: [(5, 1005)]}


def test_read_times_replica_behind(reader: Callable[..., Reader]) -> None:
    """A replica that hasn't learned yet of what the leader told doesn't end the partition."""
    reader(Message(0, 5), Message(0, 6, EOF), Message(0, 6), Message(0, 7, EOF))

    assert read_times(CONFIG, {T0: 5}, 9, {T0: 7}) == {T0: [(5, 1005), (6, 1006)]}


def test_sample_records_of_many(
    reader: Callable[..., Reader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Partitions are read in groups, with one client; one that was read is read again elsewhere."""
    monkeypatch.setattr(single_records, "TOGETHER", 1)
    made = reader(Message(0, 5), Message(1, 5), Message(0, 9))

    found = sample_records(CONFIG, [{T0: 5, T1: 5}, {T0: 9}])

    # The value has five bytes, the header's name and value one each.
    assert found == [RecordSample(tp, 7) for tp in (T0, T1, T0)]
    assert made.assigned == [[(0, 5)], [(1, 5)], [(0, 9)]]
    assert (made.unassigned, made.opened, made.closed) == ([0, 1, 0], 1, 1)


@pytest.mark.parametrize("code", [KafkaError._BAD_MSG, KafkaError.UNKNOWN])
def test_sample_records_ends(code: int, reader: Callable[..., Reader]) -> None:
    """What can't be read ends the search; a missing permission is told."""
    reader(Message(0, 5), Message(1, 0, code))
    assert sample_records(CONFIG, [{T0: 5}, {T1: 5}]) == [RecordSample(T0, 7)]

    reader(Message(0, 0, KafkaError.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(AuthorizationError):
        sample_records(CONFIG, [{T0: 5}])
