"""Where each source offset went: how consumers of the source go on in the target. Opens nothing.

An offset map is sealed JSON in the run's folder. Its blocks hold stretches of records, so that a
partition sent whole takes a line for each transaction, not for each record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from kafka_drain.archive.format_version import FORMAT_VERSION, require_readable
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping, subtract
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.storage.sealed_json import seal, unseal

__all__ = [
    "Block",
    "OffsetMap",
    "PartitionMap",
    "begun_map",
    "go_on",
    "join_blocks",
    "offset_in_chain",
    "originals_map",
    "place_and_offset",
]


#: Records that a block of joined ones has at most: what a translated consumer reads again.
JOINED_RECORDS = 1_000

#: Above these bits, which hold Kafka's offsets, stands a shard's place in its chain.
PLACE_BITS = 63


class Block(NamedTuple):
    """A stretch of records of one source partition in one target partition.

    Attributes:
        source_start: Offset of its first record in the source.
        source_end: The offset after its last one's.
        target_start: Offset of its first record in the target.
        target_end: The offset after its last one's.
        records: How many.
    """

    source_start: int
    source_end: int
    target_start: int
    target_end: int
    records: int

    @property
    def is_exact(self) -> bool:
        """Whether offsets go up by one on both sides."""
        return (
            self.records
            == self.source_end - self.source_start
            == self.target_end - self.target_start
        )

    def translate(self, offset: int) -> int:
        """Return where to go on in the target; nothing is skipped, some may be read again.

        Args:
            offset: Offset in the source, before the block's end.
        """
        if offset > self.source_start and self.is_exact:
            return self.target_start + offset - self.source_start
        return self.target_start

    def read_behind(self, offset: int, place: int) -> int:
        """Return how many of its records were read and lie at or after a place in the target.

        Of a block that isn't exact, so many at the most. Where it ends in the target isn't known of
        a run that has only begun.

        Args:
            offset: The offset of the record that the consumer would read next in the source.
            place: Where it goes on in the target.
        """
        read = min(self.records, max(0, offset - self.source_start))
        if self.is_exact:
            return max(0, min(read, self.target_start + read - place))
        has_end = self.target_end > self.target_start
        return max(0, min(read, self.target_end - place)) if has_end else read

    def part(self, offsets: OffsetRange) -> Block:
        """Return the part of an exact block that some of its source offsets are."""
        start = self.target_start + offsets.start - self.source_start
        return Block(offsets.start, offsets.end, start, start + len(offsets), len(offsets))


def offset_in_chain(place: int, offset: int) -> int:
    """Return an offset of a chain's shard, greater than all of the shards before it."""
    return (place << PLACE_BITS) + offset


def place_and_offset(offset: int) -> tuple[int, int]:
    """Return of what shard of its chain an offset is, and which."""
    return offset >> PLACE_BITS, offset & ((1 << PLACE_BITS) - 1)


def join_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Join neighbours into blocks of at most `JOINED_RECORDS` records, which are not exact."""
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
        source: The source partition.
        source_topic_id: Id of its topic; a topic that was made again counts its offsets anew.
        target: The target partition.
        blocks: Both offsets go up from each block to the next.
        is_repeated: Whether a run that counts more has sent the same records, too.
        may_be_repeated: Whether it may have sent some of them, for all that its blocks say. Both
            are told of maps that are joined; no file has them.
    """

    source: TopicPartition
    source_topic_id: str
    target: TopicPartition
    blocks: tuple[Block, ...]
    is_repeated: bool = False
    may_be_repeated: bool = False

    @property
    def life(self) -> tuple[TopicPartition, str]:
        """The source partition in one life of its topic."""
        return self.source, self.source_topic_id

    def translate(self, offset: int) -> int:
        """Return where a consumer of the source that is at an offset goes on in the target."""
        unread = self.first_unread(offset)
        return self.blocks[-1].target_end if unread is None else unread

    def first_unread(self, offset: int) -> int | None:
        """Return where the first record is that a consumer hasn't read, or somewhere before it.

        None when it has read all, and when each one counts where another run has sent it.
        """
        at = bisect_right(self.blocks, offset, key=lambda block: block.source_end)
        if self.is_repeated or at == len(self.blocks):
            return None
        return self.blocks[at].translate(offset)

    def read_again(self, offset: int, place: int) -> int:
        """Return how many records a consumer reads again that goes on at a place, at the most.

        All that are behind it count where another run has sent them, too.
        """
        is_twice = self.is_repeated or self.may_be_repeated
        at = self.blocks[-1].source_end if is_twice else offset
        return sum(block.read_behind(at, place) for block in self.blocks)


@dataclass(frozen=True, slots=True)
class OffsetMap:
    """Where a run's records went.

    Attributes:
        run: Name of the run's folder.
        pipeline: The pipeline's name.
        cluster_id: Id of the target cluster.
        partitions: One for each pair of source and target partition that shares records, and for
            each run of those that are joined; of a topic that was made again, the later life
            comes later.
    """

    run: str
    pipeline: str
    cluster_id: str
    partitions: tuple[PartitionMap, ...]

    def sources(self) -> list[TopicPartition]:
        """Return the source partitions, sorted."""
        return sorted({partition.source for partition in self.partitions})

    def of(self, tp: TopicPartition) -> list[PartitionMap]:
        """Return where a source partition went; of a topic that was made again, its last life."""
        found = [partition for partition in self.partitions if partition.source == tp]
        return [p for p in found if p.source_topic_id == found[-1].source_topic_id]

    def translate(self, tp: TopicPartition, offset: int) -> dict[TopicPartition, int]:
        """Return where a consumer of the source goes on in the target.

        Every record that the consumer hasn't read is at the offset returned or after it. Of a
        topic that was made again, offsets of its last life are understood.

        Args:
            tp: The source partition.
            offset: The offset of the record that it would read next.

        Returns:
            An offset for each target partition that holds records of `tp`; none where the run has
            sent nothing of it.
        """
        by_target: dict[TopicPartition, list[PartitionMap]] = {}
        for partition in self.of(tp):
            by_target.setdefault(partition.target, []).append(partition)
        return {target: go_on(found, {tp: offset}) for target, found in by_target.items()}

    def joined(self, others: Iterable[OffsetMap]) -> OffsetMap:
        """Return a map that also has what other runs sent, oldest run first, to the same topics.

        What several runs have sent counts where this run sent it, or else the newest of them.
        """
        added: list[PartitionMap] = []
        counted = _Counted({}, {}).with_those_of(self)
        for other in reversed(list(others)):
            added[:0] = [part for p in other.partitions for part in counted.split(p)]
            counted = counted.with_those_of(other)
        # This run's last: of a topic that was made again, its life is meant.
        return replace(self, partitions=(*added, *self.partitions))

    def to_bytes(self) -> bytes:
        """Return the sealed map, as it stands in its file."""
        return seal(
            {
                "format_version": FORMAT_VERSION,
                "run": self.run,
                "pipeline": self.pipeline,
                "cluster_id": self.cluster_id,
                "partitions": [
                    {
                        "source_topic": partition.source.topic,
                        "source_partition": partition.source.partition,
                        "source_topic_id": partition.source_topic_id,
                        "target_topic": partition.target.topic,
                        "target_partition": partition.target.partition,
                        "blocks": partition.blocks,
                    }
                    for partition in self.partitions
                ],
            }
        )

    @classmethod
    def from_bytes(cls, content: bytes) -> OffsetMap:
        """Read what `to_bytes` wrote.

        Raises:
            SealError: When a byte was changed.
            ValueError: When it is a map of another format.
        """
        document = unseal(content)
        require_readable(document.get("format_version"))
        return cls(
            run=document["run"],
            pipeline=document["pipeline"],
            cluster_id=document["cluster_id"],
            partitions=tuple(map(_partition, document["partitions"])),
        )


def begun_map(plan: RepublishPlan) -> OffsetMap:
    """Return what is known of a run that has begun and of whose records no map tells the places.

    Whatever it has sent lies behind the ends that the target had when its plan was made.
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
    """Return what partitions hold that were republished into themselves, but for the copies.

    A group that goes on at a copy would skip the originals before it that it hasn't read.

    Args:
        offset_map: Where all runs' records went.
        held: What Kafka holds of each such partition.
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


def go_on(parts: Iterable[PartitionMap], read: Mapping[TopicPartition, int]) -> int:
    """Return where a consumer goes on in a target partition, so that it skips nothing unread.

    That is at the first record that it hasn't read; where it has read all, after the last one.

    Args:
        parts: The maps of the source partitions that it reads to that target partition.
        read: The offset in each source partition below which all is read; without one, nothing is.
    """
    found = list(parts)
    places = [part.first_unread(read.get(part.source, 0)) for part in found]
    unread = [place for place in places if place is not None]
    return min(unread) if unread else max(part.blocks[-1].target_end for part in found)


_Ranges = Mapping[tuple[TopicPartition, str], Sequence[OffsetRange]]


class _Counted(NamedTuple):
    """Which source offsets were counted already, of runs that count more.

    Attributes:
        sure: Those that exact blocks hold, by source partition and life.
        possible: Those that lie in any block: a joined one doesn't say which of them it holds.
    """

    sure: _Ranges
    possible: _Ranges

    def with_those_of(self, offset_map: OffsetMap) -> _Counted:
        """Return these and what a map holds."""
        return _Counted(
            _with_blocks(self.sure, offset_map, is_sure=True),
            _with_blocks(self.possible, offset_map, is_sure=False),
        )

    def split(self, partition: PartitionMap) -> list[PartitionMap]:
        """Split a map into what counts, what may have been counted already, and what was."""
        sure = self.sure.get(partition.life, [])
        possible = self.possible.get(partition.life, [])
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
        added.setdefault(p.life, []).extend(
            OffsetRange(block.source_start, block.source_end)
            for block in p.blocks
            if block.is_exact or not is_sure
        )
    merged = {life: merge([*known.get(life, []), *ranges]) for life, ranges in added.items()}
    return {**known, **merged}


def _partition(document: dict[str, Any]) -> PartitionMap:
    return PartitionMap(
        TopicPartition(document["source_topic"], document["source_partition"]),
        document["source_topic_id"],
        TopicPartition(document["target_topic"], document["target_partition"]),
        tuple(Block(*block) for block in document["blocks"]),
    )
