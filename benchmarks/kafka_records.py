"""Records for a drain to read: JSON values of about 190 bytes with keys, a quarter with headers."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["PARTITIONS", "produce"]

PARTITIONS = 8
FIRST_TIME = 1_735_689_600_000  # 2025-01-01 00:00 UTC, in milliseconds
_POLL_EVERY = 10_000

Record = tuple[bytes, bytes, list[tuple[str, bytes]] | None, int]


def _records(number: int) -> Iterator[Record]:
    """Yield records that are the same in every run and compress as orders do."""
    random = Random(1)
    for n in range(number):
        bits = random.getrandbits(96)
        customer, amount = bits % 50_021, bits % 99_991
        value = (
            f'{{"order_id":{10_000_000 + n},"customer":"customer-{customer:05d}",'
            f'"amount":{amount / 100:.2f},"currency":"EUR","status":"shipped","items":'
            f'[{{"sku":"{bits & 0xFFFFFF:06x}","quantity":{bits % 7 + 1}}}],'
            f'"trace":"{bits:024x}","depot":"n-{bits % 13}"}}'
        )
        headers = [("trace", b"%024x" % bits), ("source", b"shop")] if n % 4 == 0 else None
        yield b"customer-%05d" % customer, value.encode(), headers, FIRST_TIME + 10 * n


def produce(bootstrap_servers: str, topic: str, number: int) -> float:
    """Create a topic and fill it, evenly over its partitions.

    Returns:
        The mean size of a value in bytes.

    Raises:
        KafkaException: When Kafka refused a record.
    """
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([new])[topic].result(20)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 50,
            "batch.size": 1 << 20,
            "queue.buffering.max.messages": 500_000,
            "delivery.report.only.error": True,
            "log_level": 3,
        }
    )
    size = 0
    for n, (key, value, headers, timestamp) in enumerate(_records(number)):
        size += len(value)
        options: dict[str, Any] = {"headers": headers} if headers else {}
        while True:
            try:
                producer.produce(
                    topic,
                    key=key,
                    value=value,
                    partition=n % PARTITIONS,
                    timestamp=timestamp,
                    on_delivery=_refuse,
                    **options,
                )
                break
            except BufferError:
                producer.poll(0.1)
        if n % _POLL_EVERY == 0:
            producer.poll(0)
    producer.flush()
    return size / number


def _refuse(error: Any, _: Any) -> None:
    if error is not None:
        raise KafkaException(error)
