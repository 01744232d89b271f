"""What is there, counted without the product: an archive's files and receipts, what groups read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import pyarrow.parquet as pq

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge

__all__ = ["Origin", "data_files", "offsets_in_files", "read_by_group", "refuse_inexact"]


class Origin(NamedTuple):
    """Where a record came from.

    Attributes:
        tp: The source partition.
        offset: The offset there.
    """

    tp: TopicPartition
    offset: int


class Read(NamedTuple):
    """What a group reads in a target, of the partitions that it reads in the source.

    Attributes:
        skipped: Records that it hasn't read, of which it gets no copy.
        again: How many records it gets that it has read, or gets twice.
    """

    skipped: set[Origin]
    again: int


def read_by_group(
    log: Mapping[TopicPartition, Mapping[int, Origin]],
    after: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    unread: Collection[TopicPartition] = (),
) -> Read:
    """Read a target from some offsets on.

    Args:
        log: What the target holds, by partition and offset.
        after: Where the group continues; it reads no other partition.
        committed: What it has committed in the source.
        unread: Source partitions of which it has read nothing.
    """
    begin = dict.fromkeys(unread, 0) | dict(committed)
    there = {origin for records in log.values() for origin in records.values()}
    wanted = {each for each in there if each.tp in begin and each.offset >= begin[each.tp]}
    got = Counter(
        origin
        for tp, start in after.items()
        for at, origin in log[tp].items()
        if at >= start and origin.tp in begin
    )
    return Read(wanted - got.keys(), got.total() - len(wanted & got.keys()))


def offsets_in_files(archive: Archive) -> Counter[tuple[int, int]]:
    """Count partition and offset of every row of every file, without the product's reader."""
    found: Counter[tuple[int, int]] = Counter()
    for file in archive_files(archive.snapshot()):
        table = pq.ParquetFile(f"{archive.root}/{file.path}").read(["partition", "offset"])
        found.update(zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True))
    return found


def ranges_in_receipts(archive: Archive) -> Iterator[tuple[TopicPartition, OffsetRange]]:
    """Yield what each receipt says that it has drained."""
    receipts = [
        receipt
        for generation in archive.snapshot().generations
        for receipt in generation.receipts()
    ]
    receipts += [window.receipt for window in archive.snapshot().windows if window.is_sealed]
    for receipt in receipts:
        yield from ((part.tp, part.range) for part in receipt.partitions)


def refuse_inexact(archive: Archive, cluster: KafkaCluster, topic: str, partitions: int) -> None:
    """Compare receipts and files with what Kafka holds: each offset once."""
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    ends = cluster.latest(tps, "read_committed")
    for tp in tps:
        ranges = [r for owner, r in ranges_in_receipts(archive) if owner == tp]
        assert merge(ranges) == ([OffsetRange(0, ends[tp])] if ends[tp] else [])
        assert count(ranges) == ends[tp]
    expected = {(tp.partition, offset) for tp in tps for offset in range(ends[tp])}
    found = offsets_in_files(archive)
    assert set(found) == expected
    assert set(found.values()) == {1}


def data_files(folder: str) -> set[str]:
    """Return the paths of all files of an archive."""
    return {os.path.join(at, name) for at, _, names in os.walk(folder) for name in names}
