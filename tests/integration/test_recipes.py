"""The recipes of docs/composing.md, run by a real Airflow 3 with real Spark and a real broker."""

from __future__ import annotations

import contextlib
import json
import runpy
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_1_PLUS

from demo.broker import KafkaCluster
from demo.flights import create_topic, flight_records, produce
from demo.local_airflow import LocalAirflow
from kafka_drain.archive.archive import Archive
from kafka_drain.proof.validation import validate_archive

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.skipif(not AIRFLOW_V_3_1_PLUS, reason="approval and deadlines need Airflow 3.1"),
]

ROOT = Path(__file__).resolve().parents[2]
RECORDS, FEW = 500, 60

#: Mapped operators beside a recipe's mapped group: over pipelines of a task, and over moments.
MAPPED = """
import os
from datetime import datetime, timezone
from airflow.providers.common.compat.sdk import DAG, task
from kafka_drain_airflow import Pipeline, PreflightOperator, RepublishToKafkaOperator

FLIGHTS = Pipeline(
    name="flights",
    topics=["flights"],
    archive=os.environ["KAFKA_DRAIN_ARCHIVES"] + "/flights",
    partition_by=["topic"],
)
FIRST = {first!r}

with DAG("mapped", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc)):
    @task
    def pipelines():
        return [FLIGHTS.model_dump(exclude_unset=True)]

    check = PreflightOperator.partial(task_id="check").expand(pipeline=pipelines())
    check >> RepublishToKafkaOperator.partial(
        task_id="send", pipeline=FLIGHTS, apply=True, create_target=True,
    ).expand_kwargs([
        {{"target_topic": "before", "to_time": FIRST}},
        {{"target_topic": "after", "from_time": FIRST}},
    ])
"""


@dataclass
class Recipes:
    """An Airflow whose DAGs are the recipes."""

    airflow: LocalAirflow
    said: list[str] = field(default_factory=list)

    def test(self, dag_id: str, log: str) -> None:
        """Run a DAG in one process."""
        self.airflow.test_dag(dag_id, log, self.said.append)

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Return a query's rows from Airflow's database."""
        with contextlib.closing(sqlite3.connect(self.airflow.home / "airflow.db")) as database:
            return database.execute(query).fetchall()

    def xcom(self, dag_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return the newest value that a task has pushed."""
        [(value,)] = self.ask(
            f"SELECT value FROM xcom WHERE dag_id = '{dag_id}' AND task_id = '{task_id}' "
            f"AND key = '{key}' ORDER BY timestamp DESC LIMIT 1"
        )
        value = json.loads(value)
        return json.loads(value) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the recipes' topics have the names that other tests' have."""
    with KafkaCluster(tmp_path_factory.mktemp("recipes_broker")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Recipes]:
    """A new Airflow with the recipes, whose topics hold flights; nothing is drained."""
    folder = tmp_path_factory.mktemp("recipes")
    for topic, records in {"flights": RECORDS, "arrivals": FEW, "departures": FEW}.items():
        create_topic(bootstrap_servers, topic)
        assert produce(bootstrap_servers, topic, islice(flight_records(), records)) == records
    dags = shutil.copytree(ROOT / "docs" / "recipes", folder / "dags")
    middle = next(islice(flight_records(), RECORDS // 2, None)).timestamp
    (dags / "mapped.py").write_text(MAPPED.format(first=as_option(middle)))
    with LocalAirflow(folder, bootstrap_servers, dags=dags) as airflow:
        airflow.run("db", "migrate", log="migrate")
        airflow.run("dags", "reserialize", log="reserialize")
        found = Recipes(airflow)
        found.test("drain_then_load", "drain_then_load")
        yield found


def as_option(milliseconds: int) -> str:
    """Return a time in the form of the operators' options."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat()


def test_recipe_drain_then_load(recipes: Recipes) -> None:
    """Spark counts exactly the flights that the same run has drained; without any, it's skipped."""
    carriers = Counter(record.key.decode() for record in islice(flight_records(), RECORDS))
    sealed = recipes.xcom("drain_then_load", "kafka.validate", "sealed")

    assert recipes.xcom("drain_then_load", "flights_by_carrier") == dict(carriers)
    assert (sealed["records"], sealed["topics"]["flights"]["offsets"]) == (RECORDS, RECORDS)
    recipes.test("drain_then_load", "nothing_new")
    states = recipes.ask(
        "SELECT task_instance.state FROM task_instance JOIN dag_run USING (run_id, dag_id) "
        "WHERE task_id = 'flights_by_carrier' ORDER BY dag_run.id"
    )
    assert [state for (state,) in states] == ["success", "skipped"]


def test_recipe_many_topics(recipes: Recipes) -> None:
    """Each topic is drained to its own archive, whose asset gets its own event."""
    recipes.test("many_topics", "many_topics")

    for topic in ("arrivals", "departures"):
        report = validate_archive(Archive.at(str(recipes.airflow.archives / topic)), None)
        assert (report.complete, report.records) == (True, FEW)
    events = recipes.ask(
        "SELECT asset.uri, asset_event.extra FROM asset_event "
        "JOIN asset ON asset.id = asset_event.asset_id "
        "WHERE asset_event.source_dag_id = 'many_topics'"
    )
    told = {uri.rpartition("/")[2]: json.loads(extra)["segments"] for uri, extra in events}
    assert {name: segments[0]["records"] for name, segments in told.items()} == {
        "arrivals": FEW,
        "departures": FEW,
    }
    names = recipes.ask(
        "SELECT rendered_map_index FROM task_instance WHERE dag_id = 'many_topics' "
        "AND task_id = 'drain_topic.validate' ORDER BY map_index"
    )
    assert [name for (name,) in names] == ["arrivals", "departures"]


def test_expand_over_pipelines_and_moments(recipes: Recipes, read: Any) -> None:
    """Mapped operators take pipelines from a task, and each moment is a republish of its own."""
    recipes.test("mapped", "mapped")

    assert recipes.xcom("mapped", "check")["pipeline"] == "flights"
    sent = [
        record for topic in ("before", "after") for part in read(topic).values() for record in part
    ]
    whole = [record for part in read("flights").values() for record in part]
    assert len(sent) == RECORDS
    assert sorted(map(repr, sent)) == sorted(map(repr, whole))


def test_recipe_handed_over(recipes: Recipes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other DAG reads exactly the records of the segments that the events tell of."""
    monkeypatch.setenv("KAFKA_DRAIN_ARCHIVES", str(recipes.airflow.archives))
    newly_sealed = runpy.run_path(str(ROOT / "docs/recipes/handed_over.py"))["newly_sealed"]
    rows = recipes.ask(
        "SELECT extra, id FROM asset_event WHERE source_dag_id = 'drain_then_load' ORDER BY id"
    )
    events = [SimpleNamespace(extra=json.loads(extra)) for extra, _ in rows]

    counted = [
        newly_sealed.function(triggering_asset_events={"the archive": [event]}) for event in events
    ]

    assert counted == [RECORDS, *[0] * (len(events) - 1)]


def test_recipes_load(recipes: Recipes) -> None:
    """Airflow loads the recipes that need a person or a scheduler, with their operators."""
    loaded = {dag_id for (dag_id,) in recipes.ask("SELECT dag_id FROM serialized_dag")}

    assert {"approved_restore", "drain_flights", "handed_over"} <= loaded
    assert recipes.ask("SELECT filename FROM import_error") == []
