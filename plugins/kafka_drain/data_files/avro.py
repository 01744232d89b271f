"""Avro data files, as written by spark-avro.

fastavro is imported only when a file is read: Spark's executors don't need it for other formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kafka_drain.data_files.records import (
    DataPath,
    Wanted,
    batches_of_rows,
    columns_of_rows,
)


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns; Avro is row-oriented, so the whole file is decompressed for them."""
    with path.open("rb") as source:
        yield from columns_of_rows(*_rows(source, names))


def read_records(
    path: DataPath, batch_bytes: int, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all records in file order, wanted or not: Avro blocks have no statistics."""
    with path.open("rb") as source:
        rows, _ = _rows(source, None)
        yield from batches_of_rows(rows, batch_bytes)


def _rows(source: Any, names: list[str] | None) -> tuple[Iterator[dict[str, Any]], list[str]]:
    """Return a file's rows, and which of the named columns they have; all columns if names is None.

    Times are microseconds since 1970: fastavro would convert each to a Python datetime, which only
    supports the years 1 to 9999.
    """
    import fastavro

    blocks: Any = fastavro.block_reader(source)
    schema: Any = _without_logical_types(blocks.writer_schema)
    fields = [field for field in schema["fields"] if names is None or field["name"] in names]
    written = fastavro.parse_schema(schema)
    # A schema defines each name once, so the wanted part needs a schema of its own.
    wanted = None if names is None else fastavro.parse_schema({**schema, "fields": fields})

    def rows() -> Iterator[dict[str, Any]]:
        for block in blocks:
            for _ in range(block.num_records):
                row: Any = fastavro.schemaless_reader(block.bytes_, written, wanted)
                yield row

    return rows(), [field["name"] for field in fields]


def _without_logical_types(schema: Any) -> Any:
    """Return a schema with the physical types in the file."""
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    # Keys that start with __ are added by fastavro when it parses a schema.
    return {
        name: _without_logical_types(value)
        for name, value in schema.items()
        if name != "logicalType" and not name.startswith("__")
    }
