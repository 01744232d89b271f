"""The example DAGs, run by a real Airflow with real Spark and a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.local_airflow import AirflowError, LocalAirflow
from kafka_drain.archive import Archive
from tests.conftest import manifest_files

pytestmark = pytest.mark.integration

RECORDS = [(b"AA", str(n).encode(), [("n", None)], 1_357_041_600_000 + n) for n in range(500)]


@pytest.fixture(scope="module")
def airflow(
    tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str
) -> Iterator[LocalAirflow]:
    """An Airflow with a new database."""
    local = LocalAirflow(tmp_path_factory.mktemp("airflow"), bootstrap_servers)
    local.run("db", "migrate", log="migrate")
    yield local
    local.stop()


def test_dags_drain_validate_and_republish(
    airflow: LocalAirflow, make_topic: Any, send: Any, read: Any
) -> None:
    """A topic is drained, nothing is drained twice, and the files go back to Kafka equal."""
    make_topic(name="flights", partitions=2)
    target = make_topic(partitions=2)
    send("flights", RECORDS, partition=1)
    archive = Archive.at(str(airflow.archives / "flights"))
    said: list[str] = []

    airflow.test_dag("drain_flights", "drain_1", said.append)
    after_first = manifest_files(archive)
    airflow.test_dag("drain_flights", "drain_2", said.append)

    assert "drain flights: 500 of 500 offsets (100 %)" in "\n".join(said)
    assert any("500 records in 1 batch, offsets behind latest: min 0" in line for line in said)
    assert "drain flights: nothing new, Spark isn't started" in said
    assert manifest_files(archive) == after_first == ["0"]
    reports = [json.loads(p.read_text()) for p in (Path(archive.root) / "reports").glob("*.json")]
    assert [(r["verdict"], r["records"]) for r in reports] == [("complete", 500)] * 2

    dry_run = json.dumps({"target_topic": target})
    airflow.test_dag("republish_flights", "republish_dry", said.append, "--conf", dry_run)
    assert read(target) == {0: [], 1: []}

    conf = json.dumps({"target_topic": target, "dry_run": False})
    airflow.test_dag("republish_flights", "republish", said.append, "--conf", conf)
    assert read(target) == read("flights")


def test_dags_fail_clearly(airflow: LocalAirflow) -> None:
    """A republish to a topic that doesn't exist fails the run and says what to do."""
    conf = json.dumps({"target_topic": "nowhere", "dry_run": False})

    with pytest.raises(AirflowError, match="topic nowhere doesn't exist"):
        airflow.test_dag("republish_flights", "nowhere", lambda line: None, "--conf", conf)
