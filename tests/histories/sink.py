"""Spark's file sink and checkpoint as they are on disk, one file at a time.

Whoever counts changes of the file system can let a driver die between any two.
"""

from __future__ import annotations

import json
import os
import struct
import uuid
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from kafka_drain.data_files.records import SCHEMA

__all__ = ["ConcurrentUpdateError", "Query", "write_files"]

Row = dict[str, Any]
#: Is called before a file is written.
Change = Callable[[Path], None]

#: Every so many batches, the manifest is compacted (spark.sql.streaming.fileSink.log).
COMPACT_INTERVAL = 10
#: Batches that a checkpoint keeps (spark.sql.streaming.minBatchesToRetain).
RETAINED = 100
CHECKSUMMED = 512

_METADATA = {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}


def write_files(
    folder: Path, rows: Sequence[Row], partition_by: Sequence[str], change: Change
) -> list[Path]:
    """Write rows as a task does, a file for each folder; return the files."""
    by_folder: dict[str, list[Row]] = {}
    for row in rows:
        names = "/".join(f"{column}={_value(column, row)}" for column in partition_by)
        by_folder.setdefault(names, []).append(row)
    dropped = [name for name in ("topic",) if name in partition_by]
    paths = []
    for names, own in by_folder.items():
        path = folder / names / f"part-{len(paths):05d}-{uuid.uuid4()}.c000.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written by a library that Python doesn't see.
        change(path)
        table = pa.Table.from_pylist(own, schema=SCHEMA).drop_columns(dropped)
        pq.write_table(table, path, compression="none", use_dictionary=False)
        _write_crc(path)
        paths.append(path)
    return paths


def _value(column: str, row: Row) -> str:
    if column == "topic":
        return str(row["topic"])
    micros = row["timestamp"]
    if column == "date":
        day = str(np.datetime64(micros // (86_400 * 10**6), "D"))
        return day if len(day) == 10 else f"+{day}"
    return f"{micros // (3_600 * 10**6) % 24:02d}"


def _write_crc(path: Path) -> None:
    content = path.read_bytes()
    sums = [zlib.crc32(content[at : at + 512]) for at in range(0, len(content), 512)]
    crc = path.with_name(f".{path.name}.crc")
    crc.write_bytes(b"crc\0" + struct.pack(f">i{len(sums)}I", CHECKSUMMED, *sums))


class ConcurrentUpdateError(Exception):
    """Raised when another query has written a batch to the same log."""


class Query:
    """A streaming query's files.

    Attributes:
        data: The sink's folder.
        checkpoint: The checkpoint's.
    """

    def __init__(self, data: Path, checkpoint: Path) -> None:
        self.data = data
        self.checkpoint = checkpoint

    @property
    def manifest(self) -> Path:
        return self.data / "_spark_metadata"

    def start(self, offsets: Callable[[], str]) -> str:
        """Return where the query's first batch starts, which is written down once."""
        self._once(self.checkpoint / "metadata", lambda: json.dumps({"id": str(uuid.uuid4())}))
        path = self.checkpoint / "sources" / "0" / "0"
        self._once(path, lambda: f"\0v1\n{offsets()}")
        return path.read_text().split("\n", 1)[1]

    def _once(self, path: Path, text: Callable[[], str]) -> None:
        if not path.exists():
            self._put(path, text())

    def planned(self) -> dict[int, str]:
        """Return the end offsets of the batches that were planned."""
        return {
            batch: (self.checkpoint / "offsets" / str(batch)).read_text().split("\n")[2]
            for batch in _numbers(self.checkpoint / "offsets")
        }

    def committed(self) -> int:
        return max(_numbers(self.checkpoint / "commits"), default=-1)

    def listed(self) -> int:
        """Return the manifest's newest batch; -1 for none."""
        return max(_logs(self.manifest), default=-1)

    def plan(self, batch: int, end: str) -> None:
        self._put(self.checkpoint / "offsets" / str(batch), f"v1\n{json.dumps(_METADATA)}\n{end}")

    def commit(self, batch: int) -> None:
        self._put(self.checkpoint / "commits" / str(batch), 'v1\n{"nextBatchWatermarkMs":0}')
        for folder in ("offsets", "commits"):
            for old in _numbers(self.checkpoint / folder):
                if old <= batch - RETAINED:
                    self._remove(self.checkpoint / folder / str(old))

    def list_files(self, batch: int, paths: Iterable[Path]) -> None:
        """Commit a batch's files to the manifest."""
        lines = [_line(path) for path in paths]
        name = str(batch)
        if (batch + 1) % COMPACT_INTERVAL == 0:
            lines = [*self._lines_before(batch), *lines]
            name += ".compact"
        self._put(self.manifest / name, "\n".join(["v1", *lines]))
        if name.endswith(".compact"):
            for old in [one for one in os.listdir(self.manifest) if one[0] != "."]:
                if int(old.partition(".")[0]) < batch:
                    self._remove(self.manifest / old)

    def _lines_before(self, batch: int) -> list[str]:
        logs = _logs(self.manifest)
        first = max((one for one, name in logs.items() if name.endswith(".compact")), default=0)
        found: list[str] = []
        for one in range(first, batch):
            found += (self.manifest / logs[one]).read_text().split("\n")[1:]
        return [line for line in found if line]

    def _put(self, path: Path, text: str) -> None:
        """Write a file beside its place, and rename it, as Spark's checkpoint manager does."""
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")
        beside.write_text(text)
        if path.exists():
            raise ConcurrentUpdateError(
                f"[CONCURRENT_STREAM_LOG_UPDATE] {path.name}: Multiple streaming jobs detected"
            )
        os.replace(beside, path)
        _write_crc(path)

    def _remove(self, path: Path) -> None:
        for one in (path.with_name(f".{path.name}.crc"), path):
            one.unlink(missing_ok=True)


def _numbers(folder: Path) -> list[int]:
    names = os.listdir(folder) if folder.is_dir() else []
    return sorted(int(name) for name in names if name.isdigit())


def _logs(manifest: Path) -> dict[int, str]:
    names = os.listdir(manifest) if manifest.is_dir() else []
    return {int(name.partition(".")[0]): name for name in sorted(names) if name[0].isdigit()}


def _line(path: Path) -> str:
    facts: Mapping[str, Any] = {
        "path": path.as_uri(),
        "size": path.stat().st_size,
        "isDir": False,
        "modificationTime": 0,
        "blockReplication": 1,
        "blockSize": 33554432,
        "action": "add",
    }
    return json.dumps(facts, separators=(",", ":"))
