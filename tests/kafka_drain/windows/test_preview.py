"""The preview of a backfill: each interval's state, as its own plan and the receipts have it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafka_drain.errors import ConfigError, DataLossError
from kafka_drain.intervals import Interval
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.preview import (
    MOST,
    Preview,
    PreviewedInterval,
    State,
    intervals_of,
    preview_backfill,
    state_of,
)
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import dense
from tests.kafka_drain.windows.test_backfill_plan import (
    FIRST_MS,
    MINUTE,
    NOON,
    P0,
    P1,
    Backfilled,
    hour,
)

#: Eight hours from nine on: Kafka has records from eleven to 14:20.
HOURS = [hour(number) for number in range(-3, 5)]
NOW = NOON + timedelta(hours=4, minutes=30)


def preview(backfilled: Backfilled, sealed: int = 150) -> Preview:
    """Preview the hours; the open generation, from offset 150 on, is sealed up to an offset."""
    if sealed > 150:
        backfilled.made.start_at({P0: 150})
        backfilled.made.seal({P0: dense(150, sealed, FIRST_MS)})
    times = {at: FIRST_MS + at * MINUTE for at in range(backfilled.first, backfilled.end)}
    cluster: Any = FakeCluster(
        {P0: Log(backfilled.first, backfilled.end, times=times)}, topic_ids={"t": "id"}
    )
    return preview_backfill(backfilled.pipeline, cluster, HOURS, clock=lambda: NOW)


def strip(found: Preview) -> str:
    return "".join(one.state.mark for one in found.intervals)


@pytest.mark.parametrize(
    ("sealed", "marks"),
    [
        # The hour from 13 on has offsets 120 to 179, of which a backfill gets 30.
        (150, "..ooo>.?"),
        (170, "..oo%>.?"),
        (180, "..oo%>.?"),
        (200, "..oo%#.?"),
    ],
)
def test_preview_backfill(tmp_path: Path, sealed: int, marks: str) -> None:
    """What drains hold is sealed as far as their receipts say; the rest is a backfill's."""
    found = preview(Backfilled(tmp_path), sealed)

    assert strip(found) == marks
    assert [one.left for one in found.intervals] == [0, 0, 60, 60, 30, 0, 0, 0]
    held = max(0, min(sealed, 180) - 150)
    assert found.intervals[4].sealed == held
    assert found.intervals[4].ahead == 30 - held


def test_preview_backfill_windows(tmp_path: Path) -> None:
    """What windows hold is sealed, and what is left of their intervals isn't."""
    backfilled = Backfilled(tmp_path)
    backfilled.freeze(hour(0), 60, 120, seals=True)
    backfilled.window(0, 20, 0)

    found = preview(backfilled)

    assert strip(found) == "..%#o>.?"
    assert found.intervals[2] == PreviewedInterval(hour(-1), State.PARTLY, 20, 40)


@pytest.mark.parametrize(
    ("first", "held", "marks"),
    [
        # Kafka has deleted the hour from eleven on, and half of the next.
        (90, None, "!!!!o>.?"),
        (90, (0, 90), "..#%o>.?"),
        (90, (0, 60), "!!!!o>.?"),
        # Up to the middle of what drains hold, and nothing of it is sealed.
        (160, (0, 150), ">>>>>>.?"),
    ],
)
def test_preview_backfill_deleted(
    tmp_path: Path, first: int, held: tuple[int, int] | None, marks: str
) -> None:
    """Deleted offsets are lost to each interval that may have them, unless receipts do."""
    backfilled = Backfilled(tmp_path)
    backfilled.first = first
    if held:
        backfilled.made.seal_window(
            "repair_1", {P0: {at: FIRST_MS + at * MINUTE for at in range(*held)}}
        )

    assert strip(preview(backfilled)) == marks


@given(
    st.integers(0, 200),
    st.lists(st.tuples(st.integers(0, 149), st.integers(1, 60)), max_size=3),
    st.integers(150, 200),
)
@settings(
    max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
def test_preview_agrees(
    tmp_path_factory: pytest.TempPathFactory,
    first: int,
    windows: list[tuple[int, int]],
    sealed: int,
) -> None:
    """Each interval is what its own plan says, and no offset is counted in two of them."""
    backfilled = Backfilled(tmp_path_factory.mktemp("archive"))
    backfilled.first = first
    end = 0
    for number, (start, length) in enumerate(sorted(windows)):
        if start >= end:
            end = min(150, start + length)
            rows = {at: FIRST_MS + at * MINUTE for at in range(start, end)}
            backfilled.made.seal_window(f"repair_{number}", {P0: rows})

    found = preview(backfilled, sealed)

    for one in found.intervals:
        assert min(one.sealed, one.left, one.ahead) >= 0
        if one.state is State.NOT_OVER:
            continue
        try:
            plan = backfilled.plan(one.interval)
        except DataLossError:
            assert one.state is State.LOST
        else:
            assert one.left == plan.left
            assert (one.state in (State.MISSING, State.PARTLY)) == bool(plan.left)
    intact = [one for one in found.intervals if one.state is not State.LOST]
    assert sum(one.sealed + one.left for one in intact) <= 200 - first
    # Never sealed while an offset of its time in Kafka isn't in a receipt.
    for one, number in zip(found.intervals, range(-3, 5), strict=True):
        own = set(range(max(first, 60 * (number + 1), 0), min(200, 60 * (number + 2))))
        held = set(range(150, sealed))
        for window in backfilled.made.archive.snapshot().windows:
            for part in window.receipt.partitions:
                held.update(range(part.range.start, part.range.end))
        if one.state is State.SEALED:
            assert own <= held


@pytest.mark.parametrize(
    ("known", "state"),
    [
        ({"is_over": False, "is_lost": True}, State.NOT_OVER),
        ({"is_lost": True, "sealed": 9, "left": 9}, State.LOST),
        ({"left": 9, "ahead": 9}, State.MISSING),
        ({"left": 9, "is_archived": True}, State.PARTLY),
        ({"left": 9, "sealed": 1, "ahead": 9}, State.PARTLY),
        ({"ahead": 1, "sealed": 9, "is_archived": True}, State.AHEAD),
        ({"sealed": 9}, State.SEALED),
        ({"is_archived": True}, State.SEALED),
        ({}, State.EMPTY),
    ],
)
def test_state_of(known: dict[str, Any], state: State) -> None:
    """The worst that is known decides."""
    nothing = {"is_over": True, "is_lost": False, "is_archived": False}

    assert state_of(**{**nothing, "sealed": 0, "left": 0, "ahead": 0, **known}) is state


def test_preview_lines() -> None:
    """A row of marks for each day, a legend, and the spans that need attention."""
    states = [State.SEALED] * 24 + [State.MISSING, State.MISSING, State.LOST, State.NOT_OVER]
    day = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    every = intervals_of(Interval(day, day + timedelta(hours=28)), 60)
    found = Preview(
        "/a",
        [
            PreviewedInterval(interval, state, left=7, why="gone" if state is State.LOST else "")
            for interval, state in zip(every, states, strict=True)
        ],
    )

    lines = found.lines()

    assert lines[:2] == [f"2025-12-31T23:00Z  {'#' * 24}", "2026-01-01T23:00Z  oo!?"]
    assert [line.split()[:2] for line in lines[2:6]] == [
        ["#", "24"],
        ["o", "2"],
        ["!", "1"],
        ["?", "1"],
    ]
    assert lines[6:] == [
        f"o {Interval(every[24].start, every[25].end)}: 14 offsets to drain",
        f"! {every[26]}: gone",
    ]
    row = found.to_dict()["intervals"][26]
    assert (row["start"], row["state"], row["why"]) == ("2026-01-02T02:00:00+01:00", "lost", "gone")


@pytest.mark.parametrize("minutes", [0, -60, 7, 100_000_000, 10**30])
def test_intervals_of_refused(minutes: int) -> None:
    """A span is whole intervals, and not too many."""
    with pytest.raises(ConfigError, match="--interval-minutes"):
        intervals_of(Interval(NOON, NOON + timedelta(hours=1)), minutes)


def test_intervals_of_too_many() -> None:
    whole = Interval(NOON, NOON + timedelta(minutes=MOST + 1))

    with pytest.raises(ConfigError, match="1 to 10,000"):
        intervals_of(whole, 1)
    assert len(intervals_of(Interval(whole.start, whole.end - timedelta(minutes=1)), 1)) == MOST


@pytest.mark.parametrize(
    ("first", "sealed", "marks"),
    [
        (0, 200, "..####.?"),
        # Kafka has deleted what no drain has taken: of each hour up to 12:40, or of any.
        (100, 0, ">>>>>>.?"),
        (200, 50, ">>>>>>>?"),
        (200, 200, "..####.?"),
    ],
)
def test_preview_backfill_added_partition(
    tmp_path: Path, first: int, sealed: int, marks: str
) -> None:
    """What expires of a partition that was added later isn't sealed by the others' receipts."""
    backfilled = Backfilled(tmp_path)
    backfilled.window(0, 150, 0)
    backfilled.made.start_at({P0: 150})
    added = {P1: dense(0, sealed, FIRST_MS)} if sealed else {}
    backfilled.made.seal({P0: dense(150, 200, FIRST_MS), **added})
    times = {at: FIRST_MS + at * MINUTE for at in range(200)}
    left = {at: ms for at, ms in times.items() if at >= first}
    logs = {P0: Log(0, 200, times=times), P1: Log(first, 200, times=left)}
    cluster: Any = FakeCluster(logs, topic_ids={"t": "id"})

    assert strip(preview_backfill(backfilled.pipeline, cluster, HOURS, clock=lambda: NOW)) == marks


def test_preview_backfill_reads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record with a wrong clock doesn't make each interval read all that is behind it."""
    backfilled = Backfilled(tmp_path)
    backfilled.made.start_at({P0: 150})
    end = 14_550
    times = {at: FIRST_MS + at * MINUTE for at in range(end)}
    times[160] = times[end - 1]
    cluster: Any = FakeCluster({P0: Log(0, end, times=times)}, topic_ids={"t": "id"})
    read: list[int] = []

    def records(_: Any, tp: TopicPartition, span: OffsetRange, level: str) -> Any:
        for start in range(span.start, span.end, 1_000):
            part = range(start, min(start + 1_000, span.end))
            read.append(len(part))
            rows = [{"offset": at, "timestamp": times[at] * 1_000} for at in part]
            yield pa.RecordBatch.from_pylist(rows)

    monkeypatch.setattr(FakeCluster, "records", records)
    hours = [hour(number) for number in range(200, 220)]

    preview_backfill(backfilled.pipeline, cluster, hours, clock=lambda: NOON + timedelta(hours=300))

    assert sum(read) < 3 * end
