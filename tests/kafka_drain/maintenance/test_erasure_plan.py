"""Which segments an erasure rewrites, and which of them together: plain arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.closed_segments import ClosedSegments
from kafka_drain.archive.documents import ErasureDocument
from kafka_drain.archive.erasures import Erasure
from kafka_drain.archive.files import ArchiveFile
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.receipts import Receipt
from kafka_drain.maintenance.compaction_plan import GROUP_FILES, Compaction
from kafka_drain.maintenance.erasure_plan import left_over, plan_rewrites
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.erased_records import FoundRecords
from tests.kafka_drain.maintenance.test_compaction_plan import TARGET, TP, archive_file, receipt_of

OTHER = TopicPartition(TP.topic, TP.partition + 1)


def erasure(number: int) -> Erasure:
    """An erasure; only its number, request and who asked count here."""
    document: dict[str, Any] = {
        "request": f"req-{number}",
        "by": f"by-{number}",
        "asked_at": "",
        "salt": "",
        "keys": [],
        "headers": [],
        "topics": [],
        "from_ms": None,
        "to_ms": None,
        "scope": [],
        "for_ever": False,
        "format_version": 1,
    }
    return Erasure(UPath("/nowhere"), number, ErasureDocument.model_validate(document))


def found_in(*files: ArchiveFile, records: dict[int, int] | None = None) -> dict[str, FoundRecords]:
    """The first record of each file is to be erased."""
    return {
        file.path: FoundRecords(
            file, {TP: [OffsetRange(start, start + 1)]}, {1: 1} if records is None else records
        )
        for file in files
        if file.sealed
        for start in [file.sealed.contents[0].first]
    }


def segments_of(files: Sequence[ArchiveFile], ends: Sequence[int]) -> ClosedSegments:
    """Segments that end where said."""
    starts = [0, *ends]
    receipts = [receipt_of(n, starts[n], end) for n, end in enumerate(ends)]
    return ClosedSegments("generation 1", receipts, files, "parquet", ["topic"])


def nobody(_: Receipt) -> frozenset[str]:
    """No follower has sent anything."""
    return frozenset()


def windows(planned: Sequence[Compaction]) -> list[list[str]]:
    """Return the numbers of the files that each window replaces."""
    return [[path[-9:-8] for path in each.group.replaces] for each in planned]


#: Four segments of ten offsets, a file each.
FILES = [archive_file(n, 10 * n, 10 * n + 9) for n in range(4)]
ENDS = [10, 20, 30, 40]


def test_plan_rewrites() -> None:
    """Segments without such records stay; the others are put into one window, with all of theirs.

    Its plan names the erasures that it carries out, and the hashes of the files that go.
    """
    found = found_in(FILES[0], records={1: 1, 2: 3}) | found_in(FILES[2], records={1: 2, 3: 0})

    [planned] = plan_rewrites(
        segments_of(FILES, ENDS), found, [erasure(n) for n in (1, 2, 3)], nobody, TARGET
    )

    assert windows([planned]) == [["0", "2"]]
    assert planned.kind is WindowKind.ERASURE
    assert planned.erased == {TP: [OffsetRange(0, 1), OffsetRange(20, 21)]}
    assert planned.group.ranges == {TP: [OffsetRange(0, 10), OffsetRange(20, 30)]}
    assert planned.group.records == {TP: 20}
    assert planned.group.bytes == 20
    assert [receipt.last_batch for receipt in planned.group.receipts] == [0, 2]
    assert list(planned.files) == [FILES[0], FILES[2]]
    assert (planned.name, planned.file_format, planned.partition_by, planned.new_files) == (
        "generation 1",
        "parquet",
        ["topic"],
        1,
    )
    assert planned.plan == {
        "erasures": [
            {"erasure": 1, "request": "req-1", "by": "by-1", "records": 3},
            {"erasure": 2, "request": "req-2", "by": "by-2", "records": 3},
        ],
        "hashes": {FILES[0].path: "sha", FILES[2].path: "sha"},
    }


def test_plan_rewrites_partitions_together() -> None:
    """Segments of different partitions are put into one window, which knows both."""
    files = [archive_file(0, 0, 9), archive_file(1, 0, 4, tp=OTHER)]
    receipts = [receipt_of(0, 0, 10), receipt_of(1, 0, 5, tp=OTHER)]
    segments = ClosedSegments("generation 1", receipts, files, "parquet", ["topic"])

    [planned] = plan_rewrites(segments, found_in(*files), [erasure(1)], nobody, TARGET)

    assert windows([planned]) == [["0", "1"]]
    assert planned.group.ranges == {TP: [OffsetRange(0, 10)], OTHER: [OffsetRange(0, 5)]}
    assert planned.group.records == {TP: 10, OTHER: 5}


def test_plan_rewrites_nothing() -> None:
    """Nothing is rewritten where nothing is found."""
    assert plan_rewrites(segments_of(FILES, ENDS), {}, [erasure(1)], nobody, TARGET) == []


def test_plan_rewrites_whole_segments() -> None:
    """Files beside one with such records go with it; a file in two segments goes with both."""
    files = [archive_file(0, 0, 4), archive_file(1, 5, 9), archive_file(2, 10, 29)]
    segments = segments_of(files, [10, 20, 30])

    of_first = plan_rewrites(segments, found_in(files[0]), [erasure(1)], nobody, TARGET)
    of_last = plan_rewrites(segments, found_in(files[2]), [erasure(1)], nobody, TARGET)

    assert windows(of_first) == [["0", "1"]]
    assert of_first[0].group.ranges == {TP: [OffsetRange(0, 10)]}
    assert windows(of_last) == [["2"]]
    assert of_last[0].group.ranges == {TP: [OffsetRange(10, 30)]}


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (GROUP_FILES * TARGET // 4, [["0", "1", "2", "3"]]),
        (GROUP_FILES * TARGET // 4 + 1, [["0", "1", "2"], ["3"]]),
        (GROUP_FILES * TARGET + 1, [["0"], ["1"], ["2"], ["3"]]),
    ],
)
def test_plan_rewrites_by_size(size: int, expected: list[list[str]]) -> None:
    """A window has no more bytes than a compaction's, unless a single segment has."""
    files = [archive_file(n, 10 * n, 10 * n + 9, size=size) for n in range(4)]

    planned = plan_rewrites(
        segments_of(files, ENDS), found_in(*files), [erasure(1)], nobody, TARGET
    )

    assert windows(planned) == expected


def test_plan_rewrites_by_follower() -> None:
    """What a follower has sent and what it hasn't are in different windows."""

    def sent_by(receipt: Receipt) -> frozenset[str]:
        return frozenset({"mirror"} if receipt.last_batch < 2 else ())

    planned = plan_rewrites(
        segments_of(FILES, ENDS), found_in(*FILES), [erasure(1)], sent_by, TARGET
    )

    assert windows(planned) == [["0", "1"], ["2", "3"]]


def test_plan_rewrites_leaves_half_sent() -> None:
    """Two segments that share a file, of which a follower has sent one, can't be rewritten now."""
    files = [archive_file(0, 0, 19), archive_file(1, 20, 29)]

    def sent_by(receipt: Receipt) -> frozenset[str]:
        return frozenset({"mirror"} if receipt.last_batch == 0 else ())

    found = found_in(*files)
    planned = plan_rewrites(segments_of(files, [10, 20, 30]), found, [erasure(1)], sent_by, TARGET)

    assert windows(planned) == [["1"]]
    assert left_over(found.values(), planned) == [files[0].path]
    assert left_over(found.values(), planned, [files[0].path]) == []


def test_plan_rewrites_leaves_what_reaches_out() -> None:
    """A repair's file with offsets of other segments isn't replaced by a window of these."""
    files = [archive_file(0, 0, 9), archive_file(1, 15, 45)]
    found = found_in(*files)

    planned = plan_rewrites(segments_of(files, ENDS), found, [erasure(1)], nobody, TARGET)

    assert windows(planned) == [["0"]]
    assert left_over(found.values(), planned) == [files[1].path]
