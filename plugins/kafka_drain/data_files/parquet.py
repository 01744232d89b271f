"""Parquet data files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
from upath import UPath

from kafka_drain.data_files.records import SCHEMA, DataFileError, conform, rows_per_batch

__all__ = ["read_columns", "read_records"]


@contextmanager
def _opened(path: UPath) -> Iterator[pq.ParquetFile]:
    with path.open("rb") as source:
        try:
            yield pq.ParquetFile(source)
        except (pa.ArrowException, OSError, KeyError) as error:
            raise DataFileError(f"not readable as Parquet: {error}") from error


def read_columns(path: UPath, names: list[str]) -> pa.Table:
    """Return a few columns."""
    with _opened(path) as file:
        return file.read(columns=names)


def read_records(path: UPath, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order."""
    with _opened(path) as file:
        names = [name for name in SCHEMA.names if name in file.schema_arrow.names]
        for group in range(file.num_row_groups):
            described = file.metadata.row_group(group)
            rows = rows_per_batch(described.total_byte_size, described.num_rows, batch_bytes)
            for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=names):
                yield conform(batch)
