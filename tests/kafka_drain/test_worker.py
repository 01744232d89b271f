"""The worker engine's own logic, with a producer that only remembers."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import DeliveryError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republishing.plan import Shard
from kafka_drain.republishing.worker import Deliveries, _refuse_failures, send_batch

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
SHARD = Shard(TopicPartition("orders", 3), "restored", ())


class FakeProducer:
    """Keeps what is produced; its queue is full on every second call."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.full = True
        self.polls = 0

    def produce(self, topic: str, **record: Any) -> None:
        """Refuse, then take."""
        self.full = not self.full
        if not self.full:
            raise BufferError
        self.sent.append({"topic": topic, **record})

    def poll(self, seconds: float) -> int:
        """Count the waits."""
        self.polls += 1
        return 0


def batch_of(*milliseconds: int) -> pa.RecordBatch:
    """A record for each timestamp."""
    rows = [
        {
            "key": b"k",
            "value": None,
            "headers": [{"key": "h", "value": b"1"}, {"key": "h", "value": None}],
            "partition": 3,
            "offset": number,
            "timestamp": EPOCH + timedelta(milliseconds=time),
            "timestampType": 0,
        }
        for number, time in enumerate(milliseconds)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def test_send_batch_keeps_everything() -> None:
    """Each record goes once, in order, to the partition it came from, though the queue is full."""
    producer, deliveries = FakeProducer(), Deliveries()

    sent = send_batch(producer, SHARD, batch_of(5, 1_767_225_600_123), deliveries)

    assert sent == 2
    assert producer.polls >= 2
    assert [record["timestamp"] for record in producer.sent] == [5, 1_767_225_600_123]
    assert producer.sent[0] == {
        "topic": "restored",
        "key": b"k",
        "value": None,
        "headers": [("h", b"1"), ("h", None)],
        "partition": 3,
        "timestamp": 5,
        "on_delivery": deliveries,
    }
    assert deliveries.timestamps_replaced == 0


def test_send_batch_with_timestamp_zero() -> None:
    """A timestamp that Kafka's client can't send is counted, never lost without a word."""
    deliveries = Deliveries()

    send_batch(FakeProducer(), SHARD, batch_of(0, 7, 0), deliveries)

    assert deliveries.timestamps_replaced == 2


def test_refuse_failures_counts() -> None:
    """One refused record fails the republish, which says how many are in the target."""

    class Refusal:
        def str(self) -> str:
            return "too large"

    class Message:
        def topic(self) -> str:
            return "restored"

        def partition(self) -> int:
            return 3

    deliveries = Deliveries()
    deliveries(None, Message())
    _refuse_failures(deliveries, 1)
    deliveries(Refusal(), Message())  # type: ignore[arg-type]

    with pytest.raises(DeliveryError, match="refused 1 of 2 records, the first: restored-3: too"):
        _refuse_failures(deliveries, 2)
