"""Drains of Airflow on a Spark Connect server: a task that is killed, and one marked as failed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.spark.connect import ConnectAddress
from kafka_drain.spark.connect_reaching import look_at_server
from tests.airflow_worker import Drained, Worker, airflow_worker
from tests.faults.injection import wait_for
from tests.spark_connect import RECORDS, Server, assert_exact, remove_lease

pytestmark = [
    pytest.mark.integration,
    pytest.mark.connect,
    pytest.mark.skipif(
        version("apache-airflow").startswith("2."), reason="Airflow 2 has no supervisor of tasks"
    ),
]

#: 50 batches: in mid-query for longer than a task takes to start.
MAX_OFFSETS = 40
#: On a machine with other work, 50 batches take longer than a minute.
PATIENCE = 400.0


@pytest.fixture(scope="module")
def worker(
    server: Server, tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str
) -> Iterator[Worker]:
    """A worker of Airflow with a connection of type Spark Connect."""
    connection = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": server.port}
    variables = {"AIRFLOW_CONN_WARM": json.dumps(connection), "JAVA_HOME": "/nowhere"}
    folder = tmp_path_factory.mktemp("airflow")
    # A server's first session takes seconds, and a task fails if it waits for more than five.
    assert look_at_server(ConnectAddress.parse(server.master), seconds=PATIENCE) is None
    with airflow_worker(folder, bootstrap_servers, patience=PATIENCE, **variables) as running:
        yield running


@pytest.fixture
def drained(worker: Worker, topic: str, tmp_path: Path, request: pytest.FixtureRequest) -> Drained:
    """A pipeline on the server whose archive doesn't exist yet."""
    return Drained(
        worker,
        Pipeline(
            name=request.node.name,
            topics=[topic],
            archive=str(tmp_path / "archive"),
            spark_conn_id="warm",
            source_options={"maxOffsetsPerTrigger": MAX_OFFSETS},
        ),
    )


def clients(worker: Worker) -> list[str]:
    """Return the commands of the clients that the worker's tasks have started."""
    return [command for command in worker.processes().values() if "main.py" in command]


def test_task_killed_in_mid_query(worker: Worker, drained: Drained, cluster: Any) -> None:
    """A task's process is killed: its client ends, the query goes on, and the retry adopts it."""
    killed = drained.start_until_mid_query()
    metadata = drained.archive / "generations/0001/checkpoint/metadata"
    known = json.loads(metadata.read_text())["id"]

    worker.kill_task()

    killed.end()
    assert killed.server.results == []
    wait_for(lambda: not clients(worker), "the end of its client")
    remove_lease(drained.archive)
    began = time.monotonic()
    retry = drained.start()
    retry.wait_until(lambda: f"query {known} is running; following it" in retry.said(), "adoption")
    seconds = time.monotonic() - began
    result = retry.result()
    assert (result["query_id"], result["adopted"]) == (known, True)
    assert json.loads(metadata.read_text())["id"] == known
    sys.stderr.write(f"task killed: watched again {seconds:.1f} s after the retry's start\n")
    assert_exact(drained.archive, cluster)


def test_task_marked_failed(worker: Worker, drained: Drained, cluster: Any) -> None:
    """A task that is marked as failed ends its query: the next drain finds none."""
    marked = drained.start_until_mid_query()

    marked.server.is_marked_failed.set()

    marked.end()
    wait_for(lambda: not clients(worker), "the end of its client")
    assert drained.batches < RECORDS // MAX_OFFSETS
    # Airflow kills a task that takes more than five seconds to end, as on a busy machine.
    with suppress(FileNotFoundError):
        remove_lease(drained.archive)
    retry = drained.start()
    result = retry.result()
    # A query that still ran would have been followed.
    assert "following it" not in retry.said()
    assert result["adopted"] is False
    assert_exact(drained.archive, cluster)
