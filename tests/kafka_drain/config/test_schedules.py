"""Schedules that Airflow accepts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kafka_drain.config.schedules import PRESETS, check_schedule, cron_of
from kafka_drain.errors import ConfigError


@pytest.mark.parametrize(
    "schedule", [None, *PRESETS, "15 * * * *", "0 2 * * MON-FRI", "*/5 * * * *"]
)
def test_check_schedule(schedule: str | None) -> None:
    """Presets and cron expressions are left as they are."""
    assert check_schedule(schedule) == schedule


@pytest.mark.parametrize("schedule", PRESETS)
def test_presets_are_airflows(schedule: str) -> None:
    """What is a preset here has an interval, or is one of Airflow's two that have none."""
    assert (cron_of(schedule) is None) == (schedule in ("@once", "@continuous"))


@pytest.mark.parametrize(
    ("schedule", "meant"),
    [
        ("@hourli", "@hourly"),
        ("hourly", "@hourly"),
        ("@quaterly", "@quarterly"),
    ],
)
def test_check_schedule_meant(schedule: str, meant: str) -> None:
    """A misspelt preset gets the right one."""
    with pytest.raises(
        ConfigError, match=f"schedule = '{schedule}' is not .*did you mean '{meant}'"
    ):
        check_schedule(schedule)


@pytest.mark.parametrize("schedule", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
def test_check_schedule_never(schedule: str) -> None:
    """A day that no month has is refused here, instead of ending each preflight."""
    with pytest.raises(ConfigError, match=r"is never due; .*None"):
        check_schedule(schedule)


@pytest.mark.parametrize(
    "schedule", ["", "0 * * *", "61 * * * *", "a b c d e", 5, timedelta(hours=1), []]
)
def test_check_schedule_refused(schedule: Any) -> None:
    """What is no schedule is refused with what is one."""
    with pytest.raises(ConfigError, match=r"accepted: None, @once, .*such as '15 \* \* \* \*'"):
        check_schedule(schedule)
