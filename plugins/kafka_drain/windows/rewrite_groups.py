"""Group runs of segments to rewrite together, and find the files that each group replaces.

A group never splits a file: readers would get the records outside the group twice or not at all.
Plain arithmetic.

Opens nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.archive.receipts import Receipt, SealedFile, records_of
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge


@dataclass(frozen=True)
class FileGroup:
    """A group of segments that is rewritten into one window.

    Attributes:
        ranges: The segments' offsets, sorted and disjoint for each partition.
        replaces: The files that the window replaces, relative to the archive.
        bytes: The size of these files.
        records: The number of records in these files, by partition.
        receipts: The segments' receipts.
    """

    ranges: dict[TopicPartition, list[OffsetRange]]
    replaces: list[str]
    bytes: int
    records: dict[TopicPartition, int]
    receipts: Sequence[Receipt] = field(default=(), compare=False)

    @property
    def offsets(self) -> int:
        """The number of offsets in its segments."""
        return sum(count(ranges) for ranges in self.ranges.values())

    def replaced(self) -> dict[str, Any]:
        """Return figures of the replaced files as JSON types, for the window's plan."""
        return {
            "files": len(self.replaces),
            "bytes": self.bytes,
            "records": [
                {"topic": tp.topic, "partition": tp.partition, "records": number}
                for tp, number in sorted(self.records.items())
            ],
        }


def split_groups(
    receipts: Sequence[Receipt],
    files: Iterable[SealedFile],
    first: int,
    size_of: Callable[[Receipt], int],
    group_size: int,
) -> list[FileGroup]:
    """Divide segments into groups.

    Args:
        receipts: Receipts of segments that refer to the same topics and don't overlap, oldest
            first.
        files: The sealed files that readers take.
        first: Index of the first segment to rewrite; moved back if a file would be split.
        size_of: Returns the size of a segment.
        group_size: A group ends with the segment that reaches this size.
    """
    segments = _Segments(receipts)
    spans = [(span, file) for file in files if (span := segments.span(file))]
    uncut = _boundaries(len(receipts), [span for span, _ in spans])
    while first not in uncut:
        first -= 1
    ends: list[int] = []
    size = 0
    for number in range(first, len(receipts)):
        size += size_of(receipts[number])
        end = number + 1
        if end == len(receipts) or (size >= group_size and end in uncut):
            ends.append(end)
            size = 0
    own: list[list[SealedFile]] = [[] for _ in ends]
    for (low, _), file in spans:
        if low >= first:
            own[bisect_right(ends, low)].append(file)
    starts = [first, *ends]
    return [
        _group(receipts[start:end], held)
        for start, end, held in zip(starts, ends, own, strict=False)
    ]


class _Segments:
    """Index that finds the segment an offset belongs to."""

    def __init__(self, receipts: Iterable[Receipt]) -> None:
        self._starts: dict[TopicPartition, list[int]] = {}
        self._numbers: dict[TopicPartition, list[tuple[int, OffsetRange]]] = {}
        for number, receipt in enumerate(receipts):
            for part in receipt.partitions:
                if len(part.range):
                    self._starts.setdefault(part.tp, []).append(part.range.start)
                    self._numbers.setdefault(part.tp, []).append((number, part.range))

    def span(self, file: SealedFile) -> tuple[int, int] | None:
        """Return the indexes of the first and last segment that a file has offsets of."""
        numbers = [
            number
            for content in file.contents
            for offset in (content.first, content.last)
            if (number := self._of(content.tp, offset)) is not None
        ]
        return (min(numbers), max(numbers)) if numbers else None

    def _of(self, tp: TopicPartition, offset: int) -> int | None:
        at = bisect_right(self._starts.get(tp, []), offset) - 1
        if at < 0:
            return None
        number, held = self._numbers[tp][at]
        return number if offset in held else None


def _boundaries(segments: int, spans: Iterable[tuple[int, int]]) -> set[int]:
    """Return the indexes of segments at which a group can start without splitting a file."""
    cut = {number for low, high in spans for number in range(low + 1, high + 1)}
    return set(range(segments + 1)) - cut


def _group(receipts: Sequence[Receipt], files: Sequence[SealedFile]) -> FileGroup:
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for receipt in receipts:
        for part in receipt.partitions:
            ranges.setdefault(part.tp, []).append(part.range)
    merged = {tp: merge(rs) for tp, rs in ranges.items()}
    return FileGroup(
        ranges={tp: rs for tp, rs in merged.items() if count(rs)},
        replaces=sorted(file.path for file in files),
        bytes=sum(file.bytes for file in files),
        records=records_of(files),
        receipts=receipts,
    )
