"""The DAGs of a group of pipelines, as Airflow loads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.dags.test_dags import LOAD_BAG, run_python

DAG_FILE = """
from kafka_drain_airflow import Pipeline, create_group_dags

pipelines = [
    Pipeline(name=name, topics=[name], archive=f"/archives/{name}") for name in ("a", "b")
]
create_group_dags("hourly", pipelines)
"""


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The DAGs of a file that declares one group of two pipelines."""
    folder = tmp_path_factory.mktemp("dags")
    (folder / "group.py").write_text(DAG_FILE)
    bag = run_python(LOAD_BAG, Path(folder), tmp_path_factory.mktemp("airflow"))
    assert bag["errors"] == {}
    found: dict[str, Any] = bag["dags"]
    return found


def test_group_dags_are_those_of_group_and_pipelines(dags: dict[str, Any]) -> None:
    """One DAG drains the group; each pipeline keeps its own four DAGs."""
    kinds = ("drain", "republish", "reprocess", "maintain")

    assert set(dags) == {"drain_group_hourly", *(f"{k}_{name}" for k in kinds for name in "ab")}


def test_group_dag_drains_once_and_validates_each(dags: dict[str, Any]) -> None:
    """Validations run even if other pipelines failed, and a failed drain fails the run."""
    tasks = dags["drain_group_hourly"]["tasks"]

    assert tasks["drain"]["class"] == "KafkaDrainGroupOperator"
    assert tasks["drain"]["downstream"] == ["done", "validate_a", "validate_b"]
    for name in ("validate_a", "validate_b"):
        assert tasks[name]["downstream"] == ["done"]
        assert tasks[name]["trigger_rule"] == "all_done"
        assert tasks[name]["outlets"] == [f"file:///archives/{name[-1]}"]
    assert (tasks["done"]["downstream"], tasks["done"]["trigger_rule"]) == ([], "all_success")


def test_group_dag_alone_is_scheduled(dags: dict[str, Any]) -> None:
    """Only the group's drains are scheduled; a pipeline's own are left to backfills."""
    assert dags["drain_group_hourly"]["schedule"] == ["CronDataIntervalTimetable", "0 * * * *"]
    for name in "ab":
        assert dags[f"drain_{name}"]["schedule"] == ["BackfillTimetable", "Backfills only"]


def test_restore_schemas_dag(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A pipeline with a target registry can restore schemas there, and checks a republish by it."""
    folder = tmp_path_factory.mktemp("schemas")
    (folder / "schemas.py").write_text(
        "from kafka_drain_airflow import Pipeline, create_dags\n"
        "create_dags(Pipeline(name='p', topics=['t'], archive='/a', target_registry_conn_id='r'))\n"
        "create_dags(Pipeline(name='q', topics=['t'], archive='/b'))\n"
    )
    bag = run_python(LOAD_BAG, Path(folder), tmp_path_factory.mktemp("airflow"))
    assert bag["errors"] == {}
    dag = bag["dags"]["restore_schemas_p"]

    assert dag["schedule"][0] == "NullTimetable"
    assert list(dag["tasks"]) == ["restore_schemas"]
    assert {n: p["default"] for n, p in dag["params"].items()} == {
        "apply": False,
        "schema_map": "restored",
        "ids": "new",
    }
    assert all(param["title"] for param in dag["params"].values())
    republish = bag["dags"]["republish_p"]["tasks"]
    assert republish["republish"]["downstream"] == ["check_decoding"]
    assert list(bag["dags"]["republish_q"]["tasks"]) == ["republish"]
    assert "restore_schemas_q" not in bag["dags"]


def test_drill_dag(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A pipeline that declares drills has a DAG for them, with a check that always runs.

    A drill that was killed has no result that the check could see; the run fails nevertheless.
    """
    folder = tmp_path_factory.mktemp("drills")
    (folder / "drills.py").write_text(
        "from kafka_drain_airflow import Pipeline, create_dags\n"
        "create_dags(Pipeline(name='p', topics=['t'], archive='/a', drill={'max_age_days': 9}))\n"
    )
    bag = run_python(LOAD_BAG, Path(folder), tmp_path_factory.mktemp("airflow"))
    assert bag["errors"] == {}
    dag = bag["dags"]["drill_p"]

    assert dag["schedule"][1] == "0 0 * * 0"
    assert dag["tasks"]["drill"]["downstream"] == ["check", "done"]
    assert dag["tasks"]["check"]["trigger_rule"] == "all_done"
    assert dag["tasks"]["check"]["downstream"] == ["done"]
    assert (dag["tasks"]["done"]["downstream"], dag["tasks"]["done"]["trigger_rule"]) == (
        [],
        "all_success",
    )
    assert dag["params"]["sample"]["default"] == "random_day"
    assert "none passed for 9 days" in dag["doc_md"]
    for name in ("sample", "seed"):
        assert dag["params"][name]["title"]
        assert len(dag["params"][name]["description"]) > 20
