"""Plan the rewrites of an erasure: of whole segments, as in a compaction.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_drain.archive.receipts import Receipt
from kafka_drain.maintenance.compaction_plan import GROUP_FILES, Compaction, fewest_files, is_within
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.windows.rewrite_groups import FileGroup, split_groups

if TYPE_CHECKING:
    from kafka_drain.archive.closed_segments import ClosedSegments
    from kafka_drain.archive.erasures import Erasure
    from kafka_drain.archive.files import ArchiveFile
    from kafka_drain.proof.erased_records import FoundRecords

#: Returns which followers have sent a segment: a group is sent as a whole, or not.
SentBy = Callable[[Receipt], frozenset[str]]


def plan_rewrites(
    segments: ClosedSegments,
    found: Mapping[str, FoundRecords],
    erasures: Sequence[Erasure],
    sent_by: SentBy,
    target_bytes: int,
) -> list[Compaction]:
    """Plan the rewriting of those segments that hold records to be erased.

    As few segments as possible are rewritten, but several at once: a Spark job takes seconds to
    start. A group ends where its size does, or where a follower has sent one segment and not the
    next. One that a follower has sent in part, or that can't be rewritten without its neighbours,
    is left out.

    Args:
        found: The files with such records, by path.
        sent_by: Returns the followers that have sent a segment.
        target_bytes: Target size of a file.
    """
    by_path = {file.path: file for file in segments.files}
    smallest = split_groups(
        segments.receipts,
        [file.sealed for file in segments.files if file.sealed is not None],
        0,
        lambda receipt: 1,
        1,
    )
    groups: list[FileGroup] = []
    open_sent: frozenset[str] | None = None
    for group in smallest:
        sent = {sent_by(receipt) for receipt in group.receipts}
        files = [by_path[path] for path in group.replaces]
        is_affected = not found.keys().isdisjoint(group.replaces)
        if not is_affected or len(sent) > 1 or not all(is_within(file, group) for file in files):
            continue
        [who] = sent
        has_room = groups and groups[-1].bytes + group.bytes <= GROUP_FILES * target_bytes
        if has_room and who == open_sent:
            groups[-1] = _together(groups[-1], group)
        else:
            groups.append(group)
        open_sent = who
    return [_rewrite(segments, group, by_path, found, erasures, target_bytes) for group in groups]


def _together(some: FileGroup, others: FileGroup) -> FileGroup:
    tps = {**some.ranges, **others.ranges}
    records = dict(some.records)
    for tp, number in others.records.items():
        records[tp] = records.get(tp, 0) + number
    return FileGroup(
        ranges={tp: merge([*some.ranges.get(tp, ()), *others.ranges.get(tp, ())]) for tp in tps},
        replaces=sorted({*some.replaces, *others.replaces}),
        bytes=some.bytes + others.bytes,
        records=records,
        receipts=[*some.receipts, *others.receipts],
    )


def _rewrite(
    segments: ClosedSegments,
    group: FileGroup,
    by_path: Mapping[str, ArchiveFile],
    found: Mapping[str, FoundRecords],
    erasures: Sequence[Erasure],
    target_bytes: int,
) -> Compaction:
    files = [by_path[path] for path in group.replaces]
    affected = [found[path] for path in group.replaces if path in found]
    return Compaction(
        name=segments.name,
        group=group,
        files=files,
        file_format=segments.file_format,
        partition_by=segments.partition_by,
        new_files=fewest_files(files, target_bytes),
        erased=_erased(affected),
        plan={
            "erasures": _carried_out(affected, erasures),
            "hashes": {file.path: file.sealed.sha256 for file in files if file.sealed},
        },
    )


def _erased(found: Iterable[FoundRecords]) -> dict[TopicPartition, list[OffsetRange]]:
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for each in found:
        for tp, offsets in each.ranges.items():
            ranges.setdefault(tp, []).extend(offsets)
    return {tp: merge(offsets) for tp, offsets in sorted(ranges.items())}


def _carried_out(
    found: Sequence[FoundRecords], erasures: Iterable[Erasure]
) -> list[dict[str, Any]]:
    rows = []
    for erasure in erasures:
        records = sum(each.records.get(erasure.number, 0) for each in found)
        if records:
            rows.append(
                {
                    "erasure": erasure.number,
                    "request": erasure.document.request,
                    "by": erasure.document.by,
                    "records": records,
                }
            )
    return rows


def left_over(
    found: Iterable[FoundRecords], planned: Iterable[Compaction], open_data: Collection[str] = ()
) -> list[str]:
    """Return the files with records to be erased that no planned window replaces.

    Args:
        found: The files.
        planned: The planned windows.
        open_data: Files of the open generation, which is closed first.
    """
    replaced = {path for each in planned for path in each.group.replaces}
    return sorted({each.file.path for each in found} - replaced - set(open_data))
