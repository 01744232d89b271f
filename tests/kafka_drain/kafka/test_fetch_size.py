"""How much a reading client asks for at a time."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.kafka.fetch_size import (
    FIRST_BYTES,
    LEAST_BYTES,
    MOST_BYTES,
    TELLING_BYTES,
    UNPACKED_BYTES,
    FetchSize,
    bytes_to_ask_for,
)

KIB = 1 << 10


@pytest.mark.parametrize(
    ("received", "unpacked", "asked"),
    [
        (64 * KIB, 64 * KIB, MOST_BYTES),
        (64 * KIB, 0, MOST_BYTES),
        (64 * KIB, 640 * KIB, MOST_BYTES),
        (64 * KIB, 6_400 * KIB, UNPACKED_BYTES // 100),
        (64 * KIB, 64 * KIB * 3_000, UNPACKED_BYTES // 3_000),
        (64 * KIB, 64 * KIB * 100_000, LEAST_BYTES),
    ],
)
def test_bytes_to_ask_for(received: int, unpacked: int, asked: int) -> None:
    """What unpacks to more than the share is asked for in smaller pieces."""
    assert bytes_to_ask_for(received, unpacked) == asked


def record(value: bytes | None, headers: Any = None) -> Any:
    parts = {"error": None, "key": b"k" * 20, "value": value, "headers": headers}
    return SimpleNamespace(**{name: lambda part=part: part for name, part in parts.items()})


def report(received: int, unpacked: int, records: int) -> str:
    return json.dumps({"rx_bytes": received, "rxmsg_bytes": unpacked, "rxmsgs": records})


def test_fetch_size_follows() -> None:
    """The newest part that tells enough decides; a new client counts from nothing again."""
    size = FetchSize()
    assert size.bytes == FIRST_BYTES
    size.hear(report(TELLING_BYTES - 1, 0, 0))
    size.hear(report(2 * TELLING_BYTES, 0, 0))
    assert size.bytes == FIRST_BYTES

    size.hear(report(100_000, 100_000, 10))
    assert size.bytes == MOST_BYTES
    size.hear(report(100_100, 30_100_000, 310))
    assert size.bytes == MOST_BYTES
    size.hear(report(200_000, 300_100_000, 3_010))
    assert size.bytes == UNPACKED_BYTES // 3_000

    size.begin()
    size.hear(report(100_000, 10_000_000, 100))
    assert size.bytes == UNPACKED_BYTES // 100


def test_fetch_size_of_headers() -> None:
    """The client counts no headers; those of a message that arrived count for all."""
    size = FetchSize()
    message: Any = record(b"", [("k", b"x" * 99)])
    other: Any = SimpleNamespace(error=lambda: "end of partition")

    size.see([message])
    size.see([message, other])
    size.see([])
    size.hear(report(100_000, 0, 100_000))

    assert size.bytes == UNPACKED_BYTES // 100


def test_fetch_size_of_records() -> None:
    """As many records are taken as fit if they are like the last one; one while none is known."""
    size = FetchSize()
    assert size.records == 1

    size.see([record(b"x" * 100_000), record(b"x" * 980)])
    assert size.records == UNPACKED_BYTES // 1_000
    size.see([record(None, [("k", b"x" * 99_979)])])
    assert size.records == UNPACKED_BYTES // 100_000
    size.see([record(b"x" * UNPACKED_BYTES)])
    assert size.records == 1
