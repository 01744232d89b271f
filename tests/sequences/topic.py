"""A topic as its producers and consumers know it: what was sent, and what Kafka still holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from tests.histories.truth import PARTITIONS, Place, Record, Truth
from tests.sequences.logs import cut_log, remove_segment

__all__ = ["Topic", "hurry_cleaner", "read_records"]


@dataclass
class Topic(Truth):
    """A topic on a real broker.

    Attributes:
        bootstrap: The broker.
        broker: The broker, if its logs may be damaged; None if it is others' as well.
    """

    bootstrap: str = ""
    broker: KafkaCluster | None = None

    def __post_init__(self) -> None:
        self._connect()
        self.can_be_cut = self.broker is not None
        # So that a segment can be lost: each batch gets its own.
        self.has_segments = self.can_be_cut and (self.is_compacted or self.chance.random() < 0.7)
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
        self.begin_life(self._id())

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
            record = self.next_record()
            producer.produce(
                self.name,
                record["value"],
                record["key"],
                partition=self.chance.randrange(PARTITIONS),
                timestamp=record["timestamp"],
                headers=list(record["headers"]) or None,
            )

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
