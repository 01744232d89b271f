"""A time divides a partition's offsets, whatever clock one of its producers had."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.time_bounds import LOOKAHEAD, TimeBounds, divide, may_hide
from tests.kafka_drain.fake_cluster import FakeCluster, Log

P = TopicPartition("t", 0)
#: Records of later times than this one are from the future.
NOW = 1_000
FUTURE = 58_709_000


def bounds(times: list[int], first: int = 0, end: int | None = None, step: int = NOW) -> TimeBounds:
    """Return the bounds of a partition whose records have some times, from an offset on."""
    log = {first + n: time for n, time in enumerate(times)}
    last = first + len(times) if end is None else end
    cluster: Any = FakeCluster({P: Log(first, last, times=log)}, contents=_rows(log))
    return TimeBounds(cluster, {P: first}, {P: last}, NOW, step)


def _rows(log: dict[int, int]) -> Any:
    return lambda tp, span: [
        {"topic": tp.topic, "partition": tp.partition, "offset": at, "timestamp": time * 1000}
        for at, time in log.items()
        if at in span
    ]


def at(times: list[int], time: int, **options: Any) -> int:
    return bounds(times, **options).of(time, [P], {})[P]


@pytest.mark.parametrize(
    ("times", "time", "expected"),
    [
        # in order
        ([1, 2, 3], 0, 0),
        ([1, 2, 3], 2, 1),
        ([1, 2, 3], 4, -1),
        ([1, 2, 2, 2, 3], 2, 1),
        # one record ahead hides nothing
        ([1, 9, 2, 3], 2, 1),
        ([1, 9, 2, 3], 3, 3),
        ([1, 9, 2, 3], 1, 0),
        ([1, 9, 9, 2, 9, 3], 3, 4),
        ([9, 1], 5, 2),
        # from the future: with what it follows
        ([1, FUTURE, 2, 3], 2, 2),
        ([1, 2, FUTURE], 2, 1),
        ([1, 2, FUTURE], 3, 3),
        ([1, FUTURE, FUTURE, 5], 3, 3),
        # nothing to follow: with what follows it
        ([FUTURE, 1, 2], 1, 0),
        ([FUTURE, 1, 2], 2, 2),
        ([FUTURE, FUTURE], 2, 0),
        # without a time
        ([-1, 1, 2], 2, 2),
        ([1, 9, -1, 2], 3, 4),
        ([-1, -1], 1, -1),
    ],
)
def test_bounds(times: list[int], time: int, expected: int) -> None:
    """A record ahead of others stays with those that it lies among."""
    assert at(times, time) == expected


def test_bounds_lookahead() -> None:
    """So many later records in a row hide earlier ones; one less doesn't."""
    assert at([9] * (LOOKAHEAD + 1) + [1], 5) == 0
    assert at([9] * LOOKAHEAD + [1], 5) == LOOKAHEAD + 1


def test_bounds_beyond_end() -> None:
    """What lies behind the search's end is neither read nor changed."""
    assert at([1, 9, 2], 2, end=1) == 1


@pytest.mark.parametrize(("step", "expected"), [(5, 3), (4, 3), (6, 0)])
def test_bounds_several_ahead(step: int, expected: int) -> None:
    """A wrong clock that goes on ticking is noticed if it is ahead by an interval."""
    assert at([10, 11, 1, 12], 5, step=step) == expected


def test_bounds_known() -> None:
    """What a bound of an earlier time is known for isn't read again."""
    found = bounds([9, 1, 1, 2, 3])

    assert found.of(3, [P], {P: 3}) == {P: 4}


@pytest.mark.parametrize(
    ("found", "next_later", "end", "expected"),
    [
        ((5, 10), 6, 9, False),
        ((5, 10), -1, 6, False),
        ((5, 10), 7, 9, True),
        ((5, 10), -1, 9, True),
        ((5, 10), 9, 6, False),
        ((5, 19), 6, 9, False),
        ((5, 20), 6, 9, True),
    ],
)
def test_may_hide(found: tuple[int, int], next_later: int, end: int, expected: bool) -> None:
    """Records are read where some follow that aren't later, and behind one that is very late."""
    assert may_hide(found, next_later, end, before=20) is expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1, 2, 3], []),
        ([], []),
        ([FUTURE, FUTURE], [OffsetRange(7, 9)]),
        ([FUTURE, 1, FUTURE], []),
        ([-1, -1], [OffsetRange(7, 9)]),
        ([-1, 1], [OffsetRange(7, 8)]),
        ([-1, FUTURE], [OffsetRange(7, 8)]),
    ],
)
def test_of_no_interval(times: list[int], expected: list[OffsetRange]) -> None:
    """Only what no record with a time up to now is next to belongs to no interval."""
    assert bounds(times, first=7).of_no_interval().get(P, []) == expected


@given(
    st.lists(st.integers(0, 30) | st.just(FUTURE), max_size=40),
    st.integers(1, 6),
    st.integers(1, 6) | st.just(NOW),
)
def test_bounds_tile(times: list[int], length: int, step: int) -> None:
    """Whatever the order, intervals hold every offset; each once, if no clock was wrong."""
    found = bounds(times, step=step)
    divided = [found.of(edge, [P], {})[P] for edge in range(0, 36 + length, length)]
    ends = [end if end >= 0 else len(times) for end in divided]
    held = [offset for a, b in pairwise(ends) for offset in range(a, b)]
    left = [o for r in found.of_no_interval().get(P, []) for o in range(r.start, r.end)]

    assert {*held, *left} == {*range(len(times))}
    if step == NOW and FUTURE not in times:
        assert held == [*range(len(times))]


@given(st.lists(st.integers(0, 30) | st.just(FUTURE), max_size=40), st.integers(0, 30))
def test_divide(times: list[int], time: int) -> None:
    """Within the lookahead, no record behind the bound is earlier than the time."""
    first = next((n for n, t in enumerate(times) if t >= time), len(times))
    records = list(enumerate(times))[first:]

    divided = divide(records, time, first=first, earliest=0, now=NOW)

    assert divided >= first
    assert all(t >= time for t in times[divided:])
