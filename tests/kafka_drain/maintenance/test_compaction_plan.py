"""Which small files are put together, and the reasons that gaps keep: plain arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from upath import UPath

from kafka_drain.archive.closed_segments import ClosedSegments
from kafka_drain.archive.files import ArchiveFile
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import (
    FileSet,
    Receipt,
    SealedContent,
    SealedFile,
    SealedPartition,
)
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.maintenance.compaction_plan import (
    GROUP_FILES,
    fewest_files,
    known_gaps,
    plan_groups,
    split_gaps,
)
from kafka_drain.offsets import OffsetRange, TopicPartition, count

TP = TopicPartition("flights", 0)
TARGET = 1_000


def archive_file(
    number: int, first: int, last: int, *, size: int = 10, tp: TopicPartition = TP
) -> ArchiveFile:
    """Return a sealed file with every offset from `first` to `last`."""
    path = f"generations/0001/data/topic=flights/part-{number}.parquet"
    content = SealedContent.of(tp, first, last, last - first + 1, 0, 0)
    return ArchiveFile(
        path=path,
        bytes=size,
        file_format="parquet",
        owner=Generation(UPath("/nowhere"), 1),
        topic_ids={"flights": "id"},
        sealed=SealedFile(path, size, "sha", (content,)),
    )


def receipt_of(
    number: int,
    start: int,
    end: int,
    gaps: dict[GapReason, Any] | None = None,
    size: int = 10,
    tp: TopicPartition = TP,
) -> Receipt:
    """Return the receipt of a batch that has drained [start, end)."""
    part = SealedPartition.of(
        tp, OffsetRange(start, end), end - start, start, end - 1, 0, 0, gaps or {}, None, 0, end, {}
    )
    return Receipt(
        pipeline="flights",
        cluster_id="cluster",
        topics={"flights": "id"},
        generation=1,
        first_batch=number,
        last_batch=number,
        sealed_at="",
        previous=None,
        partitions=(part,),
        files=(SealedFile(f"part-{number}", size, "sha", ()),),
        files_so_far=FileSet(),
    )


def segments(batches: int, files_a_batch: int, *, size: int = 10, **more: Any) -> ClosedSegments:
    """Return a generation whose batches have ten offsets for each file."""
    width = 10 * files_a_batch
    return ClosedSegments(
        name="generation 1",
        receipts=[
            receipt_of(n, n * width, (n + 1) * width, size=size * files_a_batch)
            for n in range(batches)
        ],
        files=[
            archive_file(n, 10 * n, 10 * n + 9, size=size) for n in range(batches * files_a_batch)
        ],
        file_format="parquet",
        partition_by=["topic"],
        **more,
    )


def test_plan_groups_small_files() -> None:
    """Small files of several batches become one compaction that names their receipts."""
    found = segments(5, 2)

    [compaction] = plan_groups(found, TARGET)

    assert compaction.group.replaces == sorted(file.path for file in found.files)
    assert compaction.group.ranges == {TP: [OffsetRange(0, 100)]}
    assert compaction.group.receipts == found.receipts
    assert sorted(file.path for file in compaction.files) == compaction.group.replaces
    assert (compaction.name, compaction.file_format, compaction.partition_by) == (
        "generation 1",
        "parquet",
        ["topic"],
    )
    assert compaction.new_files == 1
    assert compaction.line() == "generation 1: 10 files, 100 bytes, 100 offsets, to about 1 files"


@pytest.mark.parametrize(
    ("files", "size", "new_files"),
    [(2, 10, 0), (3, 10, 1), (4, TARGET // 2, 0), (5, TARGET // 2 - 100, 2), (5, 401, 0)],
)
def test_plan_groups_worth_it(files: int, size: int, new_files: int) -> None:
    """It is worth it where the files are more than twice as many as there have to be."""
    planned = plan_groups(segments(files, 1, size=size), TARGET)

    assert [compaction.new_files for compaction in planned] == [new_files] * bool(new_files)


@pytest.mark.parametrize(
    ("batches", "size"),
    [(2, 10), (40, TARGET), (40, TARGET // 2)],
    ids=["two files", "large files", "half as large"],
)
def test_plan_groups_not_worth_it(batches: int, size: int) -> None:
    """Files aren't rewritten to become half as many or more."""
    assert plan_groups(segments(batches, 1, size=size), TARGET) == []


def test_plan_groups_compacted_before() -> None:
    """What a compaction wrote is left, however many files it needed."""
    assert plan_groups(segments(5, 2, is_compacted=True), TARGET) == []


def test_plan_groups_reaches_into_open_segments() -> None:
    """A repair's file that also holds offsets of the open generation waits until that is closed."""
    found = segments(5, 2)
    reaching = archive_file(99, 95, 120)

    assert plan_groups(replace(found, files=[*found.files, reaching]), TARGET) == []


def test_plan_groups_reaches_into_other_partition() -> None:
    """So does one with a partition that the closed segments don't have."""
    found = segments(5, 2)
    file = archive_file(99, 95, 99)
    assert file.sealed is not None
    other = SealedContent.of(TopicPartition("flights", 1), 0, 9, 10, 0, 0)
    sealed = replace(file.sealed, contents=(*file.sealed.contents, other))
    reaching = replace(file, sealed=sealed)

    assert plan_groups(replace(found, files=[*found.files, reaching]), TARGET) == []
    assert plan_groups(replace(found, files=[*found.files, file]), TARGET) != []


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 400))
def test_plan_groups_property(batches: int, files_a_batch: int, size: int) -> None:
    """No file is in two compactions; each is of bounded size, and leaves at most half the files."""
    found = segments(batches, files_a_batch, size=size)

    planned = plan_groups(found, TARGET)

    paths = [path for compaction in planned for path in compaction.group.replaces]
    assert len(set(paths)) == len(paths)
    for compaction in planned:
        assert compaction.group.bytes < GROUP_FILES * TARGET + size * files_a_batch
        assert 2 * compaction.new_files <= len(compaction.files)
        assert compaction.group.offsets == 10 * len(compaction.files)


def test_fewest_files_folders() -> None:
    """Files of two folders never become one."""
    other = archive_file(1, 0, 9)
    moved = replace(other, path=other.path.replace("topic=flights", "topic=other"))

    assert fewest_files([archive_file(0, 0, 9), other], TARGET) == 1
    assert fewest_files([archive_file(0, 0, 9), moved], TARGET) == 2
    assert fewest_files([archive_file(n, 0, 9, size=TARGET // 2) for n in (0, 1)], TARGET) == 1
    assert fewest_files([archive_file(0, 0, 9, size=2 * TARGET + 1)], TARGET) == 3


RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), max_size=8)


@given(RANGES, RANGES, RANGES)
def test_split_gaps_property(missing: Any, control: Any, aborted: Any) -> None:
    """Each missing offset is a gap that was sealed, with its reason, or lost; none is both."""

    def offsets(pairs: Any) -> set[int]:
        return {n for start, length in pairs for n in range(start, start + length)}

    def ranges(numbers: set[int]) -> list[OffsetRange]:
        found: list[OffsetRange] = []
        for number in sorted(numbers):
            if found and found[-1].end == number:
                found[-1] = OffsetRange(found[-1].start, number + 1)
            else:
                found.append(OffsetRange(number, number + 1))
        return found

    sealed = {
        GapReason.CONTROL: ranges(offsets(control) - offsets(aborted)),
        GapReason.ABORTED: ranges(offsets(aborted)),
    }
    known = known_gaps([receipt_of(0, 0, 60, sealed)])

    gaps, lost = split_gaps({TP: ranges(offsets(missing))}, known)

    for gap in gaps:
        assert set(range(gap.range.start, gap.range.end)) <= offsets(
            (r.start, len(r)) for r in sealed[gap.reason]
        )
    unknown = offsets(missing) - offsets(control) - offsets(aborted)
    assert lost == ({TP: ranges(unknown)} if unknown else {})
    assert count(gap.range for gap in gaps) == len(offsets(missing) - unknown)


def test_split_gaps_partitions() -> None:
    """Of a partition that no receipt has gaps of, all that is missing is lost."""
    other = TopicPartition("flights", 1)
    known = known_gaps([receipt_of(0, 0, 60, {GapReason.CONTROL: [OffsetRange(3, 5)]})])
    missing = [OffsetRange(3, 6)]

    gaps, lost = split_gaps({TP: missing, other: missing}, known)

    assert gaps == [Gap(TP, OffsetRange(3, 5), GapReason.CONTROL)]
    assert lost == {TP: [OffsetRange(5, 6)], other: missing}
