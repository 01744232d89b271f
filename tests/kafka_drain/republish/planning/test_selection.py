"""Selections: what people ask for is read, refused or kept as it was meant."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.errors import ConfigError
from kafka_drain.intervals import time_text
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.republish.planning.selection import Rows, Selection, parse_time

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


# times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01", 0),
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T00:00:01", 1000),
        ("1970-01-01 00:00:01.250Z", 1250),
        (" 1970-01-01T00:00:00.001Z\n", 1),
        ("1970-01-01T00:00:00.000001Z", 1),
        ("1970-01-01T00:00:00.001000Z", 1),
        ("1970-01-01T00:00:00.001001Z", 2),
        ("1970-01-01T02:00:00+02:00", 0),
        ("1970-01-01T00:00:00-05:30", 19_800_000),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1969-12-31T23:59:59.999500Z", 0),
        ("1969-12-31T23:59:59.998001Z", -1),
        ("2026-11-21T13:45:00.250Z", 1_795_268_700_250),
    ],
)
def test_parse_time(text: str, expected: int) -> None:
    """A time is in UTC unless it names a zone, and is rounded up to a whole millisecond."""
    assert expected == parse_time("from_time", text)


def test_parse_time_datetime() -> None:
    """A datetime is taken as it is, in UTC where it has no zone."""
    zone = timezone(timedelta(hours=1))

    assert parse_time("from_time", datetime(1970, 1, 2)) == 86_400_000
    assert parse_time("from_time", datetime(1970, 1, 2, tzinfo=zone)) == 82_800_000


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "1700000000000", "12:00"])
def test_parse_time_bad(text: str) -> None:
    """What is no time is refused, with an example of one."""
    with pytest.raises(ConfigError, match=rf"to_time = '{text}' .* such as 2026-11-21T13:45"):
        parse_time("to_time", text)


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_time_text_property(ms: int) -> None:
    """A time that was written is read again as the same one."""
    assert ms == parse_time("from_time", time_text(ms))


@given(st.datetimes(timezones=st.timezones()))
def test_parse_time_property(value: datetime) -> None:
    """The millisecond found is the first one that isn't before the time."""
    ms = parse_time("from_time", value)
    microseconds = (value - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)

    assert (ms - 1) * 1000 < microseconds <= ms * 1000


# selections


def test_selection_nothing_asked() -> None:
    """Nothing asked for is everything."""
    selection = Selection.of()

    assert selection.rows(T0) == Rows()
    assert selection.to_dict() == {}


def test_selection_topics_partitions() -> None:
    """Topics and partitions both have to fit; each is kept once."""
    selection = Selection.of(topics=["t", "u", "t"], partitions=["1", 0, 1])

    assert (selection.topics, selection.partitions) == (("t", "u"), (0, 1))
    assert selection.rows(T1) == Rows()
    assert selection.rows(TopicPartition("t", 2)) is None
    assert selection.rows(TopicPartition("v", 0)) is None


def test_selection_offsets() -> None:
    """Offset ranges are merged by partition; partitions without one aren't wanted."""
    selection = Selection.of(offsets=["t:0:5-9", "a.b-c_d:1:0-1", "t:0:20-30", "t:0:9-12"])

    assert selection.rows(T0) == Rows((R(5, 12), R(20, 30)))
    assert selection.rows(TopicPartition("a.b-c_d", 1)) == Rows((R(0, 1),))
    assert selection.rows(T1) is None


def test_selection_times() -> None:
    """Times go for each partition; an interval may be empty."""
    selection = Selection.of(from_time="1970-01-01T00:00:01Z", to_time="1970-01-01T00:00:01Z")

    assert selection.rows(U0) == Rows(None, 1000, 1000)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"partitions": ["x"]}, "partition = 'x' is not acceptable"),
        ({"partitions": [-1]}, "partition = -1 is not acceptable"),
        ({"offsets": ["t:0"]}, "offsets = 't:0' is not acceptable; accepted: topic:partition"),
        ({"offsets": ["t:0:5-5"]}, "offsets = 't:0:5-5'"),
        ({"offsets": ["t:0:9-5"]}, "offsets = 't:0:9-5'"),
        ({"offsets": ["t:-1:0-5"]}, "offsets = 't:-1:0-5'"),
        ({"offsets": ["a b:0:0-5"]}, "offsets = 'a b:0:0-5'"),
        ({"from_time": "soon"}, "from_time = 'soon' is not acceptable"),
        ({"to_time": "soon"}, "to_time = 'soon' is not acceptable"),
        (
            {"from_time": "2026-01-02", "to_time": "2026-01-01"},
            "from_time = 2026-01-02 is after to_time = 2026-01-01",
        ),
    ],
)
def test_selection_bad(asked: dict[str, Any], message: str) -> None:
    """What isn't acceptable is refused by its name, with what was seen."""
    with pytest.raises(ConfigError, match=message):
        Selection.of(**asked)


def test_selection_to_dict() -> None:
    """What was asked for is written as it can be asked for again."""
    asked: dict[str, Any] = {
        "topics": ["t", "u"],
        "partitions": [0, 3],
        "offsets": ["t:0:5-9", "t:0:20-30", "u:3:0-1"],
        "from_time": "2026-01-01T00:00:00.000Z",
        "to_time": "2026-01-02T00:00:00.250Z",
    }
    selection = Selection.of(**asked)

    assert asked == selection.to_dict()
    assert Selection.of(**selection.to_dict()) == selection


# rows

bounds = st.none() | st.integers(0, 12)
spans = st.tuples(st.integers(0, 12), st.integers(0, 12)).map(lambda pair: sorted(pair))


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    drawn = draw(st.none() | st.lists(spans, max_size=3))
    ranges = None if drawn is None else tuple(merge(R(a, b) for a, b in drawn))
    from_ms, to_ms = draw(bounds), draw(bounds)
    if from_ms is not None and to_ms is not None and from_ms >= to_ms:
        to_ms = from_ms + 1
    return Rows(ranges, from_ms, to_ms)


def is_wanted(rows: Rows, offset: int, ms: int) -> bool:
    return (
        (rows.ranges is None or any(offset in r for r in rows.ranges))
        and (rows.from_ms is None or rows.from_ms <= ms)
        and (rows.to_ms is None or ms < rows.to_ms)
    )


@given(rows(), spans, spans)
def test_rows_property(wanted: Rows, offsets: list[int], times: list[int]) -> None:
    """Bounds say that none or all records are wanted when that holds for each possible one."""
    [first, last], [first_ms, last_ms] = offsets, times
    possible = [
        is_wanted(wanted, offset, ms)
        for offset in range(first, last + 1)
        for ms in range(first_ms, last_ms + 1)
    ]

    assert all(possible) == wanted.all_of(first, last, first_ms, last_ms)
    assert (not any(possible)) == wanted.none_of(first, last, first_ms, last_ms)


@given(rows(), spans)
def test_rows_unknown_times_property(wanted: Rows, offsets: list[int]) -> None:
    """Unknown timestamps decide nothing: neither all nor none, where times are asked for."""
    first, last = offsets
    some = [is_wanted(Rows(wanted.ranges), offset, 0) for offset in range(first, last + 1)]

    assert (all(some) and not wanted.has_times) == wanted.all_of(first, last, None, None)
    assert (not any(some)) == wanted.none_of(first, last, None, None)


@pytest.mark.parametrize(
    ("first", "last", "first_ms", "last_ms", "none", "every"),
    [
        (10, 19, 100, 199, False, True),
        # Offsets: one below, one above, the end itself.
        (9, 19, 100, 199, False, False),
        (10, 20, 100, 199, False, False),
        (0, 9, 100, 199, True, False),
        (20, 29, 100, 199, True, False),
        (0, 10, 100, 199, False, False),
        (19, 29, 100, 199, False, False),
        # Times likewise.
        (10, 19, 99, 199, False, False),
        (10, 19, 100, 200, False, False),
        (10, 19, 0, 99, True, False),
        (10, 19, 200, 299, True, False),
        (10, 19, 0, 100, False, False),
        (10, 19, 199, 299, False, False),
        (10, 19, None, None, False, False),
        (10, 19, 100, None, False, False),
        (10, 19, None, 199, False, False),
    ],
)
def test_rows_bounds(
    first: int, last: int, first_ms: int | None, last_ms: int | None, none: bool, every: bool
) -> None:
    """Bounds are exact: the first that is wanted, and the first that isn't any more."""
    rows = Rows((R(10, 20),), 100, 200)

    assert rows.none_of(first, last, first_ms, last_ms) is none
    assert rows.all_of(first, last, first_ms, last_ms) is every


def test_selection_offsets_bad() -> None:
    """What is no range is refused with an example of one."""
    with pytest.raises(ConfigError, match=r"start-end, such as flights:0:100-200; the end"):
        Selection.of(offsets=["t:0"])
