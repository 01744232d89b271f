"""Avro data files, as spark-avro writes them.

fastavro is imported when a file is read: Spark's executors need not have it for other formats.
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

__all__ = ["read_columns", "read_records"]


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns; Avro keeps rows, so the whole file is inflated for them."""
    with path.open("rb") as source:
        yield from columns_of_rows(*_rows(source, names))


def read_records(
    path: DataPath, batch_bytes: int, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order, wanted or not: a block has no statistics."""
    with path.open("rb") as source:
        rows, _ = _rows(source, None)
        yield from batches_of_rows(rows, batch_bytes)


def _rows(source: Any, names: list[str] | None) -> tuple[Iterator[dict[str, Any]], list[str]]:
    """Return a file's rows, and which of some columns they have; all of them where none is named.

    Times come as microseconds since 1970: fastavro would make each one of Python's, which only
    those of the years 1 to 9999 can be.
    """
    import fastavro

    blocks: Any = fastavro.block_reader(source)
    schema: Any = _without_logical_types(blocks.writer_schema)
    fields = [field for field in schema["fields"] if names is None or field["name"] in names]
    written = fastavro.parse_schema(schema)
    # A name is defined once in a schema: the parts that are wanted are a schema of their own.
    wanted = None if names is None else fastavro.parse_schema({**schema, "fields": fields})

    def rows() -> Iterator[dict[str, Any]]:
        for block in blocks:
            for _ in range(block.num_records):
                row: Any = fastavro.schemaless_reader(block.bytes_, written, wanted)
                yield row

    return rows(), [field["name"] for field in fields]


def _without_logical_types(schema: Any) -> Any:
    """Return a schema whose types are those that are in the file."""
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    # What begins with __ is fastavro's own, of a schema that it has parsed.
    return {
        name: _without_logical_types(value)
        for name, value in schema.items()
        if name != "logicalType" and not name.startswith("__")
    }
