"""JSON data files, as Spark writes them: a line a record, bytes in base64, nulls left out."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import zlib
from base64 import b64decode
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

import pyarrow as pa

from kafka_drain.data_files.records import (
    DataPath,
    TimestampError,
    Wanted,
    batches_of_rows,
    columns_of_rows,
)

__all__ = ["read_columns", "read_records"]

#: How Spark writes a year that hasn't four digits: with its sign.
_SIGNED_YEAR = re.compile(r"[+-]\d{4,}-")


class _Inflated(io.RawIOBase):
    """A zlib stream (Hadoop's DeflateCodec), read as it is inflated."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._inflate = zlib.decompressobj()

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        while True:
            held = self._inflate.unconsumed_tail or self._source.read(1 << 16)
            if not held:
                if not self._inflate.eof:
                    raise EOFError("the compressed stream ends too early")
                return 0
            inflated = self._inflate.decompress(held, len(target))
            if inflated:
                target[: len(inflated)] = inflated
                return len(inflated)


def _lines(source: IO[bytes], suffix: str) -> Any:
    if suffix == ".gz":
        return gzip.GzipFile(fileobj=source)
    if suffix == ".bz2":
        return bz2.BZ2File(source)
    if suffix == ".deflate":
        return io.BufferedReader(_Inflated(source))
    return source


def _rows(source: IO[bytes], suffix: str) -> Iterator[dict[str, Any]]:
    for line in _lines(source, suffix):
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError(f"expected a JSON object a line, got {line[:40]!r}")
        yield row


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns; all lines are parsed for them."""
    with path.open("rb") as source:
        rows = _rows(source, path.suffix)
        if "timestamp" in names:
            rows = map(_with_time, rows)
        yield from columns_of_rows(rows, names)


def _with_time(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("timestamp") is not None:
        row["timestamp"] = _time(row["timestamp"])
    return row


def read_records(
    path: DataPath, batch_bytes: int, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order, wanted or not: each line is parsed."""
    with path.open("rb") as source:
        rows = (_decoded(row) for row in _rows(source, path.suffix))
        yield from batches_of_rows(rows, batch_bytes)


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    for name in ("key", "value"):
        if row.get(name) is not None:
            row[name] = b64decode(row[name], validate=True)
    for header in row.get("headers") or ():
        if header.get("value") is not None:
            header["value"] = b64decode(header["value"], validate=True)
    row["timestamp"] = _time(row["timestamp"])
    return row


def _time(text: str) -> datetime:
    if _SIGNED_YEAR.match(text):
        raise TimestampError(
            f"a record's time can't be read of JSON, only those of the years 1 to 9999: {text}"
        )
    # Python 3.10 doesn't read the Z.
    return datetime.fromisoformat(text.replace("Z", "+00:00"))
