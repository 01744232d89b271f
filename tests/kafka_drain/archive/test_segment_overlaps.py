"""Which offsets two segments may both claim, and which no segment claims."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from kafka_drain.archive.fold import held_by
from kafka_drain.archive.receipts import FileSet, Receipt, SealedFile, SealedPartition
from kafka_drain.archive.segment_overlaps import (
    Hole,
    OffsetClaim,
    Partition,
    claims_of,
    drained_of,
    find_holes,
    find_overlaps,
    may_overlap,
    stands_for,
)
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.tables import each_of

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def claim(owner: str, start: int, end: int, *stands_for: str, left: int = 0) -> OffsetClaim:
    """A claim on partition 0."""
    return OffsetClaim(owner, "id", P0, OffsetRange(start, end), frozenset(stands_for), left)


@each_of(
    "same, forth, back, twice, left",
    list(product([True, False], [True, False], [True, False], [1, 3], [0, 2, 3])),
)
def test_may_overlap(same: bool, forth: bool, back: bool, twice: int, left: int) -> None:
    """Of one segment, of one that stands for the other's files, or left to a repair: else not."""
    a = claim("g", 0, 10, *(["w"] if forth else []))
    b = claim("g" if same else "w", 0, 10, *(["g"] if back else []))

    assert stands_for(a, b) is stands_for(b, a) is (same or forth or back)
    assert may_overlap(a, b, twice, left) is (same or forth or back or twice <= left)


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        ([], []),
        ([claim("g", 0, 10), claim("w", 10, 20)], []),
        ([claim("g", 0, 10), claim("w", 9, 20)], [("w", "[9, 10), which g holds too")]),
        ([claim("w", 9, 20), claim("g", 0, 10)], [("w", "[9, 10), which g holds too")]),
        ([claim("g", 0, 10), claim("w", 2, 3)], [("w", "[2, 3), which g holds too")]),
        ([claim("g", 0, 10), claim("w", 2, 3, "g")], []),
        # Two windows that stand for one generation don't stand for each other.
        (
            [claim("g", 0, 10), claim("v", 2, 5, "g"), claim("w", 4, 6, "g")],
            [("w", "[4, 5), which v holds too")],
        ),
        ([claim("g", 0, 10, left=2), claim("w", 2, 4)], []),
        ([claim("g", 0, 10, left=2), claim("w", 2, 5)], [("w", "[2, 5), which g holds too")]),
        # What is left to windows is left once.
        (
            [claim("g", 0, 10, left=2), claim("v", 2, 4), claim("w", 5, 6)],
            [("w", "[5, 6), which g holds too")],
        ),
        # Two segments of one generation leave their own each, sealed or not: one or both repaired.
        (
            [
                claim("g", 0, 100, left=5),
                claim("g", 100, 200, left=10),
                claim("v", 10, 15),
                claim("w", 120, 130),
            ],
            [],
        ),
        (
            [claim("g", 0, 100), claim("g", 100, 200, left=10), claim("w", 120, 130)],
            [],
        ),
        # One that reaches over both takes its part of each.
        (
            [claim("g", 0, 100, left=5), claim("g", 100, 200, left=10), claim("w", 95, 110)],
            [],
        ),
        # What the one leaves isn't the other's.
        (
            [claim("g", 0, 100, left=5), claim("g", 100, 200, left=10), claim("w", 10, 20)],
            [("w", "[10, 20), which g holds too")],
        ),
        # A window that stands for the generation's files takes nothing of that.
        ([claim("g", 0, 10, left=2), claim("v", 0, 1, "g"), claim("w", 2, 4)], []),
        (
            [claim("g", 0, 9), claim("w", 1, 2), claim("w", 3, 4)],
            [("w", "[1, 2), [3, 4), which g holds too")],
        ),
        # Behind a short one, a long one still reaches far.
        (
            [claim("g", 0, 99), claim("v", 1, 2, "g"), claim("w", 50, 60)],
            [("w", "[50, 60), which g holds too")],
        ),
    ],
)
def test_find_overlaps(claims: list[OffsetClaim], expected: list[tuple[str, str]]) -> None:
    """Each pair of segments that hold the same offsets is named once, with the offsets."""
    found = find_overlaps(claims)

    assert {finding.reason for finding in found} <= {Reason.SEGMENT_OVERLAP}
    assert [(f.where, f.detail) for f in found] == [
        (where, f"holds t-0 {detail}") for where, detail in expected
    ]


def test_find_overlaps_of_each_partition() -> None:
    """Each partition has its own findings."""
    claims = [OffsetClaim(o, "id", tp, OffsetRange(0, 9)) for tp in (P0, P1) for o in ("g", "w")]

    assert [finding.detail for finding in find_overlaps(claims)] == [
        "holds t-0 [0, 9), which g holds too",
        "holds t-1 [0, 9), which g holds too",
    ]


def test_find_overlaps_elsewhere() -> None:
    """Offsets of another partition, or of a topic that was made again, are other offsets."""
    a = claim("g", 0, 10)
    others = [
        OffsetClaim("w", "id", P1, OffsetRange(0, 10)),
        OffsetClaim("v", "another", P0, OffsetRange(0, 10)),
    ]

    assert find_overlaps([a, *others]) == []


OLD, NEW, OTHER = (P0, "old"), (P0, "new"), (P1, "old")
Drained = dict[Partition, OffsetRange] | None


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


def hole(owner: str, before: str, start: int, end: int) -> Hole:
    return Hole(owner, before, "old", P0, OffsetRange(start, end))


@pytest.mark.parametrize(
    ("generations", "expected"),
    [
        ([], []),
        # The first one starts anywhere, and so does a partition that is drained from now on.
        ([{OLD: R(7, 9)}], []),
        ([{OLD: R(0, 9)}, {OLD: R(9, 12), OTHER: R(5, 6)}], []),
        ([{OLD: R(0, 9)}, {OLD: R(10, 12)}], [hole("b", "a", 9, 10)]),
        # It has drained nothing yet.
        ([{OLD: R(0, 9)}, {OLD: R(10, 10)}], [hole("b", "a", 9, 10)]),
        ([{OLD: R(0, 9)}, {OLD: R(9, 9)}, {OLD: R(12, 13)}], [hole("c", "b", 9, 12)]),
        # One that was left out goes on where it ended.
        ([{OLD: R(0, 9)}, {OTHER: R(0, 1)}, {OLD: R(9, 12)}], []),
        ([{OLD: R(0, 9)}, {OTHER: R(0, 1)}, {OLD: R(11, 12)}], [hole("c", "a", 9, 11)]),
        # Made again, its offsets are others; nor are another partition's the same.
        ([{OLD: R(0, 9)}, {NEW: R(100, 101)}], []),
        ([{OLD: R(0, 9)}, {OTHER: R(100, 101)}], []),
        # An overlap is another finding, and no hole behind it.
        ([{OLD: R(0, 9)}, {OLD: R(3, 5)}, {OLD: R(9, 12)}], []),
        ([{OLD: R(0, 9)}, {OLD: R(3, 5)}, {OLD: R(10, 12)}], [hole("c", "b", 9, 10)]),
        # Nobody can say what the second one drained.
        ([{OLD: R(0, 9)}, None, {OLD: R(20, 21)}], []),
        ([{OLD: R(0, 9)}, None, {OLD: R(20, 21)}, {OLD: R(23, 24)}], [hole("d", "c", 21, 23)]),
        # A hole is one between two generations, once.
        (
            [{OLD: R(0, 9)}, {OLD: R(10, 12)}, {OLD: R(14, 15)}],
            [hole("b", "a", 9, 10), hole("c", "b", 12, 14)],
        ),
    ],
)
def test_find_holes(generations: list[Drained], expected: list[Hole]) -> None:
    """A generation starts where the one ends that drained the partition before it."""
    assert find_holes(zip("abcd", generations, strict=False), {}) == expected


@pytest.mark.parametrize(
    ("accounted", "expected"),
    [
        ([R(9, 20)], []),
        ([R(0, 99)], []),
        ([R(9, 12), R(12, 20)], []),
        ([R(9, 12)], [hole("b", "a", 12, 20)]),
        ([R(12, 20)], [hole("b", "a", 9, 12)]),
        ([R(0, 3), R(12, 15), R(40, 41)], [hole("b", "a", 9, 12), hole("b", "a", 15, 20)]),
    ],
)
def test_find_holes_accounted(accounted: list[OffsetRange], expected: list[Hole]) -> None:
    """What a window holds, or somebody accepts, is no hole; of the same partition and topic."""
    generations: list[tuple[str, Drained]] = [("a", {OLD: R(0, 9)}), ("b", {OLD: R(20, 21)})]

    assert find_holes(generations, {OLD: accounted}) == expected
    assert find_holes(generations, {NEW: accounted, OTHER: accounted}) == [hole("b", "a", 9, 20)]


def receipt(
    name: str,
    *parts: tuple[int, int],
    replaces: tuple[str, ...] = (),
    files: int = 1,
    gaps: dict[GapReason, list[OffsetRange]] | None = None,
    **so_far: Any,
) -> Receipt:
    """A window's receipt; of a generation where the name is a number."""
    number = int(name) if name.isdigit() else None
    owner = f"generations/{number:04d}" if number else f"windows/{name}"
    sealed = [
        SealedPartition.of(
            tp=P0,
            range=R(start, end),
            records=0,
            first=None,
            last=None,
            first_timestamp=None,
            last_timestamp=None,
            gaps={reason: tuple(ranges) for reason, ranges in (gaps or {}).items()},
            kafka=None,
            **({"start_so_far": start, "records_so_far": 0, "gaps_so_far": {}} | so_far),
        )
        for start, end in parts
    ]
    return Receipt(
        pipeline="p",
        cluster_id="c",
        topics={"t": "id"},
        generation=number,
        window="" if number else name,
        first_batch=0,
        last_batch=0,
        sealed_at="",
        previous=None,
        partitions=tuple(sealed),
        files=tuple(SealedFile(f"{owner}/data/{n}", 1, "", ()) for n in range(files)),
        files_so_far=FileSet(),
        replaces=replaces,
    )


def rows(claims: list[OffsetClaim]) -> list[tuple[str, int, int, list[str], int]]:
    assert {(claim.tp, claim.topic_id) for claim in claims} <= {(P0, "id")}
    return [(c.owner, c.range.start, c.range.end, sorted(c.stands_for), c.left) for c in claims]


def test_claims_of_generations() -> None:
    """A generation holds from where it began; what it left to windows is no other gap."""
    gaps = {GapReason.WINDOW: 3, GapReason.CONTROL: 9}
    newest = [
        receipt("1", (40, 50), start_so_far=7, gaps_so_far=gaps),
        # It has drained nothing yet.
        receipt("12", (50, 50)),
        receipt("13", (50, 60), gaps_so_far={GapReason.CONTROL: 9}),
    ]

    assert rows(claims_of(newest, [])) == [
        ("generations/0001", 7, 50, [], 3),
        ("generations/0013", 50, 60, [], 0),
    ]


def test_claims_of_windows() -> None:
    """A window holds what it has drained, without what it says that nobody has.

    What it has erased is its own: no other segment may hold these offsets.
    """
    gaps = {
        GapReason.COMPACTED: [R(2, 4)],
        GapReason.CONTROL: [R(9, 10)],
        GapReason.ERASED: [R(0, 1)],
    }
    windows = [receipt("w", (0, 5), (8, 10), gaps=gaps), receipt("gone", (20, 30), files=0)]

    assert rows(claims_of([], windows)) == [
        ("windows/w", 0, 2, [], 0),
        ("windows/w", 4, 5, [], 0),
        ("windows/w", 8, 9, [], 0),
    ]


@pytest.mark.parametrize("order", [1, -1])
def test_claims_of_windows_replaced(order: int) -> None:
    """A window of whose files others have the place holds nothing; in part, it holds all of it."""
    half, whole = ("windows/a/data/0",), ("windows/a/data/0", "windows/a/data/1")
    a = receipt("a", (0, 9), files=2, replaces=("generations/0001/data/7",))
    for replaces, holds in ((half, ["windows/a", "windows/b"]), (whole, ["windows/b"])):
        b = receipt("b", (0, 9), replaces=replaces)

        found = claims_of([], [a, b][::order])

        assert sorted(claim.owner for claim in found) == holds
        stands = {claim.owner: set(claim.stands_for) for claim in found}
        # By way of the window whose files it replaces, for the generation as well.
        assert stands["windows/b"] == {"windows/a", "generations/0001"}
        assert stands.get("windows/a", {"generations/0001"}) == {"generations/0001"}


def test_claims_of_windows_replaced_in_turn() -> None:
    """However long the chain, a window stands for all below it; one in a ring ends too."""
    chain = [receipt("a", (0, 9), replaces=("generations/0002/data/0",))]
    chain += [
        receipt(name, (0, 9), replaces=(f"windows/{before}/data/0",))
        for before, name in ("ab", "bc", "cd")
    ]
    assert rows(claims_of([], chain)) == [
        ("windows/d", 0, 9, ["generations/0002", "windows/a", "windows/b", "windows/c"], 0)
    ]

    ring = [
        receipt("a", (0, 9), files=2, replaces=("windows/b/data/0",)),
        receipt("b", (0, 9), files=2, replaces=("windows/a/data/0",)),
    ]
    assert {owner: stands for owner, _, _, stands, _ in rows(claims_of([], ring))} == {
        "windows/a": ["windows/a", "windows/b"],
        "windows/b": ["windows/a", "windows/b"],
    }


def test_claims_of_topic_unknown() -> None:
    """A receipt of a release that noted no topic ids counts in a topic of its own."""
    sealed = [replace(receipt(name, (0, 9)), topics={}) for name in ("1", "w")]

    assert {claim.topic_id for claim in claims_of(sealed[:1], sealed[1:])} == {""}
    assert drained_of(sealed[0]) == {(P0, ""): R(0, 9)}
    assert held_by(sealed[1:]) == {(P0, ""): [R(0, 9)]}


def test_drained_of() -> None:
    """A generation has drained from where it began to where its newest receipt ends."""
    assert drained_of(receipt("1", (40, 50), start_so_far=7)) == {(P0, "id"): R(7, 50)}
    assert drained_of(receipt("1", (7, 7))) == {(P0, "id"): R(7, 7)}


def test_held_by_windows() -> None:
    """What windows hold, or say of why nobody does, of all of them."""
    gaps = {GapReason.COMPACTED: [R(2, 4)]}
    windows = [receipt("w", (0, 5), (8, 10), gaps=gaps), receipt("v", (4, 8), (20, 21))]

    assert held_by(windows) == {(P0, "id"): [R(0, 10), R(20, 21)]}


def test_hole_finding() -> None:
    """A hole is told with the generation that goes on behind it, and the one before."""
    detail = "resumes t-0 after [9, 10), which a doesn't hold"

    assert hole("b", "a", 9, 10).finding() == Finding(Reason.SEGMENT_HOLE, "b", detail)
