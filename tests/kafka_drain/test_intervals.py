"""Data intervals: parsing, milliseconds, and names."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.errors import ConfigError
from kafka_drain.intervals import Interval, from_iso, parse_time, time_text

TIMES = st.datetimes(
    min_value=datetime(1970, 1, 1), max_value=datetime(2100, 1, 1), timezones=st.timezones()
)


@given(TIMES, st.integers(min_value=1, max_value=10**9))
def test_interval_milliseconds(start: datetime, milliseconds: int) -> None:
    """Consecutive intervals meet in the same millisecond, in whatever time zone they are said."""
    # In UTC, as an hour later by the clock may be the same time, or none.
    meeting = start.astimezone(timezone.utc) + timedelta(milliseconds=milliseconds)
    middle, end = meeting.astimezone(start.tzinfo), meeting + timedelta(hours=1)

    assert Interval(start, middle).end_ms == Interval(meeting, end).start_ms
    assert Interval(start, middle).key.split("_")[1] == Interval(middle, end).key.split("_")[0]


def test_interval_exact_milliseconds() -> None:
    """A millisecond stays one: no floating point rounds it down."""
    start = datetime(2026, 1, 1, 0, 0, 0, 1000, tzinfo=timezone.utc)

    assert Interval(start, start + timedelta(hours=1)).start_ms % 1000 == 1
    assert Interval(start, start + timedelta(hours=1)).key == (
        "20260101T000000.001Z_20260101T010000.001Z"
    )


def test_interval_of_first_year() -> None:
    """The null date of .NET names a window with four digits of the year."""
    assert Interval.parse(("0001-01-01", "2026-01-01")).key == "00010101T000000Z_20260101T000000Z"


@pytest.mark.parametrize(
    ("text", "microsecond"),
    [
        ("2026-03-01T00:00:00Z", 0),
        ("2026-03-01T00:00:00.5Z", 500_000),
        ("2026-03-01T00:00:00.25+00:00", 250_000),
        ("2026-03-01T00:00:00.1234567Z", 123_456),
    ],
)
def test_from_iso(text: str, microsecond: int) -> None:
    """A second has any number of digits, with every Python."""
    assert from_iso(text) == datetime(2026, 3, 1, 0, 0, 0, microsecond, timezone.utc)


@pytest.mark.parametrize(
    "bounds",
    [
        ("0001-01-01T00:00+14:00", "2026-01-01"),
        ("2026-01-01", "9999-12-31T23:00-02:00"),
        ("2026-01-01", "9999-12-31T23:59:59.9999Z"),
    ],
)
def test_interval_without_date_in_utc(bounds: tuple[str, str]) -> None:
    """A time that no calendar has in UTC is refused."""
    with pytest.raises(ConfigError, match=r"accepted: times from year 1 to year 9999 in UTC"):
        Interval.parse(bounds)


@pytest.mark.parametrize("bounds", [("2026-01-02", "2026-01-01"), ("2026-01-01", "2026-01-01")])
def test_interval_empty(bounds: tuple[str, str]) -> None:
    """An interval that ends before it begins, or holds nothing, is refused."""
    with pytest.raises(ConfigError, match="is empty"):
        Interval.parse(bounds)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "12:00"])
def test_parse_time_refused(text: str) -> None:
    """What is no time is refused by its name, with an example."""
    with pytest.raises(ConfigError, match=r"start = .* accepted: a date or time such as"):
        parse_time("start", text)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        # Microseconds that somebody took for milliseconds.
        (1_700_000_000_000_000, "1700000000000000 ms since 1970"),
        (-(1 << 63), "-9223372036854775808 ms since 1970"),
    ],
)
def test_time_text(milliseconds: int, text: str) -> None:
    """A record's time is written as it is, also where no calendar has it."""
    assert time_text(milliseconds) == text
