"""Operators run their applications on the engine of their Spark connection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]

# In a separate process: importing Airflow changes logging and warnings permanently.
ASK = """
import json, sys, warnings
warnings.simplefilter("ignore")
from kafka_drain_airflow import KafkaDrainOperator, Pipeline
pipeline = Pipeline(name="p", topics=["t"], archive="/archive")
def of(error):
    return [type(error).__name__, str(error)]
try:
    made = KafkaDrainOperator(task_id="task", pipeline=pipeline, **json.loads(sys.argv[1]))
    engine = made._engine()
    made.on_kill()
    found = None if type(engine).__name__ == "SparkCluster" else made.runner.find(None)
    print(json.dumps([type(engine).__name__, found, made._engine() is engine]))
except Exception as error:
    print(json.dumps(of(error)))
"""


def ask(tmp_path: Path, connection: dict[str, Any], arguments: dict[str, Any]) -> Any:
    """Make an operator with a connection; return its engine, or its error."""
    (tmp_path / "yarn-site.xml").write_text("<configuration/>")
    ended = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(arguments)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "plugins"),
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark"} | connection),
            "HADOOP_CONF_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("connection", "engine"),
    [
        ({"host": "local[2]"}, "SparkSubmit"),
        ({"host": "yarn"}, "SparkSubmit"),
        ({"host": "yarn", "extra": {"deploy-mode": "cluster"}}, "SparkCluster"),
        ({"host": "k8s://https://h", "port": 443}, "SparkSubmit"),
        ({"host": "k8s://h", "extra": {"deploy-mode": "cluster"}}, "SparkCluster"),
        ({"host": "sc://h"}, "SparkConnect"),
    ],
)
def test_engine_of_connection(tmp_path: Path, connection: dict[str, Any], engine: str) -> None:
    """The connection chooses the engine, without Airflow's Spark or Kubernetes provider."""
    assert ask(tmp_path, connection, {}) == [engine, None, True]


def test_engine_not_by_argument(tmp_path: Path) -> None:
    """An argument of Airflow's own Spark operator doesn't pass by the connection's check."""
    kind, message = ask(tmp_path, {"host": "local[2]"}, {"deploy_mode": "cluster"})

    assert kind == "ConfigError"
    assert "deploy_mode" in message


@pytest.mark.parametrize("argument", ["deploy_mode", "conf", "conn_id", "application_args"])
@pytest.mark.parametrize("host", ["local[2]", "k8s://https://h"])
def test_no_argument_of_spark_operator(tmp_path: Path, host: str, argument: str) -> None:
    """What Airflow's own Spark operator would take is refused by name, not overwritten."""
    kind, message = ask(tmp_path, {"host": host}, {argument: "x"})

    assert kind == "ConfigError"
    assert argument in message


REMEMBER = """
import json, sys, warnings
warnings.simplefilter("ignore")
from kafka_drain_airflow import KafkaDrainOperator, Pipeline
made = KafkaDrainOperator(
    task_id="task", pipeline=Pipeline(name="p", topics=["t"], archive="/archive")
)
class Store(dict):
    def set(self, key, value):
        if key in self:
            raise RuntimeError("the store is down")
        self[key] = value
store = Store()
made._remember("a_0")  # before Airflow 3.3
made._state = store
made._remember("a_1")
made._remember("a_2")
print(json.dumps(store))
"""


def test_task_state_store(tmp_path: Path) -> None:
    """An application's id is in Airflow's task state store; a store that is down fails no task."""
    ended = subprocess.run(
        [sys.executable, "-c", REMEMBER],
        env={**os.environ, "PYTHONPATH": str(ROOT / "plugins"), "AIRFLOW_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(ended.stdout.splitlines()[-1]) == {"spark_application": "a_1"}


# What a job is watched for ends it through its runner.
STOP = """
import json, sys, warnings
from types import SimpleNamespace as Some
warnings.simplefilter("ignore")
from kafka_drain.spark.engine import stop_running
from kafka_drain.windows import backfill, backfill_plan
from kafka_drain_airflow import KafkaDrainOperator, Pipeline
pipeline = Pipeline(name="p", topics=["t"], archive="/archive")
made = KafkaDrainOperator(task_id="task", pipeline=pipeline)
stopped = []
made._engine().stop = lambda: stopped.append("stopped")
plan = Some(lines=list, nothing_to_do=False, ranges={})
backfill_plan.plan_backfill = lambda *_, **__: plan
def run(plan, pipeline, cluster, runner, run):
    stop_running(runner)
    return {"records": 0}
backfill.run_backfill = run
cluster = Some(config=Some(bootstrap_servers="h"))
made._drain_window(pipeline, cluster, Some(force=False, acknowledged=[]), None, {"run_id": "r"})
print(json.dumps(stopped))
"""


def test_window_stopped_by_its_watch(tmp_path: Path) -> None:
    """A window whose topic was deleted, or whose Kafka is away, is ended in Airflow as well."""
    ended = subprocess.run(
        [sys.executable, "-c", STOP],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "plugins"),
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        },
        capture_output=True,
        text=True,
        check=True,
    )

    assert json.loads(ended.stdout.splitlines()[-1]) == ["stopped"]


def test_operators_pass_runners() -> None:
    """No operator passes just the function that runs an application, which nobody could stop."""
    folder = ROOT / "plugins" / "kafka_drain_airflow" / "operators"
    sources = {path.name: path.read_text() for path in folder.glob("*.py")}

    assert [name for name, text in sources.items() if "self.run_application" in text] == [
        "spark_job.py"
    ]
