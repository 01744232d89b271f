"""The columns of a record as pyarrow sees them, whatever the file's format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

import pyarrow as pa

from kafka_drain.errors import DataFileError

__all__ = [
    "BATCH_ROWS",
    "COLUMN_ROWS",
    "SCHEMA",
    "DataPath",
    "TimestampError",
    "Wanted",
    "batches_of_rows",
    "columns_of_rows",
    "conform",
    "milliseconds",
    "path_of",
    "rows_per_batch",
    "units_per_second",
]

#: A record. `timestampType` is 0 for CreateTime, 1 for LogAppendTime.
SCHEMA = pa.schema(
    [
        ("key", pa.large_binary()),
        ("value", pa.large_binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.large_binary())]))),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
)

#: A batch has at most so many rows, however small they are.
BATCH_ROWS = 50_000

#: So many rows of the few columns that a proof needs are read at a time (about 3 MB).
COLUMN_ROWS = 1 << 17


class TimestampError(DataFileError):
    """Raised when a record's time is one that the format's library can't represent.

    Producers may send any: a sentinel such as 9999-12-31, or microseconds as milliseconds.
    """


class DataPath(Protocol):
    """What is asked of a data file's path: `pathlib.Path` and `UPath` both do it."""

    @property
    def suffix(self) -> str:
        """The end of the name, from its last dot."""

    def open(self, mode: Literal["rb"], /) -> IO[bytes]:
        """Open the file."""


def path_of(root: str, path: str) -> Path:
    """Return a file of an archive, on a disk or in a store; both do what a path does.

    Args:
        root: The archive's folder.
        path: The file, relative to it.
    """
    if "://" not in root:
        return Path(root, path)
    # Not at the top: executors that read local files need no fsspec.
    from kafka_drain.storage.paths import locate

    return cast(Path, locate(root) / path)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Bounds of the rows that are wanted; a format may leave out what lies outside.

    It need not: rows outside may come as well.

    Attributes:
        partition: The partition; None for all.
        first: Lowest offset.
        end: Where offsets end, this one not included; None for no bound.
        from_ms: Lowest timestamp in milliseconds since 1970; None for no bound.
        to_ms: Where timestamps end, this one not included; None for no bound.
    """

    partition: int | None = None
    first: int = 0
    end: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give a batch the columns of SCHEMA: cast what differs, null where a column is missing."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def batches_of_rows(rows: Iterable[dict[str, Any]], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Put plain rows into batches, as many as a batch's bounds allow.

    The size of a row is taken as that of its value and key.
    """
    held: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.get("value") or b"") + len(row.get("key") or b"")
        if len(held) >= BATCH_ROWS or size >= batch_bytes:
            yield pa.RecordBatch.from_pylist(held, schema=SCHEMA)
            held, size = [], 0
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=SCHEMA)


def rows_per_batch(size: int, rows: int, batch_bytes: int) -> int:
    """Return how many of some rows make a batch, from their uncompressed size in bytes."""
    return max(1, min(BATCH_ROWS, batch_bytes * max(rows, 1) // max(size, 1)))


def columns_of_rows(rows: Iterable[dict[str, Any]], names: list[str]) -> Iterator[pa.RecordBatch]:
    """Put single columns of plain rows into batches."""
    schema = pa.schema([SCHEMA.field(name) for name in names])
    iterator = iter(rows)
    while held := list(islice(iterator, BATCH_ROWS)):
        columns = [pa.array([row.get(f.name) for row in held], f.type) for f in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def milliseconds(time: pa.TimestampScalar) -> int:
    """Return a time in milliseconds since 1970; one without a zone is in UTC."""
    return int(time.value) * 1000 // units_per_second(time.type)


def units_per_second(times: pa.TimestampType) -> int:
    """Return how many of a time's units make a second."""
    return {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[times.unit]
