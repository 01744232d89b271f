"""A topic as its producers and consumers know it: what was sent, and what Kafka still holds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from demo.broker import KafkaCluster
from tests.faults.injection import wait_for
from tests.sequences.logs import cut_log, remove_segment

__all__ = ["DAY", "PARTITIONS", "Place", "Record", "Topic", "hurry_cleaner", "read_records"]

PARTITIONS = 2
DAY = 1_768_003_200_000  # 2026-01-10 00:00 UTC, in milliseconds
DAY_LENGTH = 86_400_000
HOUR = 3_600_000

#: Key, value, headers, timestamp in milliseconds.
Record = tuple[bytes | None, bytes | None, tuple[Any, ...], int]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where a record was: in which life of the topic, by its id, and at which offset.

    What was there before the log was cut is another place, with a lower `cut`: the number of the
    newest cut that had taken the offset away.
    """

    life: str
    partition: int
    offset: int
    cut: int = 0


@dataclass
class Topic:
    """A topic of two partitions; each record that was ever committed to it is remembered.

    Attributes:
        bootstrap: The broker.
        name: The topic.
        is_compacted: Whether Kafka compacts it.
        chance: Decides what is sent.
        broker: The broker, if its logs may be damaged; None if it is others' as well.
        life: The topic's id; another one after it was made again.
        committed: Every record that a `read_committed` consumer could ever read.
        lives: The ids that it had, oldest first.
        cuts: The first offset that each cut took away, by life and partition.
        holes: Records that a lost segment took away, before the log's end.
    """

    bootstrap: str
    name: str
    is_compacted: bool
    chance: random.Random
    broker: KafkaCluster | None = None
    life: str = ""
    committed: dict[Place, Record] = field(default_factory=dict)
    lives: list[str] = field(default_factory=list)
    cuts: dict[tuple[str, int], list[int]] = field(default_factory=dict)
    holes: set[Place] = field(default_factory=set)
    _sent: int = 0

    def __post_init__(self) -> None:
        self._connect()
        # So that a segment can be lost: each batch gets its own.
        self.has_segments = self.broker is not None and (
            self.is_compacted or self.chance.random() < 0.7
        )
        self._make()

    def _connect(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._producer = Producer({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self._transactional = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": self.name,
                "log_level": 0,
            }
        )
        self._transactional.init_transactions(30)

    def _make(self) -> None:
        # By default, Kafka 4 refuses what is dated an hour ahead.
        config = {"retention.ms": "-1", "message.timestamp.after.max.ms": str((1 << 63) - 1)}
        if self.has_segments:
            config |= {"segment.ms": "1"}
        if self.is_compacted:
            # With delete: otherwise DeleteRecords is refused.
            config |= {
                "cleanup.policy": "compact,delete",
                "segment.ms": "1",
                "min.cleanable.dirty.ratio": "0.01",
            }

        def is_made() -> bool:
            new = NewTopic(self.name, PARTITIONS, 1, config=config)
            try:
                self.admin.create_topics([new])[self.name].result(30)
            except KafkaException as error:
                # One that was deleted goes on being there for a moment.
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        wait_for(is_made, f"topic {self.name}")
        wait_for(lambda: self._id() not in ("", self.life), f"the id of {self.name}")
        self.life = self._id()
        self.lives.append(self.life)
        self.holes = set()

    def _id(self) -> str:
        from confluent_kafka import TopicCollection

        futures = self.admin.describe_topics(TopicCollection([self.name]))
        try:
            return str(futures[self.name].result(30).topic_id)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
            return ""

    def produce(self, number: int) -> None:
        """Send records, some with a key that was there before."""
        self._send(self._producer, number)
        assert self._producer.flush(30) == 0
        self.look()

    def transact(self, number: int, *, commit: bool) -> None:
        """Send a transaction, and commit or abort it."""
        self._transactional.begin_transaction()
        self._send(self._transactional, number)
        assert self._transactional.flush(30) == 0
        if commit:
            self._transactional.commit_transaction(30)
        else:
            self._transactional.abort_transaction(30)
        # The markers are written after the answer.
        wait_for(
            lambda: self._ends("read_committed") == self._ends("read_uncommitted"),
            f"the markers in {self.name}",
        )
        self.look()

    def _send(self, producer: Producer, number: int) -> None:
        for _ in range(number):
            self._sent += 1
            producer.produce(
                self.name,
                # Each value once: who reads it twice reads a record twice.
                None if self._sent % 37 == 0 else b"record %05d" % self._sent,
                b"key %d" % self.chance.randrange(5) if self.is_compacted else b"%d" % self._sent,
                partition=self.chance.randrange(PARTITIONS),
                timestamp=self._timestamp(),
                headers=[("n", b"%d" % self._sent), ("empty", None)] if self._sent % 4 else None,
            )

    def _timestamp(self) -> int:
        """Return a time of the day, or now and then one by a clock that is wrong.

        Not one up to a day after the day's end: that is in order for a record of the next day.
        """
        right = DAY + self._sent * 1000
        if self.chance.random() < 0.9:
            return right
        ahead = (
            *(right + self.chance.randrange(20) * HOUR, right + 30 * DAY_LENGTH),
            # In six years; and microseconds instead of milliseconds.
            *(right + 2_000 * DAY_LENGTH, right * 1000),
        )
        return self.chance.choice(ahead)

    def is_of_day(self, place: Place) -> bool:
        """Return whether a record belongs to the day, whatever lies before it."""
        return DAY <= self.committed[place][3] < DAY + DAY_LENGTH

    def _ends(self, isolation: str) -> dict[int, int]:
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.latest(), isolation)

    def _offsets(self, wanted: Any, isolation: str) -> dict[int, int]:
        from confluent_kafka import IsolationLevel

        answers = self.admin.list_offsets(
            {KafkaTopicPartition(self.name, partition): wanted for partition in range(PARTITIONS)},
            isolation_level=IsolationLevel[isolation.upper()],
        )
        return {tp.partition: future.result(30).offset for tp, future in answers.items()}

    def look(self) -> dict[Place, Record]:
        """Read what Kafka holds now, and remember it."""
        found = {
            self.place(partition, offset): record
            for partition, records in read_records(self.bootstrap, self.name).items()
            for offset, record in records
        }
        self.committed |= found
        return found

    def place(self, partition: int, offset: int) -> Place:
        """Return the place of what is at an offset now, or would be."""
        cuts = enumerate(self.cuts.get((self.life, partition), ()), 1)
        newest = max((number for number, first in cuts if first <= offset), default=0)
        return Place(self.life, partition, offset, newest)

    def was_at(self, place: Place, record: Record) -> Place:
        """Return in which place at an offset a record was; the first one if it was in none."""
        cuts = range(len(self.cuts.get((place.life, place.partition), ())) + 1)
        found = (Place(place.life, place.partition, place.offset, cut) for cut in cuts)
        return next((one for one in found if self.committed.get(one) == record), place)

    def cut(self) -> str:
        """Stop the broker, take the end off a partition's log, and send others."""
        partition = self.chance.randrange(PARTITIONS)
        earliest = self._earliest(partition)
        cut = None
        with_records = self._stop()
        try:
            cut = cut_log(with_records / f"{self.name}-{partition}", earliest, self.chance)
        finally:
            self._start()
        if cut is None:
            return "cut: nothing there"
        # What was compacted right before it is gone as well, and its offsets are given again.
        cut = min(cut, self._ends("read_uncommitted")[partition])
        self.cuts.setdefault((self.life, partition), []).append(cut)
        self.produce(self.chance.randint(1, 25))
        return f"cut {partition} at {cut}"

    def lose_segment(self) -> str:
        """Send records, stop the broker, and take a segment out of a partition's log."""
        for _ in range(4):
            self.produce(self.chance.randint(1, 4))
        partition = self.chance.randrange(PARTITIONS)
        earliest = self._earliest(partition)
        before = self.look()
        lost = None
        data = self._stop()
        try:
            lost = remove_segment(data / f"{self.name}-{partition}", earliest, self.chance)
        finally:
            self._start()
        if lost is None:
            return "lose segment: none between others"
        gone = {p for p in before if p.partition == partition and lost[0] <= p.offset < lost[1]}
        assert not gone & self.look().keys()
        self.holes |= gone
        return f"lose segment {partition}:{lost[0]}-{lost[1]}, {len(gone)} records"

    def _earliest(self, partition: int) -> int:
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(OffsetSpec.earliest(), "read_uncommitted")[partition]

    def _stop(self) -> Path:
        """Stop the broker, and return the folder with its logs, which it will look through."""
        assert self.broker is not None
        self.broker.stop()
        data = self.broker.folder / "node-1" / "data"
        (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
        return data

    def _start(self) -> None:
        assert self.broker is not None
        self.broker.start_node(1)
        self._connect()

        def is_led() -> bool:
            try:
                self._ends("read_committed")
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                return False
            return True

        wait_for(is_led, f"the leaders of {self.name}")

    def delete_records(self) -> None:
        """Delete records from the start, up to anywhere."""
        wanted = [
            KafkaTopicPartition(self.name, partition, self.chance.randint(0, end))
            for partition, end in self._ends("read_committed").items()
        ]
        for future in self.admin.delete_records(wanted).values():
            future.result(30)

    def make_again(self) -> None:
        """Delete the topic and make it again; its offsets start at 0."""
        self.admin.delete_topics([self.name])[self.name].result(30)
        self._make()

    def compact(self) -> bool:
        """Send records until Kafka's log cleaner has removed one, or doesn't care to."""
        before = len(self.look())
        for _ in range(20):
            # Only a closed segment is cleaned, and one more record closes it.
            self.produce(1)
            now = len(self.look())
            if now <= before:
                return True
            before = now
        return False


def hurry_cleaner(bootstrap: str, backoff_ms: str | None) -> Callable[[], None]:
    """Let the broker's log cleaner look for work so often; return what takes that back."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def change(operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", value, incremental_operation=operation)
        brokers = [
            ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[entry])
            for broker in admin.list_topics(timeout=30).brokers
        ]
        for future in admin.incremental_alter_configs(brokers).values():
            future.result(30)

    change(AlterConfigOpType.SET, backoff_ms)
    return lambda: change(AlterConfigOpType.DELETE, None)


def read_records(bootstrap: str, topic: str) -> dict[int, list[tuple[int, Record]]]:
    """Read what a topic holds as `read_committed` consumers do: by partition, with offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "model",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    found: dict[int, list[tuple[int, Record]]] = {}

    def is_read() -> bool:
        for message in consumer.consume(10_000, 0.1):
            partition = message.partition()
            if message.error() is None:
                headers = tuple(message.headers() or ())
                record = (message.key(), message.value(), headers, message.timestamp()[1])
                found[partition].append((message.offset(), record))
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                waiting.discard(partition)
        return not waiting

    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        found.update((partition, []) for partition in sorted(partitions))
        waiting = set(partitions)
        consumer.assign([KafkaTopicPartition(topic, p, OFFSET_BEGINNING) for p in partitions])
        wait_for(is_read, f"the end of {topic}")
    finally:
        consumer.close()
    return found
