"""Read the records of one source partition in offset order, from files that may interleave.

One Spark task splits its offsets over one file per date. When event times go back and forth, the
offset ranges of these files interleave. They are merged batch by batch, in bounded memory.

This code runs in separate processes and on Spark's executors. It needs only pyarrow if the files
are local and none is Avro.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.batch_sizes import BATCH_BYTES, in_batches, row_sizes
from kafka_drain.data_files.reader import read_records, topic_of
from kafka_drain.data_files.records import SCHEMA, RowBounds, path_of
from kafka_drain.data_files.scalars import number
from kafka_drain.errors import DataFileError
from kafka_drain.republish.planning.row_filter import wanted_rows
from kafka_drain.republish.planning.shards import Shard, ShardFile
from kafka_drain.republish.sending.checked_file import checked_file

#: Maximum size of a batch, unless it has a single record. It stays in the processor's cache, and is
#: less than glibc's threshold for mmap: the next one takes its place, without new pages.
READ_BYTES = 2 << 20
#: Approximate memory limit for the batches of one group of files.
GROUP_BYTES = 128 << 20
#: Least size of the parts in which a file with unordered rows is read: each part reads all of it.
LEAST_PART_BYTES = 8 << 20


def read_shard(
    root: str, shard: Shard, from_offset: int = 0, sharers: int = 1
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's selected records in offset order.

    All bytes of a file are compared with the plan before its first record is yielded.

    Args:
        root: The archive: a folder, or a URL such as `s3://bucket/archive`.
        from_offset: Only records with this offset or a higher one; files with only lower offsets
            aren't opened.
        sharers: Number of shards that are read side by side and share the memory.

    Yields:
        Batches with the columns of `data_files.records.SCHEMA`.

    Raises:
        ManifestInvalidError: When a file is missing, or has other bytes than the plan says.
        DataFileError: When a file can't be read; names its path.
    """
    files = [file for file in shard.files if file.last >= from_offset]
    for group in interleaved_groups(files):
        yield from merge_streams(
            [_stream(root, file, shard, from_offset, sharers * len(group)) for file in group],
            [file.first for file in group],
        )


def interleaved_groups(files: Sequence[ShardFile]) -> list[list[ShardFile]]:
    """Group files whose offset ranges overlap; `files` must be sorted by first offset."""
    groups: list[list[ShardFile]] = []
    reach = -1
    for file in files:
        if file.first > reach:
            groups.append([])
        groups[-1].append(file)
        reach = max(reach, file.last)
    return groups


def _stream(
    root: str, file: ShardFile, shard: Shard, from_offset: int, sharers: int
) -> Iterator[pa.RecordBatch]:
    """Yield one file's selected records in offset order."""
    in_topic_folder = topic_of(file.path) is not None

    def read() -> Iterator[pa.RecordBatch]:
        for batch in _records(root, file, sharers, _bounds(shard, from_offset)):
            rows = wanted_rows(
                batch, shard.source, shard.rows, from_offset, in_topic_folder=in_topic_folder
            )
            if rows.num_rows:
                yield rows

    # Unordered rows can't be merged as a stream.
    if file.ascending:
        yield from read()
    else:
        yield from _in_order(read, max(GROUP_BYTES // 2 // sharers, LEAST_PART_BYTES))


def _in_order(
    read: Callable[[], Iterator[pa.RecordBatch]], most_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield rows in offset order; more than `most_bytes` of them are read several times.

    The first time, only their offsets and sizes are kept.
    """
    held: list[pa.RecordBatch] = []
    places: list[pa.Table] = []
    size = 0
    for batch in read():
        # Columns besides these take about the same in each row.
        sizes = row_sizes(batch)
        more = max(0, batch.nbytes - (pc.sum(sizes).as_py() or 0)) // batch.num_rows
        places.append(pa.table({"offset": batch["offset"], "size": pc.add(sizes, number(more))}))
        size += batch.nbytes
        held = [*held, batch] if size <= most_bytes else []
    if size <= most_bytes:
        yield from _by_offset(held)
        return
    for first, last in _parts(pa.concat_tables(places), most_bytes):
        wanted = (pc.field("offset") >= number(first)) & (pc.field("offset") <= number(last))
        yield from _by_offset([batch.filter(wanted) for batch in read()])


def _parts(places: pa.Table, most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield the first and the last offset of parts with at most `most_bytes`, or one offset."""
    ordered = places.take(pc.sort_indices(places["offset"]))
    ends = pc.cumulative_sum(ordered["size"])
    offsets = ordered["offset"]
    at = before = 0
    while at < len(offsets):
        fitting = pc.sum(pc.less_equal(ends, number(before + most_bytes))).as_py()
        first = offsets[at].as_py()
        last = offsets[max(fitting - 1, at)].as_py()
        yield first, last
        # All rows of an offset, in case it is there twice.
        at = pc.sum(pc.less_equal(offsets, number(last))).as_py()
        before = ends[at - 1].as_py()


def _by_offset(batches: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    table = pa.Table.from_batches(batches, schema=SCHEMA)
    ordered = table.take(pc.sort_indices(table["offset"])).combine_chunks()
    yield from in_batches(ordered.to_batches(), BATCH_BYTES)


def _records(
    root: str, file: ShardFile, sharers: int, bounds: RowBounds
) -> Iterator[pa.RecordBatch]:
    batch_bytes = min(READ_BYTES, GROUP_BYTES // sharers)
    try:
        with checked_file(path_of(root, file.path), file, sharers) as checked:
            yield from read_records(checked, file.file_format, batch_bytes, bounds)
    except DataFileError as error:
        raise DataFileError(f"{file.path}: {error}") from error


def _bounds(shard: Shard, from_offset: int) -> RowBounds:
    """Return bounds with which a format may skip rows; the other rows are filtered later."""
    ranges = shard.rows.ranges
    first, end = from_offset, None
    if ranges is not None:
        first = max(from_offset, ranges[0].start) if ranges else from_offset
        end = ranges[-1].end if ranges else from_offset
    return RowBounds(
        shard.source.partition, first, end, shard.rows.from_ms, shard.rows.to_ms, is_proven=True
    )


def merge_streams(
    streams: list[Iterator[pa.RecordBatch]], firsts: Sequence[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """Merge streams of batches, each in offset order, into one such stream.

    Args:
        firsts: For each stream, an offset that none of its records is below, ascending: a stream
            isn't begun before that is reached. None to begin all of them.
    """
    if len(streams) == 1:
        yield from streams[0]
        return
    heads: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
    later = deque(zip(firsts or [0] * len(streams), streams, strict=True))
    waiting: list[Iterator[pa.RecordBatch]] = []
    while True:
        while True:
            for stream in waiting:
                batch = next(stream, None)
                if batch is not None:
                    heads.append((batch, stream))
            ends = [batch["offset"][-1].as_py() for batch, _ in heads]
            if not later or (ends and min(ends) < later[0][0]):
                break
            waiting = [later.popleft()[1]]
        if not heads:
            return
        # No stream can still yield a lower offset than those up to this limit.
        limit = number(min(batch["offset"][-1].as_py() for batch, _ in heads))
        ready, kept, waiting = [], [], []
        for batch, stream in heads:
            rows = pc.sum(pc.less_equal(batch["offset"], limit)).as_py()
            ready.append(batch.slice(0, rows))
            if rows < batch.num_rows:
                kept.append((batch.slice(rows), stream))
            else:
                waiting.append(stream)
        heads = kept
        table = pa.Table.from_batches(ready)
        merged = table.take(pc.sort_indices(table["offset"])).combine_chunks()
        yield from merged.to_batches()
