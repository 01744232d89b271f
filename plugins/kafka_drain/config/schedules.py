"""How long it is from one scheduled run to the next."""

from __future__ import annotations

from datetime import datetime

from croniter import croniter

__all__ = ["cron_of", "interval_seconds"]

#: Airflow's preset that croniter doesn't know.
_PRESETS = {"@quarterly": "0 0 1 */3 *"}


def cron_of(schedule: str | None) -> str | None:
    """Return a schedule as croniter reads it; None for one that isn't regular."""
    if not schedule:
        return None
    expression = _PRESETS.get(schedule, schedule)
    return expression if croniter.is_valid(expression) else None


def interval_seconds(schedule: str | None, now: datetime) -> float | None:
    """Return the seconds between the next two runs of a schedule.

    Args:
        schedule: As Airflow writes it: a preset such as `@hourly`, or a cron expression.
        now: From when on.

    Returns:
        None for a schedule that never comes, or that isn't regular.
    """
    expression = cron_of(schedule)
    if expression is None:
        return None
    times = croniter(expression, now)
    return -float(times.get_next()) + float(times.get_next())
