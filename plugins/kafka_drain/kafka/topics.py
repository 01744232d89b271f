"""How a topic of Kafka's is set up. Plain values; opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

__all__ = ["MAX_MESSAGE_BYTES", "TopicSettings"]

#: What a broker takes unless a topic or it itself is set otherwise (Kafka's default): bytes.
MAX_MESSAGE_BYTES = 1_048_588


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How a topic is made.

    Attributes:
        partitions: How many.
        replication_factor: Copies of each partition.
        max_message_bytes: The largest batch that it takes, in bytes, whoever set that.
        config: What is set for the topic itself, by Kafka's names.
    """

    partitions: int
    replication_factor: int
    max_message_bytes: int = MAX_MESSAGE_BYTES
    config: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        config = "".join(f", {name}={value}" for name, value in sorted(self.config.items()))
        return f"{self.partitions} partitions, replication factor {self.replication_factor}{config}"

    def with_partitions(self, partitions: int) -> TopicSettings:
        """Return the settings with another number of partitions."""
        return replace(self, partitions=partitions)

    def with_config(self, name: str, value: str) -> TopicSettings:
        """Return the settings with one of them set."""
        return replace(self, config={**self.config, name: value})
