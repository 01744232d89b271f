"""A client that reads partitions one after another, and asks for more or less at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.kafka.client_config import KafkaConfig, for_client
from kafka_drain.kafka.fetch_size import BOUNDED, MOST_BYTES, FetchSize
from kafka_drain.offsets import TopicPartition

#: By which factor a size has to differ to be worth another consumer, which fetches anew.
WORTH = 2
#: Least number of milliseconds between two reports of received bytes.
REPORT_MS = 1_000


class ReadingClient:
    """A connection with which readers read one partition after another.

    A client of each partition's own takes a tenth of a second, and thousands of partitions as long
    as thousands of clients.

    Args:
        config: The cluster's connection.
        settings: The consumer's settings, without those of `BOUNDED` and for the size of fetches.
        report_ms: Number of milliseconds between two reports of what was received.
    """

    def __init__(
        self, config: KafkaConfig, settings: Mapping[str, Any], report_ms: int = REPORT_MS
    ) -> None:
        self._config = config
        self._settings = dict(settings)
        self._report_ms = report_ms
        self._consumer: Consumer | None = None
        self._size = FetchSize()
        self._most = MOST_BYTES
        self._asked = 0
        # What another consumer fetches anew may look smaller than it is: a batch of which only the
        # end is wanted. So one that asks for more comes ever more rarely.
        self._patience, self._reports = 1, 0
        self._heard: Callable[[str], None] = lambda statistics: None

    @property
    def fetch_bytes(self) -> int:
        """The size of the next responses."""
        return min(self._most, self._size.bytes)

    @property
    def is_outdated(self) -> bool:
        """Whether reading on takes a consumer that asks for another size."""
        asks_for = self.fetch_bytes
        is_patient = self._reports >= self._patience
        return asks_for * WORTH <= self._asked or (asks_for >= self._asked * WORTH and is_patient)

    def read_from(
        self,
        tp: TopicPartition,
        offset: int,
        *,
        most: int = MOST_BYTES,
        heard: Callable[[str], None] = lambda statistics: None,
    ) -> None:
        """Read a partition from an offset on.

        Args:
            most: Largest size of a response in bytes.
            heard: Gets the client's statistics.
        """
        self._most, self._heard = most, heard
        if self._consumer is None or self.is_outdated:
            self.close()
            if self._asked and self.fetch_bytes > self._asked:
                self._patience *= 2
            self._asked, self._reports = self.fetch_bytes, 0
            own = {
                **self._settings,
                **BOUNDED,
                "fetch.message.max.bytes": self._asked,
                "statistics.interval.ms": self._report_ms,
                "stats_cb": self._hear,
            }
            self._consumer = Consumer(for_client(self._config.for_librdkafka(), own))
            self._size.begin()
        # Records fetched of another partition are discarded.
        self._consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, offset)])

    def take(self, most: int, seconds: float) -> list[Any]:
        """Return messages and events that have arrived, after `read_from`.

        Waits for the first one only: while it waited for more, the client would fetch more.

        Args:
            most: Maximum number of them.
            seconds: Longest wait.
        """
        assert self._consumer is not None
        most = min(most, self._size.records)
        messages: list[Any] = self._consumer.consume(1, seconds)
        if messages and most > 1:
            messages += self._consumer.consume(most - 1, 0)
        self._size.see(messages)
        return messages

    def _hear(self, statistics: str) -> None:
        self._reports += 1
        self._size.hear(statistics)
        self._heard(statistics)

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()
