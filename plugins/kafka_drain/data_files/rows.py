"""Batches of records as rows, in the form that Kafka's client takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import pyarrow as pa

Headers: TypeAlias = "list[tuple[str, str | bytes | None]] | None"

#: Key, value, headers (None for none), timestamp in milliseconds since 1970, offset.
Row: TypeAlias = "tuple[bytes | None, bytes | None, Headers, int, int]"

#: The same of several records.
Columns: TypeAlias = (
    "tuple[Sequence[bytes | None], Sequence[bytes | None], Sequence[Headers], Sequence[int], "
    "Sequence[int]]"
)


def rows_of(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield a batch's records.

    Args:
        batch: Has the columns of `data_files.records.SCHEMA`.
    """
    return zip(*columns_of(batch), strict=True)


def columns_of(batch: pa.RecordBatch) -> Columns:
    """Return the same as `rows_of`, a list for each part."""
    return (
        batch["key"].to_pylist(),
        batch["value"].to_pylist(),
        headers_of(batch["headers"]),
        timestamps_of(batch).to_pylist(),
        batch["offset"].to_pylist(),
    )


def timestamps_of(batch: pa.RecordBatch) -> pa.Int64Array:
    """Return each record's timestamp in milliseconds since 1970."""
    return batch["timestamp"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64())


def headers_of(column: pa.ListArray) -> list[Headers]:
    """Return each record's headers as pairs; a dict per header would cost three times as much."""
    pairs = column.flatten()
    if not len(pairs):
        return [None] * len(column)
    flat = list(zip(pairs.field("key").to_pylist(), pairs.field("value").to_pylist(), strict=True))
    found: list[Headers] = []
    at = 0
    for length in column.value_lengths().to_pylist():
        # The length is null if there are no headers. (Filling such nulls would import pandas.)
        found.append(flat[at : at + length] if length else None)
        at += length or 0
    return found
