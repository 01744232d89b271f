"""Avro data files, as spark-avro writes them.

fastavro is imported when a file is read: Spark's executors need not have it for other formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kafka_drain.data_files.records import (
    DataPath,
    TimestampError,
    Wanted,
    batches_of_rows,
    columns_of_rows,
)

__all__ = ["read_columns", "read_records"]


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns; Avro keeps rows, so the whole file is inflated for them."""
    import fastavro

    with path.open("rb") as source:
        schema: Any = fastavro.reader(source).writer_schema
        wanted = [field for field in schema["fields"] if field["name"] in names]
        source.seek(0)
        rows: Any = fastavro.reader(source, reader_schema={**schema, "fields": wanted})
        with _times_of_calendar("timestamp" in names):
            yield from columns_of_rows(rows, [field["name"] for field in wanted])


def read_records(
    path: DataPath, batch_bytes: int, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order, wanted or not: a block has no statistics."""
    import fastavro

    with path.open("rb") as source:
        rows: Any = fastavro.reader(source)
        with _times_of_calendar(True):
            yield from batches_of_rows(rows, batch_bytes)


@contextmanager
def _times_of_calendar(are_read: bool) -> Iterator[None]:
    """Name a time that isn't of Python's calendar, which fastavro makes of each timestamp."""
    try:
        yield
    except OverflowError as error:
        if not are_read:
            raise
        raise TimestampError(
            f"a record's time can't be read of Avro, only those of the years 1 to 9999 ({error})"
        ) from error
