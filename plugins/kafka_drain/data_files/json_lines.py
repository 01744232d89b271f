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
from datetime import datetime, timedelta, timezone
from typing import IO, Any

import pyarrow as pa

from kafka_drain.data_files.records import (
    DataPath,
    Wanted,
    batches_of_rows,
    columns_of_rows,
)

__all__ = ["read_columns", "read_records"]

#: How Spark writes a time of a year that Python's calendar hasn't: with a sign, or as year 0.
_OTHER_YEAR = re.compile(r"([+-]\d{4,}|0000)(-.*)")
#: The Gregorian calendar repeats itself every so many years, to the day.
_CYCLE_YEARS, _CYCLE = 400, timedelta(days=146_097)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


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


def _time(text: str) -> datetime | int:
    """Return a time, or the microseconds since 1970 of one that isn't of Python's calendar."""
    other = _OTHER_YEAR.match(text)
    if other is None:
        # Python 3.10 doesn't read the Z.
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    cycles, year = divmod(int(other[1]), _CYCLE_YEARS)
    # A year of the calendar that is like it: 2000 to 2399.
    alike = datetime.fromisoformat(f"{2000 + year}{other[2].replace('Z', '+00:00')}")
    since = (alike - _EPOCH) // _MICROSECOND
    return since + (cycles - 2000 // _CYCLE_YEARS) * (_CYCLE // _MICROSECOND)
