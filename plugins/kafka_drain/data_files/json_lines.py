"""JSON data files, as written by Spark: one line per record, bytes in base64, nulls omitted."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import re
import zlib
from base64 import b64decode
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from typing import IO, Any

import pyarrow as pa

from kafka_drain.data_files.batch_sizes import BATCH_BYTES
from kafka_drain.data_files.records import SCHEMA, DataPath, RowBounds, batches_of_rows

#: Spark's notation for years outside Python's calendar: with a sign, or year 0.
_OTHER_YEAR = re.compile(r"([+-]\d{4,}|0000)(-.*)")
#: Number of years, and days, after which the Gregorian calendar repeats itself.
_CYCLE_YEARS, _CYCLE = 400, timedelta(days=146_097)
#: The only way to write a NUL in JSON.
_NUL = rb"\u0000"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MICROSECOND = timedelta(microseconds=1)


class _Inflated(io.RawIOBase):
    """A zlib stream (Hadoop's DeflateCodec), decompressed while it is read."""

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
                    raise EOFError("the compressed stream ends prematurely")
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
            raise ValueError(f"expected one JSON object per line, got {line[:40]!r}")
        yield row


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns; all lines must be parsed for them."""
    with path.open("rb") as source:
        rows = map(partial(_with_bytes, names), _rows(source, path.suffix))
        if "timestamp" in names:
            rows = map(_with_time, rows)
        # Row by row, so that values aren't held.
        parts = ({name: row.get(name) for name in names} for row in rows)
        yield from batches_of_rows(parts, BATCH_BYTES, names)


def may_have_nul_names(path: DataPath) -> bool:
    """Return False if no header's name has a NUL; seven times as fast as parsing the lines."""
    tail = b""
    with path.open("rb") as source:
        lines = _lines(source, path.suffix)
        while chunk := lines.read(1 << 20):
            if _NUL in tail + chunk:
                return True
            tail = chunk[1 - len(_NUL) :]
    return False


def _with_time(row: dict[str, Any]) -> dict[str, Any]:
    if row.get("timestamp") is not None:
        row["timestamp"] = _time(row["timestamp"])
    return row


def read_records(
    path: DataPath, batch_bytes: int, wanted: RowBounds | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield all records in file order, wanted or not: every line must be parsed anyway."""
    with path.open("rb") as source:
        rows = (_decoded(row) for row in _rows(source, path.suffix))
        yield from batches_of_rows(rows, batch_bytes)


def _decoded(row: dict[str, Any]) -> dict[str, Any]:
    row = _with_bytes(SCHEMA.names, row)
    row["timestamp"] = _time(row["timestamp"])
    # Decoded values would be held for a whole batch.
    return {name: row.get(name) for name in SCHEMA.names}


def _with_bytes(names: Collection[str], row: dict[str, Any]) -> dict[str, Any]:
    """Decode the bytes of the named columns."""
    for name in ("key", "value"):
        if name in names and row.get(name) is not None:
            row[name] = b64decode(row[name], validate=True)
    for header in (row.get("headers") if "headers" in names else None) or ():
        if header.get("value") is not None:
            header["value"] = b64decode(header["value"], validate=True)
    return row


def _time(text: str) -> datetime | int:
    """Return a time, as microseconds since 1970 if Python's calendar doesn't cover it."""
    other = _OTHER_YEAR.match(text)
    if other is None:
        # Python 3.10 doesn't parse the Z.
        return datetime.fromisoformat(text.replace("Z", "+00:00"))
    cycles, year = divmod(int(other[1]), _CYCLE_YEARS)
    # An equivalent calendar year in the range 2000 to 2399.
    alike = datetime.fromisoformat(f"{2000 + year}{other[2].replace('Z', '+00:00')}")
    since = (alike - _EPOCH) // _MICROSECOND
    return since + (cycles - 2000 // _CYCLE_YEARS) * (_CYCLE // _MICROSECOND)
