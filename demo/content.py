"""The content of a topic as one hash per partition: key, value, headers, timestamp, in order."""

from __future__ import annotations

import hashlib
import struct
import time
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

__all__ = ["TopicContent", "read_topic"]

SILENCE_SECONDS = 30.0


@dataclass(frozen=True)
class TopicContent:
    """The records of a topic: their number and a hash of their content, by partition."""

    records: dict[int, int]
    hashes: dict[int, str]

    @property
    def total(self) -> int:
        """The number of records in all partitions."""
        return sum(self.records.values())

    @property
    def hash(self) -> str:
        """A hash over the numbers and hashes of all partitions."""
        whole = hashlib.sha256()
        for partition in sorted(self.hashes):
            whole.update(f"{partition}:{self.hashes[partition]};".encode())
        return whole.hexdigest()


def read_topic(bootstrap_servers: str, topic: str) -> TopicContent:
    """Read a topic from beginning to end, as read_committed consumers see it.

    Raises:
        KafkaException: If Kafka reports an error.
        TimeoutError: If Kafka sends nothing for half a minute.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "kafka-drain-compare",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=20).topics[topic].partitions
        hashes = {partition: hashlib.sha256() for partition in partitions}
        records = dict.fromkeys(partitions, 0)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        open_partitions = set(partitions)
        heard = time.monotonic()
        while open_partitions:
            # `consume` returns when it has all of the messages or at the timeout.
            messages = consumer.consume(10_000, timeout=0.5)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_SECONDS:
                raise TimeoutError(f"Kafka sent nothing of {topic} for {SILENCE_SECONDS:g} s")
            for message in messages:
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    open_partitions.discard(message.partition())
                elif error is not None:
                    raise KafkaException(error)
                else:
                    records[message.partition()] += 1
                    add_record(hashes[message.partition()], message)
    finally:
        consumer.close()
    return TopicContent(records, {p: found.hexdigest() for p, found in hashes.items()})


def add_record(content: Any, message: Any) -> None:
    """Add a record to a hash, each part with its length so that no two records collide."""
    parts: list[bytes | None] = [message.key(), message.value()]
    for name, value in message.headers() or ():
        parts += [name.encode(), value]
    content.update(struct.pack(">qq", message.timestamp()[1], len(parts)))
    for part in parts:
        content.update(struct.pack(">q", -1 if part is None else len(part)))
        content.update(part or b"")
