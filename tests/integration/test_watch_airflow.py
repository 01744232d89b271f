"""The watch DAG in a real Airflow: deferred to its triggerer, it starts a drain, once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from demo.local_airflow import LocalAirflow
from demo.local_postgres import LocalPostgres
from kafka_drain.kafka.cluster import KafkaCluster
from tests.airflow_api import rows_of
from tests.faults.injection import wait_for
from tests.integration.test_airflow_backfill import free_port
from tests.integration.test_watch import drained

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

REASON = "a lag of 10 offsets reached the limit of 10"
DAGS = """
from airflow.providers.common.compat.sdk import DAG, BaseOperator
from kafka_drain_airflow import Pipeline, create_watch_dag
from kafka_drain_airflow.dag_factory import START_DATE

class Drain(BaseOperator):
    # In the place of a drain, which would need Spark.
    def execute(self, context):
        return context["dag_run"].conf["reason"]

with DAG("drain_p", schedule=None, start_date=START_DATE, max_active_runs=1):
    Drain(task_id="drain")

create_watch_dag(
    [Pipeline(name="p", topics=["{topic}"], archive="{archive}", watch={{"lag": 10}})],
    poll_seconds=1,
    start_date=START_DATE,
)
"""


@dataclass
class Watching:
    """An Airflow that watches a topic with 5 undrained records."""

    airflow: LocalAirflow
    topic: str

    def ask(self, query: str) -> list[Any]:
        return rows_of(self.airflow, query)

    def drains(self) -> list[Any]:
        """Return id and state of the drains that were started."""
        return self.ask("SELECT run_id, state FROM dag_run WHERE dag_id = 'drain_p'")

    def states(self) -> list[str]:
        """Return the states of the task that watches, one for each run, in no order."""
        query = "SELECT state FROM task_instance WHERE dag_id = 'watch_pipelines' AND task_id = "
        return [state for (state,) in self.ask(f"{query}'watch'")]


@pytest.fixture
def watching(
    tmp_path: Path,
    bootstrap_servers: str,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Watching]:
    """An Airflow on PostgreSQL, as it needs two writers."""
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION", "False")
    topic = make_topic(partitions=1)
    send(topic, [(b"k", b"v", None, 0)] * 15)
    pipeline = drained(tmp_path, cluster, topic, 10, lag=10)
    (tmp_path / "dags").mkdir()
    file = tmp_path / "dags" / "watch.py"
    file.write_text(DAGS.format(topic=topic, archive=pipeline.archive))
    with LocalPostgres(tmp_path / "postgres") as server:
        airflow = LocalAirflow(
            tmp_path, bootstrap_servers, free_port(), tmp_path / "dags", server.url
        )
        with airflow:
            airflow.run("db", "migrate", log="migrate")
            yield Watching(airflow, topic)
        server.stop()
        server.remove()


def test_watch_dag_run(watching: Watching, send: Any) -> None:
    """A run of the DAG starts the drain that is due, with the reason in its conf."""
    send(watching.topic, [(b"k", b"v", None, 0)] * 5)
    watching.airflow.run("dags", "reserialize", log="reserialize")

    watching.airflow.test_dag("watch_pipelines", "watch", print)

    ((run_id, _),) = watching.drains()
    assert run_id.startswith("watch__")


@pytest.mark.skipif(not AIRFLOW_V_3_0_PLUS, reason="`airflow standalone` is waited for by API 2")
def test_watch_in_triggerer(watching: Watching, send: Any) -> None:
    """The wait is in the triggerer; the drain runs once, and the next watch waits again."""
    with watching.airflow.running():
        wait_for(lambda: watching.states() == ["deferred"], "deferred", patience=240, pause=0.5)
        assert watching.drains() == []

        send(watching.topic, [(b"k", b"v", None, 0)] * 5)
        wait_for(
            lambda: [state for _, state in watching.drains()] == ["success"],
            "a drain",
            patience=240,
            pause=0.5,
        )
        wait_for(
            lambda: sorted(watching.states()) == ["deferred", "success"],
            "the next",
            patience=240,
            pause=0.5,
        )
    [(reason,)] = watching.ask("SELECT value FROM xcom WHERE dag_id = 'drain_p'")
    assert REASON in json.dumps(reason)
    assert len(watching.drains()) == 1
