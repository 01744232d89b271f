"""What a roll leaves behind, takes back, or refuses: every combination."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.roll import (
    WindowFate,
    given_up,
    judge_window,
    may_lose,
    never_sealed,
)

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
R = OffsetRange


@pytest.mark.parametrize(
    ("recreated", "last_read", "expected"),
    [
        ([], None, False),
        ([], 3, False),
        ([], 4, False),
        (["a"], None, True),
        (["a"], 3, True),
        (["a"], 4, False),
    ],
)
def test_never_sealed(recreated: list[str], last_read: int | None, expected: bool) -> None:
    """Unsealed batches stand in a roll's way unless nobody can say which topic they are of."""
    assert never_sealed(recreated, last_read, last_sealed=3) is expected


@pytest.mark.parametrize(
    ("first", "ranges", "expected"),
    [
        # Of a topic that is gone or was made again, all.
        (None, [R(3, 5), R(7, 9)], [R(3, 5), R(7, 9)]),
        (0, [R(3, 5)], []),
        (3, [R(3, 5)], []),
        (4, [R(3, 5)], [R(3, 4)]),
        (5, [R(3, 5)], [R(3, 5)]),
        (6, [R(3, 5), R(7, 9)], [R(3, 5)]),
        (8, [R(3, 5), R(7, 9)], [R(3, 5), R(7, 8)]),
        (99, [R(3, 5), R(7, 9)], [R(3, 5), R(7, 9)]),
        (4, [], []),
    ],
)
def test_given_up(
    first: int | None, ranges: list[OffsetRange], expected: list[OffsetRange]
) -> None:
    """What Kafka no longer has is given up, of each partition by itself."""
    starts = {P1: 50} | ({} if first is None else {P0: first})

    found = given_up(starts, {P0: ranges, P1: [R(60, 70)]})

    assert found == ({P0: expected} if expected else {})


@pytest.mark.parametrize(
    ("changed", "missing", "expected"),
    [
        ({}, {}, {}),
        ({P1: [R(7, 9)]}, {}, {P1: [R(7, 9)]}),
        ({}, {P0: [R(3, 4)]}, {P0: [R(3, 4)]}),
        ({P0: [R(4, 10)]}, {P0: [R(3, 4)], P1: [R(7, 8)]}, {P0: [R(3, 5)], P1: [R(7, 8)]}),
        # Whole blocks are compared, beyond what the files have.
        ({P0: [R(4, 4096)], P1: [R(0, 4096)]}, {}, {P0: [R(4, 5)], P1: [R(7, 9)]}),
    ],
)
def test_may_lose(changed: Any, missing: Any, expected: Any) -> None:
    """Records that Kafka no longer has, or has others in place of, are the archive's only ones."""
    assert may_lose({P0: [R(3, 5)], P1: [R(7, 9)]}, changed, missing) == expected


STAYS, GOES, TORN = WindowFate


@pytest.mark.parametrize(
    ("start", "stop", "end", "first", "expected", "beside"),
    [
        # Of a partition that isn't drained any more, or of a topic that was made again.
        (120, 130, None, 0, STAYS, TORN),
        # Sealed before the next generation starts.
        (80, 100, 100, 0, STAYS, GOES),
        (80, 100, 100, 80, STAYS, GOES),
        (80, 100, 100, 81, STAYS, TORN),
        (80, 101, 100, 80, GOES, GOES),
        (80, 101, 100, 81, TORN, TORN),
        (120, 130, 100, 0, GOES, GOES),
        (120, 130, 100, 120, GOES, GOES),
        (120, 130, 100, 121, TORN, TORN),
        (120, 130, 100, 129, TORN, TORN),
        # Nothing of it is drained again: the window has the only copy.
        (120, 130, 100, 130, STAYS, TORN),
        (120, 130, 100, 200, STAYS, TORN),
    ],
)
def test_judge_window(
    start: int, stop: int, end: int | None, first: int, expected: WindowFate, beside: WindowFate
) -> None:
    """A window goes where some is drained again and Kafka has all; one with the only copy stays."""
    part, drained_again = (R(start, stop), end, first), (R(120, 130), 100, 0)

    assert judge_window([part]) is expected
    assert judge_window([part, drained_again]) is judge_window([drained_again, part]) is beside


def test_judge_window_empty() -> None:
    """A window that holds nothing stays."""
    assert judge_window([]) is STAYS
