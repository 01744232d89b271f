"""Timetables: data intervals for backfills, and who else gets runs."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from airflow.timetables.base import TimeRestriction
from pendulum import instance

from kafka_drain_airflow.timetables import BackfillTimetable, backfill_schedule, drain_schedule

DAY = instance(datetime(2026, 1, 10, tzinfo=timezone.utc))


def test_backfill_timetable_scheduler_gets_no_runs() -> None:
    """The scheduler, which asks without catchup, starts no run by itself."""
    timetable = BackfillTimetable("@hourly", timezone="UTC")

    found = timetable.next_dagrun_info(
        last_automated_data_interval=None,
        restriction=TimeRestriction(DAY, None, catchup=False),
    )

    assert found is None


def test_backfill_timetable_backfill_gets_hours() -> None:
    """A backfill, which asks with catchup, gets the schedule's data intervals."""
    timetable = BackfillTimetable("@hourly", timezone="UTC")

    found = timetable.next_dagrun_info(
        last_automated_data_interval=None,
        restriction=TimeRestriction(DAY, DAY.add(hours=5), catchup=True),
    )

    assert found.data_interval.start == DAY
    assert found.data_interval.end == DAY.add(hours=1)


@pytest.mark.parametrize("schedule", [None, "@once", "@continuous"])
def test_schedule_without_intervals(schedule: str | None) -> None:
    """What has no data intervals is left as it is, and can't be backfilled."""
    assert drain_schedule(schedule) == schedule
    assert backfill_schedule(schedule) is None
