"""Avro data files, as written by spark-avro.

fastavro is imported only when a file is read: Spark's executors don't need it for other formats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from kafka_drain.data_files.batch_sizes import BATCH_BYTES
from kafka_drain.data_files.records import SCHEMA, DataPath, RowBounds, batches_of_rows


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns; Avro is row-oriented, so the whole file is decompressed for them."""
    with path.open("rb") as source:
        rows, columns = _rows(source)
        kept = [name for name in columns if name in names]
        # Row by row, so that values aren't held.
        parts = ({name: row[name] for name in kept} for row in rows)
        yield from batches_of_rows(parts, BATCH_BYTES, kept)


def may_have_nul_names(path: DataPath) -> bool:
    """Return whether a header's name has a NUL; twice as fast as `read_columns`."""
    with path.open("rb") as source:
        rows, _ = _rows(source)
        headers = (header for row in rows for header in row.get("headers") or ())
        return any(header and "\0" in (header["key"] or "") for header in headers)


def read_records(
    path: DataPath, batch_bytes: int, wanted: RowBounds | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all records in file order, wanted or not: Avro blocks have no statistics."""
    with path.open("rb") as source:
        rows, columns = _rows(source)
        kept = [name for name in columns if name in SCHEMA.names]
        # Row by row, so that decoded values aren't held.
        parts = ({name: row[name] for name in kept} for row in rows)
        yield from batches_of_rows(parts, batch_bytes)


def _rows(source: Any) -> tuple[Iterator[dict[str, Any]], list[str]]:
    """Return a file's rows and their columns.

    All columns are decoded: with a reader's schema, fastavro takes longer for fewer of them. Times
    are microseconds since 1970: fastavro would convert each to a Python datetime, which only
    supports the years 1 to 9999.
    """
    import fastavro

    blocks: Any = fastavro.block_reader(source)
    schema: Any = _without_logical_types(blocks.writer_schema)
    written = fastavro.parse_schema(schema)

    def rows() -> Iterator[dict[str, Any]]:
        for block in blocks:
            for _ in range(block.num_records):
                row: Any = fastavro.schemaless_reader(block.bytes_, written)
                yield row

    return rows(), [field["name"] for field in schema["fields"]]


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
