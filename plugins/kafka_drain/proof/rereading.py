"""Compare a segment's files with the records that Kafka still holds, when no note says enough.

Hashes are combined by blocks of offsets, so that memory doesn't grow with the records. Where two
blocks differ, the first one is compared again, record by record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from operator import xor

from kafka_drain.data_files.reader import as_client_reads, read_columns, read_records, topic_of
from kafka_drain.data_files.records import RowBounds
from kafka_drain.data_files.xxhash64 import record_hashes
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, Ranges, TopicPartition, count, within, without
from kafka_drain.progress import Progress, Ticker
from kafka_drain.proof.content_checks import Reread, SegmentFiles
from kafka_drain.proof.hash_blocks import BLOCK, HashBlocks, Offsets, rows_of, without_headers
from kafka_drain.proof.offset_checks import held_ranges


def compare_with_kafka(
    segment: SegmentFiles,
    cluster: KafkaCluster,
    same_topics: Callable[[set[str]], set[str]],
    isolation_level: str,
) -> Reread:
    """Read the records of a segment's files from Kafka again, and compare them one by one.

    Args:
        cluster: The cluster that they were drained from.
        same_topics: Returns the topics, of those given, whose ids are still the archive's; asked
            before and after the read.
        isolation_level: The pipeline's.

    Raises:
        DataFileError: When a file can't be read.
        OSError: When a file can't be read.
        AuthorizationError: When an ACL is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    held = held_ranges(segment.files)
    comparison = _Comparison(segment, cluster, isolation_level)
    same = same_topics({tp.topic for tp in held})
    in_kafka = {
        tp: comparison.in_kafka(tp, ranges, BLOCK)
        for tp, ranges in held.items()
        if tp.topic in same
    }
    in_files = comparison.in_files({tp: seen.offsets for tp, seen in in_kafka.items()}, BLOCK)
    changed = {}
    for tp, seen in in_kafka.items():
        if blocks := seen.differing(in_files[tp]):
            changed[tp] = comparison.narrowed(tp, blocks, held[tp])
    same = same_topics(same)
    there = {tp: seen for tp, seen in in_kafka.items() if tp.topic in same}
    missing = {tp: without(held[tp], there[tp].offsets if tp in there else ()) for tp in held}
    gone = sum(map(count, missing.values()))
    whole = reduce(xor, (each for seen in there.values() for each in seen.hashes.values()), 0)
    return Reread(
        {tp: ranges for tp, ranges in changed.items() if tp in there},
        gone,
        None if gone else f"{whole:016x}",
        missing,
    )


class _Comparison:
    """Reads both sides of a comparison."""

    def __init__(self, segment: SegmentFiles, cluster: KafkaCluster, isolation_level: str) -> None:
        self._segment = segment
        self._cluster = cluster
        self._isolation_level = isolation_level
        self._read = 0
        total = sum(file.records for file in segment.files)
        self._ticker = Ticker("validate", Progress("records read again", total))
        self._has_headers = _has_headers(segment)

    def in_kafka(self, tp: TopicPartition, ranges: Sequence[OffsetRange], size: int) -> HashBlocks:
        """Hash Kafka's records at the given offsets."""
        found, wanted = HashBlocks(size), Offsets(ranges)
        span = OffsetRange(ranges[0].start, ranges[-1].end)
        for batch in self._cluster.records(tp, span, self._isolation_level):
            kept = batch if self._has_headers else without_headers(batch)
            for _, rows, hashes in record_hashes(kept, tp.topic):
                found.add(rows["offset"].to_pylist(), hashes, wanted)
            self._read += batch.num_rows
            self._ticker.at(self._read)
        return found

    def in_files(
        self, ranges: Ranges, size: int, part: RowBounds | None = None
    ) -> dict[TopicPartition, HashBlocks]:
        """Hash the files' records at the given offsets."""
        found = {tp: HashBlocks(size) for tp in ranges}
        wanted = {tp: Offsets(parts) for tp, parts in ranges.items()}
        for file in self._segment.files:
            if not any(content.tp in ranges for content in file.contents):
                continue
            path, topic = self._segment.root / file.path, topic_of(file.path)
            for batch in read_records(path, self._segment.file_format, wanted=part):
                for name, rows, hashes in record_hashes(as_client_reads(batch), topic):
                    for number in set(rows["partition"].to_pylist()):
                        tp = TopicPartition(name or "", number)
                        if tp in ranges:
                            found[tp].add(*rows_of(rows, hashes, number), wanted[tp])
        return found

    def narrowed(
        self, tp: TopicPartition, blocks: Sequence[OffsetRange], held: Sequence[OffsetRange]
    ) -> list[OffsetRange]:
        """Return the differing blocks from the first differing offset on."""
        first = blocks[0]
        seen = self.in_kafka(tp, within(held, first), 1)
        part = RowBounds(tp.partition, first.start, first.end)
        differing = seen.differing(self.in_files({tp: seen.offsets}, 1, part)[tp])
        # Kafka may have compacted the record in the meantime.
        start = differing[0].start if differing else first.start
        return [OffsetRange(start, first.end), *blocks[1:]]


def _has_headers(segment: SegmentFiles) -> bool:
    """Return whether the drain read headers: otherwise, files have no such column.

    A JSON file tells only by a record that has headers.
    """
    for file in segment.files:
        path, topic = segment.root / file.path, topic_of(file.path)
        needed = ["partition", "offset"] + ["topic"] * (topic is None)
        for batch in read_columns(path, segment.file_format, needed, ["headers"]):
            if segment.file_format != "json":
                return "headers" in batch.schema.names
            if batch["headers"].null_count < len(batch):
                return True
    return False
