"""`airflow dags backfill` and `airflow backfill create`, run by a real Airflow, 2 or 3."""

from __future__ import annotations

import json
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
import sqlalchemy
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS, AIRFLOW_V_3_2_PLUS

from demo.local_airflow import AirflowError, LocalAirflow
from demo.local_postgres import LocalPostgres
from kafka_drain.archive.archive import Archive
from kafka_drain.kafka.cluster import KafkaCluster
from tests.brute_force import data_files, refuse_inexact

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.skipif(
        AIRFLOW_V_3_0_PLUS and not AIRFLOW_V_3_2_PLUS,
        reason="Airflow loads the commands of other packages since 3.2: no `airflow dags backfill`",
    ),
]

DAY = datetime(2026, 1, 10, tzinfo=timezone.utc)
#: Number of hourly intervals; a whole day takes four times as long and shows the same.
HOURS = int(os.environ.get("BACKFILL_HOURS", "6"))
PARTITIONS = 2

DAGS = """
from kafka_drain_airflow import Pipeline, create_dags

create_dags(
    Pipeline(
        name="day",
        topics=["{topic}"],
        archive="{archive}",
        schedule="@hourly",
        source_options={{
            "startingTimestamp": "{start}", "startingOffsetsByTimestampStrategy": "latest"
        }},
    ),
    default_args={{"retries": 0}},
)
"""


def at(hours: float) -> int:
    """Return a time of the day in milliseconds since 1970."""
    return int((DAY + timedelta(hours=hours)).timestamp() * 1000)


@dataclass
class Day:
    """An Airflow whose drain started late, in the middle of the last hour."""

    airflow: LocalAirflow
    database: str
    topic: str
    said: list[str] = field(default_factory=list)

    @property
    def archive(self) -> Archive:
        """The archive."""
        return Archive.at(str(self.airflow.archives / "day"))

    def backfill(self, dag_id: str, first: int, last: int, log: str, *more: str) -> None:
        """Run `airflow dags backfill` for some hours of the day."""
        dates = [(DAY + timedelta(hours=hour)).isoformat() for hour in (first, last)]
        command = ["dags", "backfill", "-s", dates[0], "-e", dates[1], *more, dag_id]
        self.airflow.run(*command, log=log, say=self.said.append)

    def runs(self, dag_id: str) -> Counter[tuple[str, str]]:
        """Count the runs of a DAG by type and state in Airflow's database."""
        rows = self._ask(
            f"SELECT run_type, state, count(*) FROM dag_run WHERE dag_id = '{dag_id}' GROUP BY 1, 2"
        )
        return Counter({(kind, state): number for kind, state, number in rows})

    def segments(self) -> list[dict[str, Any]]:
        """Return the segments in the events of Airflow 3's assets."""
        rows = self._ask("SELECT CAST(extra AS text) FROM asset_event ORDER BY id")
        return [segment for (extra,) in rows for segment in json.loads(extra)["segments"]]

    def _ask(self, query: str) -> list[Any]:
        engine = sqlalchemy.create_engine(self.database)
        with engine.connect() as connection:
            rows = list(connection.execute(sqlalchemy.text(query)))
        engine.dispose()
        return rows

    def all_at_once(self) -> tuple[str, ...]:
        """Return Airflow 3's option for running all runs at once; Airflow 2 runs one at a time."""
        return ("--max-active-runs", str(HOURS)) if AIRFLOW_V_3_0_PLUS else ()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPostgres]:
    """A PostgreSQL: SQLite sometimes rejects a writer when a scheduler runs alongside."""
    with LocalPostgres(tmp_path_factory.mktemp("database") / "postgres") as server:
        yield server
        server.stop()
        server.remove()


@pytest.fixture(scope="module")
def day(
    tmp_path_factory: pytest.TempPathFactory,
    bootstrap_servers: str,
    late_topic: str,
    postgres: LocalPostgres,
) -> Iterator[Day]:
    """An Airflow with a scheduler where it needs one, after the first drain."""
    folder = tmp_path_factory.mktemp("airflow")
    (folder / "dags").mkdir()
    database = postgres.url
    airflow = LocalAirflow(folder, bootstrap_servers, free_port(), folder / "dags", database)
    (folder / "dags" / "day.py").write_text(
        DAGS.format(topic=late_topic, archive=airflow.archives / "day", start=at(HOURS - 0.5))
    )
    with airflow:
        found = Day(airflow, database, late_topic)
        airflow.run("db", "migrate", log="migrate")
        airflow.test_dag("drain_day", "drain", found.said.append)
        if AIRFLOW_V_3_0_PLUS:
            airflow.run("dags", "reserialize", log="reserialize")
            airflow.start()
        try:
            yield found
        finally:
            airflow.stop()


@pytest.fixture(scope="module")
def late_topic(bootstrap_servers: str) -> str:
    """A topic with records of the day: some out of order, hours without any, a quiet partition."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    topic = "the-day"
    new = NewTopic(topic, PARTITIONS, 1, config={"retention.ms": "-1"})
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    admin.create_topics([new])[topic].result(20)
    producer = Producer({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    busy = [hour + minute / 60 for hour in (3, 4, HOURS - 1) for minute in range(0, 60, 3)]
    # Every seventh record is an hour and a half late.
    late = [hours - 1.5 if number % 7 == 6 else hours for number, hours in enumerate(busy)]
    for number, hours in enumerate(late):
        producer.produce(topic, b"%d" % number, b"k", 0, timestamp=at(hours))
    for number in range(5):
        producer.produce(topic, b"%d" % number, b"k", 1, timestamp=at(4.5))
    assert producer.flush(30) == 0
    return topic


def test_backfill_fills_the_day(day: Day, cluster: KafkaCluster) -> None:
    """Hourly runs, in parallel if Airflow supports it, archive each offset once.

    Events of the archive's asset report each range once.
    The last hour straddles the cursor, most hours are empty, one partition is quiet.
    """
    day.backfill("drain_day", 0, HOURS - 1, "backfill", "-y", *day.all_at_once())

    refuse_inexact(day.archive, cluster, day.topic, PARTITIONS)
    assert day.runs("drain_day")["backfill", "success"] == HOURS
    if AIRFLOW_V_3_0_PLUS:
        told = [tuple(r) for s in day.segments() for r in s["offsets"].get(f"{day.topic}-0", ())]
        receipts = [window.receipt for window in day.archive.snapshot().windows if window.is_sealed]
        sealed = [
            (part.range.start, part.range.end)
            for receipt in (*receipts, *day.archive.generation(1).receipts())
            for part in receipt.partitions
            if part.tp.partition == 0 and len(part.range)
        ]
        assert sorted(told) == sorted(sealed)


def test_backfill_failed_run(day: Day) -> None:
    """A failed run makes the command fail with an exit code other than 0."""
    conf = json.dumps({"target_topic": "nowhere", "apply": True})

    with pytest.raises(AirflowError, match="failed"):
        day.backfill("republish_day", HOURS - 1, HOURS - 1, "failed", "-y", "--conf", conf)

    assert day.runs("republish_day") == {("backfill", "failed"): 1}


def test_backfill_same_command_again(day: Day) -> None:
    """Repeating the same command succeeds and writes no file."""
    before = data_files(f"{day.archive.root}/windows")

    day.backfill("drain_day", 0, HOURS - 1, "again", "-y", *day.all_at_once())

    assert data_files(f"{day.archive.root}/windows") == before
    assert day.runs("drain_day")["backfill", "success"] == HOURS


def test_backfill_of_republish(
    day: Day, make_topic: Callable[..., str], read: Callable[..., Any]
) -> None:
    """A republish backfill sends each interval's records once, by their timestamps.

    If run again from the beginning, it sends nothing.
    """
    target = make_topic(PARTITIONS)
    conf = json.dumps({"target_topic": target, "apply": True})

    day.backfill("republish_day", 3, 4, "republish", "-y", "--conf", conf)
    day.backfill("republish_day", 4, 4, "reset", "-y", "--reset-dagruns", "--conf", conf)

    source, sent = read(day.topic), read(target)
    for partition in range(PARTITIONS):
        wanted = [record for record in source[partition] if at(3) <= record[3] < at(5)]
        assert sorted(sent[partition]) == sorted(wanted)
        assert wanted


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="Airflow 2 has no such command")
def test_backfill_create(day: Day, cluster: KafkaCluster) -> None:
    """`airflow backfill create` itself works; runs of archived intervals drain nothing again."""
    before = data_files(f"{day.archive.root}/windows")
    dates = [(DAY + timedelta(hours=hour)).isoformat() for hour in (3, 4)]

    day.airflow.run(
        *("backfill", "create", "--dag-id", "drain_day", "--reprocess-behavior", "completed"),
        *("--from-date", dates[0], "--to-date", dates[1]),
        log="create",
    )
    deadline = time.monotonic() + 120
    while day.runs("drain_day")["backfill", "success"] != HOURS:
        assert time.monotonic() < deadline, day.runs("drain_day")
        time.sleep(0.5)

    assert data_files(f"{day.archive.root}/windows") == before
    refuse_inexact(day.archive, cluster, day.topic, PARTITIONS)
