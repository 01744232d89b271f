"""Choose the small files to compact, and the approximate number of new ones. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.receipts import Receipt
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping, subtract
from kafka_drain.windows.rewrite_groups import FileGroup, split_groups

if TYPE_CHECKING:
    from kafka_drain.archive.closed_segments import ClosedSegments
    from kafka_drain.archive.files import ArchiveFile

#: Number of target-size files to write at once; a compaction needs their space in addition to that
#: of the old files.
GROUP_FILES = 32


@dataclass(frozen=True)
class Compaction:
    """Small files that one window replaces.

    Attributes:
        name: The generation or window that they belong to, for display.
        group: Their segments.
        file_format: Format of the new files.
        partition_by: Partition columns of the new files' folders.
        new_files: Approximate number of new files; a few more if a folder needs another one.
        erased: The offsets of records that the new files are to leave out, sorted and disjoint.
        plan: Further content of the window's plan, as JSON types.
    """

    name: str
    group: FileGroup
    files: Sequence[ArchiveFile]
    file_format: str
    partition_by: Sequence[str]
    new_files: int
    erased: Mapping[TopicPartition, Sequence[OffsetRange]] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> WindowKind:
        """Why the window is written."""
        return WindowKind.ERASURE if self.erased else WindowKind.COMPACTION

    def line(self) -> str:
        """Return a line of text for the user that describes it."""
        return (
            f"{self.name}: {len(self.files):,} files, {self.group.bytes:,} bytes, "
            f"{self.group.offsets:,} offsets, to about {self.new_files:,} files"
        )


def fewest_files(files: Iterable[ArchiveFile], target_bytes: int) -> int:
    """Return the smallest number of target-size files for the data; a file is in one folder."""
    folders: dict[tuple[tuple[str, str | None], ...], int] = {}
    for file in files:
        folder = tuple(sorted(file.folder_values.items()))
        folders[folder] = folders.get(folder, 0) + file.bytes
    return sum(max(1, -(-size // target_bytes)) for size in folders.values())


def plan_groups(segments: ClosedSegments, target_bytes: int) -> list[Compaction]:
    """Select groups worth compacting: those with over twice as many files as necessary.

    A compaction leaves at most twice as many, so that it isn't repeated.
    """
    if segments.is_compacted or not segments.receipts:
        return []
    by_path = {file.path: file for file in segments.files}
    groups = split_groups(
        segments.receipts,
        [file.sealed for file in segments.files if file.sealed is not None],
        0,
        lambda receipt: sum(file.bytes for file in receipt.files),
        GROUP_FILES * target_bytes,
    )
    found = []
    for group in groups:
        files = [by_path[path] for path in group.replaces]
        fewest = fewest_files(files, target_bytes)
        if len(files) > 2 * fewest and all(is_within(file, group) for file in files):
            found.append(
                Compaction(
                    name=segments.name,
                    group=group,
                    files=files,
                    file_format=segments.file_format,
                    partition_by=segments.partition_by,
                    new_files=fewest,
                )
            )
    return found


def is_within(file: ArchiveFile, group: FileGroup) -> bool:
    """Whether a file lies within the group; a repair's file may reach into open segments."""
    return all(
        any(offset in r for r in group.ranges.get(content.tp, []))
        for content in (file.sealed.contents if file.sealed else ())
        for offset in (content.first, content.last)
    )


Gaps = Mapping[TopicPartition, Mapping[GapReason, Sequence[OffsetRange]]]


def known_gaps(receipts: Iterable[Receipt]) -> Gaps:
    """Return the offsets that receipts say are in no file, by partition and reason."""
    found: dict[TopicPartition, dict[GapReason, list[OffsetRange]]] = {}
    for receipt in receipts:
        for part in receipt.partitions:
            for reason, ranges in part.gaps.items():
                found.setdefault(part.tp, {}).setdefault(reason, []).extend(ranges)
    return {
        tp: {reason: merge(ranges) for reason, ranges in reasons.items()}
        for tp, reasons in found.items()
    }


def split_gaps(
    missing: Mapping[TopicPartition, Sequence[OffsetRange]], known: Gaps
) -> tuple[list[Gap], dict[TopicPartition, list[OffsetRange]]]:
    """Assign to missing offsets the reasons that older receipts have sealed.

    Args:
        missing: Missing offsets by partition, sorted and disjoint.
        known: The result of `known_gaps`.

    Returns:
        The known gaps, and the offsets that no receipt explains, which are lost.
    """
    gaps: list[Gap] = []
    lost: dict[TopicPartition, list[OffsetRange]] = {}
    for tp, ranges in missing.items():
        rest = list(ranges)
        for reason, there in known.get(tp, {}).items():
            left: list[OffsetRange] = []
            for r in rest:
                outside = subtract(r, overlapping(there, r))
                gaps += [Gap(tp, inside, reason) for inside in subtract(r, outside)]
                left += outside
            rest = left
        if rest:
            lost[tp] = rest
    return gaps, lost
