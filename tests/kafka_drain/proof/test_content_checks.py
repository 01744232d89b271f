"""What a segment's files hold against what Spark read."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.content_checks import (
    Content,
    Taken,
    compare_content,
    content_of,
    difference,
    excused_offsets,
    fingerprint_to_seal,
)

A, B = "00000000000000aa", "00000000000000bb"


Case = tuple[int | None, str | None, str | None, int, bool]


def table() -> dict[Case, Content]:
    """Every combination: more records or fewer, each fingerprint, offsets excused, a drain beside.

    The difference is how many records the files hold more than Spark read; None when what Spark
    read isn't known.
    """
    found: dict[Case, Content] = {}
    for case in product((None, -2, -1, 0, 1), (None, A), (None, A, B), (0, 1, 2, 9), (False, True)):
        difference, read, held, excused, is_draining = case
        if difference is None:
            found[case] = Content.PENDING if is_draining else Content.UNKNOWN
        elif difference == 1:
            found[case] = Content.MORE
        elif difference < 0:
            found[case] = Content.UNKNOWN if excused >= -difference else Content.FEWER
        elif None in (read, held):
            found[case] = Content.COUNTED
        else:
            found[case] = Content.EQUAL if read == held else Content.CHANGED
    return found


@pytest.mark.parametrize(("case", "expected"), list(table().items()), ids=repr)
def test_compare_content(case: Case, expected: Content) -> None:
    """Each combination of counts and fingerprints has one answer."""
    difference, read, held, excused, is_draining = case
    taken = None if difference is None else Taken(7, read)

    found = compare_content(
        taken, Taken(7 + (difference or 0), held), excused=excused, is_draining=is_draining
    )

    assert found is expected


def test_compare_content_nothing_excused() -> None:
    """Unless it is said otherwise, nothing is excused, and nobody is waited for."""
    assert compare_content(Taken(7, A), Taken(6, A)) is Content.FEWER
    assert compare_content(None, Taken(6, A)) is Content.UNKNOWN


@pytest.mark.parametrize("verdict", Content)
@pytest.mark.parametrize("own", [A, None])
@pytest.mark.parametrize("elsewhere", [0, 3])
@pytest.mark.parametrize("is_known", [True, False])
def test_fingerprint_to_seal(
    verdict: Content, own: str | None, elsewhere: int, is_known: bool
) -> None:
    """A receipt has the fingerprint of its own files' records, where it was proven."""
    found = fingerprint_to_seal(
        verdict, Taken(7, B) if is_known else None, Taken(4, own), Taken(elsewhere, B)
    )

    if verdict == Content.EQUAL:
        assert found == own
    elif verdict == Content.COUNTED and is_known and elsewhere == 0:
        assert found == B
    else:
        assert found is None


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.parametrize(
    ("gaps", "skipped", "expected"),
    [
        ([], {}, 0),
        ([(T0, 0, 5, True)], {}, 5),
        ([(T0, 0, 5, False)], {}, 0),
        ([(T0, 0, 5, True), (T0, 5, 7, False), (T1, 2, 4, True)], {}, 7),
        # Twice the same offsets are one time so many.
        ([(T0, 0, 5, True), (T0, 3, 6, True)], {}, 6),
        ([(T0, 0, 5, True)], {T0: [(0, 5)]}, 0),
        ([(T0, 0, 5, True)], {T0: [(0, 3)]}, 2),
        ([(T0, 0, 5, True)], {T0: [(3, 9)]}, 3),
        ([(T0, 0, 5, True)], {T0: [(1, 2), (3, 4)]}, 3),
        ([(T0, 0, 5, True)], {T1: [(0, 5)]}, 5),
        ([(T0, 0, 5, True), (T1, 0, 5, True)], {T1: [(0, 4)]}, 6),
    ],
)
def test_excused_offsets(
    gaps: list[tuple[TopicPartition, int, int, bool]],
    skipped: dict[TopicPartition, list[tuple[int, int]]],
    expected: int,
) -> None:
    """Excused is what somebody accepted as expired, and what Spark may have read before that."""
    found = excused_offsets(
        [Gap(tp, OffsetRange(start, end), GapReason.EXPIRED, ok) for tp, start, end, ok in gaps],
        {tp: [OffsetRange(*r) for r in ranges] for tp, ranges in skipped.items()},
    )

    assert found == expected


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Content.CHANGED, f"has records with fingerprint {B}; Spark read {A}"),
        (Content.FEWER, "has 1,000 records; Spark read 2,000"),
        (Content.MORE, "has 1,000 records; Spark read 2,000"),
    ],
)
def test_difference(verdict: Content, expected: str) -> None:
    """What differs is said with both sides."""
    assert difference(verdict, Taken(2000, A), Taken(1000, B)) == expected


def test_content_may_be_sealed() -> None:
    """Nothing that contradicts what Spark read is sealed."""
    assert {str(each): each.may_be_sealed for each in Content} == {
        "equal": True,
        "counted": True,
        "unknown": True,
        "pending": False,
        "changed": False,
        "fewer": False,
        "more": False,
    }


def held(records: int, fingerprint: str | None) -> CommittedFile:
    """Return a file with so many records."""
    content = FileOffsets(TopicPartition("t", 0), (OffsetRange(0, records),), records)
    return CommittedFile("p", 1, "sha", (content,), fingerprint=fingerprint)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], Taken(0, "0" * 16)),
        ([(3, A)], Taken(3, A)),
        ([(3, A), (4, B)], Taken(7, "0000000000000011")),
        ([(3, A), (4, None)], Taken(7, None)),
    ],
)
def test_content_of(files: list[tuple[int, str | None]], expected: Taken) -> None:
    """Counts add up and fingerprints are XORed; one that isn't known leaves the whole unknown."""
    assert content_of(held(*each) for each in files) == expected
