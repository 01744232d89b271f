"""The recipes of docs/composing.md, run by a real Airflow 3 with real Spark and a real broker."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone
from importlib.metadata import version
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_1_PLUS

from demo.broker import KafkaCluster
from demo.flights import create_topic, flight_records, produce
from demo.local_airflow import LocalAirflow
from demo.local_postgres import LocalPostgres
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plans import list_plans
from kafka_drain.proof.validation import validate_archive
from tests.airflow_api import AirflowApi, rows_of
from tests.faults.injection import wait_for
from tests.integration.test_airflow_backfill import free_port

pytestmark = [
    pytest.mark.integration,
    pytest.mark.airflow,
    pytest.mark.skipif(not AIRFLOW_V_3_1_PLUS, reason="approval and deadlines need Airflow 3.1"),
]

if AIRFLOW_V_3_1_PLUS:
    from airflow.providers.standard.operators.hitl import HITLOperator

ROOT = Path(__file__).resolve().parents[2]
#: Deadlines' callbacks may be functions of the DAG file.
IS_3_3 = tuple(map(int, version("apache-airflow").split(".")[:2])) >= (3, 3)
#: Whether Airflow's operator has the `response_timeout` of approved_restore.py.
HAS_TIMEOUT = (
    AIRFLOW_V_3_1_PLUS and "response_timeout" in signature(HITLOperator.__init__).parameters
)
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
        return rows_of(self.airflow, query)

    def xcoms(self, dag_id: str, task_id: str, key: str = "return_value") -> list[Any]:
        """Return the values that a task has pushed, oldest first."""
        rows = self.ask(
            f"SELECT value FROM xcom WHERE dag_id = '{dag_id}' AND task_id = '{task_id}' "
            f"AND key = '{key}' ORDER BY timestamp"
        )
        return [decoded(value) for (value,) in rows]


def decoded(value: Any) -> Any:
    """Return a JSON value; depending on its column's type, the driver has decoded it once."""
    while isinstance(value, str):
        value = json.loads(value)
    return value


@pytest.fixture(scope="module")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the recipes' topics have the names that other tests' have."""
    with KafkaCluster(tmp_path_factory.mktemp("recipes_broker")) as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def recipes(tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str) -> Iterator[Recipes]:
    """A new Airflow with the recipes, whose topics hold flights, after a first drain."""
    folder = tmp_path_factory.mktemp("recipes")
    for topic, records in {"flights": RECORDS, "arrivals": FEW, "departures": FEW}.items():
        create_topic(bootstrap_servers, topic)
        assert produce(bootstrap_servers, topic, islice(flight_records(), records)) == records
    dags = shutil.copytree(ROOT / "docs" / "recipes", folder / "dags")
    if not IS_3_3:
        (dags / "freshness_deadline.py").unlink()
    middle = next(islice(flight_records(), RECORDS // 2, None)).timestamp
    (dags / "mapped.py").write_text(MAPPED.format(first=as_option(middle)))
    with pytest.MonkeyPatch.context() as variables, LocalPostgres(folder / "postgres") as server:
        # Three seconds: no drain is that fast.
        variables.setenv("RECIPE_LATE_MINUTES", "0.05")
        airflow = LocalAirflow(folder, bootstrap_servers, free_port(), dags, server.url)
        with airflow:
            airflow.run("db", "migrate", log="migrate")
            airflow.run("dags", "reserialize", log="reserialize")
            airflow.run("dags", "unpause", "handed_over", log="unpause")
            found = Recipes(airflow)
            found.test("drain_then_load", "drain_then_load")
            # Its run is waiting: a scheduler would start it before the API server answers.
            airflow.run("dags", "pause", "handed_over", log="pause")
            yield found
        server.stop()
        server.remove()


@pytest.fixture(scope="module")
def api(recipes: Recipes) -> Iterator[AirflowApi]:
    """The same Airflow with its scheduler; from now on, it starts the runs."""
    with recipes.airflow.running():
        found = AirflowApi.login(recipes.airflow)
        found.unpause("handed_over")
        yield found


@pytest.fixture(scope="module")
def question(api: AirflowApi) -> dict[str, Any]:
    """What a run of approved_restore asks; it waits for the answer."""
    api.unpause("approved_restore")
    api.trigger("approved_restore", "restore")
    return api.question("approved_restore", "restore")


@pytest.fixture(scope="module")
def late_run(api: AirflowApi, question: dict[str, Any], bootstrap_servers: str) -> str:
    """A scheduled drain that took longer than its deadline; it drained FEW more flights.

    Returns its id.
    """
    newer = islice(flight_records(), RECORDS, RECORDS + FEW)
    assert produce(bootstrap_servers, "flights", newer) == FEW
    api.unpause("drain_flights")
    runs = "/dags/drain_flights/dagRuns"
    wait_for(
        lambda: api.ask("GET", runs)["total_entries"], "a scheduled run", patience=120, pause=0.5
    )
    [run] = api.ask("GET", runs)["dag_runs"]
    run_id = str(run["dag_run_id"])
    assert set(api.ended("drain_flights", quote(run_id)).values()) == {"success"}
    return run_id


def as_option(milliseconds: int) -> str:
    """Return a time in the form of the operators' options."""
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat()


def test_recipe_drain_then_load(recipes: Recipes) -> None:
    """Spark counts exactly the flights that the same run has drained; without any, it's skipped."""
    carriers = Counter(record.key.decode() for record in islice(flight_records(), RECORDS))
    [sealed] = recipes.xcoms("drain_then_load", "kafka.validate", "sealed")

    assert recipes.xcoms("drain_then_load", "flights_by_carrier") == [dict(carriers)]
    assert (sealed["records"], sealed["topics"]["flights"]["offsets"]) == (RECORDS, RECORDS)
    recipes.test("drain_then_load", "nothing_new")
    states = recipes.ask(
        "SELECT task_instance.state FROM task_instance JOIN dag_run USING (run_id, dag_id) "
        "WHERE task_id = 'flights_by_carrier' ORDER BY dag_run.id"
    )
    assert [state for (state,) in states] == ["success", "skipped"]


def test_recipe_load_once(recipes: Recipes) -> None:
    """Each flight is loaded once; a second run has nothing to load."""
    for run in ("first", "second"):
        recipes.test("load_once", run)

    assert recipes.xcoms("load_once", "load") == [1, 0]
    with duckdb.connect(str(recipes.airflow.archives / "warehouse.duckdb")) as warehouse:
        found = warehouse.execute(
            'SELECT count(*), count(DISTINCT ("partition", "offset")) FROM flights'
        )
        assert found.fetchall() == [(RECORDS, RECORDS)]


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
    told = {uri.rpartition("/")[2]: decoded(extra)["segments"] for uri, extra in events}
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

    [checked] = recipes.xcoms("mapped", "check")
    assert checked["pipeline"] == "flights"
    sent = [
        record for topic in ("before", "after") for part in read(topic).values() for record in part
    ]
    whole = [record for part in read("flights").values() for record in part]
    assert len(sent) == RECORDS
    assert sorted(map(repr, sent)) == sorted(map(repr, whole))


@pytest.mark.recipes
@pytest.mark.skipif(not IS_3_3, reason="the recipe of a deadline needs Airflow 3.3")
def test_recipe_freshness_deadline(recipes: Recipes, late_run: str) -> None:
    """While the drain runs, its deadline passes, and the recipe's function is called, once."""

    def called() -> list[tuple[Any, ...]]:
        return recipes.ask(
            "SELECT dag_run.run_id, deadline.missed, callback.state FROM deadline "
            "JOIN callback ON callback.id = deadline.callback_id "
            "JOIN dag_run ON dag_run.id = deadline.dagrun_id"
        )

    expected = [(late_run, True, "success")]
    wait_for(lambda: called() == expected, "the callback", patience=120, pause=0.5)

    folder = recipes.airflow.home / "logs" / "executor_callbacks" / "drain_flights" / late_run
    [log] = folder.iterdir()
    assert log.read_text().count("drain_flights: not proven within 0.05 minutes") == 1


@pytest.mark.recipes
@pytest.mark.skipif(not IS_3_3, reason="the recipe of a deadline needs Airflow 3.3")
def test_recipe_approved_restore(
    recipes: Recipes, api: AirflowApi, question: dict[str, Any], late_run: str, read: Any
) -> None:
    """A person sees what is sent, and exactly that is, although more was drained since.

    The page of restores shows it, whatever the DAG is called.
    """
    [plan_id] = list_plans(Archive.at(str(recipes.airflow.archives / "flights")).root)
    assert question["subject"] == f"Send {RECORDS} records to Kafka?"
    assert f"### Send {RECORDS} records of flights to Kafka" in question["body"]
    assert "flights_restored" in question["body"]
    assert sum(map(len, read("flights").values())) == RECORDS + FEW

    states = api.answer("approved_restore", "restore", "Approve")

    assert states == {"plan": "success", "approve": "success", "send": "success"}
    sent, whole = read("flights_restored"), read("flights")
    assert sum(map(len, sent.values())) == RECORDS
    assert sent == {partition: whole[partition][: len(part)] for partition, part in sent.items()}
    assert list_plans(Archive.at(str(recipes.airflow.archives / "flights")).root) == [plan_id]
    page = api.page("/kafka-drain/restores")
    for shown in ("flights plan ", "verified, exact", "flights_restored"):
        assert shown in page
    told = {"pipeline": "flights", "archive": str(recipes.airflow.archives / "flights")}
    [of_send] = recipes.xcoms("approved_restore", "send", "archive")
    assert of_send == told | {"is_restore": True}


@pytest.mark.recipes
@pytest.mark.skipif(not IS_3_3, reason="the recipe of a deadline needs Airflow 3.3")
def test_recipe_handed_over(recipes: Recipes, api: AirflowApi, late_run: str) -> None:
    """The events of both drains start the other DAG, which reads exactly what each has sealed."""
    wait_for(
        lambda: recipes.xcoms("handed_over", "newly_sealed") == [RECORDS, FEW],
        "both runs",
        patience=120,
        pause=0.5,
    )

    runs = recipes.ask("SELECT run_type, state FROM dag_run WHERE dag_id = 'handed_over'")
    assert {run_type for run_type, _ in runs} == {"asset_triggered"}


def test_recipes_load(recipes: Recipes) -> None:
    """Airflow loads every recipe, but for what a provider is too old for, as the recipe says."""
    refused = [] if HAS_TIMEOUT else [("approved_restore.py",)]
    assert recipes.ask("SELECT filename FROM import_error") == refused
