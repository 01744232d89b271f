"""Avro data files, as spark-avro writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import fastavro
import pyarrow as pa
from upath import UPath

from kafka_drain.data_files.records import batches_of_rows, columns_of_rows

__all__ = ["read_columns", "read_records"]


def read_columns(path: UPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns; Avro keeps rows, so the whole file is inflated for them."""
    with path.open("rb") as source:
        schema: Any = fastavro.reader(source).writer_schema
        wanted = [field for field in schema["fields"] if field["name"] in names]
        source.seek(0)
        rows: Any = fastavro.reader(source, reader_schema={**schema, "fields": wanted})
        yield from columns_of_rows(rows, [field["name"] for field in wanted])


def read_records(path: UPath, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order."""
    with path.open("rb") as source:
        rows: Any = fastavro.reader(source)
        yield from batches_of_rows(rows, batch_bytes)
