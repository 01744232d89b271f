"""When runs are due, and which data interval each has.

Airflow 3 gives runs of a cron schedule no data interval unless a timetable says so, and a DAG
without a schedule can't be backfilled.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pendulum
from airflow.configuration import conf
from airflow.timetables.interval import CronDataIntervalTimetable

from kafka_drain.config.schedules import cron_of

__all__ = ["BackfillTimetable", "backfill_schedule", "drain_schedule"]


class BackfillTimetable(CronDataIntervalTimetable):
    """Data intervals for backfills, and no runs beside: the scheduler starts none by itself.

    Only a backfill asks for the intervals of a time with `catchup`; the DAG's own is off.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Take what a cron timetable takes; `description` is what Airflow's UI explains it with."""
        super().__init__(*arguments, **named)
        intervals = f"data intervals by {self._expression}"
        self.description = f"No schedule: runs by hand, and by a backfill with {intervals}"

    @property
    def summary(self) -> str:
        """What Airflow's UI has in the place of a schedule."""
        # Not None: the UI then takes it that the DAG can't be backfilled.
        return "Backfills only"

    def next_dagrun_info(self, *, last_automated_data_interval: Any, restriction: Any) -> Any:
        """Return the next interval of a backfill; None to the scheduler."""
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )


def drain_schedule(schedule: str | None, start_date: datetime) -> Any:
    """Return the schedule of drains: a cron expression with data intervals, all else as it is.

    Args:
        schedule: As Airflow writes it.
        start_date: The DAG's; a cron expression is of its time zone, as Airflow takes one.
    """
    expression = cron_of(schedule)
    if expression is None:
        return schedule
    return CronDataIntervalTimetable(expression, timezone=_zone(start_date))


def backfill_schedule(schedule: str | None, start_date: datetime) -> Any:
    """Return a schedule with the same intervals, for backfills alone; None where there are none."""
    expression = cron_of(schedule)
    if expression is None:
        return None
    return BackfillTimetable(expression, timezone=_zone(start_date))


def _zone(start_date: datetime) -> Any:
    """Return the time zone that Airflow gives a DAG with this start."""
    if start_date.tzinfo is None:
        return pendulum.timezone(conf.get("core", "default_timezone"))
    return pendulum.instance(start_date).timezone
