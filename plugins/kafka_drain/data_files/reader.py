"""Data files read without Spark: offsets and records, with one module per format.

records.py   the columns of a record, and tables built from plain rows
parquet.py, orc.py, avro.py, json_lines.py
             each has `read_columns(path, names)` and `read_records(path)`
batch_sizes.py
             batches bounded by what their rows take unpacked
scalars.py   single values for comparisons with columns

Spark's executors and the processes of a republish import this module, which needs only pyarrow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files import avro, json_lines, orc, parquet
from kafka_drain.data_files.batch_sizes import BATCH_BYTES
from kafka_drain.data_files.file_offsets import FileOffsets
from kafka_drain.data_files.records import DataPath, RowBounds, TimestampError, milliseconds
from kafka_drain.data_files.scalars import number, text
from kafka_drain.errors import KEY_ERRORS, DataFileError, MachineError, StoreUnavailableError
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.storage.outages import naming_outages


class Format(Protocol):
    """The interface of each format's module."""

    def read_columns(self, path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
        """Yield the named columns that the file has, in file order, in batches of BATCH_BYTES.

        Reads no more of the other columns than the format requires.
        """

    def read_records(
        self, path: DataPath, batch_bytes: int, wanted: RowBounds | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records in file order, in batches of at most `batch_bytes`, or of one record.

        Records that aren't wanted may be left out.
        """


FORMATS: dict[str, Format] = {"parquet": parquet, "orc": orc, "avro": avro, "json": json_lines}

#: Maximum number of duplicate offsets that are named.
TWICE = 10

_ZERO, _ONE = number(0), number(1)

#: Columns required to prove offsets.
_PROVEN = ["topic", "partition", "offset", "timestamp"]

TITLES = {"parquet": "Parquet", "orc": "ORC", "avro": "Avro", "json": "JSON"}


def topic_of(path: str) -> str | None:
    """Return the topic named by a folder of the path; None if files aren't split by topic."""
    for part in path.split("/"):
        if part.startswith("topic="):
            return unquote(part.removeprefix("topic="))
    return None


def read_offsets(path: DataPath, file_format: str, topic: str | None) -> list[FileOffsets]:
    """Read the offsets of a file.

    If its times can't be represented, the time bounds are left unknown.

    Args:
        topic: Its topic; None to read the topic from the file. A row without a topic counts as
            topic "".

    Raises:
        DataFileError: When the file can't be read.
        FileNotFoundError: When the file doesn't exist.
        StoreUnavailableError: When its store doesn't respond.
    """
    with _readable(path, file_format):
        try:
            return _read_offsets(path, file_format, topic, ["timestamp"])
        except TimestampError:
            # Offsets are proven regardless of the timestamps that producers have set.
            return _read_offsets(path, file_format, topic, [])


def unlock(path: DataPath) -> None:
    """Read the keys of a Parquet file that is encrypted; of other files, nothing is needed.

    Raises:
        KeyUnavailableError: When a key can't be had.
        DataFileError: When the file can't be read.
        FileNotFoundError: When the file doesn't exist.
        StoreUnavailableError: When its store doesn't respond.
    """
    if path.suffix == ".parquet":
        with _readable(path, "parquet"):
            parquet.unlock(path)


def read_contents(
    path: DataPath,
    file_format: str,
    topic: str | None,
    batch_bytes: int,
    look: Callable[[pa.RecordBatch], None],
    note_index: Callable[[str], None] = lambda sha256: None,
) -> list[FileOffsets]:
    """Read the offsets of a file, and pass on all its records, in a single pass.

    Args:
        topic: Its topic, as for `read_offsets`.
        batch_bytes: Maximum size of a batch, as for `read_records`.
        look: Receives each batch of records, as yielded by `read_records`.
        note_index: Receives what `index_sha256` returns of a Parquet file.

    Raises:
        DataFileError: When the file can't be read.
        TimestampError: A DataFileError; when a record's time can't be represented.
        FileNotFoundError: When the file doesn't exist.
        StoreUnavailableError: When its store doesn't respond.
    """
    needed = ["partition", "offset"] + ["topic"] * (topic is None)
    builders: dict[TopicPartition, _Offsets] = {}
    row = 0
    with _readable(path, file_format):
        if file_format == "parquet":
            batches = parquet.read_records(path, batch_bytes, note_index=note_index)
        else:
            batches = FORMATS[file_format].read_records(path, batch_bytes)
        for batch in batches:
            _check_columns(batch, needed, row)
            row += batch.num_rows
            look(batch)
            for tp, rows in _by_partition(batch.select(_PROVEN), topic):
                builders.setdefault(tp, _Offsets(tp)).add(rows)
    return [builders[tp].finish() for tp in sorted(builders)]


@contextmanager
def _readable(path: DataPath, file_format: str) -> Iterator[None]:
    """Raise DataFileError for an unreadable file, whatever its library raises for damaged bytes.

    What this machine lacks is no damage: it raises MachineError.
    """
    try:
        with naming_outages(path):
            yield
    except (
        DataFileError,
        FileNotFoundError,
        *KEY_ERRORS,
        MachineError,
        MemoryError,
        StoreUnavailableError,
    ):
        raise
    except Exception as error:
        what = str(error) or type(error).__name__
        # fastavro raises a ValueError for a codec whose package isn't there.
        if isinstance(error, ImportError) or "need to install" in what:
            raise MachineError(
                f"{path} can't be read here: a Python package is missing ({what}); install what "
                "kafka-drain needs, on Spark's executors too if they read files"
            ) from error
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
        needed: Required columns, including `partition` and `offset`.
        optional: Columns that the file may lack.

    Raises:
        DataFileError: When the file can't be read, lacks a required column, or has a row without
            partition or offset.
        FileNotFoundError: When the file doesn't exist.
        StoreUnavailableError: When its store doesn't respond.
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
    """Split a batch by topic and partition; most files hold only one."""
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
    """The offsets of one partition, accumulated batch by batch.

    Creates a Python object per run of offsets, not per offset.
    """

    def __init__(self, tp: TopicPartition) -> None:
        self._tp = tp
        self._ranges: list[OffsetRange] = []
        self._records = 0
        self._twice: set[int] = set()
        self._ascending = True
        self._times: list[int] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Add the offsets of some rows."""
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
        """Return the accumulated offsets."""
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


def may_have_nul_names(path: DataPath, file_format: str) -> bool:
    """Return False if no header's name in a file has a NUL, True if that takes a closer look.

    Raises:
        DataFileError: When the file can't be read.
        FileNotFoundError: When the file doesn't exist.
        StoreUnavailableError: When its store doesn't respond.
    """
    scans = {"avro": avro.may_have_nul_names, "json": json_lines.may_have_nul_names}
    if file_format not in scans:
        return True
    with _readable(path, file_format):
        return scans[file_format](path)


def record_bound(path: DataPath, file_format: str) -> int | None:
    """Return a size in bytes that key, value and headers of no record of a file exceed.

    By what was written. None if only reading the file can tell.

    Raises:
        DataFileError: When the file can't be read.
        KeyUnavailableError: When it is encrypted, and its key can't be had.
        FileNotFoundError: When the file doesn't exist.
        StoreUnavailableError: When its store doesn't respond.
    """
    if file_format != "parquet":
        return None
    with _readable(path, file_format):
        return parquet.record_bound(path)


def rows_with_nul(batch: pa.RecordBatch) -> list[int]:
    """Return the rows, ascending, of the records with a NUL in a header name.

    Args:
        batch: Has the column `headers`.
    """
    column = batch["headers"]
    names = column.flatten()
    if not len(names):
        return []
    with_nul = pc.match_substring(names.field("key"), "\0")
    if not pc.any(with_nul).as_py():
        return []
    rows: list[int] = pc.unique(pc.list_parent_indices(column).filter(with_nul)).to_pylist()
    return rows


def offset_of_nul(batch: pa.RecordBatch) -> int | None:
    """Return the offset of the first record with a NUL in a header name; None if there is none.

    Args:
        batch: Has the columns `headers` and `offset`.
    """
    rows = rows_with_nul(batch)
    return int(batch["offset"][rows[0]].as_py()) if rows else None


def as_client_reads(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records as Kafka's C client reads them: it cuts off a header name at a NUL.

    Args:
        batch: Has the column `headers`.
    """
    if not rows_with_nul(batch):
        return batch
    column, place = batch["headers"], batch.schema.get_field_index("headers")
    pairs = column.flatten()
    names = pc.replace_substring_regex(pairs.field("key"), r"(?s)\x00.*", "")
    cut = pa.StructArray.from_arrays([names, pairs.field("value")], fields=list(pairs.type))
    ends = pc.cumulative_sum(pc.list_value_length(column).fill_null(pa.scalar(0, pa.int32())))
    starts = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    lists = pa.ListArray.from_arrays(starts, cut, type=column.type, mask=column.is_null())
    return batch.set_column(place, batch.schema.field(place), lists)


def index_sha256(path: DataPath, file_format: str) -> str | None:
    """Return the SHA-256 of the index with which rows of a file are skipped; None without one.

    Raises:
        DataFileError: When the file can't be read.
        FileNotFoundError: When the file doesn't exist.
        KeyUnavailableError: When it is encrypted, and its key can't be had.
        StoreUnavailableError: When its store doesn't respond.
    """
    if file_format != "parquet":
        return None
    with _readable(path, file_format):
        return parquet.index_sha256(path)


def bytes_to_read(path: DataPath, file_format: str, size: int, wanted: RowBounds) -> int:
    """Return the number of bytes of a file to read to find the wanted records.

    Parquet's statistics and Bloom filters may rule out all of them; other formats are read whole.

    Args:
        size: Its size in bytes.
        wanted: Bounds of the wanted rows.

    Raises:
        DataFileError: When the file can't be read.
        FileNotFoundError: When the file doesn't exist.
        StoreUnavailableError: When its store doesn't respond.
    """
    if file_format != "parquet":
        return size
    with _readable(path, file_format):
        return parquet.bytes_to_read(path, wanted)


def read_records(
    path: DataPath,
    file_format: str,
    batch_bytes: int = BATCH_BYTES,
    wanted: RowBounds | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a file's records in file order.

    Args:
        batch_bytes: Maximum size of a batch, unpacked, unless it has a single record.
        wanted: Bounds of the wanted rows; some rows outside may be included.

    Yields:
        Batches with the columns of `records.SCHEMA`; `topic` is null if the folder names it.

    Raises:
        DataFileError: When the file can't be read.
        TimestampError: A DataFileError; when a record's time can't be represented.
        StoreUnavailableError: When its store doesn't respond.
    """
    with _readable(path, file_format):
        yield from FORMATS[file_format].read_records(path, batch_bytes, wanted)
