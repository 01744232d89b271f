"""Progress lines, by a clock that stands still until it is told to move."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.progress import Progress, Ticker, duration_text, read_progress_line


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (42, "42 s"),
        (59.4, "59 s"),
        (59.6, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.7, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (90000, "25 h 0 min"),
        (172_799, "47 h 59 min"),
        (172_800, "2 days 0 h"),
        (1_000_000_000, "11,574 days 1 h"),
    ],
)
def test_duration_text(seconds: float, expected: str) -> None:
    """Times are written in the two largest units, and never as 60 s or 60 min."""
    assert expected == duration_text(seconds)


@pytest.mark.parametrize(
    ("total", "seconds", "done", "expected"),
    [
        (0, 5, 0, "0 of 0 files (100 %)"),
        (4000, 5, 0, "0 of 4,000 files (0 %)"),
        (4000, 5, 1000, "1,000 of 4,000 files (25 %), 200/s, 15 s left"),
        (4000, 10, 3999, "3,999 of 4,000 files (99 %), 400/s, 0 s left"),
        (4000, 10, 4000, "4,000 of 4,000 files (100 %), 400/s"),
        (3, 100, 1, "1 of 3 files (33 %), 0.6/min, 3 min 20 s left"),
        (200, 100, 100, "100 of 200 files (50 %), 1/s, 1 min 40 s left"),
        (200, 100, 50, "50 of 200 files (25 %), 30/min, 5 min 0 s left"),
        (10, 1, 12, "12 of 12 files (100 %), 12/s"),
    ],
)
def test_progress_line(total: int, seconds: float, done: int, expected: str) -> None:
    """A line tells done of total, percent, rate, and time left while there is some."""
    clock = Clock()
    progress = Progress("files", total, clock)
    clock.now += seconds

    assert progress.line("plan", done) == f"plan: {expected}"
    assert done == progress.done


def test_progress_more_than_planned() -> None:
    """Work that was found on the way stays in the total."""
    clock = Clock()
    progress = Progress("offsets", 10, clock)
    clock.now += 2
    progress.line("plan", 15)

    assert "14 of 15 offsets (93 %)" in progress.line("plan", 14)


@pytest.mark.parametrize(
    ("what", "job", "name"),
    [("drain orders", "drain", "orders"), ("drain", "drain", ""), ("a b c", "a", "b c")],
)
def test_progress_line_named(what: str, job: str, name: str) -> None:
    """A line knows its job and its pipeline."""
    line = Progress("offsets", 10, Clock()).line(what, 5)

    assert (line.what, line.job, line.name) == (what, job, name)


def test_ticker(said: list[str]) -> None:
    """Progress is said every two seconds, however often it is told."""
    clock = Clock()
    ticker = Ticker("read files", Progress("files", 100, clock))

    for done in range(12):
        ticker.at(done)
        clock.now += 0.5

    assert [line.partition(" (")[0] for line in said] == [
        "read files: 4 of 100 files",
        "read files: 8 of 100 files",
    ]


def test_progress_clock_stands_still() -> None:
    """A clock that hasn't moved doesn't divide by zero."""
    progress = Progress("offsets", 10, Clock())

    assert progress.line("plan", 5) == "plan: 5 of 10 offsets (50 %), 5,000/s, 0 s left"
    assert progress.seconds > 0


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.floats(0, 1e7))
def test_progress_percent(total: int, done: int, seconds: float) -> None:
    """100 % is said exactly when everything is done, never before."""
    clock = Clock()
    progress = Progress("offsets", total, clock)
    clock.now += seconds

    assert ("(100 %)" in progress.line("plan", done)) == (done >= total)


@given(
    st.text("abc /.:-1%", min_size=1).filter(lambda text: text == text.strip()),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
    st.floats(0.01, 1e7),
)
def test_read_progress_line_property(what: str, total: int, done: int, seconds: float) -> None:
    """A line carries what it says, and another process reads the same from its text."""
    clock = Clock()
    progress = Progress("source partitions", total, clock)
    clock.now += seconds
    line = progress.line(what, done)

    for at in (line, read_progress_line(f"{line}\n")):
        assert at is not None
        assert at == line
        assert (at.what, at.unit) == (what, "source partitions")
        assert (at.done, at.total) == (done, max(total, done))
        assert (at.percent == 100) == (done >= total)
        assert bool(at.rate) == bool(done)
        assert bool(at.left) == (0 < done < total)


@pytest.mark.parametrize(
    "line",
    ["", "drain a: 100 offsets planned", "WARN 5 of 6 tasks (80 %) failed", "5 of 6 files (83 %)"],
)
def test_read_progress_line_of_others(line: str) -> None:
    """Any other line is none of progress."""
    assert read_progress_line(line) is None
