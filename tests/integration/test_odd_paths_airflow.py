"""The assets of archives in folders with odd names, in Airflow's own database."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

from demo.local_airflow import LocalAirflow
from tests.odd_paths import TOGETHER, WORKS

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

NAMES = [*WORKS.values(), *TOGETHER.values()]
ROOT = Path(__file__).parents[2]
KIND = "asset" if AIRFLOW_V_3_0_PLUS else "dataset"

#: Archives, and DAGs that are scheduled on their assets.
DAGS = """
import json
from datetime import datetime
from pathlib import Path

from airflow.providers.common.compat.sdk import DAG, BaseOperator

from kafka_drain_airflow import Pipeline, archive_asset, create_dags

for number, name in enumerate(json.loads(Path({names!r}).read_text())):
    pipeline = Pipeline(name=f"p{{number}}", topics=["t"], archive=f"/data/{{name}}/a")
    globals().update(create_dags(pipeline))
    with DAG(
        f"after_{{number}}",
        schedule=[archive_asset(pipeline)],
        start_date=datetime(2026, 1, 1),
        is_paused_upon_creation=False,
    ) as after:
        BaseOperator(task_id="nothing")
    globals()[after.dag_id] = after
"""

#: What Airflow does when the tasks that have the assets as outlets succeed.
REGISTER = """
import warnings
warnings.simplefilter("ignore")
from airflow.utils.session import create_session
try:
    from airflow.assets.manager import asset_manager
    from airflow.models.asset import AssetModel
    with create_session() as session:
        for model in session.query(AssetModel):
            asset_manager.register_asset_change(asset=model, session=session)
except ImportError:  # Airflow 2
    from airflow.datasets import Dataset
    from airflow.datasets.manager import dataset_manager
    from airflow.models.dataset import DatasetModel
    with create_session() as session:
        for model in session.query(DatasetModel):
            dataset_manager.register_dataset_change(dataset=Dataset(model.uri), session=session)
"""


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], list[Any]]:
    """Ask the database of an Airflow that has loaded such DAGs, and had an event of each asset."""
    folder = tmp_path_factory.mktemp("odd")
    dags = folder / "dags"
    dags.mkdir()
    names = folder / "names.json"
    names.write_text(json.dumps(NAMES))
    (dags / "odd.py").write_text(DAGS.format(names=str(names)))
    with LocalAirflow(folder, "127.0.0.1:1", dags=dags) as airflow:
        airflow.run("db", "migrate", log="migrate")
        airflow.run("dags", "reserialize", log="reserialize")
        path = os.pathsep.join(str(ROOT / name) for name in ("plugins", "spark_jobs"))
        environment = {**airflow.environment, "PYTHONPATH": path}
        command = [sys.executable, "-c", REGISTER]
        ended = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr[-2000:]

    def run(query: str) -> list[Any]:
        connection = sqlite3.connect(airflow.home / "airflow.db")
        try:
            return list(connection.execute(query.format(kind=KIND)))
        finally:
            connection.close()

    return run


def test_asset_odd_path_registered(ask: Callable[[str], list[Any]]) -> None:
    """Each path's validation has an asset of its own, and its DAG is scheduled on that one."""
    assert ask("SELECT stacktrace FROM import_error") == []
    produced = ask(
        "SELECT dag_id, task_id, uri FROM task_outlet_{kind}_reference JOIN {kind}"
        " ON id = {kind}_id WHERE task_id = 'validate'"
    )
    scheduled = ask(
        "SELECT dag_id, uri FROM dag_schedule_{kind}_reference JOIN {kind} ON id = {kind}_id"
    )
    wanted = {n: f"/data/{name}/a" for n, name in enumerate(NAMES)}

    assert {
        dag_id: unquote(uri.removeprefix("file://"))
        for dag_id, _, uri in produced
        if dag_id.startswith("drain_")
    } == {f"drain_p{n}": path for n, path in wanted.items()}
    assert len({uri for _, _, uri in produced}) == len(NAMES)
    assert sorted(scheduled) == sorted(
        (dag_id.replace("drain_p", "after_"), uri)
        for dag_id, _, uri in produced
        if dag_id.startswith("drain_")
    )


def test_asset_odd_path_event(ask: Callable[[str], list[Any]]) -> None:
    """An event of each asset makes Airflow start the DAG that is scheduled on it, no other."""
    queued = ask(
        "SELECT target_dag_id, uri FROM {kind}_dag_run_queue JOIN {kind} ON id = {kind}_id"
    )

    assert sorted((dag, unquote(uri.removeprefix("file://"))) for dag, uri in queued) == sorted(
        (f"after_{n}", f"/data/{name}/a") for n, name in enumerate(NAMES)
    )
