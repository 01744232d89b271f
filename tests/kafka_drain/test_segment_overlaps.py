"""Which offsets two segments may both claim."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.findings import Reason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.segment_overlaps import Claim, find_overlaps, may_overlap, stands_for

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def claim(owner: str, start: int, end: int, *stands_for: str, left: int = 0) -> Claim:
    """A claim on partition 0."""
    return Claim(owner, "id", P0, OffsetRange(start, end), frozenset(stands_for), left)


@pytest.mark.parametrize(
    ("same", "forth", "back", "twice", "left"),
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
        ([claim("g", 0, 10), claim("w", 9, 20)], [("w", "[9, 10), as g")]),
        ([claim("w", 9, 20), claim("g", 0, 10)], [("w", "[9, 10), as g")]),
        ([claim("g", 0, 10), claim("w", 2, 3)], [("w", "[2, 3), as g")]),
        ([claim("g", 0, 10), claim("w", 2, 3, "g")], []),
        # Two windows that stand for one generation don't stand for each other.
        (
            [claim("g", 0, 10), claim("v", 2, 5, "g"), claim("w", 4, 6, "g")],
            [("w", "[4, 5), as v")],
        ),
        ([claim("g", 0, 10, left=2), claim("w", 2, 4)], []),
        ([claim("g", 0, 10, left=2), claim("w", 2, 5)], [("w", "[2, 5), as g")]),
        # What is left to windows is left once.
        (
            [claim("g", 0, 10, left=2), claim("v", 2, 4), claim("w", 5, 6)],
            [("w", "[5, 6), as g")],
        ),
        # Two segments of one generation leave their own each, sealed or not: one, or both, mended.
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
            [("w", "[10, 20), as g")],
        ),
        # A window that stands for the generation's files takes nothing of that.
        ([claim("g", 0, 10, left=2), claim("v", 0, 1, "g"), claim("w", 2, 4)], []),
        (
            [claim("g", 0, 9), claim("w", 1, 2), claim("w", 3, 4)],
            [("w", "[1, 2), [3, 4), as g")],
        ),
        # Behind a short one, a long one still reaches far.
        (
            [claim("g", 0, 99), claim("v", 1, 2, "g"), claim("w", 50, 60)],
            [("w", "[50, 60), as g")],
        ),
    ],
)
def test_find_overlaps(claims: list[Claim], expected: list[tuple[str, str]]) -> None:
    """Each pair of segments that hold the same offsets is named once, with the offsets."""
    found = find_overlaps(claims)

    assert {finding.reason for finding in found} <= {Reason.SEGMENT_OVERLAP}
    assert [(f.where, f.detail) for f in found] == [
        (where, f"holds t-0 {detail} does") for where, detail in expected
    ]


def test_find_overlaps_elsewhere() -> None:
    """Offsets of another partition, or of a topic that was made again, are other offsets."""
    a = claim("g", 0, 10)
    others = [
        Claim("w", "id", P1, OffsetRange(0, 10)),
        Claim("v", "another", P0, OffsetRange(0, 10)),
    ]

    assert find_overlaps([a, *others]) == []
