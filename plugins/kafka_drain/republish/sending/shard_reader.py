"""Read the records of one source partition in offset order, from files that may interleave.

One Spark task splits its offsets over one file per date. When event times go back and forth, the
offset ranges of these files interleave. They are merged batch by batch, in bounded memory.

This code runs in separate processes and on Spark's executors. It needs only pyarrow if the files
are local and none is Avro.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.data_files.reader import read_records, topic_of
from kafka_drain.data_files.records import BATCH_ROWS, SCHEMA, Wanted, path_of
from kafka_drain.data_files.scalars import number
from kafka_drain.errors import DataFileError
from kafka_drain.republish.planning.row_filter import wanted_rows
from kafka_drain.republish.planning.shards import Shard, ShardFile
from kafka_drain.republish.sending.checked_file import checked_file

#: Approximate memory limit for the batches of one group of files.
GROUP_BYTES = 128 << 20


def read_shard(
    root: str, shard: Shard, from_offset: int = 0, sharers: int = 1
) -> Iterator[pa.RecordBatch]:
    """Yield a shard's selected records in offset order.

    All bytes of a file are compared with the plan before its first record is yielded.

    Args:
        root: The archive: a folder, or a URL such as `s3://bucket/archive`.
        shard: The shard.
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
            [_stream(root, file, shard, from_offset, sharers * len(group)) for file in group]
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
    selected = (
        wanted_rows(batch, shard.source, shard.rows, from_offset, in_topic_folder=in_topic_folder)
        for batch in _records(root, file, sharers, _bounds(shard, from_offset))
    )
    if file.ascending:
        yield from (batch for batch in selected if batch.num_rows)
        return
    # Unordered rows can't be merged as a stream: sort this one file in memory.
    table = pa.Table.from_batches(list(selected), schema=SCHEMA)
    ordered = table.take(pc.sort_indices(table["offset"])).combine_chunks()
    yield from ordered.to_batches(max_chunksize=BATCH_ROWS)


def _records(root: str, file: ShardFile, sharers: int, bounds: Wanted) -> Iterator[pa.RecordBatch]:
    try:
        with checked_file(path_of(root, file.path), file, sharers) as checked:
            yield from read_records(checked, file.file_format, GROUP_BYTES // sharers, bounds)
    except DataFileError as error:
        raise DataFileError(f"{file.path}: {error}") from error


def _bounds(shard: Shard, from_offset: int) -> Wanted:
    """Return bounds with which a format may skip rows; the other rows are filtered later."""
    ranges = shard.rows.ranges
    first, end = from_offset, None
    if ranges is not None:
        first = max(from_offset, ranges[0].start) if ranges else from_offset
        end = ranges[-1].end if ranges else from_offset
    return Wanted(
        shard.source.partition, first, end, shard.rows.from_ms, shard.rows.to_ms, is_proven=True
    )


def merge_streams(streams: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge streams of batches, each in offset order, into one such stream."""
    if len(streams) == 1:
        yield from streams[0]
        return
    heads: list[tuple[pa.RecordBatch, Iterator[pa.RecordBatch]]] = []
    waiting = streams
    while True:
        for stream in waiting:
            batch = next(stream, None)
            if batch is not None:
                heads.append((batch, stream))
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
