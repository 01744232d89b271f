"""A transactional producer of `confluent_kafka` over a fake cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from tests.histories.client import FakeAdminClient
from tests.histories.coordinator import Coordinator, Fenced

__all__ = ["FakeProducer"]


class FakeProducer:
    """Sends records in transactions.

    Args:
        coordinator: Decides them.
        config: librdkafka's settings.
        chance: Decides when records are really sent, and which answers come late.
        change: Is called before whatever has an effect: the process may end there.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        config: Mapping[str, Any],
        chance: random.Random,
        change: Callable[[], None],
    ) -> None:
        self._coordinator = coordinator
        self._name = str(config["transactional.id"])
        self._chance = chance
        self._change = change
        self._epoch = -1
        self._queued: list[tuple[str, int, dict[str, object]]] = []

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        return FakeAdminClient(self._coordinator.log, {}).list_topics(topic, timeout)

    def init_transactions(self, timeout: float = -1) -> None:
        self._change()
        if self._chance.random() < 0.5:
            self._coordinator.deliver()
        self._epoch = self._coordinator.begin_epoch(self._name)

    def begin_transaction(self) -> None:
        self._change()

    def produce(
        self,
        topic: str,
        value: bytes | None = None,
        key: bytes | None = None,
        partition: int = -1,
        callback: Any = None,
        on_delivery: Any = None,
        timestamp: int = 0,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> None:
        record: dict[str, object] = {
            "key": key,
            "value": value,
            "timestamp": timestamp,
            "headers": tuple(headers or ()),
        }
        self._queued.append((topic, partition, record))

    def __len__(self) -> int:
        return len(self._queued)

    def poll(self, _: float = -1) -> int:
        if self._queued and self._chance.random() < 0.5:
            self._send()
        return 0

    def flush(self, _: float = -1) -> int:
        self._send()
        return 0

    def _send(self) -> None:
        """Send what is queued, a batch for each partition."""
        self._change()
        queued, self._queued = self._queued, []
        batches: dict[tuple[str, int], list[dict[str, object]]] = {}
        for topic, partition, record in queued:
            batches.setdefault((topic, partition), []).append(record)
        for (topic, partition), records in batches.items():
            self._ask(
                lambda topic=topic, partition=partition, records=records: self._coordinator.write(
                    self._name, self._epoch, topic, partition, records
                )
            )

    def send_offsets_to_transaction(
        self, offsets: Iterable[KafkaTopicPartition], group: str, timeout: float = -1
    ) -> None:
        self._change()
        held = {(each.topic, each.partition): (each.offset, each.metadata) for each in offsets}
        self._ask(lambda: self._coordinator.add_offsets(self._name, self._epoch, group, held))

    def commit_transaction(self, timeout: float = -1) -> None:
        self._send()
        if self._chance.random() < 0.2:
            # Asked for, and on its way when the process may end.
            self._coordinator.delayed.append((self._name, self._epoch, "commit"))
        self._change()
        self._ask(lambda: self._coordinator.end(self._name, self._epoch, "commit"))
        # Committed, and the answer may never arrive.
        self._change()
        if self._chance.random() < 0.1:
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT, retriable=self._chance.random() < 0.5)
            )

    def abort_transaction(self, timeout: float = -1) -> None:
        self._queued = []
        self._change()
        self._ask(lambda: self._coordinator.end(self._name, self._epoch, "abort"))

    def purge(self) -> None:
        self._queued = []

    def _ask(self, request: Callable[[], None]) -> None:
        try:
            request()
        except Fenced:
            raise KafkaException(KafkaError(KafkaError._FENCED, fatal=True)) from None
