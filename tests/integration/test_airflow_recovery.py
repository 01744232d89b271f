"""A restore with its schemas, and drills to a second cluster, run by a real Airflow."""

from __future__ import annotations

import contextlib
import io
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import pytest
from fastavro import parse_schema, schemaless_writer

from demo.local_airflow import LocalAirflow
from kafka_drain.archive.drills import read_drills
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.schemas.capture import capture_schemas
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.schemas.schema_map import read_map
from tests.fake_registry import FakeRegistry, fake_registry
from tests.faults.injection import wait_for
from tests.integration.test_airflow_backfill import free_port
from tests.kafka_drain.made_archive import NOW, MadeArchive, dense

pytestmark = [pytest.mark.integration, pytest.mark.airflow]

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
RECORDS = 40
DAGS = """
from kafka_drain_airflow import Pipeline, create_dags

create_dags(
    Pipeline(
        name="recovered",
        topics=["orders"],
        archive={archive!r},
        target_registry_conn_id="target",
        drill={{"schedule": "@daily", "sample": "whole", "kafka_conn_id": "second"}},
    ),
    default_args={{"retries": 0}},
)
"""


@dataclass
class Recovered:
    """An Airflow, an archive that keeps its schemas, and where both can be restored to."""

    airflow: LocalAirflow
    made: MadeArchive
    target: FakeRegistry

    def test(self, dag_id: str, log: str, **conf: Any) -> str:
        """Run a DAG task by task; return its log."""
        said: list[str] = []
        self.airflow.test_dag(dag_id, log, said.append, "--conf", json.dumps(conf))
        return (self.airflow.logs / f"{log}.log").read_text()

    def states(self, dag_id: str) -> list[tuple[str, str, str]]:
        """Return the type of each run of a DAG, and its tasks with their states."""
        query = (
            "SELECT run_type, task_id, task_instance.state FROM task_instance "
            "JOIN dag_run USING (dag_id, run_id) WHERE dag_id = ? ORDER BY dag_run.id, task_id"
        )
        with contextlib.closing(sqlite3.connect(self.airflow.home / "airflow.db")) as database:
            return list(database.execute(query, (dag_id,)))


def order(id_: int, number: int) -> bytes:
    """Return a value in Confluent's wire format."""
    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(ORDER), {"id": number})
    return b"\0" + id_.to_bytes(4, "big") + stream.getvalue()


@pytest.fixture(scope="module")
def recovered(
    tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str, other_cluster: KafkaCluster
) -> Iterator[Recovered]:
    """Make the archive, and start an Airflow that doesn't run anything yet."""
    folder = tmp_path_factory.mktemp("recovered")
    (folder / "dags").mkdir()
    made = MadeArchive(folder / "archive", {"orders": "id-1"})
    made.seal({TopicPartition("orders", 0): dense(0, RECORDS)}, value=order(7, 5), key=b"k")
    made.open_generation()
    write_topic_settings(made.root, {"orders": TopicSettings(1, 1)})
    second = {"bootstrap.servers": other_cluster.config.bootstrap_servers}
    with (
        fake_registry() as source,
        fake_registry("me:s3cr3t", next_id=500) as target,
        pytest.MonkeyPatch.context() as patch,
    ):
        source.register("orders-value", 7, ORDER)
        capture_schemas(made.archive, SchemaRegistry(source.settings), now=NOW)
        for name, kind, extra in (
            ("SECOND", "kafka", second),
            ("TARGET", "generic", target.settings),
        ):
            connection = {"conn_type": kind, "extra": extra}
            patch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
        (folder / "dags" / "recovered.py").write_text(DAGS.format(archive=str(made.root)))
        airflow = LocalAirflow(folder, bootstrap_servers, free_port(), folder / "dags")
        with airflow:
            airflow.run("db", "migrate", log="migrate")
            yield Recovered(airflow, made, target)


def test_schemas_and_records(recovered: Recovered, read: Any) -> None:
    """Schemas are registered, ids replaced, and records decode, by a map named like a number."""
    form = {"schema_map": "2024", "target_topic": "restored", "create_target": True}

    recovered.test("restore_schemas_recovered", "plan")
    assert recovered.target._subjects == {}
    recovered.test("restore_schemas_recovered", "restore", apply=True, schema_map="2024")
    recovered.test("republish_recovered", "dry", **form)
    log = recovered.test("republish_recovered", "send", apply=True, **form)

    assert read_map(recovered.made.root, "2024").ids == {7: 500}
    values = [value for rows in read("restored").values() for _, value, *_ in rows]
    assert values == [order(500, 5)] * RECORDS
    assert f"decoded {RECORDS} of {RECORDS} keys and values in {RECORDS} records" in log
    assert [(task, state) for _, task, state in recovered.states("republish_recovered")] == [
        ("check_decoding", "skipped"),
        ("republish", "success"),
        ("check_decoding", "success"),
        ("republish", "success"),
    ]


@pytest.mark.skipif(
    version("apache-airflow").startswith("2."), reason="the demo's scheduler is that of Airflow 3"
)
def test_drill_scheduled(recovered: Recovered, other_cluster: KafkaCluster) -> None:
    """The scheduler runs a drill by its schedule; it restores to another cluster, and passes."""
    airflow = recovered.airflow
    before = other_cluster.topic_names()
    with airflow.running():
        airflow.run("dags", "unpause", "-y", "drill_recovered", log="unpause")
        expected = [("scheduled", task, "success") for task in ("check", "done", "drill")]
        wait_for(
            lambda: recovered.states("drill_recovered") == expected,
            "a drill",
            patience=180,
            pause=1,
        )

    [drill] = read_drills(recovered.made.root)
    assert (drill.verdict, drill.records, drill.problems) == ("passed", RECORDS, [])
    assert drill.cluster_id == other_cluster.cluster_id()
    assert drill.decoded is not None
    assert (drill.decoded.values, drill.decoded.decoded) == (RECORDS, RECORDS)
    assert other_cluster.topic_names() == before
