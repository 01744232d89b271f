"""Data files read without Spark: offsets and records, one module a format.

records.py   the columns of a record, and tables made of plain rows
parquet.py, orc.py, avro.py, json_lines.py
             each has `read_columns(path, names)` and `read_records(path)`
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from upath import UPath

from kafka_drain.data_files import avro, json_lines, orc, parquet
from kafka_drain.errors import DataFileError
from kafka_drain.offsets import OffsetRange

__all__ = ["DataFileError", "FileOffsets", "read_offsets", "read_records", "topic_of"]


class Format(Protocol):
    """What each format's module offers."""

    def read_columns(self, path: UPath, names: list[str]) -> pa.Table:
        """Return a few columns, without reading more of the others than the format demands."""

    def read_records(self, path: UPath, batch_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield the records in file order, in batches of bounded memory."""


FORMATS: dict[str, Format] = {
    "parquet": parquet,
    "orc": orc,
    "avro": avro,
    "json": json_lines,
}


TITLES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro", "json": "JSON"}


@dataclass(frozen=True, slots=True)
class FileOffsets:
    """The offsets that one file holds of one partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        ranges: The offsets, as sorted disjoint ranges.
        records: How many rows; more than offsets when some are there twice.
        duplicates: Offsets that are there more than once, lowest first, at most ten.
        ascending: Whether the rows are in offset order.
    """

    topic: str
    partition: int
    ranges: tuple[OffsetRange, ...]
    records: int
    duplicates: tuple[int, ...] = ()
    ascending: bool = True

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
        topic: Its topic; None to read the topic from the file. A row without a topic counts as
            one of topic "".

    Raises:
        DataFileError: When the file can't be read.
        FileNotFoundError: When there is no such file.
    """
    with _readable(file_format):
        return _read_offsets(path, file_format, topic)


@contextmanager
def _readable(file_format: str) -> Iterator[None]:
    """Name a file that can't be read as one, whatever its library raises for damaged bytes."""
    try:
        yield
    except (DataFileError, FileNotFoundError, MemoryError):
        raise
    except Exception as error:
        what = str(error) or type(error).__name__
        raise DataFileError(f"not readable as {TITLES[file_format]}: {what}") from error


def _read_offsets(path: UPath, file_format: str, topic: str | None) -> list[FileOffsets]:
    names = ["partition", "offset"] + ["topic"] * (topic is None)
    table = FORMATS[file_format].read_columns(path, names)
    if table.num_columns != len(names):
        raise DataFileError(f"has columns {table.column_names}, expected {names}")
    for name in ("partition", "offset"):
        if not pa.types.is_integer(table[name].type):
            raise DataFileError(f"column {name} holds {table[name].type}, expected whole numbers")
        if table[name].null_count:
            row = pc.index(table[name].is_null(), True).as_py()
            raise DataFileError(f"row {row} has no {name}")
    if topic is not None:
        by_topic = {topic: table}
    else:
        topics = table["topic"].fill_null("")
        by_topic = {
            name: table.filter(pc.equal(topics, name))
            for name in sorted(pc.unique(topics).to_pylist())
        }
    return [
        _file_offsets(
            name, partition, rows["offset"].filter(pc.equal(rows["partition"], partition))
        )
        for name, rows in by_topic.items()
        for partition in sorted(pc.unique(rows["partition"]).to_pylist())
    ]


def _file_offsets(topic: str, partition: int, column: pa.ChunkedArray) -> FileOffsets:
    """Turn offsets into ranges, without a Python object for each."""
    offsets = column.combine_chunks()
    ascending = pc.all(pc.greater(pc.pairwise_diff(offsets).slice(1), 0)).as_py() is not False
    ordered = offsets if ascending else offsets.take(pc.sort_indices(offsets))
    steps = pc.pairwise_diff(ordered).slice(1)
    duplicates = pc.unique(ordered.slice(1).filter(pc.equal(steps, 0))).to_pylist()
    breaks = pc.indices_nonzero(pc.greater(steps, 1))
    starts = [ordered[0].as_py(), *ordered.slice(1).take(breaks).to_pylist()]
    ends = [*ordered.take(breaks).to_pylist(), ordered[-1].as_py()]
    return FileOffsets(
        topic=topic,
        partition=partition,
        ranges=tuple(OffsetRange(a, b + 1) for a, b in zip(starts, ends, strict=True)),
        records=len(offsets),
        duplicates=tuple(duplicates[:10]),
        ascending=ascending,
    )


def read_records(path: UPath, file_format: str, batch_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield a file's records in file order.

    Args:
        path: The file.
        file_format: Its format.
        batch_bytes: About how much memory a batch may take.

    Yields:
        Batches with the columns of `records.SCHEMA`; `topic` is null where the folder names it.

    Raises:
        DataFileError: When the file can't be read.
    """
    with _readable(file_format):
        yield from FORMATS[file_format].read_records(path, batch_bytes)
