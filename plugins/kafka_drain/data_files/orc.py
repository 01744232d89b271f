"""ORC data files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyarrow import orc

from kafka_drain.data_files.records import SCHEMA, DataPath, Wanted, conform, rows_per_batch

__all__ = ["read_columns", "read_records"]


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns, a stripe at a time."""
    with path.open("rb") as source:
        file = orc.ORCFile(source)
        wanted = [name for name in names if name in file.schema.names]
        for stripe in range(file.nstripes):
            yield file.read_stripe(stripe, columns=wanted)


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
            batch = _in_utc(file.read_stripe(stripe, columns=names))
            rows = rows_per_batch(batch.nbytes, batch.num_rows, batch_bytes)
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """ORC's timestamps have no zone; the drain's JVM writes them in UTC."""
    position = batch.schema.get_field_index("timestamp")
    if position < 0 or batch.schema.field(position).type.tz is not None:
        return conform(batch)
    times = batch.column(position).cast(pa.timestamp("us")).cast(SCHEMA.field("timestamp").type)
    return conform(batch.set_column(position, SCHEMA.field("timestamp"), times))
