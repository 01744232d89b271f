"""Intervals between scheduled runs."""

from __future__ import annotations

from datetime import datetime

from croniter import croniter

#: Airflow presets that croniter doesn't know.
_PRESETS = {"@quarterly": "0 0 1 */3 *"}


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
