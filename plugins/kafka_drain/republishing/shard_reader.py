"""The records of one source partition, in offset order, from files that may interleave.

One Spark task splits its offsets over a file for each date: where event times go back and forth,
these files interleave. They are merged batch by batch; memory is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from upath import UPath

from kafka_drain.data_files import read_records, topic_of
from kafka_drain.offsets import TopicPartition
from kafka_drain.republishing.plan import Shard, ShardFile

__all__ = ["read_shard"]

#: About how much memory the batches of one group of files may take.
GROUP_BYTES = 128 << 20


def read_shard(root: UPath, shard: Shard) -> Iterator[pa.RecordBatch]:
    """Yield a shard's records in offset order.

    Yields:
        Batches with the columns of `data_files.records.SCHEMA`.

    Raises:
        DataFileError: When a file can't be read.
    """
    for group in interleaved_groups(shard.files):
        batch_bytes = GROUP_BYTES // len(group)
        yield from merge_streams([_stream(root, file, shard.source, batch_bytes) for file in group])


def interleaved_groups(files: Sequence[ShardFile]) -> list[list[ShardFile]]:
    """Put files whose offset ranges overlap into one group; files come by first offset."""
    groups: list[list[ShardFile]] = []
    reach = -1
    for file in files:
        if file.first > reach:
            groups.append([])
        groups[-1].append(file)
        reach = max(reach, file.last)
    return groups


def _stream(
    root: UPath, file: ShardFile, source: TopicPartition, batch_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield one file's records of one partition in offset order."""
    batches = read_records(root / file.path, file.file_format, batch_bytes)
    if topic_of(file.path) is None:
        batches = (_of_topic(batch, source.topic) for batch in batches)
    selected = (b.filter(pc.equal(b["partition"], source.partition)) for b in batches)
    if file.ascending:
        yield from (batch for batch in selected if batch.num_rows)
        return
    # Rows out of order can't be merged as they come: this one file is sorted in memory.
    table = pa.Table.from_batches(list(selected))
    yield from table.take(pc.sort_indices(table["offset"])).combine_chunks().to_batches()


def _of_topic(batch: pa.RecordBatch, topic: str) -> pa.RecordBatch:
    return batch.filter(pc.equal(batch["topic"].fill_null(""), topic))


def merge_streams(streams: list[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """Merge batches that each stream yields in offset order into one such stream."""
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
        # Up to here nothing smaller can follow from any stream.
        limit = min(batch["offset"][-1].as_py() for batch, _ in heads)
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
