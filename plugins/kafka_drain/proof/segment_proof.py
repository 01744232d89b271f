"""Choose the segments that may be sealed, by the findings. Opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.gaps import Gap
from kafka_drain.offsets import OffsetRange, within
from kafka_drain.proof.offset_checks import Segment


@dataclass(frozen=True, slots=True)
class CheckedSegment:
    """A segment that is a candidate for sealing.

    Attributes:
        part: The drained segment.
        files: The files that hold it.
        gaps: Its offsets that no file holds.
        is_sound: Whether its files are intact and every gap is harmless.
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
    """Assign each segment its files and gaps, and determine whether it is intact.

    Args:
        parts: The segments, oldest first.
        files: Their readable files.
        gaps: Their offsets that no file holds.
        damaged: Damaged batches; None for damage that may affect any batch.
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
    """Return the proven segments up to the first unproven one, because receipts form a chain.

    Args:
        checked: The segments, oldest first.
        agreeing: Last batches of the segments that agree with what Spark read. Segments that were
            never compared aren't among them.
    """
    return list(takewhile(lambda each: each.is_sound and each.part.last_batch in agreeing, checked))


def segment_of(file: CommittedFile, parts: Sequence[Segment]) -> int:
    """Return the index of a file's segment: by batch, or by offsets if the batch is unknown.

    Returns:
        -1 when the file belongs to none of the segments.
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
    """Yield the parts of gaps that lie within a segment."""
    for gap in gaps:
        span = part.ranges.get(gap.tp)
        for piece in within([gap.range], span) if span is not None else ():
            yield replace(gap, range=piece)
