"""Batches of rows whose size nobody knows before: each row once, in order, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_drain.data_files.batch_sizes import (
    BATCH_ROWS,
    STEP_ROWS,
    Steps,
    in_batches,
    in_steps,
    row_sizes,
)
from tests.fresh_process import printed_by

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
BOUND = 100_000


def batch_of(sizes: list[int], first: int = 0) -> pa.RecordBatch:
    """Rows with values of some sizes, by offset."""
    offsets = pa.array(range(first, first + len(sizes)), pa.int64())
    values = pa.array([b"v" * size for size in sizes], pa.binary())
    return pa.RecordBatch.from_arrays([offsets, values], ["offset", "value"])


def offsets_of(batches: list[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


class File:
    """Rows of some sizes; an array may have no more bytes than `capacity`."""

    def __init__(self, sizes: list[int], capacity: int = 1 << 31) -> None:
        self.sizes = sizes
        self.capacity = capacity
        self.scans = 0
        self.rows = 0
        self.largest = 0

    def scan(self, rows: int) -> Iterator[pa.RecordBatch]:
        self.scans += 1
        self.rows = rows
        at = 0
        while at < len(self.sizes):
            sizes = self.sizes[at : at + self.rows]
            if sum(sizes) > self.capacity:
                raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")
            self.largest = max(self.largest, sum(sizes))
            yield batch_of(sizes, at)
            at += len(sizes)

    def resize(self, rows: int) -> None:
        self.rows = rows


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([], 1),
        ([(1, 10)], 8),
        ([(1, 10), (8, 80), (64, 640)], 512),
        ([(1, 10), (8, 80), (64, 640), (512, 5_120), (2048, 20_480)], STEP_ROWS),
        ([(2048, 204_800)], 250),
        ([(2048, 2_048_000_000)], 1),
        ([(0, 0)], 1),
        ([(1, 10_000_000)], 1),
    ],
    ids=str,
)
def test_steps(seen: list[tuple[int, int]], expected: int) -> None:
    """Steps grow while rows are small, and fit into a quarter of a batch."""
    steps = Steps(BOUND)
    for rows, size in seen:
        steps.see(rows, size)

    assert steps.rows == expected


_SIZES = st.lists(
    st.tuples(st.sampled_from([0, 10, 3_000, 60_000, 250_000]), st.integers(1, 40)), max_size=6
).map(lambda parts: [size for size, rows in parts for _ in range(rows)])


@settings(max_examples=30)
@example(sizes=[0, 0, *[3000] * 3, *[0] * 4, *[250_000] * 3], can_resize=False, capacity=250_000)
@given(sizes=_SIZES, can_resize=st.booleans(), capacity=st.sampled_from([250_000, 1 << 31]))
def test_in_steps_property(sizes: list[int], can_resize: bool, capacity: int) -> None:
    """Each row comes once and in order, however often a scan starts again or fails."""
    file = File(sizes, capacity)

    steps = list(in_steps(file.scan, BOUND, file.resize if can_resize else None))

    assert offsets_of(steps) == list(range(len(sizes)))
    assert [len(value) for step in steps for value in step["value"].to_pylist()] == sizes


@pytest.mark.parametrize("can_resize", [True, False])
def test_in_steps_suddenly_large(can_resize: bool) -> None:
    """After any number of small rows, one step at most has too many large ones."""
    file = File([10] * 10_000 + [50_000] * 300)

    steps = list(in_steps(file.scan, BOUND, file.resize if can_resize else None))

    too_large = [step for step in steps if step.nbytes > BOUND + 1_000]
    assert len(too_large) <= 1
    assert all(step.num_rows <= STEP_ROWS for step in steps)
    assert file.scans == (1 if can_resize else 6)


@pytest.mark.parametrize("can_resize", [True, False])
def test_in_steps_few_scans(can_resize: bool) -> None:
    """Rows of changing sizes are scanned a few times, not once for each change."""
    file = File(([10] * 3_000 + [2_000] * 300) * 5)

    list(in_steps(file.scan, BOUND, file.resize if can_resize else None))

    # Smaller steps begin at once, larger ones ever later.
    assert file.scans == (1 if can_resize else 11)


def test_in_steps_too_large_row() -> None:
    """A row that no array can hold is an error."""
    file = File([10] * 50 + [3_000], capacity=2_000)

    with pytest.raises(pa.ArrowCapacityError, match="2147483646"):
        list(in_steps(file.scan, BOUND, file.resize))


@given(sizes=_SIZES, step=st.integers(1, 50))
def test_in_batches_property(sizes: list[int], step: int) -> None:
    """Batches have all rows in order; none but those of one row are larger than allowed."""
    steps = [batch_of(sizes[at : at + step], at) for at in range(0, len(sizes), step)]

    batches = list(in_batches(steps, BOUND))

    assert offsets_of(batches) == list(range(len(sizes)))
    overhead = 20
    for batch in batches:
        assert batch.num_rows == 1 or batch.nbytes <= BOUND + overhead * batch.num_rows


def test_in_batches_small_steps() -> None:
    """Small steps become one batch, up to the highest number of rows."""
    steps = [batch_of([1] * 1_000, at) for at in range(0, BATCH_ROWS + 2_000, 1_000)]

    assert [batch.num_rows for batch in in_batches(steps, 1 << 30)] == [BATCH_ROWS, 2_000]


def test_in_batches_no_rows() -> None:
    """Without rows there is no batch."""
    assert not list(in_batches([batch_of([]), batch_of([])], BOUND))


_CONTENT = st.none() | st.binary(max_size=9)


@given(
    rows=st.lists(
        st.tuples(
            _CONTENT,
            _CONTENT,
            st.none()
            | st.lists(
                st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=3
            ),
        ),
        max_size=12,
    ),
    start=st.integers(0, 12),
    overhead=st.sampled_from([0, 10]),
)
def test_row_sizes_property(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]],
    start: int,
    overhead: int,
) -> None:
    """The size of a row is that of its key, value and headers, also in a slice."""
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "key": key,
                "value": value,
                "headers": headers and [{"key": name, "value": held} for name, held in headers],
            }
            for key, value, headers in rows
        ],
        schema=pa.schema(
            [("key", pa.large_binary()), ("value", pa.binary()), ("headers", HEADERS)]
        ),
    )

    expected = [
        len(key or b"")
        + len(value or b"")
        + sum(len(name.encode()) + len(held or b"") + overhead for name, held in headers or ())
        for key, value, headers in rows
    ]
    assert row_sizes(batch, overhead).to_pylist() == expected
    assert row_sizes(batch.slice(start), overhead).to_pylist() == expected[start:]


@pytest.mark.parametrize("names", [["offset"], ["offset", "value"]])
def test_row_sizes_missing_columns(names: list[str]) -> None:
    """A column that isn't there takes nothing."""
    sizes = row_sizes(batch_of([3, 5]).select(names)).to_pylist()

    assert sizes == ([3, 5] if "value" in names else [0, 0])


def test_row_sizes_imports(tmp_path: Path) -> None:
    """Headers are counted without pandas, which each process would need 0.3 s to import."""
    headers = pa.array([[{"key": "n", "value": b"12"}], None, []], HEADERS)
    pq.write_table(pa.table({"headers": headers}), tmp_path / "file")
    script = f"""
import sys
import pyarrow.parquet as pq
from kafka_drain.data_files.batch_sizes import row_sizes
for batch in pq.ParquetFile({str(tmp_path / "file")!r}).iter_batches():
    print(row_sizes(batch, 10).to_pylist(), "pandas" in sys.modules)
"""
    assert printed_by(script) == ["[13, 0, 0] False"]
