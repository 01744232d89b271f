"""Where each source offset went: how consumers of the source go on in the target. Opens nothing.

An offset map is sealed JSON in the run's folder. Its blocks hold stretches of records, so that a
partition sent whole takes a line for each transaction, not for each record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, NamedTuple

from kafka_drain.offsets import TopicPartition
from kafka_drain.sealed_json import seal, unseal

__all__ = ["Block", "OffsetMap", "PartitionMap", "join_blocks"]

FORMAT_VERSION = 1

#: Records that a block of joined ones has at most: what a translated consumer reads again.
JOINED_RECORDS = 1_000


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


def join_blocks(blocks: Iterable[Block]) -> list[Block]:
    """Join neighbours into blocks of at most `JOINED_RECORDS` records, which are not exact."""
    joined: list[Block] = []
    for block in blocks:
        if joined and joined[-1].records + block.records <= JOINED_RECORDS:
            last = joined[-1]
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
    """

    source: TopicPartition
    source_topic_id: str
    target: TopicPartition
    blocks: tuple[Block, ...]

    def translate(self, offset: int) -> int:
        """Return where a consumer of the source that is at an offset goes on in the target."""
        at = bisect_right(self.blocks, offset, key=lambda block: block.source_end)
        if at == len(self.blocks):
            return self.blocks[-1].target_end
        return self.blocks[at].translate(offset)


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
        return {target: _go_on(found, offset) for target, found in by_target.items()}

    def joined(self, others: Iterable[OffsetMap]) -> OffsetMap:
        """Return a map that also has what other runs sent, oldest run first, to the same topics.

        Of a source partition's life, only what lies below this run's first record or above its last
        one is taken from them: what this run has sent counts where it sent it.
        """
        extents: dict[tuple[TopicPartition, str], list[int]] = {}
        for p in self.partitions:
            bounds = extents.setdefault((p.source, p.source_topic_id), [])
            bounds += [p.blocks[0].source_start, p.blocks[-1].source_end]
        added = []
        for p in chain.from_iterable(other.partitions for other in others):
            bounds = extents.get((p.source, p.source_topic_id), [])
            blocks = tuple(
                block
                for block in p.blocks
                if not bounds
                or block.source_end <= min(bounds)
                or block.source_start >= max(bounds)
            )
            if blocks:
                added.append(replace(p, blocks=blocks))
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
        if document.get("format_version") != FORMAT_VERSION:
            raise ValueError(f"format version {document.get('format_version')!r}")
        return cls(
            run=document["run"],
            pipeline=document["pipeline"],
            cluster_id=document["cluster_id"],
            partitions=tuple(map(_partition, document["partitions"])),
        )


def _go_on(found: Iterable[PartitionMap], offset: int) -> int:
    """Return where the first record lies that a consumer hasn't read, of maps to one partition."""
    parts = list(found)
    unread = [p.translate(offset) for p in parts if p.blocks[-1].source_end > offset]
    return min(unread) if unread else max(p.blocks[-1].target_end for p in parts)


def _partition(document: dict[str, Any]) -> PartitionMap:
    return PartitionMap(
        TopicPartition(document["source_topic"], document["source_partition"]),
        document["source_topic_id"],
        TopicPartition(document["target_topic"], document["target_partition"]),
        tuple(Block(*block) for block in document["blocks"]),
    )
