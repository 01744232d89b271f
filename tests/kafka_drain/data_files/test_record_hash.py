"""The hash of a single record is what many records are hashed to."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.data_files.record_hash import record_hash
from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.xxhash64 import record_hashes

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
CONTENT = st.none() | st.binary(max_size=50)


@given(
    topic=st.text("abc.-_", min_size=1),
    partition=st.integers(0, 1 << 30),
    offset=st.integers(0, 1 << 62),
    milliseconds=st.integers(-1, 253_402_300_799_000),
    kind=st.sampled_from([0, 1]),
    key=CONTENT,
    value=CONTENT,
    headers=st.lists(st.tuples(st.text("hé", max_size=3), CONTENT), max_size=3),
)
def test_record_hash(
    topic: str,
    partition: int,
    offset: int,
    milliseconds: int,
    kind: int,
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
) -> None:
    """Both hash the same columns in the same order."""
    row = {
        "key": key,
        "value": value,
        "headers": [{"key": name, "value": content} for name, content in headers],
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": EPOCH + timedelta(milliseconds=milliseconds),
        "timestampType": kind,
    }
    batch = pa.RecordBatch.from_pylist([row], schema=SCHEMA)
    [(_, _, [expected])] = record_hashes(batch, topic)

    assert expected == record_hash(
        topic, partition, offset, milliseconds * 1000, kind, key, value, headers
    )
