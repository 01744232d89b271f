"""Airflow's tasks whose drivers run in YARN: the worker dies, and the task is marked as failed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from tests.airflow_worker import Drained, Task, Worker, airflow_worker
from tests.faults.injection import wait_for
from tests.filled_topic import RECORDS, assert_exact, fill
from tests.yarn_cluster import CONF, YarnCluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.yarn,
    pytest.mark.skipif(
        version("apache-airflow").startswith("2."), reason="Airflow 2 has no supervisor of tasks"
    ),
]

#: 50 batches: in mid-query for longer than a task takes to start.
MAX_OFFSETS = 40
PATIENCE = 400.0


@pytest.fixture(scope="module")
def worker(
    yarn: YarnCluster, tmp_path_factory: pytest.TempPathFactory, bootstrap_servers: str
) -> Iterator[Worker]:
    """A worker of Airflow with a connection to YARN."""
    connection = {"conn_type": "spark", "host": "yarn", "extra": {"deploy-mode": "cluster"}}
    variables = {
        "AIRFLOW_CONN_CLUSTER": json.dumps(connection),
        "HADOOP_CONF_DIR": str(yarn.conf),
    }
    folder = tmp_path_factory.mktemp("airflow")
    with airflow_worker(folder, bootstrap_servers, patience=PATIENCE, **variables) as running:
        yield running


def pipeline(name: str, topic: str, archive: Path) -> Pipeline:
    """A pipeline whose driver runs in YARN."""
    return Pipeline(
        name=name,
        topics=[topic],
        archive=str(archive),
        spark_conn_id="cluster",
        spark_conf={key: value for key, value in CONF.items() if key != "spark.driver.memory"},
        driver_memory="600m",
        source_options={"maxOffsetsPerTrigger": MAX_OFFSETS},
    )


def tell(what: str, began: float) -> None:
    """Show a figure in the test's captured output, for docs/engines.md."""
    seconds = time.monotonic() - began
    sys.stderr.write(f"{what}: watched again {seconds:.1f} s after the retry's start\n")


def follows(retry: Task, application: str) -> Callable[[], bool]:
    """Return a condition: a retry has found an application."""
    return lambda: f"found again: {application}" in retry.said()


def test_task_killed_in_mid_query(
    yarn: YarnCluster, worker: Worker, topic: str, tmp_path: Path, cluster: Any
) -> None:
    """A task's process is killed: the application goes on, and the retry follows the same one."""
    drained = Drained(worker, pipeline("killed", topic, tmp_path / "archive"))
    killed = drained.start_until_mid_query()
    running = yarn.applications()[-1]["id"]

    worker.kill_task()

    killed.end()
    assert (killed.server.results, killed.server.store) == ([], {"spark_application": running})
    assert yarn.application(running)["state"] == "RUNNING"
    began = time.monotonic()
    retry = drained.start()
    retry.wait_until(follows(retry, running), "the same application")
    tell("task killed", began)
    assert retry.result()["records"] == RECORDS
    assert yarn.applications()[-1]["id"] == running
    assert yarn.application(running)["finalStatus"] == "SUCCEEDED"
    assert_exact(drained.archive, cluster)


def test_task_marked_failed(
    yarn: YarnCluster, worker: Worker, topic: str, tmp_path: Path, cluster: Any
) -> None:
    """A task that is marked as failed ends its application; the next drain resumes."""
    drained = Drained(worker, pipeline("marked", topic, tmp_path / "archive"))
    marked = drained.start_until_mid_query()
    running = yarn.applications()[-1]["id"]

    marked.server.is_marked_failed.set()

    marked.end()
    wait_for(yarn.is_quiet, "the application's end", patience=60)
    assert yarn.application(running)["finalStatus"] == "KILLED"
    assert drained.batches < RECORDS // MAX_OFFSETS
    assert 0 < drained.start().result()["records"] < RECORDS
    assert yarn.applications()[-1]["id"] != running
    assert_exact(drained.archive, cluster)


def test_group_killed_in_mid_query(
    yarn: YarnCluster,
    worker: Worker,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    cluster: Any,
) -> None:
    """A group's task is killed in its second drain: the retry follows the same application."""
    topics = [make_topic(partitions=2) for _ in range(3)]
    for topic in topics:
        fill(send, topic)
    archives = [tmp_path / f"{number}" for number in range(3)]
    worker.write_group(
        "night",
        [
            pipeline(f"p{archive.name}", topic, archive)
            for archive, topic in zip(archives, topics, strict=True)
        ],
    )
    killed = worker.start("drain_group_night", "drain")
    commits = archives[1] / "generations/0001/checkpoint/commits"
    killed.wait_until(lambda: any(commits.glob("1")), "the second drain's batches")
    running = yarn.applications()[-1]["id"]

    worker.kill_task()

    killed.end()
    began = time.monotonic()
    retry = worker.start("drain_group_night", "drain")
    retry.wait_until(follows(retry, running), "the same application")
    tell("group killed", began)
    assert retry.end() == 0, retry.said()[-3000:]
    assert yarn.applications()[-1]["id"] == running
    for archive in archives:
        assert_exact(archive, cluster)
