"""Records as Kafka's client takes them: each comes out of a batch as it was."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.data_files.rows import Row, rows_of

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    """Make a batch as a data file holds the records."""
    records: list[dict[str, Any]] = [
        {
            "key": key,
            "value": value,
            "headers": headers and [{"key": name, "value": held} for name, held in headers],
            "topic": "t",
            "partition": 0,
            "offset": offset,
            "timestamp": EPOCH + timedelta(milliseconds=ms),
            "timestampType": 0,
        }
        for key, value, headers, ms, offset in rows
    ]
    return pa.RecordBatch.from_pylist(records, schema=SCHEMA)


ROWS: list[Row] = [
    (b"k", b"v", None, 1_700_000_000_123, 0),
    (None, None, [("a", b"1")], 0, 3),
    (b"", b"", [("b", b"2"), ("a", b"1"), ("b", b"3"), ("b", b"2")], -1, 4),
    (b"\xff", b"\0", [("none", None), ("", b""), ("é", b"\xff")], 253_402_300_799_999, 2**62),
    (b"k", b"v", None, 1, 2**62 + 1),
]


def test_rows_of() -> None:
    """Keys, values, headers with their order and repeats, times and offsets are kept."""
    assert list(rows_of(batch_of(ROWS))) == ROWS


def test_rows_of_sliced() -> None:
    """A batch that is a part of another one has its own rows' headers."""
    batch = batch_of(ROWS)

    for start in range(len(ROWS)):
        for length in range(len(ROWS) - start + 1):
            assert list(rows_of(batch.slice(start, length))) == ROWS[start : start + length]


def test_rows_of_filtered() -> None:
    """A batch that rows were left out of has the headers of those that are left."""
    batch = batch_of(ROWS).filter(pa.array([False, True, False, True, True]))

    assert list(rows_of(batch)) == [ROWS[1], ROWS[3], ROWS[4]]


def test_rows_of_no_headers() -> None:
    """Without any headers, each record has none; an empty list is none as well."""
    rows: list[Row] = [(b"k", b"v", None, 0, 0), (b"k", b"v", [], 0, 1)]

    assert [row[2] for row in rows_of(batch_of(rows))] == [None, None]


def test_rows_of_null_with_length() -> None:
    """Headers that are null are none, also where the file keeps entries behind the null."""
    entries = batch_of([(None, None, [("x", b"9"), ("a", b"1")], 0, 0)])["headers"].values
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), entries, mask=pa.array([True, False])
    )
    batch = batch_of([(None, None, None, 0, 0), (None, None, None, 0, 1)])
    batch = batch.set_column(2, SCHEMA.field("headers"), headers.cast(SCHEMA.field(2).type))

    assert [row[2] for row in rows_of(batch)] == [None, [("a", b"1")]]


def test_rows_of_empty() -> None:
    """A batch without rows gives none."""
    assert list(rows_of(batch_of([]))) == []


@settings(max_examples=50)
@given(
    st.lists(
        st.none()
        | st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=4),
        max_size=12,
    ),
    st.data(),
)
def test_rows_of_headers_property(
    headers: list[list[tuple[str, bytes | None]] | None], data: st.DataObject
) -> None:
    """Whatever headers the rows of a slice have, each row gets its own."""
    rows: list[Row] = [(None, None, held or None, 0, n) for n, held in enumerate(headers)]
    start = data.draw(st.integers(0, len(rows)))
    length = data.draw(st.integers(0, len(rows)))

    assert rows[start : start + length] == list(rows_of(batch_of(rows).slice(start, length)))
