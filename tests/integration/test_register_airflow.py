"""A registration in a real Airflow: its templates are rendered, and a second run finds nothing."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

# For pyiceberg's SQL catalog. Airflow 2 pins SQLAlchemy 1.4.
pytest.importorskip("sqlalchemy", minversion="2")

from pyiceberg.catalog.sql import SqlCatalog

from demo.local_airflow import LocalAirflow
from tests.kafka_drain.golden import sealed_copy

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

DAGS = """
from airflow.providers.common.compat.sdk import DAG
from kafka_drain_airflow import Pipeline, RegisterTableOperator, archive_asset
from kafka_drain_airflow.dag_factory import START_DATE

flights = Pipeline(name="golden", topics=["flights"], archive="{archive}")
with DAG("register", schedule=[archive_asset(flights)], start_date=START_DATE, catchup=False):
    RegisterTableOperator(
        task_id="register",
        pipeline=flights,
        catalog="archives",
        table="kafka.{{{{ task.task_id }}}}",
        catalog_conn_id="iceberg",
    )
"""


def test_register_dag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of a DAG scheduled by the archive's asset makes the table; another adds nothing."""
    archive = sealed_copy(tmp_path / "archive")
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path}/catalog.db",
        "warehouse": f"file://{tmp_path}/tables",
    }
    connection = json.dumps({"conn_type": "generic", "extra": properties})
    monkeypatch.setenv("AIRFLOW_CONN_ICEBERG", connection)
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "register.py").write_text(DAGS.format(archive=archive.root))
    with closing(SqlCatalog("archives", **properties)) as catalog:
        catalog.create_namespace("kafka")
        with LocalAirflow(tmp_path / "airflow", "localhost:1", dags=dags) as airflow:
            airflow.run("db", "migrate", log="migrate")
            for _ in range(2):
                airflow.test_dag("register", "register", print)

        table = catalog.load_table("kafka.register")
        assert table.scan().count() == 84
        assert len(table.snapshots()) == 1
