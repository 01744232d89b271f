"""Functions as users write them, and some that break the contract."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def tombstones_out(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave out tombstones, and put the values of the others into capitals."""
    kept = batch.filter(batch["value"].is_valid())
    at = kept.schema.names.index("value")
    upper = pc.utf8_upper(kept["value"].cast(pa.large_string())).cast(pa.large_binary())
    return kept.set_column(at, kept.schema.field(at), upper)


def by_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Change records one by one."""
    rows = batch.to_pylist()
    for row in rows:
        row["headers"] = [*(row["headers"] or []), {"key": "n", "value": b"%d" % row["offset"]}]
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)


def nothing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave everything out."""
    return batch.slice(0, 0)


def failing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Fail for one record, with its value in the message."""
    for offset, value in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True):
        if offset == 5:
            raise KeyError(f"no such customer: {value}")
    return batch


def leaving(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Leave at one record."""
    if 5 in batch["offset"].to_pylist():
        raise SystemExit(0)
    return batch


def failing_together(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Fail for several records, but for none of them alone."""
    if batch.num_rows > 1:
        raise ValueError(batch["value"].to_pylist())
    return batch


def _with(batch: pa.RecordBatch, name: str, change: Any) -> pa.RecordBatch:
    rows = batch.to_pylist()
    for row in rows:
        row[name] = change(row[name])
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)


def random_values(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give each record another value each time."""
    return _with(batch, "value", lambda _: random.randbytes(8))


def numbered_in_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Number the records of a batch, which isn't a function of each record."""
    numbers = iter(range(batch.num_rows))
    return _with(batch, "value", lambda _: b"%d" % next(numbers))


def other_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add one to each offset."""
    return _with(batch, "offset", lambda offset: offset + 1)


def other_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Take the timestamps away."""
    return _with(batch, "timestamp", lambda _: None)


def reversed_order(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Turn the order around."""
    return pa.RecordBatch.from_pylist(batch.to_pylist()[::-1], schema=batch.schema)


def twice(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return each record twice."""
    rows = [row for row in batch.to_pylist() for _ in range(2)]
    return pa.RecordBatch.from_pylist(rows, schema=batch.schema)


def a_table(batch: pa.RecordBatch) -> pa.Table:
    """Return a table."""
    return pa.Table.from_batches([batch])


def fewer_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return only some columns."""
    return batch.select(["key", "value", "offset"])


def header_with_nul(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Add a header that Kafka's client would cut off."""
    return _with(batch, "headers", lambda _: [{"key": "a\0b", "value": b""}])


not_a_function = 5
