"""Records that no Python client can send, in a broker of librdkafka's: bytes of the protocol."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable

from confluent_kafka import Producer

from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.record_sizes import Header, payload_of


def mock_broker(tp: TopicPartition) -> tuple[Producer, str]:
    """Return a broker with an empty topic, which ends with its producer, and its address."""
    producer = Producer(
        {"test.mock.num.brokers": 1, "bootstrap.servers": "replaced:1", "log_level": 0}
    )
    [broker] = producer.list_topics(tp.topic).brokers.values()
    return producer, f"{broker.host}:{broker.port}"


def send_raw(
    servers: str,
    tp: TopicPartition,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[Header],
    timestamp: int,
) -> None:
    """Append one record, as a client that keeps all bytes of a header's name would."""
    payload = payload_of(key, value, headers)
    body = struct.pack(">hiqqqhii", 0, 0, timestamp, timestamp, -1, -1, -1, 1) + payload
    batch = struct.pack(">qiibI", 0, len(body) + 9, 0, 2, _crc32c(body)) + body
    # Produce, version 7: acknowledged by all, one topic, one partition.
    request = struct.pack(">hhi", 0, 7, 1) + _text("raw") + struct.pack(">hhii", -1, -1, 5000, 1)
    request += _text(tp.topic) + struct.pack(">iii", 1, tp.partition, len(batch)) + batch
    host, _, port = servers.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        answer = connection.recv(4096)
    # Behind length, correlation id, topic and partition.
    [error] = struct.unpack_from(">h", answer, 4 + 4 + 4 + 2 + len(tp.topic) + 4 + 4)
    assert error == 0


def _text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def _crc32c(content: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
