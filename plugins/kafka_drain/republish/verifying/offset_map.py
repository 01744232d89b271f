"""Where each source offset went, so that consumers can continue in the target. Opens nothing.

An offset map is sealed JSON in the run's folder. Its blocks hold stretches of records, so that a
partition that is sent as a whole needs one line per transaction, not per record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, NamedTuple

from kafka_drain.archive.format import SealedDocument
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping, subtract
from kafka_drain.republish.planning.documents import PartitionMapJson
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.storage.typed_json import WrittenAs

#: Maximum number of records in a joined block, which a translated consumer may read again.
JOINED_RECORDS = 1_000

#: The lower bits hold a Kafka offset; the bits above hold the shard's index in its chain.
PLACE_BITS = 63


class Block(NamedTuple):
    """A stretch of records of one source partition in one target partition.

    Attributes:
        source_start: Offset of its first record in the source.
        source_end: The offset after its last record in the source.
        target_start: Offset of its first record in the target.
        target_end: The offset after its last record in the target.
        records: Number of records.
    """

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    records: int

    @property
    def is_exact(self) -> bool:
        """Return whether offsets increase by one on both sides."""
        return (
            self.records
            == self.source_end - self.source_start
            == self.target_end - self.target_start
        )

    def translate(self, offset: int) -> int:
        """Return the target offset to continue at; nothing is skipped, some may be read again.

        Args:
            offset: Offset in the source, before the block's end.
        """
        if offset > self.source_start and self.is_exact:
            return self.target_start + offset - self.source_start
        return self.target_start

    def read_behind(self, offset: int, place: int) -> int:
        """Return the number of its records that were read and are at or after a target offset.

        For a block that isn't exact, this is an upper bound. For a run that has only started, the
        end in the target is unknown.

        Args:
            offset: The offset of the record that the consumer would read next in the source.
            place: The offset at which it continues in the target.
        """
        read = min(self.records, max(0, offset - self.source_start))
        if self.is_exact:
            return max(0, min(read, self.target_start + read - place))
        has_end = self.target_end > self.target_start
        return max(0, min(read, self.target_end - place)) if has_end else read

    def unread(self, offset: int) -> int:
        """Return the number of its records that a consumer at a source offset hasn't read.

        For a block that isn't exact, this is an upper bound.
        """
        if self.is_exact:
            return min(self.records, max(0, self.source_end - offset))
        return self.records if self.source_end > offset else 0

    def part(self, offsets: OffsetRange) -> Block:
        """Return the part of an exact block with some of its source offsets."""
        start = self.target_start + offsets.start - self.source_start
        return Block(offsets.start, offsets.end, start, start + len(offsets), len(offsets))


def offset_in_chain(place: int, offset: int) -> int:
    """Return an offset that includes the shard's index, so that offsets ascend along the chain."""
    return (place << PLACE_BITS) + offset


def place_and_offset(offset: int) -> tuple[int, int]:
    """Return the shard's index in its chain, and the offset; the inverse of `offset_in_chain`."""
    return offset >> PLACE_BITS, offset & ((1 << PLACE_BITS) - 1)


def join_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Join adjacent blocks into inexact blocks of at most `JOINED_RECORDS` records."""
    joined: list[Block] = []
    for block in blocks:
        last = joined[-1] if joined else block
        of_one_shard = last.source_start >> PLACE_BITS == block.source_start >> PLACE_BITS
        if joined and of_one_shard and last.records + block.records <= JOINED_RECORDS:
            joined[-1] = Block(
                last.source_start,
                block.source_end,
                last.target_start,
                block.target_end,
                last.records + block.records,
            )
        else:
            joined.append(block)
    return joined


@dataclass(frozen=True, slots=True)
class PartitionMap:
    """Where one source partition's records are in one target partition.

    Attributes:
        source_topic_id: Id of its topic; a recreated topic's offsets restart at 0.
        blocks: Both offsets increase from each block to the next.
        is_repeated: Whether a run that takes precedence has sent the same records, too.
        may_be_repeated: Whether it may have sent some of them, as far as its blocks show. Both
            flags are set only in joined maps, never in files.
    """

    source: TopicPartition
    source_topic_id: str
    target: TopicPartition
    blocks: tuple[Block, ...]
    is_repeated: bool = False
    may_be_repeated: bool = False

    @property
    def incarnation(self) -> tuple[TopicPartition, str]:
        """The source partition in one incarnation of its topic."""
        return self.source, self.source_topic_id

    def translate(self, offset: int) -> int:
        """Return the target offset at which a consumer at a source offset continues."""
        unread = self.first_unread(offset)
        return self.blocks[-1].target_end if unread is None else unread

    def first_unread(self, offset: int) -> int | None:
        """Return the target offset of the first unread record, or a lower one.

        None if all records were read, or if another run's copy of each record counts instead.
        """
        at = bisect_right(self.blocks, offset, key=lambda block: block.source_end)
        if self.is_repeated or at == len(self.blocks):
            return None
        return self.blocks[at].translate(offset)

    def read_again(self, offset: int, place: int) -> int:
        """Return an upper bound of the records read again by a consumer that continues at a place.

        If another run has sent them too, all records after the place count.
        """
        is_twice = self.is_repeated or self.may_be_repeated
        at = self.blocks[-1].source_end if is_twice else offset
        return sum(block.read_behind(at, place) for block in self.blocks)

    def unread(self, offset: int) -> int:
        """Return an upper bound of the records that a consumer at a source offset hasn't read."""
        # Another copy counts of those that are repeated.
        return 0 if self.is_repeated else sum(block.unread(offset) for block in self.blocks)


def _read(document: PartitionMapJson) -> PartitionMap:
    return PartitionMap(
        TopicPartition(document["source_topic"], document["source_partition"]),
        document["source_topic_id"],
        TopicPartition(document["target_topic"], document["target_partition"]),
        tuple(Block(*block) for block in document["blocks"]),
    )


def _written(partition: PartitionMap) -> PartitionMapJson:
    return {
        "source_topic": partition.source.topic,
        "source_partition": partition.source.partition,
        "source_topic_id": partition.source_topic_id,
        "target_topic": partition.target.topic,
        "target_partition": partition.target.partition,
        "blocks": list(partition.blocks),
    }


_PartitionMap = Annotated[PartitionMap, WrittenAs(PartitionMapJson, _read, _written)]


@dataclass(frozen=True, slots=True)
class OffsetMap(SealedDocument):
    """Where a run's records went.

    Attributes:
        run: Name of the run's folder.
        pipeline: The pipeline's name.
        cluster_id: Id of the target cluster.
        partitions: One for each pair of source and target partition that shares records, and in a
            joined map for each run; for a recreated topic, later incarnations come later.
    """

    run: str
    pipeline: str
    cluster_id: str
    partitions: tuple[_PartitionMap, ...]

    def sources(self) -> list[TopicPartition]:
        """Return the source partitions, sorted."""
        return sorted({partition.source for partition in self.partitions})

    def of(self, tp: TopicPartition) -> list[PartitionMap]:
        """Return the maps of a source partition; for a recreated topic, of its last incarnation."""
        found = [partition for partition in self.partitions if partition.source == tp]
        return [p for p in found if p.source_topic_id == found[-1].source_topic_id]

    def translate(self, tp: TopicPartition, offset: int) -> dict[TopicPartition, int]:
        """Return the target offsets at which a consumer of the source continues.

        Every record that the consumer hasn't read is at or after the returned offset. For a
        recreated topic, the offset is one of its last incarnation.

        Args:
            tp: The source partition.
            offset: The offset of the record that it would read next.

        Returns:
            An offset for each target partition that holds records of `tp`; empty if the run has
            sent none of them.
        """
        by_target: dict[TopicPartition, list[PartitionMap]] = {}
        for partition in self.of(tp):
            by_target.setdefault(partition.target, []).append(partition)
        return {target: resume_offset(found, {tp: offset}) for target, found in by_target.items()}

    def joined(self, others: Iterable[OffsetMap]) -> OffsetMap:
        """Join with the maps of other runs that sent to the same topics, oldest run first.

        For records that several runs have sent, this run's copy counts, otherwise the newest one.
        """
        added: list[PartitionMap] = []
        counted = _Counted({}, {}).with_those_of(self)
        for other in reversed(list(others)):
            added[:0] = [part for p in other.partitions for part in counted.split(p)]
            counted = counted.with_those_of(other)
        # Add this run last: for a recreated topic, `of` uses the last incarnation.
        return replace(self, partitions=(*added, *self.partitions))


def started_map(plan: RepublishPlan) -> OffsetMap:
    """Return the map of a run that has started but has no usable one: a block for each shard.

    Everything it has sent is at or after the ends that the target had when its plan was made.
    """
    starts = plan.starts()
    return OffsetMap(
        run=plan.key,
        pipeline=plan.pipeline,
        cluster_id=plan.cluster_id,
        partitions=tuple(
            PartitionMap(
                shard.source,
                shard.topic_id,
                tp,
                (Block(shard.first, shard.end, starts[tp], starts[tp], shard.records),),
            )
            for shard in plan.shards
            for tp in starts
            if tp.topic == shard.target_topic and shard.target_partition in (None, tp.partition)
        ),
    )


def originals_map(offset_map: OffsetMap, held: Mapping[TopicPartition, OffsetRange]) -> OffsetMap:
    """Map the original records of partitions that were republished into themselves.

    A group that continues at a copy would skip the unread originals before it.

    Args:
        offset_map: Offsets of all runs' records.
        held: The offsets that Kafka holds of each such partition.
    """
    ids = {p.source: p.source_topic_id for p in offset_map.partitions if p.source in held}
    partitions = []
    for tp, topic_id in ids.items():
        copies = [
            OffsetRange(block.target_start, block.target_end)
            for p in offset_map.partitions
            if p.target == tp
            for block in p.blocks
            if block.target_end - block.target_start == block.records
        ]
        blocks = tuple(
            Block(r.start, r.end, r.start, r.end, len(r)) for r in subtract(held[tp], copies)
        )
        if blocks:
            partitions.append(PartitionMap(tp, topic_id, tp, blocks))
    return replace(offset_map, partitions=tuple(partitions))


def resume_offset(parts: Iterable[PartitionMap], read: Mapping[TopicPartition, int]) -> int:
    """Return the target offset at which a consumer continues without skipping unread records.

    This is the first unread record, or the end of the last block if all were read.

    Args:
        parts: The maps from the consumer's source partitions to that target partition.
        read: For each source partition, the offset below which everything was read; 0 if missing.
    """
    found = list(parts)
    places = [part.first_unread(read.get(part.source, 0)) for part in found]
    unread = [place for place in places if place is not None]
    return min(unread) if unread else max(part.blocks[-1].target_end for part in found)


_Ranges = Mapping[tuple[TopicPartition, str], Sequence[OffsetRange]]


class _Counted(NamedTuple):
    """Source offsets that were already counted, for runs that take precedence.

    Attributes:
        sure: Offsets in exact blocks, by source partition and incarnation.
        possible: Offsets in any block: a joined block doesn't say which of them it holds.
    """

    sure: _Ranges
    possible: _Ranges

    def with_those_of(self, offset_map: OffsetMap) -> _Counted:
        """Return these offsets plus those of a map."""
        return _Counted(
            _with_blocks(self.sure, offset_map, is_sure=True),
            _with_blocks(self.possible, offset_map, is_sure=False),
        )

    def split(self, partition: PartitionMap) -> list[PartitionMap]:
        """Split a map into parts: new records, possibly counted records, and counted records."""
        sure = self.sure.get(partition.incarnation, [])
        possible = self.possible.get(partition.incarnation, [])
        new: list[Block] = []
        maybe: list[Block] = []
        repeated: list[Block] = []
        for block in partition.blocks:
            whole = OffsetRange(block.source_start, block.source_end)
            left = subtract(whole, overlapping(sure, whole))
            unknown = overlapping(possible, whole)
            if not block.is_exact:
                (repeated if not left else maybe if unknown else new).append(block)
                continue
            repeated += map(block.part, subtract(whole, left))
            for piece in left:
                alone = subtract(piece, unknown)
                new += map(block.part, alone)
                maybe += map(block.part, subtract(piece, alone))
        return [
            replace(partition, blocks=tuple(blocks), is_repeated=is_sure, may_be_repeated=is_likely)
            for blocks, is_sure, is_likely in (
                (new, False, False),
                (maybe, False, True),
                (repeated, True, True),
            )
            if blocks
        ]


def _with_blocks(known: _Ranges, offset_map: OffsetMap, *, is_sure: bool) -> _Ranges:
    added: dict[tuple[TopicPartition, str], list[OffsetRange]] = {}
    for p in offset_map.partitions:
        added.setdefault(p.incarnation, []).extend(
            OffsetRange(block.source_start, block.source_end)
            for block in p.blocks
            if block.is_exact or not is_sure
        )
    merged = {key: merge([*known.get(key, []), *ranges]) for key, ranges in added.items()}
    return {**known, **merged}
