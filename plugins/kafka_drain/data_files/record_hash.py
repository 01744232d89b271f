"""Spark's `xxhash64` of a single record, without pyarrow; see `xxhash64.py` for many."""

from __future__ import annotations

from collections.abc import Iterable

from xxhash import xxh64_intdigest

_SEED = 42


def record_hash(
    topic: str,
    partition: int,
    offset: int,
    microseconds: int,
    timestamp_type: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> int:
    """Return the hash of a record, which `xxhash64.record_hashes` gives for the same columns."""
    h = xxh64_intdigest(topic, _SEED)
    h = xxh64_intdigest(partition.to_bytes(4, "little", signed=True), h)
    h = xxh64_intdigest(offset.to_bytes(8, "little", signed=True), h)
    h = xxh64_intdigest(microseconds.to_bytes(8, "little", signed=True), h)
    h = xxh64_intdigest(timestamp_type.to_bytes(4, "little", signed=True), h)
    for part in (key, value):
        h = h if part is None else xxh64_intdigest(part, h)
    for name, content in headers:
        h = xxh64_intdigest(name, h)
        h = h if content is None else xxh64_intdigest(content, h)
    return h
