"""Spark's `xxhash64` over a record, in Python: what `fingerprint` in a receipt is checked by.

Spark hashes the columns one after the other, each with the hash so far as its seed, from 42 on;
nulls change nothing (`org.apache.spark.sql.catalyst.expressions.XxHash64`). An `int` counts as
four bytes, a `long` and a timestamp (microseconds) as eight, both in little endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pyarrow as pa
from xxhash import xxh64_intdigest

__all__ = ["records_fingerprint"]

_SEED = 42
_INT, _LONG = struct.Struct("<i").pack, struct.Struct("<q").pack


def records_fingerprint(batches: Iterable[pa.RecordBatch], topic: str | None) -> int:
    """Return the XOR of the records' hashes.

    Args:
        batches: Records with the columns of `data_files.records.SCHEMA`.
        topic: Their topic; None where the column has it.
    """
    fingerprint = 0
    for batch in batches:
        topics = [topic] * batch.num_rows if topic is not None else batch["topic"].to_pylist()
        columns = zip(
            topics,
            batch["partition"].to_pylist(),
            batch["offset"].to_pylist(),
            batch["timestamp"].cast(pa.int64()).to_pylist(),
            batch["timestampType"].to_pylist(),
            batch["key"].to_pylist(),
            batch["value"].to_pylist(),
            batch["headers"].to_pylist(),
            strict=True,
        )
        for name, partition, offset, timestamp, kind, key, value, headers in columns:
            hashed = xxh64_intdigest(name, _SEED) if name is not None else _SEED
            hashed = xxh64_intdigest(_INT(partition), hashed)
            hashed = xxh64_intdigest(_LONG(offset), hashed)
            hashed = xxh64_intdigest(_LONG(timestamp), hashed)
            hashed = xxh64_intdigest(_INT(kind), hashed)
            if key is not None:
                hashed = xxh64_intdigest(key, hashed)
            if value is not None:
                hashed = xxh64_intdigest(value, hashed)
            for header in headers or ():
                hashed = xxh64_intdigest(header["key"], hashed)
                if header["value"] is not None:
                    hashed = xxh64_intdigest(header["value"], hashed)
            fingerprint ^= hashed
    return fingerprint
