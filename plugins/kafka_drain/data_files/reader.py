"""Data files read without Spark: offsets and records, one module a format.

records.py   the columns of a record, and tables made of plain rows
parquet.py, orc.py, avro.py, json_lines.py
             each has `read_columns(path, names)` and `read_records(path)`
scalars.py   single values, to compare columns with

Spark's executors and the processes of a republish import this: only pyarrow is needed at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files import avro, json_lines, orc, parquet
from kafka_drain.data_files.file_offsets import FileOffsets
from kafka_drain.data_files.records import DataPath, TimestampError, Wanted, milliseconds
from kafka_drain.data_files.scalars import number, text
from kafka_drain.errors import DataFileError, StoreUnavailableError
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.storage.outages import naming_outages

__all__ = [
    "DataFileError",
    "TimestampError",
    "read_columns",
    "read_contents",
    "read_offsets",
    "read_records",
    "topic_of",
]


class Format(Protocol):
    """What each format's module offers."""

    def read_columns(self, path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield those of a few columns that the file has, in file order, in bounded memory.

        No more is read of the others than the format demands.
        """

    def read_records(
        self, path: DataPath, batch_bytes: int, wanted: Wanted | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records in file order, in batches of bounded memory.

        What isn't wanted may be left out.
        """


FORMATS: dict[str, Format] = {
    "parquet": parquet,
    "orc": orc,
    "avro": avro,
    "json": json_lines,
}

#: So many offsets that are there twice are named.
TWICE = 10

_ZERO, _ONE = number(0), number(1)

#: What a proof of offsets needs.
_PROVEN = ["topic", "partition", "offset", "timestamp"]

TITLES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro", "json": "JSON"}


def topic_of(path: str) -> str | None:
    """Return the topic that a folder of the path names; None when files are not split by topic."""
    for part in path.split("/"):
        if part.startswith("topic="):
            return unquote(part.removeprefix("topic="))
    return None


def read_offsets(path: DataPath, file_format: str, topic: str | None) -> list[FileOffsets]:
    """Read which offsets a file holds.

    Times that can't be represented leave the file's bounds of them unknown.

    Args:
        path: The file.
        file_format: Its format.
        topic: Its topic; None to read the topic from the file. A row without a topic counts as
            one of topic "".

    Raises:
        DataFileError: When the file can't be read.
        FileNotFoundError: When there is no such file.
        StoreUnavailableError: When its store doesn't answer.
    """
    with _readable(path, file_format):
        try:
            return _read_offsets(path, file_format, topic, ["timestamp"])
        except TimestampError:
            # The proof is of offsets: it doesn't depend on what time a producer has sent.
            return _read_offsets(path, file_format, topic, [])


def read_contents(
    path: DataPath,
    file_format: str,
    topic: str | None,
    batch_bytes: int,
    look: Callable[[pa.RecordBatch], None],
) -> list[FileOffsets]:
    """Read which offsets a file holds, and show all of its records, in one reading.

    Args:
        path: The file.
        file_format: Its format.
        topic: Its topic, as for `read_offsets`.
        batch_bytes: About how much memory a batch may take.
        look: Takes each batch of records, as `read_records` yields them.

    Raises:
        DataFileError: When the file can't be read.
        TimestampError: Of its kind: when a record's time can't be represented.
        FileNotFoundError: When there is no such file.
        StoreUnavailableError: When its store doesn't answer.
    """
    needed = ["partition", "offset"] + ["topic"] * (topic is None)
    builders: dict[TopicPartition, _Offsets] = {}
    row = 0
    with _readable(path, file_format):
        for batch in FORMATS[file_format].read_records(path, batch_bytes):
            _check_columns(batch, needed, row)
            row += batch.num_rows
            look(batch)
            for tp, rows in _by_partition(batch.select(_PROVEN), topic):
                builders.setdefault(tp, _Offsets(tp)).add(rows)
    return [builders[tp].finish() for tp in sorted(builders)]


@contextmanager
def _readable(path: DataPath, file_format: str) -> Iterator[None]:
    """Name a file that can't be read as one, whatever its library raises for damaged bytes."""
    try:
        with naming_outages(path):
            yield
    except (DataFileError, FileNotFoundError, MemoryError, StoreUnavailableError):
        raise
    except Exception as error:
        what = str(error) or type(error).__name__
        raise DataFileError(f"not readable as {TITLES[file_format]}: {what}") from error


def _read_offsets(
    path: DataPath, file_format: str, topic: str | None, optional: Sequence[str]
) -> list[FileOffsets]:
    needed = ["partition", "offset"] + ["topic"] * (topic is None)
    builders: dict[TopicPartition, _Offsets] = {}
    for batch in read_columns(path, file_format, needed, optional):
        for tp, rows in _by_partition(batch, topic):
            builders.setdefault(tp, _Offsets(tp)).add(rows)
    return [builders[tp].finish() for tp in sorted(builders)]


def read_columns(
    path: DataPath, file_format: str, needed: list[str], optional: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield a few columns of a file, in file order, in bounded memory.

    Args:
        path: The file.
        file_format: Its format.
        needed: The columns, `partition` and `offset` among them.
        optional: Columns that the file need not have.

    Raises:
        DataFileError: When the file can't be read, has not all of the columns, or a row without
            partition or offset.
        FileNotFoundError: When there is no such file.
        StoreUnavailableError: When its store doesn't answer.
    """
    row = 0
    with _readable(path, file_format):
        for batch in FORMATS[file_format].read_columns(path, [*needed, *optional]):
            _check_columns(batch, needed, row)
            row += batch.num_rows
            yield batch


def _check_columns(batch: pa.RecordBatch, needed: list[str], first_row: int) -> None:
    names = [name for name in batch.schema.names if name in needed]
    if len(names) != len(needed):
        raise DataFileError(f"has columns {names}, expected {needed}")
    for name in ("partition", "offset"):
        column = batch[name]
        if not pa.types.is_integer(column.type):
            raise DataFileError(f"column {name} holds {column.type}, expected whole numbers")
        if column.null_count:
            row = first_row + pc.index(column.is_null(), True).as_py()
            raise DataFileError(f"row {row} has no {name}")
    if "timestamp" in needed and not pa.types.is_timestamp(batch["timestamp"].type):
        raise DataFileError(f"column timestamp holds {batch['timestamp'].type}, expected times")


def _by_partition(
    batch: pa.RecordBatch, topic: str | None
) -> Iterator[tuple[TopicPartition, pa.RecordBatch]]:
    """Split a batch by topic and partition; most files hold one."""
    if not batch.num_rows:
        return
    if topic is None:
        topics = batch["topic"].fill_null(text(""))
        for name in sorted(pc.unique(topics).to_pylist()):
            yield from _by_partition(batch.filter(pc.equal(topics, text(name))), name)
        return
    partitions = pc.unique(batch["partition"]).to_pylist()
    if len(partitions) == 1:
        yield TopicPartition(topic, partitions[0]), batch
        return
    for partition in sorted(partitions):
        yield (
            TopicPartition(topic, partition),
            batch.filter(pc.equal(batch["partition"], number(partition))),
        )


class _Offsets:
    """The offsets of one partition, put together batch by batch.

    A Python object for each run of offsets, not for each offset.
    """

    def __init__(self, tp: TopicPartition) -> None:
        self._tp = tp
        self._ranges: list[OffsetRange] = []
        self._records = 0
        self._twice: set[int] = set()
        self._ascending = True
        self._times: list[int] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Take in some rows."""
        offsets = rows["offset"]
        steps = pc.pairwise_diff(offsets).slice(1)
        if pc.all(pc.greater(steps, _ZERO)).as_py() is False:
            self._ascending = False
            offsets = offsets.take(pc.sort_indices(offsets))
            steps = pc.pairwise_diff(offsets).slice(1)
            twice = pc.unique(offsets.slice(1).filter(pc.equal(steps, _ZERO)))
            self._twice.update(twice.slice(0, TWICE).to_pylist())
        breaks = pc.indices_nonzero(pc.greater(steps, _ONE))
        starts = [offsets[0].as_py(), *offsets.slice(1).take(breaks).to_pylist()]
        ends = [*offsets.take(breaks).to_pylist(), offsets[-1].as_py()]
        if self._ranges:
            reach = self._ranges[-1].end
            if starts[0] < reach:
                self._ascending = False
            elif starts[0] == reach:
                starts[0] = self._ranges.pop().start
        self._ranges += [OffsetRange(a, b + 1) for a, b in zip(starts, ends, strict=True)]
        self._records += rows.num_rows
        self._add_times(rows)

    def _add_times(self, rows: pa.RecordBatch) -> None:
        if "timestamp" not in rows.schema.names:
            return
        bounds = pc.min_max(rows["timestamp"]).values()
        self._times += [milliseconds(bound) for bound in bounds if bound.is_valid]

    def finish(self) -> FileOffsets:
        """Return what was taken in."""
        ranges = self._ranges
        if not self._ascending:
            ordered = sorted(ranges)
            reach = -1
            for r in ordered:
                self._twice.update(range(r.start, min(r.end, reach, r.start + TWICE)))
                reach = max(reach, r.end)
            ranges = merge(ordered)
        return FileOffsets(
            tp=self._tp,
            ranges=tuple(ranges),
            records=self._records,
            duplicates=tuple(sorted(self._twice)[:TWICE]),
            ascending=self._ascending,
            first_timestamp=min(self._times, default=None),
            last_timestamp=max(self._times, default=None),
        )


def read_records(
    path: DataPath, file_format: str, batch_bytes: int, wanted: Wanted | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a file's records in file order.

    Args:
        path: The file.
        file_format: Its format.
        batch_bytes: About how much memory a batch may take.
        wanted: Bounds of the rows that are wanted; some outside may come as well.

    Yields:
        Batches with the columns of `records.SCHEMA`; `topic` is null where the folder names it.

    Raises:
        DataFileError: When the file can't be read.
        TimestampError: Of its kind: when a record's time can't be represented.
        StoreUnavailableError: When its store doesn't answer.
    """
    with _readable(path, file_format):
        yield from FORMATS[file_format].read_records(path, batch_bytes, wanted)
