"""Intervals between scheduled runs."""

from __future__ import annotations

import difflib
from datetime import datetime
from typing import Any

from croniter import CroniterBadDateError, croniter

from kafka_drain.config.checks import refuse
from kafka_drain.errors import ConfigError

#: Airflow presets that croniter doesn't know.
_PRESETS = {"@quarterly": "0 0 1 */3 *"}

#: Airflow's presets.
PRESETS = (
    *("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly"),
    "@yearly",
)


def check_schedule(schedule: Any) -> str | None:
    """Return a schedule that Airflow accepts.

    Raises:
        ConfigError: When it is neither a preset nor a cron expression.
    """
    accepted = (
        f"None, {', '.join(PRESETS)}, or a cron expression: minute, hour, day, month and day of "
        "the week, such as '15 * * * *'"
    )
    if schedule is None:
        return None
    if isinstance(schedule, str) and (schedule in PRESETS or cron_of(schedule)):
        if cron_of(schedule) and not _comes(schedule):
            raise ConfigError(
                f"schedule = {schedule!r} is never due; accepted: a time that comes, or None for "
                "manual runs only"
            )
        return schedule
    near = difflib.get_close_matches(str(schedule), PRESETS, n=1, cutoff=0.6)
    if near and isinstance(schedule, str):
        raise ConfigError(
            f"schedule = {schedule!r} is not acceptable; did you mean {near[0]!r}? Accepted: "
            f"{accepted}"
        )
    raise refuse("schedule", schedule, accepted)


def _comes(schedule: str) -> bool:
    """Return whether there is a next run of a cron expression."""
    try:
        croniter(cron_of(schedule)).get_next()
    except CroniterBadDateError:
        return False
    return True


def cron_of(schedule: str | None) -> str | None:
    """Return a schedule as a croniter expression; None if it isn't regular."""
    if not schedule:
        return None
    expression = _PRESETS.get(schedule, schedule)
    return expression if croniter.is_valid(expression) else None


def interval_seconds(schedule: str | None, now: datetime) -> float | None:
    """Return the seconds between the next two runs of a schedule.

    Args:
        schedule: In Airflow's notation: a preset such as `@hourly`, or a cron expression.
        now: Start of the search.

    Returns:
        None for a schedule that never runs, or that isn't regular.
    """
    expression = cron_of(schedule)
    if expression is None:
        return None
    times = croniter(expression, now)
    return -float(times.get_next()) + float(times.get_next())
