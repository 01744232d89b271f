"""Records whose payloads and headers have schema ids, and what replaces these."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.schemas.schema_ids import SchemaIds

G1, G2 = str(UUID(int=1)), str(UUID(int=2 << 100))
IDS = SchemaIds({1: 70_000, 2: 2, 300: 1, 0xFFFFFFFF: 0}, {G1: G2, G2: G1})


def prefix(id_: int) -> bytes:
    """Return what comes before a payload with a numbered schema."""
    return b"\0" + id_.to_bytes(4, "big")


def guid(text: str) -> bytes:
    """Return a GUID as headers have it."""
    return b"\1" + UUID(text).bytes


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    """Return a batch with the columns of data files."""
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def row(key: bytes | None, value: bytes | None, headers: Any = None) -> dict[str, Any]:
    """Return a record; its headers are pairs of name and content."""
    pairs = headers and [{"key": name, "value": content} for name, content in headers]
    return {"key": key, "value": value, "headers": pairs, "partition": 0, "offset": 0}
