"""Parquet data files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from kafka_drain.data_files.records import COLUMN_ROWS, SCHEMA, conform, rows_per_batch

__all__ = ["read_columns", "read_records"]


def read_columns(path: UPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns."""
    with path.open("rb") as source:
        yield from pq.ParquetFile(source).iter_batches(batch_size=COLUMN_ROWS, columns=names)


def read_records(path: UPath, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order."""
    with path.open("rb") as source:
        file = pq.ParquetFile(source)
        names = [name for name in SCHEMA.names if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            described = file.metadata.row_group(group)
            rows = rows_per_batch(described.total_byte_size, described.num_rows, batch_bytes)
            for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=names):
                yield conform(batch)
