"""What an archive holds, counted without the product's reader: files' rows, receipts' ranges."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pyarrow.parquet as pq

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge

__all__ = ["data_files", "offsets_in_files", "refuse_inexact"]


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
