"""Parquet data files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, TypeAlias, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kafka_drain.config.sink_options import PLAIN
from kafka_drain.data_files.batch_sizes import (
    BATCH_BYTES,
    BATCH_ROWS,
    FEW_BYTES,
    in_batches,
    in_steps,
)
from kafka_drain.data_files.bloom_filter import BloomFilter
from kafka_drain.data_files.decryption import Decryption
from kafka_drain.data_files.parquet_footer import KeptReads, check_footer
from kafka_drain.data_files.records import COLUMN_ROWS, SCHEMA, DataPath, RowBounds, conform
from kafka_drain.data_files.scalars import binaries
from kafka_drain.errors import DataFileError
from kafka_drain.storage.outages import lies_in_store

#: Lowest and highest value of a column in a row group; None without statistics.
Bounds: TypeAlias = "tuple[int, int] | None"

INTEGERS = ("INT32", "INT64")

#: Buffer size per column, in bytes; pyarrow's pre_buffer would load a whole row group of 128 MiB.
_BUFFER = 1 << 20
#: Buffer size in an object store, where each read is a request.
_STORE_BUFFER = 4 << 20

#: Encodings that don't store a value of bytes once for each time that it occurs, or only its end.
_REPEATING = {"PLAIN_DICTIONARY", "RLE_DICTIONARY", "DELTA_BYTE_ARRAY"}

_PER_MILLISECOND = {"milliseconds": 1, "microseconds": 10**3, "nanoseconds": 10**6}


def read_columns(path: DataPath, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield a few columns; needs no key if none of them is encrypted."""
    is_plain = set(names) <= set(PLAIN)
    with _opened(path, with_keys=not is_plain) as (file, _, _):
        if is_plain:
            yield from file.iter_batches(batch_size=COLUMN_ROWS, columns=names)
        else:
            for group in range(file.num_row_groups):
                yield from _batches(file, group, names, BATCH_BYTES)


def unlock(path: DataPath) -> None:
    """Open a file with its keys, if it is encrypted; raises KeyUnavailableError."""
    with _opened(path):
        pass


def record_bound(path: DataPath) -> int:
    """Return a size in bytes that key, value and headers of no record together exceed.

    By what was written: a value is in its column's chunk at least once as a whole, or in pieces. Of
    headers a record has several, which may be the same entry of a dictionary.

    Raises:
        KeyUnavailableError: When the file is encrypted, and its key can't be had.
    """
    with _opened(path) as (file, _, _):
        groups = map(file.metadata.row_group, range(file.num_row_groups))
        return max((_group_bound(group) for group in groups), default=0)


def _group_bound(group: pq.RowGroupMetaData) -> int:
    bound = 0
    for position in range(group.num_columns):
        column = group.column(position)
        if column.path_in_schema in ("key", "value"):
            bound += column.total_uncompressed_size
        elif column.path_in_schema.startswith("headers."):
            known = column.statistics
            nulls = known.null_count if known is not None and known.has_null_count else 0
            bound += (column.num_values - nulls) * column.total_uncompressed_size
    return bound


def read_records(
    path: DataPath,
    batch_bytes: int,
    wanted: RowBounds | None = None,
    note_index: Callable[[str], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records in file order, skipping row groups without any wanted record.

    Args:
        batch_bytes: Maximum size of a batch, unless it has a single record.
        wanted: Bounds of the wanted rows.
        note_index: Gets what `index_sha256` returns, without opening the file once more.
    """
    with _opened(path) as (file, source, is_encrypted):
        index = _Index(source, file.metadata, wanted, has_filters=not is_encrypted)
        if note_index is not None:
            note_index(index.sha256())
        names = [name for name in SCHEMA.names if name in file.schema_arrow.names]
        keys = None if wanted is None else wanted.keys
        for group in _groups(file, index, wanted):
            if keys is not None and not _has_key(file, group, keys):
                continue
            yield from map(conform, _batches(file, group, names, batch_bytes))


def _batches(
    file: pq.ParquetFile, group: int, names: list[str], batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield columns of a row group."""

    def scan(rows: int) -> Iterator[pa.RecordBatch]:
        found: Iterator[pa.RecordBatch] = file.iter_batches(
            batch_size=rows, row_groups=[group], columns=names
        )
        return found

    described = file.metadata.row_group(group)
    most = _most_bytes(described)
    if most <= FEW_BYTES:
        rows = batch_bytes * described.num_rows // max(most, 1)
        return in_batches(scan(max(1, min(rows, BATCH_ROWS))), batch_bytes)
    # A reader's batch size counts from its next batch on.
    return in_batches(in_steps(scan, batch_bytes, file.reader.set_batch_size), batch_bytes)


def _most_bytes(group: pq.RowGroupMetaData) -> int:
    """Return a size that the columns of a row group don't exceed when they are unpacked."""
    size = 0
    for position in range(group.num_columns):
        column = group.column(position)
        is_repeating = not _REPEATING.isdisjoint(column.encodings)
        # The largest value is stored at least once, and a number takes at most 12 bytes.
        each = column.total_uncompressed_size if column.physical_type == "BYTE_ARRAY" else 12
        size += column.num_values * each if is_repeating else column.total_uncompressed_size
    return size


def bytes_to_read(path: DataPath, wanted: RowBounds) -> int:
    """Return the number of bytes to read to find the wanted records; 0 if there are none.

    If keys are wanted, these are the bytes of the keys: the other columns are read only where one
    of them is found.
    """
    with _opened(path) as (file, source, is_encrypted):
        index = _Index(source, file.metadata, wanted, has_filters=not is_encrypted)
        size = 0
        for group in _groups(file, index, wanted):
            described = file.metadata.row_group(group)
            columns = [*range(described.num_columns)]
            if wanted.keys is not None:
                columns = _positions(file.metadata, "key")
            size += sum(described.column(number).total_compressed_size for number in columns)
        return size


def index_sha256(path: DataPath) -> str:
    """Return the SHA-256 of a file's index, in hexadecimal: page indexes, Bloom filters, footer.

    If the file is encrypted, its keys are needed.
    """
    with _opened(path) as (file, source, _):
        return _Index(source, file.metadata).sha256()


class _Index:
    """The bytes of a file from the end of its last column chunk on.

    The footer says where they start, and is one of them: no other footer has the same hash.

    Args:
        source: The file's bytes.
        metadata: Its footer.
        wanted: Says which hash it must have.
        has_filters: Whether Bloom filters can be read; encrypted ones can't.
    """

    def __init__(
        self,
        source: Any,
        metadata: pq.FileMetaData,
        wanted: RowBounds | None = None,
        *,
        has_filters: bool = False,
    ) -> None:
        self.start = max(map(_end_of, _chunks(metadata)), default=0)
        self._source = source
        self._metadata = metadata
        self._wanted = wanted
        self._has_filters = has_filters

    @cached_property
    def _content(self) -> bytes:
        self._source.seek(self.start)
        return bytes(self._source.read())

    def sha256(self) -> str:
        return hashlib.sha256(self._content).hexdigest()

    @cached_property
    def is_sealed(self) -> bool:
        """Whether its bytes are those that were sealed; False if no receipt says so.

        Raises:
            DataFileError: When the receipt says that they are others, or has more records.
        """
        if self._wanted is None or self._wanted.is_proven:
            return self._wanted is not None
        if self._wanted.index_sha256 is None:
            self._check_rows(self._wanted.records)
            return False
        if self.sha256() != self._wanted.index_sha256:
            raise DataFileError(
                "page indexes, Bloom filters and footer have other bytes than those that were "
                "sealed, so they can't say which records it doesn't have"
            )
        return True

    def _check_rows(self, records: int | None) -> None:
        groups = map(self._metadata.row_group, range(self._metadata.num_row_groups))
        rows = sum(group.num_rows for group in groups)
        if records is not None and rows < records:
            raise DataFileError(f"{rows:,} records according to its footer; sealed: {records:,}")

    def has_filter(self, offset: int) -> bool:
        """Return whether the filter at a position can be believed."""
        return self._has_filters and offset >= self.start and self.is_sealed

    def read(self, at: int, size: int) -> bytes:
        """Return bytes by their position in the file."""
        return self._content[at - self.start :][:size]


def _chunks(metadata: pq.FileMetaData) -> Iterator[pq.ColumnChunkMetaData]:
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        yield from map(group.column, range(group.num_columns))


def _end_of(chunk: pq.ColumnChunkMetaData) -> int:
    first = chunk.data_page_offset
    if chunk.has_dictionary_page:
        first = min(first, chunk.dictionary_page_offset)
    return int(first + chunk.total_compressed_size)


def _groups(file: pq.ParquetFile, index: _Index, wanted: RowBounds | None) -> Iterator[int]:
    """Yield the row groups that may hold a wanted record.

    Raises:
        DataFileError: When what would rule one out isn't what was sealed.
    """
    # Asked first: a damaged footer may also say that there are fewer row groups.
    may_rule_out = index.is_sealed
    for number in range(file.num_row_groups):
        group = file.metadata.row_group(number)
        if wanted is None or not (may_rule_out and _is_ruled_out(file, group, index, wanted)):
            yield number


def _is_ruled_out(
    file: pq.ParquetFile, group: pq.RowGroupMetaData, index: _Index, wanted: RowBounds
) -> bool:
    if _holds_none(file.metadata, group, wanted):
        return True
    return wanted.keys is not None and not _may_have(file, group, index, wanted.keys)


def _positions(file: pq.FileMetaData, name: str) -> list[int]:
    """Return the position of a column; none if there is no such column."""
    return [n for n in range(file.num_columns) if file.schema.column(n).path == name]


def _may_have(
    file: pq.ParquetFile, group: pq.RowGroupMetaData, index: _Index, keys: Collection[bytes]
) -> bool:
    """Return whether statistics and Bloom filter leave the possibility that a key is there."""
    for position in _positions(file.metadata, "key"):
        column = group.column(position)
        bounds = column.statistics
        if bounds is not None and bounds.has_min_max:
            # Writers may shorten them: then they are wider.
            keys = [key for key in keys if bounds.min_raw <= key <= bounds.max_raw]
        # pyarrow says where filters are since release 25.
        offset = getattr(column, "bloom_filter_offset", None)
        if not keys or offset is None or not index.has_filter(offset):
            return bool(keys)
        filter_ = BloomFilter.at(offset, index.read)
        return filter_ is None or any(filter_.can_hold(key, index.read) for key in keys)
    return False


def _has_key(file: pq.ParquetFile, group: int, keys: Collection[bytes]) -> bool:
    """Return whether a row group has one of the keys; reads no other column."""
    wanted = binaries(keys)
    return any(
        pc.any(pc.is_in(batch["key"].cast(pa.large_binary()), wanted)).as_py()
        for batch in _batches(file, group, ["key"], BATCH_BYTES)
    )


@contextmanager
def _opened(
    path: DataPath, *, with_keys: bool = True
) -> Iterator[tuple[pq.ParquetFile, Any, bool]]:
    """Open a file; also yield its bytes, for what pyarrow doesn't read, and if it is encrypted.

    Without keys, columns that aren't encrypted can be read, but pyarrow ends the process when it is
    asked for an encrypted column's metadata.

    Raises:
        DataFileError: When the footer is damaged in a way that pyarrow ends the process for.
    """
    decryption = Decryption(path)
    properties = decryption.properties() if with_keys else None
    if not lies_in_store(path):
        with path.open("rb") as source:
            file = pq.ParquetFile(
                source, buffer_size=_BUFFER, pre_buffer=False, decryption_properties=properties
            )
            check_footer(source, file.schema)
            yield file, source, decryption.was_needed
        return
    # fsspec would read 50 MiB ahead at each jump to another column.
    with cast(Any, path).open("rb", cache_type="none") as source:
        # As a whole, a small file takes a single request instead of one for each column.
        is_small = getattr(source, "size", _STORE_BUFFER + 1) <= _STORE_BUFFER
        whole: Any = pa.BufferReader(source.read()) if is_small else KeptReads(source)
        file = pq.ParquetFile(
            whole, buffer_size=_STORE_BUFFER, pre_buffer=False, decryption_properties=properties
        )
        check_footer(whole, file.schema)
        if not is_small:
            whole.forget()
        yield file, whole, decryption.was_needed


def _holds_none(file: pq.FileMetaData, group: pq.RowGroupMetaData, wanted: RowBounds) -> bool:
    """Return whether a row group's statistics rule out that any of its rows is wanted."""
    columns = {file.schema.column(number).path: number for number in range(file.num_columns)}

    def bounds(name: str) -> Bounds:
        found = group.column(columns[name]).statistics if name in columns else None
        if found is None or not found.has_min_max:
            return None
        # Spark's timestamps may be INT96, which has no defined order.
        return (found.min_raw, found.max_raw) if found.physical_type in INTEGERS else None

    end = None if wanted.end is None else wanted.end - 1
    if _apart(bounds("partition"), wanted.partition, wanted.partition) or _apart(
        bounds("offset"), wanted.first, end
    ):
        return True
    if wanted.from_ms is None and wanted.to_ms is None:
        return False
    times = bounds("timestamp")
    if times is None:
        return False
    described = json.loads(file.schema.column(columns["timestamp"]).logical_type.to_json())
    units = _PER_MILLISECOND.get(described.get("timeUnit"))
    if units is None:
        return False
    lowest = None if wanted.from_ms is None else wanted.from_ms * units
    highest = None if wanted.to_ms is None else wanted.to_ms * units - 1
    return _apart(times, lowest, highest)


def _apart(bounds: Bounds, lowest: int | None, highest: int | None) -> bool:
    """Return whether the bounds don't overlap the range from `lowest` to `highest`."""
    if bounds is None:
        return False
    return (lowest is not None and bounds[1] < lowest) or (
        highest is not None and bounds[0] > highest
    )
