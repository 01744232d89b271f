"""Which runs drain a window, and which window."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.drain.options import ValidateOptions
from kafka_drain.errors import ConfigError
from kafka_drain.intervals import Interval
from kafka_drain_airflow.data_intervals import started_because, window_interval

START = datetime(2026, 1, 10, tzinfo=timezone.utc)
END = datetime(2026, 1, 10, 1, tzinfo=timezone.utc)


def context(run_type: str, start: datetime | None = START, end: datetime | None = END) -> Any:
    """Return a task's context for a run."""
    return {
        "dag_run": SimpleNamespace(run_type=run_type),
        "data_interval_start": start,
        "data_interval_end": end,
    }


def window(start: str | None = None, end: str | None = None, mode: str = "window") -> Any:
    """Return the options of a run that names a window."""
    return ValidateOptions(mode=mode, window_start=start, window_end=end)  # type: ignore[arg-type]


@pytest.mark.parametrize("run_type", ["scheduled", "manual", "asset_triggered"])
def test_window_interval_of_drain(run_type: str) -> None:
    """Runs that don't belong to a backfill drain from the cursor."""
    assert window_interval(context(run_type), ValidateOptions()) is None


def test_window_interval_of_backfill() -> None:
    """A backfill run drains its data interval, whatever the form's default mode is."""
    assert window_interval(context("backfill"), ValidateOptions()) == Interval(START, END)


def test_window_interval_by_hand() -> None:
    """A manual run drains the window that its form specifies."""
    found = window_interval(context("manual"), window("2026-01-01", "2026-01-02T00:00+01:00"))

    assert found is not None
    assert found.key == "20260101T000000Z_20260101T230000Z"


def test_window_interval_without_dates() -> None:
    """A manual run in Airflow 3 without dates has no data interval and must specify a window."""
    with pytest.raises(
        ConfigError, match="no data interval of its own; set window_start and window_end"
    ):
        window_interval(context("manual", None, None), window())


def test_window_interval_empty() -> None:
    """A manual run about a day after clocks are put forward says why it has no interval."""
    with pytest.raises(ConfigError, match=r"empty, at 2026-01-10T00:00:00\+00:00: .* put forward"):
        window_interval(context("manual", START, START), window())


@pytest.mark.parametrize("minutes", [-55, 0])
def test_window_interval_ahead(minutes: int) -> None:
    """One whose interval ends ahead, while an hour is repeated, is refused; a given end isn't."""
    now = END + timedelta(minutes=minutes)

    def found(end: str | None) -> Interval | None:
        return window_interval(context("manual"), window(None, end), now=lambda: now)

    if minutes < 0:
        with pytest.raises(ConfigError, match=r"ends ahead, at 2026-01-10T01:00:00\+00:00"):
            found(None)
    else:
        assert found(None) == Interval(START, END)
    assert found("2026-01-10T01:00Z") == Interval(START, END)


def test_window_interval_dates_without_mode() -> None:
    """Dates that would be ignored are refused."""
    with pytest.raises(ConfigError, match="require mode = window"):
        window_interval(context("manual"), window("2026-01-01", "2026-01-02", mode="drain"))


def test_window_interval_unknown_mode() -> None:
    """A misspelled mode isn't treated as a drain."""
    with pytest.raises(ConfigError, match="mode = 'windows': Input should be 'drain' or"):
        window(mode="windows")


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"reason": "a lag of 5 offsets"}, "a lag of 5 offsets"),
        ({"reason": "two\nlines " + "x" * 2000}, "two lines " + "x" * 990),
        ({"reason": None}, ""),
        ({"reason": 7}, "7"),
        ({}, ""),
        (None, ""),
        ("text", ""),
    ],
)
def test_started_because(conf: Any, said: str) -> None:
    """The reason is one line of limited length, as anybody may write it."""
    found: Any = {"dag_run": SimpleNamespace(conf=conf)}

    assert started_because(found) == said


def test_started_because_without_run() -> None:
    """A task that is tried without a run has no reason."""
    assert started_because(context("manual")) == ""
    nothing: Any = {}
    assert started_because(nothing) == ""
