"""How long it is from one scheduled run to the next."""

from __future__ import annotations

from datetime import datetime

from croniter import croniter

__all__ = ["interval_seconds"]


def interval_seconds(schedule: str | None, now: datetime) -> float | None:
    """Return the seconds between the next two runs of a schedule.

    Args:
        schedule: As Airflow writes it: a preset such as `@hourly`, or a cron expression.
        now: From when on.

    Returns:
        None for a schedule that never comes, or that isn't regular.
    """
    if not schedule or not croniter.is_valid(schedule):
        return None
    times = croniter(schedule, now)
    return -float(times.get_next()) + float(times.get_next())
