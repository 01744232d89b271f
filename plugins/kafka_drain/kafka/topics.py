"""Settings of a Kafka topic. Plain values; opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

#: A broker's default for the maximum size of a message, in bytes (Kafka's message.max.bytes).
MAX_MESSAGE_BYTES = 1_048_588
#: A producer's default for the maximum size of a request, in bytes (max.request.size).
MAX_REQUEST_BYTES = 1 << 20
#: Java's producer compares its estimate of a batch of one record with it, which is at most this
#: much larger than the batch.
REQUEST_OVERHEAD = 100
#: A broker's default for the size of a segment, in bytes (log.segment.bytes).
SEGMENT_BYTES = 1 << 30


def partitions_of(described: Any) -> int:
    """Return the number of partitions of a topic as librdkafka describes it."""
    return len(numbered(partition.id for partition in described.partitions))


def numbered(listed: Iterable[int]) -> range:
    """Return the partitions of a topic, of which a broker lists some.

    They are numbered without a gap: what is missing between them, a broker that has just started
    doesn't know yet.
    """
    return range(1 + max(listed, default=-1))


def largest_batch(config: Mapping[str, str]) -> int:
    """Return the largest batch that a topic with these settings takes, in bytes.

    One that is larger than a segment is refused, too: before Kafka 4, those may be small.
    """
    return min(
        int(config.get("max.message.bytes", MAX_MESSAGE_BYTES)),
        int(config.get("segment.bytes", SEGMENT_BYTES)),
    )


def request_bytes(limits: Iterable[int]) -> int:
    """Return the largest batch that Java's producer takes before it compresses it, in bytes.

    It is set so (`max.request.size`) that only the topics' own limits matter.

    Args:
        limits: Each topic's `max.message.bytes`.
    """
    return max(MAX_REQUEST_BYTES, *limits)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings for the creation of a topic.

    Attributes:
        partitions: Number of partitions.
        replication_factor: Number of replicas of each partition.
        max_message_bytes: Maximum size of a batch, in bytes, whether set by topic or broker.
        config: Configuration set on the topic itself, by Kafka's names.
        compacted: Whether Kafka compacts it, whether set by topic or broker; None if unknown. It
            says what the topic has lost, not how another is created.
        retention_ms: Age in milliseconds at which Kafka deletes its records, whether set by topic
            or broker; None if it doesn't by age, or that is unknown.
    """

    partitions: int
    replication_factor: int
    max_message_bytes: int = MAX_MESSAGE_BYTES
    config: Mapping[str, str] = field(default_factory=dict)
    compacted: bool | None = field(default=None, compare=False)
    retention_ms: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        config = "".join(f", {name}={value}" for name, value in sorted(self.config.items()))
        return f"{self.partitions} partitions, replication factor {self.replication_factor}{config}"

    def with_partitions(self, partitions: int) -> TopicSettings:
        """Return the settings with a different number of partitions."""
        return replace(self, partitions=partitions)

    def with_config(self, name: str, value: str) -> TopicSettings:
        """Return the settings with one configuration value set."""
        return replace(self, config={**self.config, name: value})
