"""What is drained to each store."""

from __future__ import annotations

from typing import Any

import pytest

__all__ = ["RECORDS", "numbered"]

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds
RECORDS = 40
HEADERS = [("a", b"1"), ("a", None), ("empty", b"")]


def numbered(first: int, count: int = RECORDS) -> list[Any]:
    """Records with null and empty keys and values, and headers on some."""
    return [
        (
            None if n % 7 == 0 else b"%d" % n,
            None if n % 5 == 0 else b"v" * (n % 3),
            HEADERS if n % 4 == 0 else None,
            NOON + n,
        )
        for n in range(first, first + count)
    ]


@pytest.fixture
def topic(make_topic: Any, send: Any) -> str:
    """A topic of two partitions with records."""
    name: str = make_topic(partitions=2)
    for partition in (0, 1):
        send(name, numbered(0), partition=partition)
    return name
