"""Stretches of time on one axis."""

from __future__ import annotations

import itertools

from hypothesis import example, given
from hypothesis import strategies as st

from kafka_drain.pages.timeline import HIGHEST, MARKS, Stretch, is_of_calendar, marks, time_axis

MOMENTS = st.integers(0, HIGHEST - 1)


@given(MOMENTS, MOMENTS)
def test_marks(one: int, other: int) -> None:
    """Marks lie on the axis, evenly, and there are never too many."""
    first, last = sorted((one, other))

    found = marks(first, last)

    assert len(found) <= MARKS
    assert all(first <= mark <= last for mark in found)
    assert len({after - before for before, after in itertools.pairwise(found)}) <= 1


@given(st.lists(st.tuples(MOMENTS, MOMENTS), min_size=1, max_size=5))
@example([(HIGHEST - 1, HIGHEST - 1)])
def test_time_axis_within(times: list[tuple[int, int]]) -> None:
    """Each stretch is a bar that can be seen, within the drawing."""
    stretches = [Stretch("g", "w", min(pair), max(pair), "covered") for pair in times]

    drawing = time_axis(stretches, "what")

    assert len(drawing.boxes) == len(times)
    for box in drawing.boxes:
        assert box.x >= 190
        assert box.width >= 2
        assert box.x + box.width <= 190 + 760 + 0.02


def test_is_of_calendar() -> None:
    """Kafka's timestamps may be any number; a calendar ends."""
    assert is_of_calendar(0)
    assert not any(is_of_calendar(odd) for odd in (None, -1, HIGHEST, 2**62))
