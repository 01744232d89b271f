"""A compaction's files against the receipts of what they take the place of: every combination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from kafka_drain.archive.receipts import Receipt
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.maintenance.compact import prove_compaction, sealed_fingerprint
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.windows.rewrite_groups import FileGroup
from tests.kafka_drain.drained import held
from tests.kafka_drain.maintenance.test_compaction_plan import TP, receipt_of

OTHER = TopicPartition("flights", 1)
FIRST, SECOND = "00000000000000f0", "000000000000000f"
BOTH = "00000000000000ff"


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


def receipts(*fingerprints: str | None, **gaps: Any) -> list[Receipt]:
    """Receipts of ten offsets each; of the first, gaps are left out."""
    found = [
        replace(receipt_of(n, 10 * n, 10 * n + 10), fingerprint=f)
        for n, f in enumerate(fingerprints)
    ]
    if gaps:
        [part] = found[0].partitions
        held = {GapReason[name.upper()]: ranges for name, ranges in gaps.items()}
        count = sum(len(r) for ranges in gaps.values() for r in ranges)
        part = replace(part, gaps=held, records=part.records - count)
        found[0] = replace(found[0], partitions=(part,))
    return found


def group(sealed: Sequence[Receipt], records: int, **more: int) -> FileGroup:
    """What was compacted: partition 0's segments, with so many records."""
    whole = merge([part.range for receipt in sealed for part in receipt.partitions])
    found = {TP: records} | ({OTHER: more["other"]} if more else {})
    return FileGroup({TP: whole}, ["a"], 1, found, sealed)


def prove(
    files: list[CommittedFile], sealed: Sequence[Receipt], records: int = 20, value: str = BOTH
) -> tuple[list[Gap], list[Finding]]:
    """Prove the files of a compaction of offsets 0 to 19."""
    compacted = group(sealed, records)
    proof = prove_compaction("windows/c", compacted, compacted.ranges, files, value)
    return proof.gaps, proof.findings


def test_prove_compaction() -> None:
    """Files that hold all offsets, in whatever order, with the sealed fingerprint, are proven."""
    files = [held(TP, "x", range(15, 20)), held(TP, "y", range(15))]

    assert prove(files, receipts(FIRST, SECOND)) == ([], [])


CHANGED = "00000000000000fe"


@pytest.mark.parametrize(
    ("lacks", "twice", "is_changed", "is_known"), list(product((False, True), repeat=4))
)
def test_prove_compaction_damaged(
    lacks: bool, twice: bool, is_changed: bool, is_known: bool
) -> None:
    """An offset that lacks, one that is there twice, and another content are each found."""
    offsets = [*range(19 if lacks else 20), *([0] if twice else [])]
    sealed = receipts(FIRST, SECOND if is_known else None)

    gaps, findings = prove([held(TP, "x", offsets)], sealed, value=CHANGED if is_changed else BOTH)

    expected = []
    # One that lacks and one that is twice are as many records again.
    if lacks is not twice:
        detail = f"holds {21 if twice else 19} records, the old files held 20"
        expected.append(Finding(Reason.CONTENT_CHANGED, "windows/c flights-0", detail))
    if lacks:
        detail = "[19, 20) is in no new file, and wasn't a gap before"
        expected.append(Finding(Reason.OFFSET_MISSING, TopicPartition("flights", 0), detail))
    if is_changed and is_known:
        detail = f"its records have fingerprint {CHANGED}, Spark read {BOTH}"
        expected.append(Finding(Reason.CONTENT_CHANGED, "windows/c", detail))
    assert (gaps, findings) == ([], expected)


def test_prove_compaction_known_gaps() -> None:
    """Offsets that were a sealed gap keep its reason; others are lost, three of them named."""
    sealed = receipts(FIRST, SECOND, aborted=[R(2, 4)])
    files = [held(TP, "x", [0, 1, 4, 5, 6, 7, 8, 9, 11, 13, 15, 17, 18, 19])]

    gaps, findings = prove(files, sealed, records=18)

    assert gaps == [Gap(TP, R(2, 4), GapReason.ABORTED)]
    assert [finding.detail for finding in findings] == [
        "holds 14 records, the old files held 18",
        "[10, 11), [12, 13), [14, 15) is in no new file, and wasn't a gap before",
    ]


def test_prove_compaction_deletions() -> None:
    """What retention has deleted is a gap; the fingerprint of what is left isn't known."""
    sealed = receipts(FIRST, SECOND)
    compacted = group(sealed, 10)
    deletion = receipt_of(0, 0, 10, {GapReason.DELETED: [R(0, 10)]})
    files = [held(TP, "x", range(10, 20))]

    proof = prove_compaction("windows/c", compacted, compacted.ranges, files, CHANGED, [deletion])

    assert proof.gaps == [Gap(TP, R(0, 10), GapReason.DELETED)]
    assert proof.findings == []


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ([held(TP, "x", range(20)), held(OTHER, "y", [0])], {}),
        ([held(TP, "x", range(20))], {"other": 1}),
        ([held(TP, "x", range(20)), held(OTHER, "y", [0, 1])], {"other": 1}),
    ],
)
def test_prove_compaction_other_partition(new: list[CommittedFile], old: dict[str, int]) -> None:
    """Each partition is counted by itself: one's records don't make up for another's."""
    compacted = group(receipts(None, None), 20, **old)

    proof = prove_compaction("windows/c", compacted, compacted.ranges, new, BOTH)

    held_now = sum(c.records for file in new for c in file.contents if c.tp == OTHER)
    detail = f"holds {held_now} records, the old files held {old.get('other', 0)}"
    assert proof.findings == [Finding(Reason.CONTENT_CHANGED, "windows/c flights-1", detail)]


@pytest.mark.parametrize(
    ("fingerprints", "repaired", "records", "known"),
    [
        ((FIRST, SECOND), False, 20, BOTH),
        ((FIRST,), False, 10, FIRST),
        # A batch whose fingerprint is lost.
        ((FIRST, None), False, 20, None),
        ((None, SECOND), False, 20, None),
        # Some were deleted, or there are more than were sealed.
        ((FIRST, SECOND), False, 19, None),
        ((FIRST, SECOND), False, 21, None),
        # A window held some of them.
        ((FIRST, SECOND), True, 18, None),
    ],
)
def test_sealed_fingerprint(
    fingerprints: tuple[str | None, ...], repaired: bool, records: int, known: str | None
) -> None:
    """It is known where each segment's is, of exactly the records that are there."""
    sealed = receipts(*fingerprints, **({"window": [R(2, 4)]} if repaired else {}))

    assert sealed_fingerprint(sealed, records) == known

    compacted = group(sealed, records)
    proof = prove_compaction("windows/c", compacted, compacted.ranges, [], BOTH)
    assert proof.is_compared is (known is not None)


def test_sealed_fingerprint_other_gaps() -> None:
    """Gaps but those that a window fills leave it known."""
    assert sealed_fingerprint(receipts(FIRST, SECOND, aborted=[R(2, 4)]), 18) == BOTH


ERASED = {TP: [R(3, 4), R(12, 14)]}


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        # One that should be gone, alone and in place of one that should have stayed.
        ({3}, "holds 18 records, the old files held 20, of which 3 were to be erased"),
        ({3, -4}, "[4, 5) is in no new file, and wasn't a gap before"),
        ({-4}, "holds 16 records, the old files held 20, of which 3 were to be erased"),
        (set(), ""),
    ],
)
def test_prove_compaction_erased(kept: set[int], expected: str) -> None:
    """The erased offsets are gaps with that reason; one too many or too few is found."""
    sealed = receipts(FIRST, SECOND)
    compacted = group(sealed, 20)
    gone = {offset for r in ERASED[TP] for offset in range(r.start, r.end)}
    offsets = set(range(20)) - gone
    for change in kept:
        offsets = offsets | {change} if change > 0 else offsets - {-change}

    proof = prove_compaction(
        "windows/e",
        compacted,
        compacted.ranges,
        [held(TP, "x", sorted(offsets))],
        BOTH,
        erased=ERASED,
    )

    details = [finding.detail for finding in proof.findings]
    if expected:
        assert expected in details
    else:
        assert details == []
        assert proof.gaps == [Gap(TP, r, GapReason.ERASED) for r in ERASED[TP]]
    assert proof.is_compared


def test_prove_compaction_erased_next_to_gaps() -> None:
    """Gaps of the old receipts keep their reasons, among them what an earlier request erased."""
    sealed = receipts(FIRST, SECOND, erased=[R(0, 1)], aborted=[R(1, 2)])
    compacted = group(sealed, 18)
    files = [held(TP, "x", [2, *range(4, 12), *range(14, 20)])]

    proof = prove_compaction("windows/e", compacted, compacted.ranges, files, BOTH, erased=ERASED)

    assert proof.findings == []
    assert sorted((gap.range.start, gap.reason) for gap in proof.gaps) == [
        (0, GapReason.ERASED),
        (1, GapReason.ABORTED),
        (3, GapReason.ERASED),
        (12, GapReason.ERASED),
    ]
