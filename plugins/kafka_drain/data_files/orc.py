"""ORC data files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import orc

from kafka_drain.config.sink_options import MILLISECONDS
from kafka_drain.data_files.records import (
    SCHEMA,
    DataPath,
    TimestampError,
    Wanted,
    conform,
    rows_per_batch,
)


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns, one stripe at a time."""
    with path.open("rb") as source:
        file = orc.ORCFile(source)
        wanted = _columns(file, names)
        for stripe in range(file.nstripes):
            yield _with_exact_times(_stripe(file, stripe, wanted))


def read_records(
    path: DataPath, batch_bytes: int, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order, reading one stripe (64 MiB by default) at a time.

    All records are included, wanted or not: pyarrow doesn't expose stripe statistics.
    """
    with path.open("rb") as source:
        file = orc.ORCFile(source)
        names = _columns(file, SCHEMA.names)
        for stripe in range(file.nstripes):
            batch = _in_utc(_with_exact_times(_stripe(file, stripe, names)))
            rows = rows_per_batch(batch.nbytes, batch.num_rows, batch_bytes)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


def _columns(file: orc.ORCFile, names: list[str]) -> list[str]:
    """Return the columns that exist in a file, with the exact times in place of timestamps."""
    there = file.schema.names
    if MILLISECONDS in there:
        names = [MILLISECONDS if name == "timestamp" else name for name in names]
    return [name for name in names if name in there]


def _with_exact_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert the milliseconds to timestamps; files of older releases have only timestamps."""
    position = batch.schema.get_field_index(MILLISECONDS)
    if position < 0:
        return batch
    times = batch.column(position).cast(pa.timestamp("ms", tz="UTC"))
    field = SCHEMA.field("timestamp")
    return batch.set_column(position, field, times.cast(field.type))


def _stripe(file: orc.ORCFile, stripe: int, names: list[str]) -> pa.RecordBatch:
    try:
        return file.read_stripe(stripe, columns=names)
    except pa.ArrowInvalid as error:
        # In files of older releases, pyarrow reads ORC timestamps as nanoseconds, which cover only
        # the years 1677 to 2262.
        if "out of range for nanosecond" in str(error):
            raise TimestampError(
                "a record's time can't be read from ORC, only times from 1677 to 2262 can "
                f"({error})"
            ) from error
        raise


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Attach UTC: ORC timestamps have no zone, and the drain's JVM writes them in UTC."""
    position = batch.schema.get_field_index("timestamp")
    if position < 0 or batch.schema.field(position).type.tz is not None:
        return conform(batch)
    times = batch.column(position).cast(pa.timestamp("us")).cast(SCHEMA.field("timestamp").type)
    return conform(batch.set_column(position, SCHEMA.field("timestamp"), times))
