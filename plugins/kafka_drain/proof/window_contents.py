"""Hash the windows' part of a segment: the records in their files at given offsets."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from upath import UPath

from kafka_drain.archive.receipts import SealedFile
from kafka_drain.archive.snapshot import SnapshotWindow
from kafka_drain.data_files.reader import read_offsets, read_records, topic_of
from kafka_drain.data_files.records import TimestampError
from kafka_drain.data_files.xxhash64 import batch_fingerprint
from kafka_drain.offsets import (
    OffsetRange,
    Ranges,
    TopicPartition,
    count,
    merge,
    overlapping,
    within,
)
from kafka_drain.proof.content_checks import Tally, together


def content_of_windows(
    root: UPath,
    windows: Iterable[SnapshotWindow],
    replaced: Iterable[str],
    ranges: Ranges,
    topic_ids: Mapping[str, str],
) -> Tally:
    """Return the windows' records at the given offsets.

    Args:
        windows: Sealed windows, also of topics that were made again since.
        replaced: Files that another window replaces.
        ranges: The offsets, sorted and disjoint for each partition.
        topic_ids: The ids of their topics.

    Raises:
        ArchiveError: When a window's plan can't be read.
        DataFileError: When a file can't be read.
        OSError: When a file can't be read.
    """
    left_out, found = frozenset(replaced), [Tally(0, f"{0:016x}", {})]
    for window in windows:
        ids = window.receipt.topics
        own = {tp: rs for tp, rs in ranges.items() if ids.get(tp.topic) == topic_ids.get(tp.topic)}
        for file in window.receipt.files:
            if file.path not in left_out and overlaps(file, own):
                found.append(_content_of_file(root, file.path, window.plan.format, own))
    return together(found)


def overlaps(file: SealedFile, ranges: Ranges) -> bool:
    """Return whether a file reaches into sorted disjoint ranges of its partitions."""
    return any(
        overlapping(ranges.get(content.tp, ()), OffsetRange(content.first, content.last + 1))
        for content in file.contents
    )


def _content_of_file(root: UPath, name: str, file_format: str, ranges: Ranges) -> Tally:
    path, topic, value = root / name, topic_of(name), 0
    counts = Counter[TopicPartition]()
    try:
        for batch in read_records(path, file_format):
            wanted = batch.filter(_wanted(batch, topic, ranges))
            counts.update(TopicPartition(*row[:2]) for row in _places(wanted, topic))
            value ^= batch_fingerprint(wanted, topic)
    except TimestampError:
        offsets = read_offsets(path, file_format, topic)
        held = {o.tp: count(_common(o.ranges, ranges.get(o.tp, ()))) for o in offsets}
        return Tally(sum(held.values()), None, held)
    return Tally(counts.total(), f"{value:016x}", counts)


def _places(batch: pa.RecordBatch, topic: str | None) -> Iterator[tuple[str, int, int]]:
    """Yield topic, partition and offset of each row."""
    topics = [topic] * len(batch) if topic is not None else batch["topic"].to_pylist()
    return zip(topics, batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)


def _wanted(batch: pa.RecordBatch, topic: str | None, ranges: Ranges) -> pa.BooleanArray:
    return pa.array(
        (
            _holds(ranges.get(TopicPartition(name, number), ()), at)
            for name, number, at in _places(batch, topic)
        ),
        pa.bool_(),
    )


def _holds(ranges: Sequence[OffsetRange], offset: int) -> bool:
    position = bisect_right(ranges, offset, key=lambda r: r.start) - 1
    return position >= 0 and offset in ranges[position]


def _common(some: Iterable[OffsetRange], others: Sequence[OffsetRange]) -> list[OffsetRange]:
    return merge(piece for r in some for piece in within(others, r))
