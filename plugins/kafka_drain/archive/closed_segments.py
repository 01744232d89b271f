"""The sealed segments that maintenance may rewrite, and their files.

These are closed generations and sealed windows; never the open generation, which drains append to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kafka_drain.archive.files import ArchiveFile, files_of_receipt
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration, SnapshotWindow, WindowKind
from kafka_drain.intervals import Interval

__all__ = ["ClosedSegments", "read_closed"]


@dataclass(frozen=True)
class ClosedSegments:
    """Segments that don't overlap and whose files are written the same way.

    Attributes:
        name: Owner of the segments, for display.
        receipts: Their receipts, in the order of offsets.
        files: Their sealed files as seen by readers, plus the files of repairs for the same topic
            ids, which hold the records of damaged files that were drained again.
        file_format: Format of their files.
        partition_by: Columns named by their folders.
        is_compacted: Whether a compaction wrote them.
    """

    name: str
    receipts: Sequence[Receipt]
    files: Sequence[ArchiveFile]
    file_format: str
    partition_by: Sequence[str]
    is_compacted: bool = False


def read_closed(
    snapshot: Snapshot, generations: Iterable[SnapshotGeneration], going: Collection[str] = ()
) -> list[ClosedSegments]:
    """Read the segments of some closed generations, and of all sealed windows.

    A generation whose files have all been removed is skipped at the cost of one receipt.

    Args:
        snapshot: The archive.
        generations: The generations.
        going: Files to be treated as deleted.

    Raises:
        ReceiptError: When a receipt is damaged.
    """
    replaced, gone = {*going, *snapshot.replaced}, {*going, *snapshot.superseded}
    repaired = [
        file
        for window in snapshot.sealed
        if window.kind is WindowKind.REPAIR
        for file in files_of_receipt(window, window.receipt, window.plan.format)
        if file.path not in replaced
    ]
    found = []
    for generation in generations:
        if _is_gone(generation, gone):
            continue
        receipts = [
            r for r in generation.receipts() if not _is_superseded(r, gone, replaced, repaired)
        ]
        topic_ids, document = snapshot.topic_ids(generation), generation.document
        sealed = [(generation, receipt, document.format) for receipt in receipts]
        found.append(
            ClosedSegments(
                name=f"generation {generation.number}",
                receipts=receipts,
                files=[*_files(sealed, replaced), *_fitting(repaired, topic_ids)],
                file_format=document.format,
                partition_by=document.partition_by,
            )
        )
    standing = [
        window
        for window in snapshot.sealed
        if not _is_superseded(window.receipt, gone, replaced, repaired)
    ]
    backfills = [window for window in standing if window.kind is WindowKind.BACKFILL]
    found += _of_backfills(backfills, replaced, repaired)
    found += [_of_window(window, replaced, repaired) for window in standing if window.supersedes]
    return found


def _is_gone(generation: Generation, gone: Collection[str]) -> bool:
    receipt = generation.last_receipt()
    held = sum(path.startswith(f"{generation.data_name}/") for path in gone)
    return receipt is None or receipt.files_so_far.files == held


def _is_superseded(
    receipt: Receipt,
    gone: Collection[str],
    replaced: Collection[str],
    repaired: Iterable[ArchiveFile],
) -> bool:
    """Return whether windows replace all files of a segment, and no repaired file of it is left."""
    paths = [file.path for file in receipt.files]
    if not paths or all(path in gone for path in paths):
        return bool(paths)
    return all(path in replaced for path in paths) and not any(
        _reaches(file, receipt) for file in repaired
    )


def _reaches(file: ArchiveFile, receipt: Receipt) -> bool:
    """Return whether a file may hold offsets of a segment."""
    return any(
        content.tp == part.tp
        and content.first < part.range.end
        and content.last >= part.range.start
        and file.topic_ids.get(part.tp.topic) == receipt.topics.get(part.tp.topic)
        for content in (file.sealed.contents if file.sealed else ())
        for part in receipt.partitions
    )


def _fitting(repaired: Iterable[ArchiveFile], topic_ids: Mapping[str, str]) -> list[ArchiveFile]:
    """Return the repairs' files with the same topic ids, whatever their offsets."""
    return [
        file
        for file in repaired
        if all(topic_ids.get(name, id_) == id_ for name, id_ in file.topic_ids.items())
    ]


def _files(
    sealed: Iterable[tuple[Generation | SnapshotWindow, Receipt, str]], replaced: Collection[str]
) -> list[ArchiveFile]:
    return [
        file
        for owner, receipt, file_format in sealed
        for file in files_of_receipt(owner, receipt, file_format)
        if file.path not in replaced
    ]


def _of_window(
    window: SnapshotWindow, replaced: Collection[str], repaired: Iterable[ArchiveFile]
) -> ClosedSegments:
    plan, receipt = window.plan, window.receipt
    own = _files([(window, receipt, plan.format)], replaced)
    return ClosedSegments(
        name=f"window {window.key}",
        receipts=[receipt],
        files=[*own, *_fitting(repaired, receipt.topics)],
        file_format=plan.format,
        partition_by=plan.partition_by,
        is_compacted=window.is_maintained,
    )


def _of_backfills(
    windows: Iterable[SnapshotWindow],
    replaced: Collection[str],
    repaired: Sequence[ArchiveFile],
) -> Iterator[ClosedSegments]:
    """Group the windows of data intervals that are written the same way."""
    own = sorted(
        windows, key=lambda w: (*_how_written(w), Interval.parse(w.plan.interval or ()).start)
    )
    for _, group in groupby(own, _how_written):
        members = list(group)
        first = members[0]
        files = _files([(w, w.receipt, w.plan.format) for w in members], replaced)
        yield ClosedSegments(
            name=f"{len(members):,} windows",
            receipts=[window.receipt for window in members],
            files=[*files, *_fitting(repaired, first.receipt.topics)],
            file_format=first.plan.format,
            partition_by=first.plan.partition_by,
        )


def _how_written(window: SnapshotWindow) -> tuple[str, ...]:
    plan, topics = window.plan, window.receipt.topics
    return plan.format, str(plan.partition_by), str(sorted(topics.items()))
