"""Whether a consumer still gets something from Kafka, though it returns nothing.

A `read_committed` consumer passes aborted records in silence, as many as there are. How far it has
fetched distinguishes them from an outage.
"""

from __future__ import annotations

import json
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError

from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import say

#: Longest time without anything from Kafka.
QUIET_SECONDS = 20.0
#: Number of milliseconds between two reports of a consumer, which list all partitions of a topic.
REPORT_MS = 5_000
POLL_SECONDS = 1.0


class FetchWatch:
    """Waits for a consumer's messages as long as it gets anything.

    Attributes:
        settings: What the consumer needs, unless it calls `hear` otherwise.
    """

    def __init__(self) -> None:
        """Begin to wait."""
        self.settings = {"statistics.interval.ms": REPORT_MS, "stats_cb": self.hear}
        self._fetched = -1
        self.begin()

    def begin(self) -> None:
        """Note that something has come, or that the wait begins anew."""
        self._moved = self._said = time.monotonic()

    def hear(self, statistics: str) -> None:
        """Take a report of how far the consumer has fetched (librdkafka's STATISTICS.md)."""
        partitions = [
            partition
            for topic in json.loads(statistics).get("topics", {}).values()
            for partition in topic["partitions"].values()
        ]
        fetched = sum(max(0, partition.get("next_offset", 0)) for partition in partitions)
        if fetched != self._fetched:
            self._fetched, self._moved = fetched, time.monotonic()

    def require(self, tp: TopicPartition, offset: int) -> None:
        """Require that something has come of late; say what takes long.

        Args:
            tp: The partition that is read.
            offset: The offset that it is read from.

        Raises:
            KafkaUnavailableError: When nothing came for `QUIET_SECONDS`.
        """
        now = time.monotonic()
        if now - self._moved > QUIET_SECONDS:
            raise KafkaUnavailableError(
                f"Kafka didn't respond within {QUIET_SECONDS:g} s when reading {tp} from offset "
                f"{offset}; try again"
            )
        if now - self._said > QUIET_SECONDS:
            say(f"{tp} from offset {offset:,}: records of aborted transactions are being passed")
            self._said = now

    def poll(self, consumer: Consumer, tp: TopicPartition, offset: int) -> Any:
        """Return a consumer's next message or event; raises as `require`."""
        while (message := consumer.poll(POLL_SECONDS)) is None:
            self.require(tp, offset)
        error = message.error()
        # Other errors may come again and again.
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            self.begin()
        return message
