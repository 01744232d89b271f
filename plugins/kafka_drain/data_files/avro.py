"""Avro data files, as spark-avro writes them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fastavro
import pyarrow as pa
from upath import UPath

from kafka_drain.data_files.records import DataFileError, batches_of_rows, columns_of_rows

__all__ = ["read_columns", "read_records"]


@contextmanager
def _opened(path: UPath, columns: list[str] | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    with path.open("rb") as source:
        try:
            reader = fastavro.reader(source)
            if columns is not None:
                schema = dict(reader.writer_schema)  # type: ignore[arg-type]
                schema["fields"] = [f for f in schema["fields"] if f["name"] in columns]
                source.seek(0)
                reader = fastavro.reader(source, reader_schema=schema)
            yield reader  # type: ignore[misc]
        except (ValueError, EOFError, IndexError, KeyError, OSError) as error:
            raise DataFileError(f"not readable as Avro: {error or type(error).__name__}") from error


def read_columns(path: UPath, names: list[str]) -> pa.Table:
    """Return a few columns."""
    with _opened(path, names) as rows:
        return columns_of_rows(rows, names)


def read_records(path: UPath, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order."""
    with _opened(path) as rows:
        yield from batches_of_rows(rows, batch_bytes)
