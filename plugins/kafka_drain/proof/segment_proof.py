"""Which segments may be sealed, by what was found of their files and offsets. Opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.gaps import Gap
from kafka_drain.offsets import OffsetRange, overlapping
from kafka_drain.proof.offset_checks import Segment

__all__ = ["CheckedSegment", "check_segments", "cut_gaps", "provable", "segment_of"]


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """A segment that would be sealed.

    Attributes:
        part: What was drained.
        files: The files that hold it.
        gaps: Its offsets that no file holds.
        is_sound: Whether nothing is wrong with its files, and each gap is harmless.
    """

    part: Segment
    files: Sequence[CommittedFile]
    gaps: Sequence[Gap]
    is_sound: bool


def check_segments(
    parts: Sequence[Segment],
    files: Iterable[CommittedFile],
    gaps: Sequence[Gap],
    damaged: Collection[int | None],
) -> list[CheckedSegment]:
    """Give each segment its files and its gaps, and say whether anything is wrong with it.

    Args:
        parts: The segments, oldest first.
        files: What can be read of their files.
        gaps: Offsets of theirs that no file holds.
        damaged: Batches with which something is wrong; None for a fault that may be any batch's.
    """
    by_segment: dict[int, list[CommittedFile]] = {}
    for file in files:
        by_segment.setdefault(segment_of(file, parts), []).append(file)
    checked = []
    for number, part in enumerate(parts):
        own = list(cut_gaps(gaps, part))
        is_damaged = any(b is None or part.first_batch <= b <= part.last_batch for b in damaged)
        is_sound = not is_damaged and all(gap.harmless for gap in own)
        checked.append(CheckedSegment(part, by_segment.get(number, []), own, is_sound))
    return checked


def provable(checked: Iterable[CheckedSegment], agreeing: Collection[int]) -> list[CheckedSegment]:
    """Return the segments that are proven, up to the first that isn't: a receipt follows another.

    Args:
        checked: The segments, oldest first.
        agreeing: Last batches of those that hold nothing else than Spark read. One that was never
            compared isn't among them.
    """
    return list(takewhile(lambda each: each.is_sound and each.part.last_batch in agreeing, checked))


def segment_of(file: CommittedFile, parts: Sequence[Segment]) -> int:
    """Return the number of a file's segment: by batch, or by offsets where Spark forgot that.

    Returns:
        -1 when it is of none.
    """
    for number, part in enumerate(parts):
        if file.batch is not None:
            if part.first_batch <= file.batch <= part.last_batch:
                return number
        elif not file.contents or file.contents[0].first in part.ranges.get(
            file.contents[0].tp, OffsetRange(0, 0)
        ):
            return number
    return -1


def cut_gaps(gaps: Iterable[Gap], part: Segment) -> Iterator[Gap]:
    """Yield what of gaps lies in a segment."""
    for gap in gaps:
        span = part.ranges.get(gap.tp)
        if span is not None and overlapping([gap.range], span):
            start, end = max(gap.range.start, span.start), min(gap.range.end, span.end)
            yield replace(gap, range=OffsetRange(start, end))
