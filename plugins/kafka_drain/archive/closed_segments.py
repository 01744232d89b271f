"""The sealed segments that maintenance may rewrite, and their files.

These are closed generations and sealed windows; never the open generation, which drains append to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

from kafka_drain.archive.files import ArchiveFile, files_of_receipt, files_of_windows
from kafka_drain.archive.fold import Fold, WindowKind
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration, SnapshotWindow
from kafka_drain.archive.window import Window
from kafka_drain.intervals import Interval
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping

#: The offsets that repairs' files may hold, by partition and topic id: sorted and disjoint.
_Reached = Mapping[tuple[TopicPartition, str | None], Sequence[OffsetRange]]


@dataclass(frozen=True)
class ClosedSegments:
    """Segments that don't overlap and whose files are written the same way.

    Attributes:
        name: Owner of the segments, for display.
        receipts: Their receipts, in the order of offsets.
        files: Their sealed files as seen by readers, plus the files of repairs for the same topic
            ids, which hold the records of damaged files that were drained again.
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
    snapshot: Snapshot, generations: Iterable[SnapshotGeneration], going: Iterable[str] = ()
) -> list[ClosedSegments]:
    """Read the segments of some closed generations, and of all sealed windows.

    A generation whose files have all been removed is skipped at the cost of one receipt.

    Args:
        snapshot: The archive.
        going: Files to be treated as deleted.

    Raises:
        ReceiptError: When a receipt is damaged.
    """
    fold = snapshot.fold.without(going)
    repaired = fold.live(files_of_windows(fold.of_kind(WindowKind.REPAIR)))
    reached = _reached(repaired)
    found = []
    for generation in generations:
        if _is_gone(generation, fold):
            continue
        sealed = generation.receipts(snapshot.journal.noted.forgotten)
        receipts = [r for r in sealed if not _is_superseded(r, fold, reached)]
        topic_ids, document = snapshot.topic_ids(generation), generation.document
        files = [f for r in receipts for f in files_of_receipt(generation, r, document.format)]
        found.append(
            ClosedSegments(
                name=f"generation {generation.number}",
                receipts=receipts,
                files=[*fold.live(files), *_fitting(repaired, topic_ids)],
                file_format=document.format,
                partition_by=document.partition_by,
            )
        )
    backfills = fold.of_kind(WindowKind.BACKFILL)
    found += _of_backfills(
        [w for w in backfills if not _is_superseded(w.receipt, fold, reached)], fold, repaired
    )
    found += [
        _of_window(window, fold, repaired)
        for window in fold.superseding
        if not _is_superseded(window.receipt, fold, reached)
    ]
    return found


def together(found: Iterable[ClosedSegments], paths: Collection[str]) -> list[ClosedSegments]:
    """Put generations together that some of the given files, those of repairs, hold records of.

    Such a file can't be rewritten with the segments of one of them alone. Generations that are
    written in another way, or count another topic of the same name, stay apart.

    Args:
        found: Segments; those of generations, the oldest first.
        paths: The files that are to be rewritten.
    """
    wanted = frozenset(paths)
    groups: dict[int, list[tuple[int, ClosedSegments]]] = {}
    at: dict[str, int] = {}
    for number, segments in enumerate(found):
        key, groups[number] = number, [(number, segments)]
        for path in sorted(_repaired(segments, wanted)):
            other = at.setdefault(path, key)
            pairs = product(groups[other], groups[key])
            if other != key and all(_fit(one, own) for (_, one), (_, own) in pairs):
                groups[other] += groups.pop(key)
                at = {name: other if of == key else of for name, of in at.items()}
                key = other
    # The oldest first.
    return [_joined([one for _, one in sorted(own, key=_number)]) for own in groups.values()]


def _number(numbered: tuple[int, ClosedSegments]) -> int:
    return numbered[0]


def _repaired(segments: ClosedSegments, paths: Collection[str]) -> set[str]:
    """Return those of some files that a repair has put into the place of a generation's files."""
    if any(receipt.generation is None for receipt in segments.receipts):
        return set()
    held: dict[TopicPartition, list[OffsetRange]] = {}
    for receipt in segments.receipts:
        for part in receipt.partitions:
            held.setdefault(part.tp, []).append(part.range)
    held = {tp: merge(ranges) for tp, ranges in held.items()}
    return {
        file.path
        for file in segments.files
        if file.path in paths
        and isinstance(file.owner, Window)
        and any(
            overlapping(held.get(content.tp, ()), OffsetRange(content.first, content.last + 1))
            for content in (file.sealed.contents if file.sealed else ())
        )
    }


def _fit(some: ClosedSegments, others: ClosedSegments) -> bool:
    """Return whether segments are written the same way, and count the same topics."""
    known, same = ({i for r in each.receipts for i in r.topics.items()} for each in (some, others))
    ids = dict(known)
    return (
        (some.file_format, some.partition_by) == (others.file_format, others.partition_by)
        and all(ids.get(name, topic_id) == topic_id for name, topic_id in same)
        and len(ids) == len(known)
    )


def _joined(found: Sequence[ClosedSegments]) -> ClosedSegments:
    if len(found) == 1:
        return found[0]
    files = {file.path: file for segments in found for file in segments.files}
    return replace(
        found[0],
        name=", ".join(segments.name for segments in found),
        receipts=[receipt for segments in found for receipt in segments.receipts],
        files=list(files.values()),
    )


def _is_gone(generation: Generation, fold: Fold[SnapshotWindow]) -> bool:
    receipt = generation.last_receipt()
    return receipt is None or fold.has_all_of(receipt)


def _is_superseded(receipt: Receipt, fold: Fold[SnapshotWindow], reached: _Reached) -> bool:
    """Return whether windows replace all files of a segment, and no repaired file of it is left."""
    if not receipt.files or fold.holds_records(receipt):
        return False
    return fold.is_gone(receipt) or not any(
        overlapping(reached.get((part.tp, receipt.topics.get(part.tp.topic)), ()), part.range)
        for part in receipt.partitions
    )


def _reached(repaired: Iterable[ArchiveFile]) -> _Reached:
    """Return the offsets that some files may hold."""
    found: dict[tuple[TopicPartition, str | None], list[OffsetRange]] = {}
    for file in repaired:
        for content in file.sealed.contents if file.sealed else ():
            key = content.tp, file.topic_ids.get(content.tp.topic)
            found.setdefault(key, []).append(OffsetRange(content.first, content.last + 1))
    return {key: merge(ranges) for key, ranges in found.items()}


def _fitting(repaired: Iterable[ArchiveFile], topic_ids: Mapping[str, str]) -> list[ArchiveFile]:
    """Return the repairs' files with the same topic ids, whatever their offsets."""
    return [
        file
        for file in repaired
        if all(topic_ids.get(name, id_) == id_ for name, id_ in file.own_topic_ids.items())
    ]


def _of_window(
    window: SnapshotWindow, fold: Fold[SnapshotWindow], repaired: Iterable[ArchiveFile]
) -> ClosedSegments:
    plan, receipt = window.plan, window.receipt
    own = fold.live(files_of_windows([window]))
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
    fold: Fold[SnapshotWindow],
    repaired: Sequence[ArchiveFile],
) -> Iterator[ClosedSegments]:
    """Group the windows of data intervals that are written the same way."""
    own = sorted(
        windows, key=lambda w: (*_how_written(w), Interval.parse(w.plan.interval or ()).start)
    )
    for _, group in groupby(own, _how_written):
        members = list(group)
        first = members[0]
        files = fold.live(files_of_windows(members))
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
