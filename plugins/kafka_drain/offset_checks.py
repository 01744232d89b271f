"""Offsets that the files hold against offsets that were drained. Plain arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_drain.checkpoint import Checkpoint
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import (
    OffsetRange,
    TopicPartition,
    merge,
    overlapping,
    ranges_between,
    subtract,
)

__all__ = ["Held", "Segment", "check_duplicates", "check_offsets", "missing_offsets", "segments"]


@dataclass(frozen=True, slots=True)
class Held:
    """Offsets that one committed file holds of one partition.

    Attributes:
        tp: The topic-partition.
        path: The file, relative to the archive.
        ranges: The offsets, as sorted disjoint ranges.
        records: How many rows.
        duplicates: Offsets that the file holds more than once.
        batch: The batch that the manifest lists the file in; None when that is forgotten.
        ascending: Whether the rows are in offset order.
    """

    tp: TopicPartition
    path: str
    ranges: tuple[OffsetRange, ...]
    records: int
    duplicates: tuple[int, ...] = ()
    batch: int | None = None
    ascending: bool = True


@dataclass(frozen=True, slots=True)
class Segment:
    """What one batch read, or all batches whose own ends the checkpoint has forgotten.

    Attributes:
        first_batch: Lowest batch id.
        last_batch: Highest batch id; the same for a single batch.
        ranges: What was read of each partition.
    """

    first_batch: int
    last_batch: int
    ranges: Mapping[TopicPartition, OffsetRange]

    @property
    def name(self) -> str:
        """`batch 7`, or `batches 0 to 6`."""
        if self.first_batch == self.last_batch:
            return f"batch {self.last_batch}"
        return f"batches {self.first_batch} to {self.last_batch}"


def segments(
    starting_offsets: Mapping[TopicPartition, int], checkpoint: Checkpoint, last_batch: int
) -> list[Segment]:
    """Return what each batch read, from where the generation starts to the last committed batch.

    A partition that was added later starts at 0. Spark forgets the ends of old batches; what they
    read together is one segment.
    """
    found: list[Segment] = []
    start, first = starting_offsets, 0
    for batch in sorted(batch for batch in checkpoint.ends if batch <= last_batch):
        end = checkpoint.ends[batch]
        if not end:
            # Unreadable: the next batch's segment covers this one as well.
            continue
        found.append(Segment(first, batch, dict(ranges_between(start, end))))
        start, first = end, batch + 1
    return found


def check_offsets(parts: Iterable[Segment], held: Iterable[Held]) -> list[Finding]:
    """Find offsets that are there twice, or that their batch or generation never read."""
    parts = list(parts)
    whole: dict[TopicPartition, list[OffsetRange]] = {}
    for part in parts:
        for tp, offset_range in part.ranges.items():
            whole.setdefault(tp, []).append(offset_range)
    read = {tp: merge(ranges) for tp, ranges in whole.items()}
    by_batch = {part.last_batch: part for part in parts if part.first_batch == part.last_batch}
    held = list(held)
    findings = check_duplicates(held)
    for item in held:
        own = by_batch.get(item.batch) if item.batch is not None else None
        if own is None:
            expected = read.get(item.tp, [])
        else:
            expected = [own.ranges[item.tp]] if item.tp in own.ranges else []
        outside = [r for held_range in item.ranges for r in subtract(held_range, expected)]
        if outside:
            who = own.name if own else "the generation"
            detail = (
                f"holds {_shown(outside)} of {item.tp}, {who} read {_shown(expected) or 'nothing'}"
            )
            findings.append(Finding(Reason.OFFSET_OUTSIDE, item.path, detail))
    return findings


def check_duplicates(held: Iterable[Held]) -> list[Finding]:
    """Find offsets that are in the files more than once."""
    findings: list[Finding] = []
    by_partition: dict[TopicPartition, list[Held]] = {}
    for item in held:
        by_partition.setdefault(item.tp, []).append(item)
        if item.duplicates:
            shown = ", ".join(map(str, item.duplicates))
            detail = f"holds offset {shown} of {item.tp} more than once"
            findings.append(Finding(Reason.OFFSET_DUPLICATE, item.path, detail))
    for items in by_partition.values():
        findings += _overlaps(items)
    return findings


def _overlaps(items: list[Held]) -> list[Finding]:
    """Find offsets of one partition that two files hold: a sweep over the sorted ranges."""
    ordered = sorted((r.start, r.end, item.path) for item in items for r in item.ranges)
    findings: list[Finding] = []
    reach, owner = 0, ""
    for start, end, path in ordered:
        if start < reach:
            twice = OffsetRange(start, min(end, reach))
            detail = f"holds {twice} of {items[0].tp}, which {owner} holds as well"
            findings.append(Finding(Reason.OFFSET_DUPLICATE, path, detail))
        if end > reach:
            reach, owner = end, path
    return findings


def missing_offsets(
    parts: Iterable[Segment], held: Iterable[Held]
) -> list[tuple[Segment, TopicPartition, list[OffsetRange]]]:
    """Return what segments read and no file holds."""
    by_partition: dict[TopicPartition, list[OffsetRange]] = {}
    for item in held:
        by_partition.setdefault(item.tp, []).extend(item.ranges)
    covered = {tp: merge(ranges) for tp, ranges in by_partition.items()}
    missing = []
    for part in parts:
        for tp, offset_range in part.ranges.items():
            ranges = subtract(offset_range, overlapping(covered.get(tp, []), offset_range))
            if ranges:
                missing.append((part, tp, ranges))
    return missing


def _shown(ranges: list[OffsetRange]) -> str:
    more = f" and {len(ranges) - 3} more" if len(ranges) > 3 else ""
    return ", ".join(str(r) for r in ranges[:3]) + more
