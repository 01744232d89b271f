"""A time divides a partition's offsets, whatever clock one of its producers had."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.time_bounds import LOOKAHEAD, TimeBounds, divide, is_divide
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.tables import each_of

P = TopicPartition("t", 0)
#: Records of later times than this one are from the future.
NOW = 1_000
FUTURE = 58_709_000


def bounds(times: list[int], first: int = 0, end: int | None = None) -> TimeBounds:
    """Return the bounds of a partition whose records have some times, from an offset on."""
    log = {first + n: time for n, time in enumerate(times)}
    last = first + len(times) if end is None else end
    cluster: Any = FakeCluster({P: Log(first, last, times=log)}, contents=_rows(log))
    return TimeBounds(cluster, {P: first}, {P: last}, NOW)


def _rows(log: dict[int, int]) -> Any:
    return lambda tp, span: [
        {"topic": tp.topic, "partition": tp.partition, "offset": at, "timestamp": time * 1000}
        for at, time in log.items()
        if at in span
    ]


def at(times: list[int], time: int, **options: Any) -> int:
    return bounds(times, **options).of(time, [P], {})[P]


@each_of(
    "times, time, expected",
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
        # a late one stays with those that it lies among, too
        ([1, 9, 9, 2, 9, 3], 3, 1),
        ([1, 9, 9, 2, 2, 2, 3], 3, 6),
        ([5, 6, 2, 7, 8], 4, 0),
        ([5, 2, 6, 7, 8], 4, 2),
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
        # neither is one from now
        ([1, NOW], 2, 1),
        # without a time
        ([-1, 1, 2], 2, 2),
        ([1, 9, -1, 2], 3, 4),
        ([-1, -1], 1, -1),
    ],
)
def test_bounds(times: list[int], time: int, expected: int) -> None:
    """A record ahead of others stays with those that it lies among."""
    assert at(times, time) == expected


@pytest.mark.parametrize("ahead", [LOOKAHEAD // 2, LOOKAHEAD // 2 + 1])
@pytest.mark.parametrize("more", [0, 3 * LOOKAHEAD])
def test_bounds_lookahead(ahead: int, more: int) -> None:
    """As many records ahead as half of those that are looked at hide none; one more does."""
    times = [9] * ahead + [1] * (LOOKAHEAD + more) + [5, 6]

    assert at(times, 5) == (0 if ahead > LOOKAHEAD // 2 else len(times) - 2)


def test_bounds_found_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that a service finds by its time, though it has deleted it, divides nothing."""
    found = bounds([5, 6, 7], first=10)
    monkeypatch.setattr(found.cluster, "first_since", lambda times: dict.fromkeys(times, (3, 4)))

    assert found.of(4, [P], {}) == {P: 10}


def test_bounds_beyond_end() -> None:
    """What lies behind the search's end is neither read nor changed."""
    assert at([1, 9, 2], 2, end=1) == 1


def test_bounds_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a bound of an earlier time is known for isn't read again."""
    found = bounds([9, 1, 1, 2, 3])
    asked: list[Any] = []
    times_from = found.cluster.times_from

    def spy(*args: Any) -> Any:
        asked.append(args)
        return times_from(*args)

    monkeypatch.setattr(found.cluster, "times_from", spy)

    assert found.of(3, [P], {P: 3}) == {P: 4}
    assert asked == [({P: 3}, LOOKAHEAD + 1, {P: 5})]


@each_of("count", [LOOKAHEAD, LOOKAHEAD + 1, LOOKAHEAD + 2, 3 * LOOKAHEAD])
@each_of("end", [50, 2 * LOOKAHEAD, 2 * LOOKAHEAD + 1, 2 * LOOKAHEAD + 2, 999])
@each_of("step", [1, 2])
def test_bounds_read_on(count: int, end: int, step: int) -> None:
    """Records that one request doesn't have are read when they are needed, each once."""
    log = {step * n: n for n in range(count)}
    cluster: Any = FakeCluster({P: Log(0, 999, times=log)}, contents=_rows(log))
    found = TimeBounds(cluster, {P: 0}, {P: end}, NOW)

    [next_ones] = cluster.times_from({P: 0}, LOOKAHEAD + 1, {P: end}).values()

    assert [*found._from(P, next_ones)] == [(at, n) for at, n in log.items() if at < end]


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ([], True),
        ([0], False),
        ([5], True),
        ([4], False),
        ([5, 4], True),
        ([5, 4, 4], False),
        ([9, 4, 9, 4, 4], False),
        ([9, 4, 4, 9, 9, 9], False),
        ([9, 9, 4, 4, 9], True),
        ([-1, -1], True),
        ([-1, 4, 9], False),
        ([9, -1, 4], True),
    ],
)
def test_is_divide(behind: list[int], expected: bool) -> None:
    """Never are more than half of the next records earlier; one without a time doesn't count."""
    assert is_divide(behind, 5) is expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([1, 2, 3], []),
        ([], []),
        ([FUTURE, FUTURE], [OffsetRange(7, 9)]),
        ([FUTURE, 1, FUTURE], []),
        ([-1, -1], [OffsetRange(7, 9)]),
        ([-1, 1], [OffsetRange(7, 8)]),
        ([-1, FUTURE], [OffsetRange(7, 9)]),
    ],
)
def test_of_no_interval(times: list[int], expected: list[OffsetRange]) -> None:
    """Only what no record with a time up to now is next to belongs to no interval."""
    assert bounds(times, first=7).of_no_interval().get(P, []) == expected


#: Times in no order, with some from the future and some unknown; also so many that it reads on.
TIMES = st.lists(st.integers(0, 30) | st.sampled_from((FUTURE, -1)), max_size=40) | st.lists(
    st.integers(0, 30), min_size=LOOKAHEAD, max_size=2 * LOOKAHEAD
)


def test_of_no_interval_without_records() -> None:
    """Offsets without a record, such as markers, in front of all others belong to none either."""
    log = {7: 1, 8: 2}
    cluster: Any = FakeCluster({P: Log(5, 9, times=log)}, contents=_rows(log))

    assert TimeBounds(cluster, {P: 5}, {P: 9}, NOW).of_no_interval() == {}


@pytest.mark.parametrize(
    ("times", "expected"),
    [([FUTURE, 0, FUTURE], 3), ([FUTURE, -1, FUTURE], 0), ([FUTURE, 0, 2], 2)],
)
def test_divide_from_future(times: list[int], expected: int) -> None:
    """What is dated after now follows the first record with a time."""
    found = divide(enumerate(times), 1, end=len(times), is_first=True, now=NOW)

    assert found == expected


@given(TIMES, st.integers(1, 6))
def test_bounds_tile(times: list[int], length: int) -> None:
    """Whatever the order, intervals hold every offset once, or it is named.

    Also if they are asked in any order, and without knowing each other's bounds.
    """
    found = bounds(times)
    divided = [found.of(edge, [P], {})[P] for edge in range(0, 36 + length, length)]
    ends = [end if end >= 0 else len(times) for end in divided]
    held = [offset for a, b in pairwise(ends) for offset in range(a, b)]
    left = [o for r in found.of_no_interval().get(P, []) for o in range(r.start, r.end)]

    assert ends == sorted(ends)
    assert sorted([*held, *left]) == [*range(len(times))]


@given(TIMES, st.integers(0, 30), st.integers(0, 30))
def test_bounds_known_property(times: list[int], time: int, later: int) -> None:
    """What is known of an earlier bound saves reading, and changes nothing."""
    found = bounds(times)
    known = found.of(min(time, later), [P], {})

    again = found.of(max(time, later), [P], known if known[P] >= 0 else {})

    assert again == found.of(max(time, later), [P], {})


@given(TIMES, st.integers(0, 30))
def test_divide(times: list[int], time: int) -> None:
    """It is the first record that divides, by brute force."""
    records = list(enumerate(times))
    expected = next(
        (
            offset
            for offset, at in records
            if at >= time
            and (at <= NOW or not any(0 <= t <= NOW for t in times[:offset]))
            and is_divide(times[offset + 1 : offset + 1 + LOOKAHEAD], time)
        ),
        len(times),
    )

    assert divide(records, time, end=len(times), is_first=True, now=NOW) == expected


def test_of_no_interval_reads_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """One record from the future doesn't make it read all that follows."""
    found = bounds([1, FUTURE] + [2] * 3 * LOOKAHEAD)
    monkeypatch.setattr(found.cluster, "records", lambda *_: pytest.fail("reads on"))

    assert found.of_no_interval() == {}
