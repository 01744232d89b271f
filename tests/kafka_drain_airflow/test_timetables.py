"""Timetables: data intervals for backfills, and which schedules start runs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.timetables.base import TimeRestriction
from pendulum import instance

from kafka_drain_airflow import Pipeline, create_dags
from kafka_drain_airflow.timetables import BackfillTimetable, backfill_schedule, drain_schedule

DAY = instance(datetime(2026, 1, 10, tzinfo=timezone.utc))


def test_backfill_timetable_scheduler_gets_no_runs() -> None:
    """The scheduler, which asks without catchup, starts no runs."""
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


def test_backfill_timetable_shows_no_schedule() -> None:
    """Airflow's UI shows no schedule for it, but still offers backfills."""
    timetable = BackfillTimetable("@hourly", timezone="UTC")

    assert timetable.summary == "Backfills only"
    assert timetable.description == (
        "No schedule: runs are manual, or from a backfill with data intervals by 0 * * * *"
    )
    again = BackfillTimetable.deserialize(timetable.serialize())
    assert (again.summary, again.description) == (timetable.summary, timetable.description)


@pytest.mark.parametrize("schedule", [None, "@once", "@continuous"])
def test_schedule_without_intervals(schedule: str | None) -> None:
    """A schedule without data intervals is unchanged, and can't be backfilled."""
    assert drain_schedule(schedule, DAY) == schedule
    assert backfill_schedule(schedule, DAY) is None


def intervals(schedule: str, start: datetime, number: int) -> list[tuple[str, str]]:
    """Return the first data intervals of a schedule, in UTC, as a backfill requests them."""
    timetable, last, found = backfill_schedule(schedule, start), None, []
    for _ in range(number):
        info = timetable.next_dagrun_info(
            last_automated_data_interval=last,
            restriction=TimeRestriction(instance(start), None, catchup=True),
        )
        last = info.data_interval
        found.append(tuple(f"{at.in_timezone('UTC'):%m-%dT%H:%M}" for at in (last.start, last.end)))
    return found


@pytest.mark.parametrize("zone", [pendulum.timezone("Europe/Berlin"), ZoneInfo("Europe/Berlin")])
def test_schedule_in_zone_over_change_of_clocks(zone: tzinfo) -> None:
    """A cron expression is in the DAG's time zone; days have 23 or 25 hours when clocks change."""
    in_spring = intervals("0 6 * * *", datetime(2026, 3, 28, 6, tzinfo=zone), 2)
    in_autumn = intervals("0 6 * * *", datetime(2026, 10, 24, 6, tzinfo=zone), 2)

    assert in_spring == [("03-28T05:00", "03-29T04:00"), ("03-29T04:00", "03-30T04:00")]
    assert in_autumn == [("10-24T04:00", "10-25T05:00"), ("10-25T05:00", "10-26T05:00")]


def test_hourly_schedule_over_change_of_clocks() -> None:
    """Hourly intervals have no gap and no duplicate when clocks go back."""
    start = datetime(2026, 10, 25, 0, tzinfo=ZoneInfo("Europe/Berlin"))

    found = intervals("@hourly", start, 6)

    ends = [end for _, end in found]
    assert [first for first, _ in found][1:] == ends[:-1]
    assert found[0][0] == "10-24T22:00"


@pytest.mark.parametrize(
    ("start", "zone"),
    [
        (DAY, "UTC"),
        (datetime(2026, 1, 1), "UTC"),
        (datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))), "+02:00"),
        (datetime(2026, 1, 1, tzinfo=ZoneInfo("Asia/Tokyo")), "Asia/Tokyo"),
    ],
)
def test_schedule_zone_is_the_dags(start: datetime, zone: str) -> None:
    """Drains, backfills and Airflow's own schedules use the time zone of the start date."""
    found = create_dags(
        Pipeline(name="p", topics=["t"], archive="/archives/p", schedule="0 6 * * *"),
        start_date=start,
    )

    for name in ("drain_p", "republish_p"):
        dag: Any = found[name]
        assert dag.timetable._timezone.name == zone
        assert dag.timezone.name == zone


def test_quarterly_schedule() -> None:
    """The Airflow preset that croniter doesn't know has data intervals too."""
    assert intervals("@quarterly", datetime(2026, 1, 1, tzinfo=timezone.utc), 2) == [
        ("01-01T00:00", "04-01T00:00"),
        ("04-01T00:00", "07-01T00:00"),
    ]


def test_schedule_in_zone_of_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Airflow's default time zone may be the machine's; a start date without a zone is in it."""
    monkeypatch.setenv("AIRFLOW__CORE__DEFAULT_TIMEZONE", "system")
    monkeypatch.setenv("TZ", "Europe/Berlin")
    pendulum.set_local_timezone(pendulum.timezone("Europe/Berlin"))
    try:
        pipeline = Pipeline(name="orders", topics=["orders"], archive="/archive")
        dags = create_dags(pipeline, start_date=datetime(2026, 1, 1))
    finally:
        pendulum.set_local_timezone()

    assert dags["drain_orders"].timetable._timezone.name == "Europe/Berlin"
