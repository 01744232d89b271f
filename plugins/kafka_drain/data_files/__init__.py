"""Data files read without Spark: offsets and records, one module a format.

records.py   the columns of a record, and tables made of plain rows
parquet.py, orc.py, avro.py, json_lines.py
             each has `read_columns(path, names)` and `read_records(path)`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from upath import UPath

from kafka_drain.data_files import avro, json_lines, orc, parquet
from kafka_drain.data_files.records import DataFileError
from kafka_drain.offsets import OffsetRange

__all__ = ["DataFileError", "FileOffsets", "read_offsets", "read_records", "topic_of"]


class Format(Protocol):
    """What each format's module offers."""

    def read_columns(self, path: UPath, names: list[str]) -> pa.Table:
        """Return a few columns, without reading more of the others than the format demands."""

    def read_records(self, path: UPath) -> Iterator[pa.RecordBatch]:
        """Yield the records in file order, in batches of bounded memory."""


FORMATS: dict[str, Format] = {
    "parquet": parquet,
    "orc": orc,
    "avro": avro,
    "json": json_lines,
}


@dataclass(frozen=True, slots=True)
class FileOffsets:
    """The offsets that one file holds of one partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        ranges: The offsets, as sorted disjoint ranges.
        records: How many rows; more than offsets when some are there twice.
        duplicates: Offsets that are there more than once, lowest first, at most ten.
    """

    topic: str
    partition: int
    ranges: tuple[OffsetRange, ...]
    records: int
    duplicates: tuple[int, ...] = ()

    @property
    def first(self) -> int:
        """Lowest offset."""
        return self.ranges[0].start

    @property
    def last(self) -> int:
        """Highest offset."""
        return self.ranges[-1].end - 1


def topic_of(path: str) -> str | None:
    """Return the topic that a folder of the path names; None when files are not split by topic."""
    for part in path.split("/"):
        if part.startswith("topic="):
            return unquote(part.removeprefix("topic="))
    return None


def read_offsets(path: UPath, file_format: str, topic: str | None) -> list[FileOffsets]:
    """Read which offsets a file holds.

    Args:
        path: The file.
        file_format: Its format.
        topic: Its topic; None to read the topic from the file.

    Raises:
        DataFileError: When the file can't be read.
        FileNotFoundError: When there is no such file.
    """
    names = ["partition", "offset"] + ["topic"] * (topic is None)
    table = FORMATS[file_format].read_columns(path, names)
    if table.num_columns != len(names) or any(column.null_count for column in table.columns):
        raise DataFileError(f"a row lacks {', '.join(names[:-1])} or {names[-1]}")
    topics = [topic] if topic is not None else sorted(pc.unique(table["topic"]).to_pylist())
    found = []
    for name in topics:
        rows = table if topic is not None else table.filter(pc.equal(table["topic"], name))
        for partition in sorted(pc.unique(rows["partition"]).to_pylist()):
            selected = rows["offset"].filter(pc.equal(rows["partition"], partition))
            ranges, duplicates = _ranges(selected.combine_chunks())
            found.append(
                FileOffsets(name, partition, tuple(ranges), len(selected), tuple(duplicates[:10]))
            )
    return found


def _ranges(offsets: pa.Array) -> tuple[list[OffsetRange], list[int]]:
    """Turn offsets into ranges, without a Python object for each."""
    ordered = offsets.take(pc.sort_indices(offsets))
    steps = pc.pairwise_diff(ordered).slice(1)
    duplicates = pc.unique(ordered.slice(1).filter(pc.equal(steps, 0))).to_pylist()
    breaks = pc.indices_nonzero(pc.greater(steps, 1))
    one = pa.scalar(1, breaks.type)
    starts = [ordered[0].as_py(), *ordered.take(pc.add(breaks, one)).to_pylist()]
    ends = [*ordered.take(breaks).to_pylist(), ordered[-1].as_py()]
    return [OffsetRange(a, b + 1) for a, b in zip(starts, ends, strict=True)], duplicates


def read_records(path: UPath, file_format: str) -> Iterator[pa.RecordBatch]:
    """Yield a file's records in file order.

    Yields:
        Batches with the columns of `records.SCHEMA`; `topic` is null where the folder names it.

    Raises:
        DataFileError: When the file can't be read.
    """
    return FORMATS[file_format].read_records(path)
