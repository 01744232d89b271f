"""ORC data files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyarrow import orc

from kafka_drain.config.sink_options import MILLISECONDS, PLAIN
from kafka_drain.data_files.batch_sizes import BATCH_BYTES, in_batches, in_steps
from kafka_drain.data_files.records import (
    COLUMN_ROWS,
    SCHEMA,
    DataPath,
    RowBounds,
    TimestampError,
    conform,
)


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns."""
    with path.open("rb") as source:
        wanted = _columns(source, names)
        if set(names) <= set(PLAIN):
            yield from map(_with_exact_times, _scan(source, wanted, COLUMN_ROWS))
        else:
            for batch in _batches(source, wanted, BATCH_BYTES):
                yield _with_exact_times(batch)


def read_records(
    path: DataPath, batch_bytes: int, wanted: RowBounds | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order.

    All records are included, wanted or not: pyarrow doesn't expose stripe statistics.
    """
    with path.open("rb") as source:
        for batch in _batches(source, _columns(source, SCHEMA.names), batch_bytes):
            yield _in_utc(_with_exact_times(batch))


def _batches(source: Any, names: list[str], batch_bytes: int) -> Iterator[pa.RecordBatch]:
    def scan(rows: int) -> Iterator[pa.RecordBatch]:
        return _scan(source, names, rows)

    return in_batches(in_steps(scan, batch_bytes), batch_bytes)


def _columns(source: Any, names: list[str]) -> list[str]:
    """Return the columns that exist in a file, with the exact times in place of timestamps."""
    there = orc.ORCFile(source).schema.names
    if MILLISECONDS in there:
        names = [MILLISECONDS if name == "timestamp" else name for name in names]
    return [name for name in names if name in there]


def _scan(source: Any, names: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Yield columns in batches of some rows, by a dataset.

    `ORCFile` reads whole stripes, 64 MiB as they are compressed: the same value many times fills
    one with gigabytes.
    """
    # Not at the top: executors that read other formats don't need it.
    from pyarrow.dataset import OrcFileFormat

    fragment = OrcFileFormat().make_fragment(source)
    batches: Iterator[pa.RecordBatch] = fragment.to_batches(
        columns=names,
        batch_size=rows,
        batch_readahead=0,
        fragment_readahead=0,
        use_threads=False,
    )
    try:
        yield from batches
    except pa.ArrowInvalid as error:
        # In files of older releases, pyarrow reads ORC timestamps as nanoseconds, which cover only
        # the years 1677 to 2262.
        if "out of range for nanosecond" in str(error):
            raise TimestampError(
                "a record's time can't be read from ORC, only times from 1677 to 2262 can "
                f"({error})"
            ) from error
        raise


def _with_exact_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert the milliseconds to timestamps; files of older releases have only timestamps."""
    position = batch.schema.get_field_index(MILLISECONDS)
    if position < 0:
        return batch
    times = batch.column(position).cast(pa.timestamp("ms", tz="UTC"))
    field = SCHEMA.field("timestamp")
    return batch.set_column(position, field, times.cast(field.type))


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Attach UTC: ORC timestamps have no zone, and the drain's JVM writes them in UTC."""
    position = batch.schema.get_field_index("timestamp")
    if position < 0 or batch.schema.field(position).type.tz is not None:
        return conform(batch)
    times = batch.column(position).cast(pa.timestamp("us")).cast(SCHEMA.field("timestamp").type)
    return conform(batch.set_column(position, SCHEMA.field("timestamp"), times))
