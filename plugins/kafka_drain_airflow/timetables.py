"""Timetables: when runs are due, and which data interval each run has.

By default, Airflow 3 gives the runs of a cron schedule no data interval, and it can't backfill a
DAG without a schedule.
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import Any

import pendulum
from airflow.configuration import conf
from airflow.timetables.interval import CronDataIntervalTimetable
from pendulum.tz.local_timezone import get_local_timezone

from kafka_drain.config.schedules import cron_of

#: Maintenance runs in the first hours of the day.
NIGHT_HOURS = 6


class BackfillTimetable(CronDataIntervalTimetable):
    """Provides data intervals for backfills; the scheduler starts no runs on its own.

    Only a backfill asks for past intervals with `catchup`; the DAG itself has catchup off.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Take the arguments of a cron timetable, and set `description` for Airflow's UI."""
        super().__init__(*arguments, **named)
        intervals = f"data intervals by {self._expression}"
        self.description = f"No schedule: runs are manual, or from a backfill with {intervals}"

    @property
    def summary(self) -> str:
        """The text that Airflow's UI shows as the schedule."""
        # Not None: the UI would then assume that the DAG can't be backfilled.
        return "Backfills only"

    def next_dagrun_info(self, *, last_automated_data_interval: Any, restriction: Any) -> Any:
        """Return the next interval for a backfill, and None for the scheduler."""
        if not restriction.catchup:
            return None
        return super().next_dagrun_info(
            last_automated_data_interval=last_automated_data_interval, restriction=restriction
        )


def drain_schedule(schedule: Any, start_date: datetime) -> Any:
    """Return the schedule for drains: cron expressions get data intervals, others pass unchanged.

    Args:
        schedule: A schedule as Airflow accepts it.
        start_date: The DAG's start date; a cron expression is in its time zone, as in Airflow.
    """
    expression = cron_of(schedule) if isinstance(schedule, str) else None
    if expression is None:
        return schedule
    return CronDataIntervalTimetable(expression, timezone=_zone(start_date))


def backfill_schedule(schedule: Any, start_date: datetime) -> Any:
    """Return a backfill-only schedule with the same intervals; None if there are no intervals."""
    expression = cron_of(schedule) if isinstance(schedule, str) else None
    if expression is None:
        return None
    return BackfillTimetable(expression, timezone=_zone(start_date))


def night_schedule(name: str) -> str:
    """Return a daily cron expression between midnight and six, the same for a name each time.

    Pipelines are spread over these hours, so that their maintenance doesn't start all at once.
    """
    hour, minute = divmod(zlib.crc32(name.encode()) % (NIGHT_HOURS * 60), 60)
    return f"{minute} {hour} * * *"


def _zone(start_date: datetime) -> Any:
    """Return the time zone that Airflow assigns to a DAG with this start date."""
    if start_date.tzinfo is None:
        name = conf.get("core", "default_timezone")
        # As Airflow does.
        return get_local_timezone() if name == "system" else pendulum.timezone(name)
    return pendulum.instance(start_date).timezone
