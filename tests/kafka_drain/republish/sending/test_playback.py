"""When records are due that are sent in their own time."""

from __future__ import annotations

from itertools import accumulate
from math import inf

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.republish.sending.playback import CATCH_UP_SECONDS, Playback, due
from kafka_drain.republish.sending.shard_sender import _rows_due

NOON = 1_357_041_600_000
timestamps = st.integers(-1, 4_000_000_000_000)


class Clock:
    """Seconds that pass when the test says so."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def started(clock: Clock, pace: float = 1.0, first: int = NOON) -> Playback:
    playback = Playback(pace, 1, clock)
    playback.join("a", first)
    return playback


@pytest.mark.parametrize(
    ("timestamp", "pace", "expected"),
    [
        (NOON, 1, 100.0),
        (NOON + 2_500, 1, 102.5),
        (NOON + 2_500, 10, 100.25),
        (NOON + 2_500, 0.1, 125.0),
    ],
)
def test_due(timestamp: int, pace: float, expected: float) -> None:
    """The gaps between timestamps are kept, scaled by the pace."""
    assert due(timestamp, NOON, 100.0, pace) == expected


@pytest.mark.parametrize(
    ("now", "expected"), [(0, 0), (1, 2), (4.9, 2), (5, 4), (8, 4), (9, 5), (1e300, 5)]
)
def test_rows_due(now: float, expected: int) -> None:
    """A record that isn't due keeps back those after it, whatever their timestamps."""
    assert _rows_due(pa.array([1, 0, 5, 2, 9], pa.int64()), now) == expected


@given(st.lists(timestamps, min_size=1), st.floats(-1, 4e12))
def test_rows_due_property(found: list[int], now: float) -> None:
    """As many are due as have a running maximum that is reached."""
    reached = [highest for highest in accumulate(found, max) if highest <= now]

    assert _rows_due(pa.array(found, pa.int64()), now) == len(reached)


@given(st.lists(st.integers(-1, 9_000), min_size=1, max_size=9), st.floats(0.5, 1e4))
def test_left_property(found: list[int], pace: float) -> None:
    """Who waits as long as is left sends each record in its time, and never before another."""
    clock = Clock()
    playback = started(clock, pace, found[0])
    sent = []
    for highest in accumulate(found, max):
        while (left := playback.left(highest)) > 0:
            clock.now += min(left, 1.0)
        sent.append((highest, clock.now))

    assert [at for _, at in sent] == sorted(at for _, at in sent)
    for highest, at in sent:
        assert at - 100 == pytest.approx((highest - found[0]) / 1000 / pace, abs=1e-3)


def test_join_starts_with_the_last(clock: Clock) -> None:
    """The clock starts once all writers are ready, at the earliest of what they begin with."""
    playback = Playback(2.0, 3, clock)
    playback.join("a", NOON + 4_000)
    playback.join("a", NOON + 4_000)
    clock.now += 1_000
    playback.join("b", None)

    assert playback.now() == -inf
    assert playback.left(NOON) > 0
    playback.join("c", NOON)
    assert (playback.now(), playback.left(NOON), playback.left(NOON + 4_000)) == (NOON, 0, 2)
    playback.join("d", 0)
    assert playback.now() == NOON


def test_join_nothing_left(clock: Clock) -> None:
    """If nobody has anything left, it starts with who comes later."""
    playback = Playback(1.0, 2, clock)
    playback.join("a", None)
    playback.join("b", None)
    assert playback.now() == -inf

    playback.join("a", NOON)
    assert playback.now() == NOON


def test_left_catches_up(clock: Clock) -> None:
    """A short stall is caught up with: the clock goes on."""
    playback = started(clock)
    clock.now += CATCH_UP_SECONDS

    assert playback.left(NOON) == -CATCH_UP_SECONDS
    assert playback.left(NOON + 6_000) == pytest.approx(1)


def test_left_all_stopped(clock: Clock) -> None:
    """Time in which nobody asked, as all were stopped, doesn't count for any."""
    playback = started(clock)
    clock.now += 1
    before = playback.now(), playback.left(NOON + 500), playback.left(NOON + 7_000)
    clock.now += 600

    assert (playback.now(), playback.left(NOON + 500), playback.left(NOON + 7_000)) == before


def test_left_one_late(clock: Clock) -> None:
    """One that is late, while others aren't, sets the clock back for all."""
    playback = started(clock)
    for _ in range(600):
        clock.now += 1
        assert playback.left(NOON + 700_000) == pytest.approx(800 - clock.now)

    assert playback.left(NOON + 1_000) == 0
    assert playback.now() == pytest.approx(NOON + 1_000)
    assert playback.left(NOON + 700_000) == pytest.approx(699)


@pytest.mark.parametrize(("writers", "seconds"), [(1, 1.0), (20, 1.0), (64, 3.2)])
def test_commit_seconds(writers: int, seconds: float) -> None:
    """Many writers commit less often: at most twenty transactions begin per second."""
    assert Playback(1.0, writers).commit_seconds == seconds
