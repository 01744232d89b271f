"""Spark's xxhash64 of records, a column at a time, against one record after the other."""

from __future__ import annotations

import struct
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.xxhash64 import records_fingerprint

longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
contents = st.none() | st.binary(max_size=70)
rows = st.fixed_dictionaries(
    {
        "key": contents,
        "value": contents,
        "headers": st.none()
        | st.lists(st.fixed_dictionaries({"key": st.text(max_size=9), "value": contents})),
        "topic": st.none() | st.sampled_from(["a", "b", "\u00e9"]),
        "partition": ints,
        "offset": longs,
        "timestamp": st.none() | longs,
        "timestampType": ints,
    }
)


def hash_of(row: dict[str, Any], topic: str | None) -> int:
    """Hash a record as Spark does: each column with the hash so far as its seed, from 42 on."""
    hashed = 42
    parts: list[Any] = [
        topic if topic is not None else row["topic"],
        struct.pack("<i", row["partition"]),
        struct.pack("<q", row["offset"]),
        None if row["timestamp"] is None else struct.pack("<q", row["timestamp"]),
        struct.pack("<i", row["timestampType"]),
        row["key"],
        row["value"],
    ]
    for header in row["headers"] or []:
        parts += [header["key"], header["value"]]
    for part in parts:
        if part is not None:
            hashed = xxh64_intdigest(part, hashed)
    return hashed


@settings(deadline=None)
@given(st.lists(rows, max_size=20), st.none() | st.just("t"), st.integers(0, 5))
def test_records_fingerprint_property(
    found: list[dict[str, Any]], topic: str | None, start: int
) -> None:
    """Whatever the records hold, and also of a part of a batch, the XOR is that of the loop."""
    columns = [
        pa.array([row[field.name] for row in found], pa.int64()).cast(field.type)
        if field.name == "timestamp"
        else pa.array([row[field.name] for row in found], field.type)
        for field in SCHEMA
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=SCHEMA).slice(start)
    expected = 0
    for row in found[start:]:
        expected ^= hash_of(row, topic)

    assert records_fingerprint([batch], topic) == expected


@pytest.mark.parametrize("times", [0, 2])
def test_records_fingerprint_of_batches(times: int) -> None:
    """Two batches alike undo each other, as XOR has it; none are 0."""
    row = dict.fromkeys(SCHEMA.names)
    row |= {"partition": 0, "offset": 7, "timestampType": 0}
    batch = pa.RecordBatch.from_pylist([row], schema=SCHEMA)

    assert records_fingerprint([batch] * times, "t") == 0
    assert records_fingerprint([batch], "t") == hash_of(row | {"headers": None}, "t")
