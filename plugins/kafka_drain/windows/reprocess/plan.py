"""Plan the segments that a reprocess drains again, their groups, and the files that it replaces.

    cut        the first segment to drain again: by batch, time or offsets
    groups     of segments from there on, each drained into its own window
    replaces   the files from which readers get these segments now, whichever segment owns them

Plain arithmetic.

Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from kafka_drain.archive.fold import Partition, of_topic_ids
from kafka_drain.archive.receipts import Receipt, SealedFile
from kafka_drain.errors import ConfigError, TopicError
from kafka_drain.gaps import EMPTY, GapReason
from kafka_drain.intervals import milliseconds, time_text
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping, subtract
from kafka_drain.windows.reprocess.options import ReprocessOptions
from kafka_drain.windows.rewrite_groups import FileGroup, split_groups

#: Number of offsets to drain at once; sealed groups needn't be drained again after a kill.
OFFSETS_PER_GROUP = 10_000_000


@dataclass(frozen=True)
class Cut:
    """Where a reprocess starts; exactly one of the three attributes is given.

    Attributes:
        batch: A generation's number, and a batch id in it.
        time_ms: Start at the segment with the first record of this time or later (Unix ms).
        offsets: Start at the segment with the first of these offsets.
    """

    batch: tuple[int, int] | None = None
    time_ms: int | None = None
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)

    def is_reached(self, receipt: Receipt) -> bool:
        """Return whether a segment is at or after the cut."""
        if self.batch is not None:
            return receipt.position >= self.batch
        if self.time_ms is not None:
            return any(
                part.last_timestamp is not None and part.last_timestamp >= self.time_ms
                for part in receipt.partitions
            )
        return any(
            part.range.end > self.offsets.get(part.tp, part.range.end)
            for part in receipt.partitions
        )

    def __str__(self) -> str:
        if self.batch is not None:
            return f"batch {self.batch[1]} of generation {self.batch[0]}"
        if self.time_ms is not None:
            return f"timestamp {time_text(self.time_ms)}"
        return ", ".join(f"{tp} offset {offset}" for tp, offset in sorted(self.offsets.items()))


def parse_cut(options: ReprocessOptions, *, newest_generation: Callable[[], int]) -> Cut | None:
    """Parse where a reprocess is to start; return None if nothing is given.

    Args:
        newest_generation: Returns the newest generation's number; called only if needed.

    Raises:
        ConfigError: When a batch or an offset can't be parsed.
    """
    if batch := options.from_batch:
        match = re.fullmatch(r"(?:(\d+):)?(\d+)", batch)
        if match is None:
            raise ConfigError(
                f"from_batch = {batch!r} is not acceptable; accepted: a batch id of the "
                "newest generation, such as 7, or generation and batch id, such as 1:7"
            )
        generation = int(match[1]) if match[1] else newest_generation()
        return Cut(batch=(generation, int(match[2])))
    if options.from_time is not None:
        return Cut(time_ms=milliseconds(options.from_time))
    offsets: dict[TopicPartition, int] = {}
    for text in options.from_offsets:
        match = re.fullmatch(r"([\w.-]+):(\d+):(\d+)", text.strip())
        if match is None:
            raise ConfigError(
                f"from_offsets = {text!r} is not acceptable; accepted: topic:partition:offset"
            )
        offsets[TopicPartition(match[1], int(match[2]))] = int(match[3])
    return Cut(offsets=offsets) if offsets else None


def comparable_receipts(
    receipts: Sequence[Receipt], topic_ids: Mapping[str, str], cut: Cut
) -> Sequence[Receipt]:
    """Return the newest receipts, back to where their topics stop being those in Kafka now.

    Raises:
        TopicError: When the cut is before them.
    """
    start = len(receipts)
    while start and topic_ids.items() >= receipts[start - 1].topics.items():
        start -= 1
    reached = next((r for r in receipts[:start] if cut.is_reached(r)), None)
    if reached is not None:
        other = receipts[start - 1]
        names = sorted(n for n, topic_id in other.topics.items() if topic_ids.get(n) != topic_id)
        raise TopicError(
            f"{', '.join(names)} was recreated, or is no longer drained, since batch "
            f"{other.last_batch} of generation {other.generation}: its offsets can't be drained "
            "again; start after that batch"
        )
    return receipts[start:]


def deleted_offsets(
    windows: Iterable[Receipt], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets that retention has deleted in topics with the given ids.

    Without those of which a window has drained records again since, in an earlier release.

    Args:
        windows: The receipts of all windows.
    """
    found: dict[Partition, list[OffsetRange]] = {}
    for receipt in sorted(windows, key=lambda each: (each.journal, each.sealed_at)):
        for part in receipt.partitions:
            key = part.tp, receipt.topics.get(part.tp.topic, "")
            deleted = part.gaps.get(GapReason.DELETED, ())
            if deleted or key in found:
                gaps = merge([r for ranges in part.gaps.values() for r in ranges])
                records = subtract(part.range, gaps)
                left = [rest for r in found.get(key, ()) for rest in subtract(r, records)]
                found[key] = merge([*left, *deleted])
    return of_topic_ids(found, topic_ids)


def plan_groups(
    receipts: Sequence[Receipt],
    files: Iterable[SealedFile],
    cut: Cut,
    offsets_per_group: int = OFFSETS_PER_GROUP,
    deleted: Mapping[TopicPartition, Sequence[OffsetRange]] = MappingProxyType({}),
) -> list[FileGroup]:
    """Divide the segments from a cut on into groups.

    Args:
        receipts: Receipts of all generations that refer to the same topics, oldest first.
        files: The sealed files that readers take.
        cut: Start of the reprocess.
        offsets_per_group: A group ends with the segment that reaches this number of offsets.
        deleted: Offsets that the archive's retention has deleted, sorted and disjoint: they are no
            group's. A mirror may have sent their records, and would send them again. Nor are gaps
            next to them.

    Raises:
        ConfigError: When no segment is at or after the cut.
    """
    first = next((n for n, receipt in enumerate(receipts) if cut.is_reached(receipt)), None)
    if first is None:
        raise ConfigError(f"nothing is sealed from {cut} on; there is nothing to reprocess")
    groups = split_groups(receipts, files, first, lambda each: each.offsets, offsets_per_group)
    if not deleted:
        return groups
    groups = [left for group in groups if (left := _without(group, deleted)).ranges]
    if not groups:
        raise ConfigError(f"retention has deleted all from {cut} on; there is nothing to reprocess")
    return groups


def _without(
    group: FileGroup, deleted: Mapping[TopicPartition, Sequence[OffsetRange]]
) -> FileGroup:
    """Leave out what was deleted, and the offsets next to it that never had a record.

    Of these, one by one, Kafka may hold none any more, and there may be as many as transactions.
    """
    empty: dict[TopicPartition, list[OffsetRange]] = {}
    for receipt in group.receipts:
        for part in receipt.partitions:
            ranges = [r for reason in EMPTY for r in part.gaps.get(reason, ())]
            empty.setdefault(part.tp, []).extend(ranges)
    left: dict[TopicPartition, list[OffsetRange]] = {}
    for tp, ranges in group.ranges.items():
        gone = deleted.get(tp, ())
        going = [r for r in merge([*gone, *empty.get(tp, ())]) if overlapping(gone, r)]
        left[tp] = [rest for r in ranges for rest in subtract(r, overlapping(going, r))]
    return replace(group, ranges={tp: ranges for tp, ranges in left.items() if ranges})
