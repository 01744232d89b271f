"""What maintenance may touch: sealed segments that no drain appends to, and the files they have.

Of generations, the closed ones; of windows, the sealed ones. Never the open generation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import WindowPlan
from kafka_drain.archive.files import ArchiveFile, files_of_receipt
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.window import Window
from kafka_drain.intervals import Interval

__all__ = ["ClosedSegments", "read_closed"]


@dataclass(frozen=True)
class ClosedSegments:
    """Segments that don't overlap and whose files are written alike.

    Attributes:
        name: Whose they are, for people.
        receipts: Their receipts, in the order of offsets.
        files: The sealed files that readers take of them, and those of repairs that count in the
            same offsets: what was damaged of them, and drained again, is there.
        file_format: How their files are written.
        partition_by: Columns that their folders name.
        is_compacted: Whether a compaction wrote them.
    """

    name: str
    receipts: Sequence[Receipt]
    files: Sequence[ArchiveFile]
    file_format: str
    partition_by: Sequence[str]
    is_compacted: bool = False


def read_closed(
    archive: Archive, generations: Iterable[Generation], going: Collection[str] = ()
) -> list[ClosedSegments]:
    """Read the segments of some closed generations, and of all sealed windows.

    Generations of which every file has gone are passed over at the price of one receipt.

    Args:
        archive: The archive.
        generations: The generations.
        going: Files that count as deleted.

    Raises:
        ReceiptError: When a receipt is damaged.
    """
    windows = [(w, w.receipt()) for w in archive.windows() if w.is_sealed]
    replaced = {*going, *(path for _, receipt in windows for path in receipt.replaces)}
    gone = {*going, *(path for w, r in windows if w.supersedes for path in r.replaces)}
    drained = [(w, receipt) for w, receipt in windows if not w.supersedes]
    repairs = [(w, receipt) for w, receipt in drained if w.is_repair]
    mended = [
        file
        for window, receipt in repairs
        for file in files_of_receipt(window, receipt, window.plan().format)
        if file.path not in replaced
    ]
    found = []
    for generation in generations:
        if _is_gone(generation, gone):
            continue
        receipts = [
            r for r in generation.receipts() if not _is_superseded(r, gone, replaced, mended)
        ]
        topic_ids = archive.topic_ids(generation)
        document = generation.document()
        sealed = [(generation, receipt, document.format) for receipt in receipts]
        found.append(
            ClosedSegments(
                name=f"generation {generation.number}",
                receipts=receipts,
                files=[*_files(sealed, replaced), *_fitting(mended, topic_ids)],
                file_format=document.format,
                partition_by=document.partition_by,
            )
        )
    intervals = [
        (window.plan(), window, receipt)
        for window, receipt in drained
        if window.plan().interval is not None
        and not _is_superseded(receipt, gone, replaced, mended)
    ]
    found += _windows(intervals, replaced, mended)
    for window, receipt in windows:
        if window.supersedes and not _is_superseded(receipt, gone, replaced, mended):
            found.append(_of_window(window, receipt, replaced, mended))
    return found


def _is_gone(generation: Generation, gone: Collection[str]) -> bool:
    receipt = generation.last_receipt()
    held = sum(path.startswith(f"{generation.data_name}/") for path in gone)
    return receipt is None or receipt.files_so_far.files == held


def _is_superseded(
    receipt: Receipt,
    gone: Collection[str],
    replaced: Collection[str],
    mended: Iterable[ArchiveFile],
) -> bool:
    """Whether windows stand for all files of a segment, and no repair's file is left of it."""
    paths = [file.path for file in receipt.files]
    if not paths or all(path in gone for path in paths):
        return bool(paths)
    return all(path in replaced for path in paths) and not any(
        _reaches(file, receipt) for file in mended
    )


def _reaches(file: ArchiveFile, receipt: Receipt) -> bool:
    """Whether a file may hold offsets of a segment."""
    return any(
        content.tp == part.tp
        and content.first < part.range.end
        and content.last >= part.range.start
        and file.topic_ids.get(part.tp.topic) == receipt.topics.get(part.tp.topic)
        for content in (file.sealed.contents if file.sealed else ())
        for part in receipt.partitions
    )


def _fitting(mended: Iterable[ArchiveFile], topic_ids: Mapping[str, str]) -> list[ArchiveFile]:
    """Return the repairs' files that count in the same offsets; where they lie is seen later."""
    return [
        file
        for file in mended
        if all(topic_ids.get(name, id_) == id_ for name, id_ in file.topic_ids.items())
    ]


def _files(
    sealed: Iterable[tuple[Generation | Window, Receipt, str]], replaced: Collection[str]
) -> list[ArchiveFile]:
    return [
        file
        for owner, receipt, file_format in sealed
        for file in files_of_receipt(owner, receipt, file_format)
        if file.path not in replaced
    ]


def _of_window(
    window: Window, receipt: Receipt, replaced: Collection[str], mended: Iterable[ArchiveFile]
) -> ClosedSegments:
    plan = window.plan()
    own = _files([(window, receipt, plan.format)], replaced)
    return ClosedSegments(
        name=f"window {window.key}",
        receipts=[receipt],
        files=[*own, *_fitting(mended, receipt.topics)],
        file_format=plan.format,
        partition_by=plan.partition_by,
        is_compacted=window.is_maintained,
    )


def _windows(
    own: Iterable[tuple[WindowPlan, Window, Receipt]],
    replaced: Collection[str],
    mended: Sequence[ArchiveFile],
) -> Iterator[ClosedSegments]:
    """Put the windows of data intervals together that are written alike."""
    own = sorted(
        own, key=lambda found: (*_kind(found), Interval.parse(found[0].interval or ()).start)
    )
    for _, group in groupby(own, _kind):
        members = list(group)
        plan, _, first = members[0]
        files = _files([(w, receipt, p.format) for p, w, receipt in members], replaced)
        yield ClosedSegments(
            name=f"{len(members):,} windows",
            receipts=[receipt for _, _, receipt in members],
            files=[*files, *_fitting(mended, first.topics)],
            file_format=plan.format,
            partition_by=plan.partition_by,
        )


def _kind(found: tuple[WindowPlan, Window, Receipt]) -> tuple[str, ...]:
    plan, _, receipt = found
    return str(plan.format), str(plan.partition_by), str(sorted(receipt.topics.items()))
