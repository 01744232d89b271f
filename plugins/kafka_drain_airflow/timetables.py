"""When runs are due, and which data interval each has.

Airflow 3 gives runs of a cron schedule no data interval unless a timetable says so, and a DAG
without a schedule can't be backfilled.
"""

from __future__ import annotations

from typing import Any

from airflow.timetables.interval import CronDataIntervalTimetable
from croniter import croniter

__all__ = ["BackfillTimetable", "backfill_schedule", "drain_schedule"]


class BackfillTimetable(CronDataIntervalTimetable):
    """Data intervals for backfills, and no runs beside: the scheduler starts none by itself.

    Only a backfill asks for the intervals of a time with `catchup`; the DAG's own is off.
    """

    description = "Backfills only"

    def next_dagrun_info(self, *, last_automated_data_interval: Any, restriction: Any) -> Any:
        """Return the next interval of a backfill; None to the scheduler."""
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )


def drain_schedule(schedule: str | None) -> Any:
    """Return the schedule of drains: a cron expression with data intervals, all else as it is."""
    if schedule is None or not croniter.is_valid(schedule):
        return schedule
    return CronDataIntervalTimetable(schedule, timezone="UTC")


def backfill_schedule(schedule: str | None) -> Any:
    """Return a schedule with the same intervals, for backfills alone; None where there are none."""
    if schedule is None or not croniter.is_valid(schedule):
        return None
    return BackfillTimetable(schedule, timezone="UTC")
