"""What a segment's files hold against what Spark read."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.content_checks import (
    Content,
    Excuse,
    Reread,
    Tally,
    compare_content,
    content_of,
    difference,
    excuse_of,
    fingerprint_to_seal,
    judge_reread,
    together,
)
from tests.tables import each_of

A, B = "00000000000000aa", "00000000000000bb"


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

#: How many records more than Spark read the files hold of each of two partitions; the fingerprint
#: that Spark read, and that of the files; offsets excused of each; whether others are missing.
Case = tuple[tuple[int, int], str | None, str | None, tuple[int, int], bool]
CASES: list[Case] = list(
    product(
        product((-2, -1, 0, 1), repeat=2),
        (None, A),
        (None, A, B),
        product((0, 1, 2), repeat=2),
        (False, True),
    )
)


def taken(more: tuple[int, int], fingerprint: str | None, *, is_counted: bool) -> Tally:
    counts = {T0: 7 + more[0], T1: 3 + more[1]}
    return Tally(sum(counts.values()), fingerprint, counts if is_counted else None)


def compared(case: Case, *, read_counted: bool, held_counted: bool) -> Content:
    more, read, held, excused, has_others = case
    return compare_content(
        taken((0, 0), read, is_counted=read_counted),
        taken(more, held, is_counted=held_counted),
        excuse=Excuse({tp: n for tp, n in zip((T0, T1), excused, strict=True) if n}, has_others),
    )


def by_partition(case: Case) -> Content:
    more, read, held, excused, _ = case
    if max(more) > 0:
        return Content.MORE
    if min(more) < 0:
        is_excused = all(n >= -m for m, n in zip(more, excused, strict=True))
        return Content.UNKNOWN if is_excused else Content.FEWER
    return by_fingerprint(read, held)


def by_number(case: Case) -> Content:
    more, read, held, excused, has_others = case
    if sum(more) > 0:
        return Content.MORE
    if sum(more) < 0:
        is_excused = sum(excused) >= -sum(more) and not has_others
        return Content.UNKNOWN if is_excused else Content.FEWER
    return by_fingerprint(read, held)


def by_fingerprint(read: str | None, held: str | None) -> Content:
    if None in (read, held):
        return Content.COUNTED
    return Content.EQUAL if read == held else Content.CHANGED


def test_compare_content_by_partition() -> None:
    """Each partition is excused by its own offsets; one without any has what Spark read."""
    for case in CASES:
        found = compared(case, read_counted=True, held_counted=True)
        assert found is by_partition(case), case


@pytest.mark.parametrize(
    ("read_counted", "held_counted"), [(False, True), (True, False), (False, False)]
)
def test_compare_content_by_number(read_counted: bool, held_counted: bool) -> None:
    """A note of an older release excuses nothing if another partition may have lost a record."""
    for case in CASES:
        found = compared(case, read_counted=read_counted, held_counted=held_counted)
        assert found is by_number(case), case


@pytest.mark.parametrize("is_draining", [False, True])
@pytest.mark.parametrize("excuse", [Excuse(), Excuse({T0: 9})])
@pytest.mark.parametrize("fingerprint", [None, A])
def test_compare_content_not_noted(
    is_draining: bool, excuse: Excuse, fingerprint: str | None
) -> None:
    """Without a note, only the drain that is running can still say what Spark read."""
    held = taken((0, 0), fingerprint, is_counted=True)

    found = compare_content(None, held, excuse=excuse, is_draining=is_draining)

    assert found is (Content.PENDING if is_draining else Content.UNKNOWN)


def test_compare_content_partition_unknown_to_one_side() -> None:
    """A partition of which only one side has records counts as well."""
    read = Tally(3, A, {T0: 3})

    assert compare_content(read, Tally(3, A, {T1: 3})) is Content.MORE
    assert compare_content(read, Tally(3, A, {T0: 2, T1: 1})) is Content.MORE
    assert compare_content(read, Tally(2, A, {T0: 2})) is Content.FEWER
    assert compare_content(read, Tally(0, A, {}), excuse=Excuse({T0: 3})) is Content.UNKNOWN
    assert compare_content(Tally(0, A, {}), Tally(0, A, {})) is Content.EQUAL


def test_compare_content_nothing_excused() -> None:
    """Unless it is said otherwise, nothing is excused, and nobody is waited for."""
    assert compare_content(Tally(7, A), Tally(6, A)) is Content.FEWER
    assert compare_content(None, Tally(6, A)) is Content.UNKNOWN


@each_of("reason", [None, *GapReason])
@each_of("gone", [0, 1])
@each_of("is_changed", [False, True])
def test_judge_reread(reason: GapReason | None, gone: int, is_changed: bool) -> None:
    """Equal is only what Kafka holds whole, with no offset at which it may have held more."""
    span = [OffsetRange(3, 5)]
    gaps = [Gap(T0, OffsetRange(0, 1), reason)] if reason else []
    never_read = (None, GapReason.CONTROL, GapReason.ABORTED, GapReason.WINDOW)

    found = judge_reread(Reread({T0: span} if is_changed else {}, gone), gaps)

    if is_changed:
        assert found is Content.CHANGED
    elif gone or reason not in never_read:
        assert found is Content.UNKNOWN
    else:
        assert found is Content.EQUAL


@each_of("verdict", Content)
@each_of("own", [A, None])
@each_of("elsewhere", [0, 3])
@each_of("is_known", [True, False])
def test_fingerprint_to_seal(
    verdict: Content, own: str | None, elsewhere: int, is_known: bool
) -> None:
    """A receipt has the fingerprint of its own files' records, where it was proven."""
    found = fingerprint_to_seal(
        verdict, Tally(7, B) if is_known else None, Tally(4, own), Tally(elsewhere, B)
    )

    if verdict == Content.EQUAL:
        assert found == own
    elif verdict == Content.COUNTED and is_known and elsewhere == 0:
        assert found == B
    else:
        assert found is None


ACCEPTED, EXPIRED, OTHER, WINDOW = (
    (GapReason.EXPIRED, True),
    (GapReason.EXPIRED, False),
    (GapReason.COMPACTED, False),
    (GapReason.WINDOW, False),
)
SomeGap = tuple[TopicPartition, int, int, tuple[GapReason, bool]]


@pytest.mark.parametrize(
    ("gaps", "skipped", "expected"),
    [
        ([], {}, Excuse()),
        ([(T0, 0, 5, ACCEPTED)], {}, Excuse({T0: 5})),
        ([(T0, 0, 5, EXPIRED)], {}, Excuse({}, True)),
        ([(T0, 0, 5, OTHER)], {}, Excuse({}, True)),
        ([(T0, 0, 5, WINDOW)], {}, Excuse()),
        ([(T0, 0, 5, ACCEPTED), (T0, 5, 7, OTHER)], {}, Excuse({T0: 5})),
        ([(T0, 0, 5, ACCEPTED), (T1, 5, 7, OTHER)], {}, Excuse({T0: 5}, True)),
        ([(T0, 0, 5, ACCEPTED), (T1, 5, 7, EXPIRED)], {}, Excuse({T0: 5}, True)),
        ([(T0, 0, 5, ACCEPTED), (T1, 5, 7, WINDOW)], {}, Excuse({T0: 5})),
        ([(T0, 0, 5, ACCEPTED), (T1, 2, 4, ACCEPTED)], {}, Excuse({T0: 5, T1: 2})),
        # The same offsets twice count once.
        ([(T0, 0, 5, ACCEPTED), (T0, 3, 6, ACCEPTED)], {}, Excuse({T0: 6})),
        ([(T0, 0, 5, ACCEPTED)], {T0: [(0, 5)]}, Excuse()),
        ([(T0, 0, 5, ACCEPTED), (T0, 5, 6, OTHER)], {T0: [(0, 5)]}, Excuse({}, True)),
        ([(T0, 0, 5, ACCEPTED)], {T0: [(0, 3)]}, Excuse({T0: 2})),
        ([(T0, 0, 5, ACCEPTED)], {T0: [(3, 9)]}, Excuse({T0: 3})),
        ([(T0, 0, 5, ACCEPTED)], {T0: [(1, 2), (3, 4)]}, Excuse({T0: 3})),
        ([(T0, 0, 5, ACCEPTED)], {T1: [(0, 5)]}, Excuse({T0: 5})),
        ([(T0, 0, 5, ACCEPTED), (T1, 0, 5, ACCEPTED)], {T1: [(0, 4)]}, Excuse({T0: 5, T1: 1})),
    ],
)
def test_excuse_of(
    gaps: list[SomeGap],
    skipped: dict[TopicPartition, list[tuple[int, int]]],
    expected: Excuse,
) -> None:
    """Excused is what somebody accepted as expired, and what Spark may have read before that."""
    found = excuse_of(
        [Gap(tp, OffsetRange(start, end), *why) for tp, start, end, why in gaps],
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
    assert difference(verdict, Tally(2000, A), Tally(1000, B)) == expected


def test_difference_by_partition() -> None:
    """The partitions that lack records, or have too many, are named: at most five."""
    assert difference(Content.FEWER, Tally(9, A, {T0: 6, T1: 3}), Tally(5, B, {T0: 2, T1: 3})) == (
        "has 5 records; Spark read 9: 4 too few of t-0"
    )
    assert difference(Content.MORE, Tally(9, A, {T0: 6, T1: 3}), Tally(9, B, {T0: 5, T1: 4})) == (
        "has 9 records; Spark read 9: 1 too few of t-0, 1 too many of t-1"
    )
    read = {TopicPartition("t", number): 1 for number in range(6)}
    assert difference(Content.FEWER, Tally(6, A, read), Tally(0, B, {})) == (
        "has 0 records; Spark read 6: 1 too few of t-0, 1 too few of t-1, 1 too few of t-2, "
        "1 too few of t-3, 1 too few of t-4, …"
    )
    del read[T0]
    assert difference(Content.FEWER, Tally(5, A, read), Tally(0, B, {})).endswith("of t-5")


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


def held(tp: TopicPartition, records: int, fingerprint: str | None) -> CommittedFile:
    """Return a file with a number of records of one partition."""
    content = FileOffsets(tp, (OffsetRange(0, records),), records)
    return CommittedFile("p", 1, "sha", (content,), fingerprint=fingerprint)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], Tally(0, "0" * 16, {})),
        ([(T0, 3, A)], Tally(3, A, {T0: 3})),
        ([(T0, 3, A), (T0, 4, B)], Tally(7, "0000000000000011", {T0: 7})),
        ([(T0, 3, A), (T1, 4, B)], Tally(7, "0000000000000011", {T0: 3, T1: 4})),
        ([(T0, 3, A), (T0, 4, None)], Tally(7, None, {T0: 7})),
    ],
)
def test_content_of(files: list[tuple[TopicPartition, int, str | None]], expected: Tally) -> None:
    """Counts add up and fingerprints are XORed; one that isn't known leaves the whole unknown."""
    assert content_of(held(*each) for each in files) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([Tally(1, A, {T0: 1}), Tally(2, A)], Tally(3, "0" * 16)),
        ([Tally(1, A), Tally(2, A, {T0: 2})], Tally(3, "0" * 16)),
        ([Tally(1, A, {T0: 1}), Tally(0, B, {})], Tally(1, "0000000000000011", {T0: 1})),
    ],
)
def test_together(parts: list[Tally], expected: Tally) -> None:
    """Counts by partition are known only if they are of each part."""
    assert together(parts) == expected
