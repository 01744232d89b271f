"""Batches of rows, bounded by the size of their rows unpacked.

A file can't say how large its rows are: a dictionary holds a value once for thousands of rows, and
zstd packs 3 GB of the same value into 1 MB. So files are read in steps of a few rows. How many is
decided by the steps before; then small steps are joined, and large ones are cut.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.scalars import number

#: Maximum size of a batch unless it has a single row. Larger ones are processed no faster, and
#: whoever makes Python objects of them, or sorts them, holds them several times.
BATCH_BYTES = 16 << 20
#: Maximum number of rows in a batch, however small they are.
BATCH_ROWS = 50_000
#: Rows that are known to take no more than this together are read without steps.
FEW_BYTES = 64 << 20
#: Maximum number of rows in a step, and so of those that turn out to be larger than the rows before
#: them. More would be read no faster; half as many take a tenth more of the time.
STEP_ROWS = 2048
#: Largest factor by which a step has more or fewer rows than the one before.
_FACTOR = 8
#: Steps of a batch: rows are held twice while they are joined, and arrays grow by doubling.
_STEPS = 4

#: pyarrow's errors about an array of more than 2 GiB: of bytes, of a column within another one.
_TOO_LARGE = (pa.ArrowCapacityError, pa.ArrowNotImplementedError)

#: Reads rows from the first one on, in steps of a number of rows.
Scan = Callable[[int], Iterator[pa.RecordBatch]]


class Steps:
    """Decides the number of rows to read next.

    Args:
        batch_bytes: Memory that a step should take at most.

    Attributes:
        rows: Number of rows of the next step.
    """

    def __init__(self, batch_bytes: int) -> None:
        self._bytes = batch_bytes // _STEPS
        # Nothing is known about the size of a row.
        self.rows = 1

    def see(self, rows: int, size: int) -> None:
        """Decide by a step of some rows, and their size in bytes."""
        if rows:
            fitting = self._bytes * rows // max(size, 1)
            self.rows = max(1, min(fitting, _FACTOR * rows, STEP_ROWS))

    def fail(self) -> None:
        """Decide after a step that was too large for an array."""
        self.rows = max(1, self.rows // _FACTOR)


def in_steps(
    scan: Scan, batch_bytes: int, resize: Callable[[int], None] | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all rows of a scan in steps, the last of which has at most STEP_ROWS rows too many.

    Args:
        scan: Reads the rows. Without `resize`, it is called again, and rows that have been yielded
            are skipped, when steps should be much smaller or larger; larger ones begin near the
            beginning, and then whenever four times as many rows have been read.
        batch_bytes: Memory that a step should take at most.
        resize: Sets the number of rows of the scan's next step.
    """
    steps, done, grows_from = Steps(batch_bytes), 0, 0
    while True:
        rows, at = steps.rows, 0
        asked = rows
        try:
            for batch in scan(rows):
                at += batch.num_rows
                if at <= done:
                    continue
                steps.see(batch.num_rows, batch.get_total_buffer_size())
                known = max(done - at + batch.num_rows, 0)
                yield batch.slice(known) if known else batch
                done = at
                if resize is not None:
                    asked = steps.rows
                    resize(asked)
                elif steps.rows <= rows // 4:
                    break
                elif steps.rows >= 2 * rows and done >= grows_from:
                    # Near the beginning, little is read again.
                    grows_from = 4 * done if done >= STEP_ROWS else 0
                    break
            else:
                return
        except _TOO_LARGE:
            # The next step may be meant to be smaller than this one was.
            if asked == 1:
                raise
            steps.fail()


def in_batches(steps: Iterable[pa.RecordBatch], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches of at most `batch_bytes`, or of a single row, in the same order.

    Args:
        steps: The rows.
        batch_bytes: Maximum size of a batch, counted without the overhead of a row.
    """
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for step in steps:
        for part, more in _cut(step, batch_bytes):
            if held and (size + more > batch_bytes or rows + part.num_rows > BATCH_ROWS):
                yield _joined(held)
                rows = size = 0
            held.append(part)
            rows += part.num_rows
            size += more
    if held:
        yield _joined(held)


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all parts, and release those: the caller won't until it goes on."""
    if len(parts) == 1:
        return parts.pop()
    whole = pa.Table.from_batches(parts)
    parts.clear()
    [joined] = whole.combine_chunks().to_batches()
    return joined


def _cut(step: pa.RecordBatch, batch_bytes: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the parts of a step, each with its size."""
    size = step.nbytes
    if size <= batch_bytes or step.num_rows < 2:
        if step.num_rows:
            yield step, size
        return
    ends = list(accumulate(row_sizes(step).to_pylist()))
    start = before = 0
    while start < len(ends):
        end = max(bisect_right(ends, before + batch_bytes), start + 1)
        part = step.slice(start, end - start)
        yield part, part.nbytes
        start, before = end, ends[end - 1]


def row_sizes(batch: pa.RecordBatch, header_overhead: int = 0) -> pa.Int64Array:
    """Return the size of key, value and headers of each row, in bytes; null counts as nothing.

    Args:
        batch: Rows; may lack any of these columns.
        header_overhead: Size of a header besides its name and value.
    """
    sizes = pa.repeat(number(0), batch.num_rows)
    for name in {"key", "value"}.intersection(batch.schema.names):
        sizes = pc.add(sizes, _lengths(batch[name]))
    if "headers" not in batch.schema.names:
        return sizes
    headers = batch["headers"]
    counts = pc.list_value_length(headers).cast(pa.int64()).fill_null(number(0))
    pairs = pc.list_flatten(headers)
    if not len(pairs):
        return sizes
    # Named by place: the names of a struct's fields are the writer's.
    each = pc.add(*(_lengths(pairs.field(place)) for place in (0, 1)))
    each = pc.add(each, number(header_overhead))
    until = pa.concat_arrays([pa.repeat(number(0), 1), pc.cumulative_sum(each)])
    ends = pc.cumulative_sum(counts)
    return pc.add(sizes, pc.subtract(until.take(ends), until.take(pc.subtract(ends, counts))))


def _lengths(column: pa.Array) -> pa.Int64Array:
    return pc.binary_length(column).cast(pa.int64()).fill_null(number(0))
