"""The columns of a record in pyarrow, independent of the file format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, Protocol, cast

import pyarrow as pa

from kafka_drain.data_files.batch_sizes import BATCH_ROWS
from kafka_drain.errors import DataFileError

#: Schema of a record. `timestampType` is 0 for CreateTime, 1 for LogAppendTime.
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

#: Number of rows read at a time from the few columns that a proof needs (about 3 MB).
COLUMN_ROWS = 1 << 17


class TimestampError(DataFileError):
    """Raised when the format's library can't represent a record's time.

    Producers may send any value: a sentinel such as 9999-12-31, or microseconds as milliseconds.
    """


class DataPath(Protocol):
    """The interface required of a data file's path; `pathlib.Path` and `UPath` both have it."""

    @property
    def suffix(self) -> str:
        """The file extension, including the dot."""

    @property
    def parents(self) -> Sequence[Any]:
        """The folders around it, the innermost first."""

    def open(self, mode: Literal["rb"], /) -> IO[bytes]:
        """Open the file."""


def path_of(root: str, path: str) -> Path:
    """Return a file of an archive, on a disk or in a store; both kinds act like a `Path`.

    Args:
        path: The file, relative to it.
    """
    if "://" not in root:
        return Path(root, path)
    # Not at the top: executors that read local files don't need fsspec.
    from kafka_drain.storage.paths import locate

    return cast(Path, locate(root) / path)


@dataclass(frozen=True, slots=True)
class RowBounds:
    """Bounds of the wanted rows; a format may skip rows outside.

    Skipping is optional: rows outside may be included. What a file says of itself, such as
    Parquet's statistics, skips rows only if its bytes are known to be those that were sealed: a
    flipped bit there would otherwise hide records.

    Attributes:
        partition: The partition; None for all.
        first: Lowest offset.
        end: End of the offsets, exclusive; None for no bound.
        from_ms: Lowest timestamp in milliseconds since 1970; None for no bound.
        to_ms: End of the timestamps, exclusive; None for no bound.
        keys: The wanted keys; None for all. They may be personal data: never shown.
        is_proven: Whether all bytes of the file have been compared with its receipt.
        index_sha256: SHA-256 of a Parquet file's index according to its receipt; None if unknown.
        records: Number of records of the file according to its receipt; None if unknown.
    """

    partition: int | None = None
    first: int = 0
    end: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    keys: frozenset[bytes] | None = field(default=None, repr=False)
    is_proven: bool = False
    index_sha256: str | None = None
    records: int | None = None


def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert a batch to the columns of SCHEMA: cast types, and fill missing columns with null."""
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def batches_of_rows(
    rows: Iterable[dict[str, Any]], batch_bytes: int, names: Sequence[str] = SCHEMA.names
) -> Iterator[pa.RecordBatch]:
    """Group plain rows into batches, each as large as the limits allow.

    Args:
        rows: Rows with the named columns at most; others would be held for nothing.
        batch_bytes: Maximum size of a batch's keys, values and headers, unless it is a single row.
        names: The columns of a batch.
    """
    schema = pa.schema([SCHEMA.field(name) for name in names])
    held: list[dict[str, Any]] = []
    size = 0
    for row in rows:
        more = len(row.get("value") or b"") + len(row.get("key") or b"")
        for header in row.get("headers") or ():
            more += len(header.get("key") or "") + len(header.get("value") or b"")
        if held and (len(held) >= BATCH_ROWS or size + more > batch_bytes):
            yield pa.RecordBatch.from_pylist(held, schema=schema)
            held, size = [], 0
        held.append(row)
        size += more
    if held:
        yield pa.RecordBatch.from_pylist(held, schema=schema)


def milliseconds(time: pa.TimestampScalar) -> int:
    """Return a time in milliseconds since 1970; one without a zone is taken as UTC."""
    return int(time.value) * 1000 // units_per_second(time.type)


def units_per_second(times: pa.TimestampType) -> int:
    """Return the number of a time type's units per second."""
    return {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[times.unit]
