"""What maintenance may touch: sealed segments that no drain appends to, and the files they have.

Of generations, the closed ones; of windows, the sealed ones. Never the open generation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from kafka_drain.archive import Archive
from kafka_drain.archive_files import ArchiveFile, files_of_receipt
from kafka_drain.generation import Generation
from kafka_drain.intervals import Interval
from kafka_drain.receipts import Receipt
from kafka_drain.window import Window

__all__ = ["ClosedSegments", "read_closed"]


@dataclass(frozen=True)
class ClosedSegments:
    """Segments that don't overlap and whose files are written alike.

    Attributes:
        name: Whose they are, for people.
        receipts: Their receipts, in the order of offsets.
        files: The sealed files that readers take of them.
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
    repairs = [(w, receipt) for w, receipt in drained if "interval" not in w.plan()]
    found = []
    for generation in generations:
        if _is_gone(generation, gone):
            continue
        receipts = [r for r in generation.receipts() if not _is_superseded(r, gone)]
        topic_ids = archive.topic_ids(generation)
        sealed: list[tuple[Generation | Window, Receipt, str]] = []
        document = generation.document()
        sealed += [(generation, receipt, document["format"]) for receipt in receipts]
        # What was damaged of the generation, and drained again.
        sealed += [
            (window, receipt, window.plan()["format"])
            for window, receipt in repairs
            if topic_ids.items() >= receipt.topics.items()
        ]
        found.append(
            ClosedSegments(
                name=f"generation {generation.number}",
                receipts=receipts,
                files=_files(sealed, replaced),
                file_format=document["format"],
                partition_by=document["partition_by"],
            )
        )
    found += _windows(drained, replaced, gone)
    for window, receipt in windows:
        if window.supersedes and not _is_superseded(receipt, gone):
            found.append(_of_window(window, receipt, replaced))
    return found


def _is_gone(generation: Generation, gone: Collection[str]) -> bool:
    receipt = generation.last_receipt()
    held = sum(path.startswith(f"{generation.data_name}/") for path in gone)
    return receipt is None or receipt.files_so_far.files == held


def _is_superseded(receipt: Receipt, gone: Collection[str]) -> bool:
    return bool(receipt.files) and all(file.path in gone for file in receipt.files)


def _files(
    sealed: Iterable[tuple[Generation | Window, Receipt, str]], replaced: Collection[str]
) -> list[ArchiveFile]:
    return [
        file
        for owner, receipt, file_format in sealed
        for file in files_of_receipt(owner, receipt, file_format)
        if file.path not in replaced
    ]


def _of_window(window: Window, receipt: Receipt, replaced: Collection[str]) -> ClosedSegments:
    plan = window.plan()
    return ClosedSegments(
        name=f"window {window.key}",
        receipts=[receipt],
        files=_files([(window, receipt, plan["format"])], replaced),
        file_format=plan["format"],
        partition_by=plan["partition_by"],
        is_compacted=window.is_maintained,
    )


def _windows(
    drained: Iterable[tuple[Window, Receipt]], replaced: Collection[str], gone: Collection[str]
) -> Iterator[ClosedSegments]:
    """Put the windows of data intervals together that are written alike."""
    own = [
        (window.plan(), window, receipt)
        for window, receipt in drained
        if "interval" in window.plan() and not _is_superseded(receipt, gone)
    ]
    own.sort(key=lambda found: (*_kind(found), Interval.parse(found[0]["interval"]).start))
    for _, group in groupby(own, _kind):
        members = list(group)
        plan = members[0][0]
        yield ClosedSegments(
            name=f"{len(members):,} windows",
            receipts=[receipt for _, _, receipt in members],
            files=_files([(w, receipt, p["format"]) for p, w, receipt in members], replaced),
            file_format=plan["format"],
            partition_by=plan["partition_by"],
        )


def _kind(found: tuple[dict[str, object], Window, Receipt]) -> tuple[str, ...]:
    plan, _, receipt = found
    return str(plan["format"]), str(plan["partition_by"]), str(sorted(receipt.topics.items()))
