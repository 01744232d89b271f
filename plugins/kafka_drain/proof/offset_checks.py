"""Compare the offsets that files hold with the offsets that were drained. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.findings import Finding, Reason
from kafka_drain.metadata_log.checkpoint import Checkpoint
from kafka_drain.offsets import (
    OffsetRange,
    Offsets,
    TopicPartition,
    merge,
    overlapping,
    ranges_between,
    subtract,
)


@dataclass(frozen=True, slots=True)
class Segment:
    """The offsets read by one batch, or by all batches whose own ends Spark has purged.

    Attributes:
        first_batch: Lowest batch id.
        last_batch: Highest batch id; the same for a single batch.
        ranges: The offsets read from each partition.
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
    start: Offsets, checkpoint: Checkpoint, last_batch: int, first_batch: int = 0
) -> list[Segment]:
    """Return the offsets that each batch read, up to the last committed batch.

    A partition that was added later starts at 0; one that a batch doesn't name, as its topic was
    deleted meanwhile, stays where it is. Spark purges the ends of old batches from its checkpoint;
    what those batches read together is one segment.

    Args:
        start: Start offsets of the first batch.
        checkpoint: The ends of the batches.
        last_batch: The last committed batch.
        first_batch: The first batch to include.
    """
    found: list[Segment] = []
    first = first_batch
    for batch in sorted(b for b in checkpoint.ends if first_batch <= b <= last_batch):
        end = checkpoint.ends[batch]
        if not end:
            # Unreadable: the next batch's segment covers this batch as well.
            continue
        end = {**start, **end}
        found.append(Segment(first, batch, dict(ranges_between(start, end))))
        start, first = end, batch + 1
    return found


def check_offsets(parts: Iterable[Segment], files: Iterable[CommittedFile]) -> list[Finding]:
    """Find offsets that files hold twice, or that their batch or generation never read."""
    parts = list(parts)
    whole: dict[TopicPartition, list[OffsetRange]] = {}
    for part in parts:
        for tp, offset_range in part.ranges.items():
            whole.setdefault(tp, []).append(offset_range)
    read = {tp: merge(ranges) for tp, ranges in whole.items()}
    by_batch = {part.last_batch: part for part in parts if part.first_batch == part.last_batch}
    files = list(files)
    findings = check_duplicates(files)
    for file in files:
        own = by_batch.get(file.batch) if file.batch is not None else None
        who = own.name if own else "the generation"
        # Only of what the file holds: a batch may have read thousands of partitions.
        expected = _read_by(own, file) if own else read
        findings += check_within(expected, [file], who)
    return findings


def _read_by(part: Segment, file: CommittedFile) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets that a segment read of the partitions in a file."""
    held = {content.tp for content in file.contents} & part.ranges.keys()
    return {tp: [part.ranges[tp]] for tp in held}


def check_duplicates(files: Iterable[CommittedFile]) -> list[Finding]:
    """Find offsets that the files hold more than once."""
    findings: list[Finding] = []
    by_partition: dict[TopicPartition, list[tuple[int, int, str]]] = {}
    for file in files:
        for content in file.contents:
            spans = by_partition.setdefault(content.tp, [])
            spans += [(r.start, r.end, file.path) for r in content.ranges]
            if content.duplicates:
                shown = ", ".join(map(str, content.duplicates))
                detail = f"holds offset {shown} of {content.tp} more than once"
                findings.append(Finding(Reason.OFFSET_DUPLICATE, file.path, detail))
    for tp, spans in by_partition.items():
        findings += _overlaps(tp, sorted(spans))
    return findings


def _overlaps(tp: TopicPartition, spans: Iterable[tuple[int, int, str]]) -> list[Finding]:
    """Find offsets of one partition that two files hold: a sweep over the sorted ranges."""
    findings: list[Finding] = []
    reach, owner = 0, ""
    for start, end, path in spans:
        if start < reach:
            twice = OffsetRange(start, min(end, reach))
            detail = f"holds {twice} of {tp}, which {owner} also holds"
            findings.append(Finding(Reason.OFFSET_DUPLICATE, path, detail))
        if end > reach:
            reach, owner = end, path
    return findings


def missing_offsets(
    parts: Iterable[Segment], files: Iterable[CommittedFile]
) -> list[tuple[Segment, TopicPartition, list[OffsetRange]]]:
    """Return the offsets that segments read but no file holds."""
    held = held_ranges(files)
    return [
        (part, tp, ranges)
        for part in parts
        for tp, offset_range in part.ranges.items()
        if (ranges := subtract(offset_range, overlapping(held.get(tp, []), offset_range)))
    ]


def held_ranges(files: Iterable[CommittedFile]) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets that files hold of each partition, sorted and disjoint."""
    held: dict[TopicPartition, list[OffsetRange]] = {}
    for file in files:
        for content in file.contents:
            held.setdefault(content.tp, []).extend(content.ranges)
    return {tp: merge(ranges) for tp, ranges in held.items()}


def without_held(
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]], files: Iterable[CommittedFile]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the parts of the given ranges that no file holds."""
    held = held_ranges(files)
    missing = {
        tp: [m for r in rs for m in subtract(r, overlapping(held.get(tp, []), r))]
        for tp, rs in ranges.items()
    }
    return {tp: rs for tp, rs in missing.items() if rs}


def check_within(
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
    files: Iterable[CommittedFile],
    who: str,
) -> list[Finding]:
    """Find offsets outside the ranges that were read.

    Args:
        ranges: The offsets read from each partition, sorted and disjoint.
        files: The files that were written.
        who: The reader of the ranges, such as a batch; used in the findings.
    """
    return [
        finding
        for file in files
        for content in file.contents
        for finding in _outside(file.path, content, list(ranges.get(content.tp, [])), who)
    ]


def _outside(
    path: str, content: FileOffsets, expected: list[OffsetRange], who: str
) -> list[Finding]:
    outside = [r for held in content.ranges for r in subtract(held, overlapping(expected, held))]
    if not outside:
        return []
    read = _shown(expected) or "nothing"
    detail = f"holds {_shown(outside)} of {content.tp}; {who} read {read}"
    return [Finding(Reason.OFFSET_OUTSIDE, path, detail)]


def _shown(ranges: list[OffsetRange]) -> str:
    more = f" and {len(ranges) - 3} more" if len(ranges) > 3 else ""
    return ", ".join(str(r) for r in ranges[:3]) + more
