"""Records for the benchmarks.

orders  JSON values of about 190 bytes with keys, a quarter of them with headers
random  random values of 1 KiB with keys, which can't be compressed
avro    the orders as Avro, about 110 bytes
small   values of 100 bytes without keys and headers
keyed   the same values with keys of 100 bytes, each once
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import fastavro
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = [
    "AVRO_ID",
    "AVRO_SCHEMA",
    "KINDS",
    "PARTITIONS",
    "produce",
    "produce_hot",
    "produce_more",
]

PARTITIONS = 8
FIRST_TIME = 1_735_689_600_000  # 2025-01-01 00:00 UTC, in milliseconds
_POLL_EVERY = 10_000

#: The schema of the kind `avro`, and its id.
AVRO_ID = 1
AVRO_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "long"},
        *({"name": name, "type": "string"} for name in ("customer", "currency", "status")),
        {"name": "amount", "type": "double"},
        {"name": "trace", "type": "string"},
        {"name": "depot", "type": ["null", "string"], "default": None},
    ],
}

Record = tuple[bytes | None, bytes, list[tuple[str, bytes]] | None, int]


def _orders(number: int) -> Iterator[Record]:
    """Yield records that are the same in every run and compress like real orders."""
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


def _random(number: int) -> Iterator[Record]:
    random = Random(2)
    for n in range(number):
        yield b"%016x" % random.getrandbits(64), random.randbytes(1024), None, FIRST_TIME + 10 * n


def _small(number: int) -> Iterator[Record]:
    random = Random(3)
    for n in range(number):
        value = b"reading %012d of sensor %05d: %068x" % (
            *(n, n % 10_007),
            random.getrandbits(96),
        )
        yield None, value, None, FIRST_TIME + 10 * n


def _avro(number: int) -> Iterator[Record]:
    schema = fastavro.parse_schema(AVRO_SCHEMA)
    prefix = b"\0" + AVRO_ID.to_bytes(4, "big")
    for key, value, headers, timestamp in _orders(number):
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, json.loads(value))
        yield key, prefix + buffer.getvalue(), headers, timestamp


KINDS = {"orders": _orders, "avro": _avro, "random": _random, "small": _small}


def produce(bootstrap_servers: str, topic: str, number: int, kind: str = "orders") -> float:
    """Create a topic and fill its partitions evenly.

    Returns:
        The mean size of a value in bytes.

    Raises:
        KafkaException: If Kafka rejects a record.
    """
    return _send(bootstrap_servers, topic, KINDS[kind](number), lambda n: n % PARTITIONS)


def produce_more(bootstrap_servers: str, topic: str, number: int) -> float:
    """Send the same records again, to an existing topic."""
    return _send(bootstrap_servers, topic, _orders(number), lambda n: n % PARTITIONS, create=False)


def produce_hot(bootstrap_servers: str, topic: str, number: int) -> float:
    """Create a topic and fill it, with nine tenths of the records in partition 0."""
    others = PARTITIONS - 1
    return _send(
        bootstrap_servers,
        topic,
        _orders(number),
        lambda n: 0 if n % 10 else 1 + n // 10 % others,
    )


def _send(
    bootstrap_servers: str,
    topic: str,
    records: Iterator[Record],
    place: Callable[[int], int],
    *,
    create: bool = True,
) -> float:
    if create:
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
    size = number = 0
    for n, (key, value, headers, timestamp) in enumerate(records):
        size += len(value)
        number += 1
        options: dict[str, Any] = {"headers": headers} if headers else {}
        while True:
            try:
                producer.produce(
                    topic,
                    key=key,
                    value=value,
                    partition=place(n),
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
