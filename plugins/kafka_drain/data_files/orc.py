"""ORC data files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import orc

from kafka_drain.data_files.records import (
    SCHEMA,
    DataPath,
    TimestampError,
    Wanted,
    conform,
    rows_per_batch,
)

__all__ = ["read_columns", "read_records"]


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns, a stripe at a time."""
    with path.open("rb") as source:
        file = orc.ORCFile(source)
        wanted = [name for name in names if name in file.schema.names]
        for stripe in range(file.nstripes):
            yield _stripe(file, stripe, wanted)


def read_records(
    path: DataPath, batch_bytes: int, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order; a stripe (64 MiB by default) is read at a time.

    Wanted or not: pyarrow doesn't show the statistics of stripes.
    """
    with path.open("rb") as source:
        file = orc.ORCFile(source)
        names = [name for name in SCHEMA.names if name in file.schema.names]
        for stripe in range(file.nstripes):
            batch = _in_utc(_stripe(file, stripe, names))
            rows = rows_per_batch(batch.nbytes, batch.num_rows, batch_bytes)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


def _stripe(file: orc.ORCFile, stripe: int, names: list[str]) -> pa.RecordBatch:
    try:
        return file.read_stripe(stripe, columns=names)
    except pa.ArrowInvalid as error:
        # pyarrow reads all of ORC's times as nanoseconds: those of the years 1677 to 2262.
        if "out of range for nanosecond" in str(error):
            raise TimestampError(
                f"a record's time can't be read of ORC, only those from 1677 to 2262 can ({error})"
            ) from error
        raise


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """ORC's timestamps have no zone; the drain's JVM writes them in UTC."""
    position = batch.schema.get_field_index("timestamp")
    if position < 0 or batch.schema.field(position).type.tz is not None:
        return conform(batch)
    times = batch.column(position).cast(pa.timestamp("us")).cast(SCHEMA.field("timestamp").type)
    return conform(batch.set_column(position, SCHEMA.field("timestamp"), times))
