"""Checks of the stack after a drain and a republish."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.compute

from demo.content import TopicContent
from kafka_drain.reading import archive_dataset
from scripts.compose_test.errors import ContentError, StackError
from scripts.compose_test.stack import Stack, root_processes

__all__ = [
    "archived_offsets",
    "check_archive",
    "check_database",
    "check_same_content",
    "check_spark_applications",
    "check_unprivileged",
    "ran_on_cluster",
]

_GET_JSON = (
    "import sys, urllib.request as r; print(r.urlopen(sys.argv[1], timeout=10).read().decode())"
)


def archived_offsets(archive: Path) -> dict[int, list[int]]:
    """Return the sorted offsets by partition in an archive of one topic."""
    rows = archive_dataset(str(archive)).to_table(columns=["partition", "offset"])
    found: dict[int, list[int]] = {}
    for partition in pyarrow.compute.unique(rows["partition"]).to_pylist():
        chosen = rows.filter(pyarrow.compute.equal(rows["partition"], partition))
        found[partition] = sorted(chosen["offset"].to_pylist())
    return found


def check_archive(stack: Stack, path: str, folder: Path, source: TopicContent) -> None:
    """Copy the archive out of the stack and compare each partition's offsets with the topic's.

    Args:
        stack: The stack.
        path: Path of the archive in Airflow's container.
        folder: An empty folder on this machine.
        source: Content of the topic, which starts at offset 0 and has no gaps.

    Raises:
        ContentError: If an offset is missing, duplicated, or not in the topic.
    """
    stack.copy_out("airflow", path, folder)
    found = archived_offsets(folder / Path(path).name)
    wrong = [
        f"partition {partition}: {len(found.get(partition, []))} rows for {records} records"
        for partition, records in source.records.items()
        if found.get(partition, []) != list(range(records))
    ]
    if wrong or not source.total:
        raise ContentError(
            f"The archive doesn't match the topic's {source.total} records: {'; '.join(wrong)}"
        )


def check_same_content(source: TopicContent, target: TopicContent) -> None:
    """Compare key, value, headers, timestamp and order of each partition.

    Raises:
        ContentError: If a partition differs.
    """
    partitions = sorted(source.records.keys() | target.records.keys())
    wrong = [
        f"partition {partition}: {target.records.get(partition)} records for "
        f"{source.records.get(partition)}"
        for partition in partitions
        if source.hashes.get(partition) != target.hashes.get(partition)
    ]
    if wrong:
        raise ContentError(f"The republished topic's content differs: {'; '.join(wrong)}")


def ran_on_cluster(
    master: Mapping[str, Any], worker: Mapping[str, Any], applications: Mapping[str, int]
) -> list[str]:
    """Return why the applications can't all have run on the cluster, one reason per line.

    Args:
        master: JSON status of Spark's master.
        worker: JSON status of its only worker.
        applications: Minimum number of applications, by name.
    """
    had_executor = {executor["appid"] for executor in worker["finishedexecutors"]}
    missing = []
    for name, count in applications.items():
        ended = [each for each in master["completedapps"] if each["name"] == name]
        if len(ended) < count:
            missing.append(f"the master has {len(ended)} completed {name}, expected {count}")
        for each in ended:
            if each["state"] != "FINISHED":
                missing.append(f"{each['id']}, {name}, ended as {each['state']}, not FINISHED")
            if each["id"] not in had_executor:
                missing.append(f"the worker had no executor for {each['id']}, {name}")
    return missing


def check_spark_applications(stack: Stack, applications: Mapping[str, int]) -> None:
    """Check with Spark's master and worker that the applications ran on the cluster.

    Args:
        stack: The stack.
        applications: Minimum number of applications, by name.

    Raises:
        ContentError: If one didn't.
    """
    master, worker = (
        json.loads(stack.run_in(service, "python3", "-c", _GET_JSON, url))
        for service, url in (
            ("spark-master", "http://localhost:8080/json/"),
            ("spark-worker", "http://localhost:8081/json/"),
        )
    )
    if missing := ran_on_cluster(master, worker, applications):
        raise ContentError("Not everything ran on the Spark cluster: " + "; ".join(missing))


def check_database(stack: Stack, runs: int) -> None:
    """Check the number of successful runs in PostgreSQL.

    Raises:
        ContentError: If there are fewer than `runs`, so that Airflow must use another database.
    """
    query = "SELECT count(*) FROM dag_run WHERE state = 'success'"
    found = int(
        stack.run_in("postgres", "psql", "--no-align", "--tuples-only", "airflow", "-c", query)
    )
    if found < runs:
        raise ContentError(f"PostgreSQL holds {found} successful runs, expected at least {runs}.")


def check_unprivileged(stack: Stack) -> None:
    """Check that no container has a process running as root.

    Raises:
        StackError: If there is one.
    """
    wrong = [
        f"{service}: {line}"
        for service in stack.services
        for line in root_processes(stack.processes(service))
    ]
    if wrong:
        raise StackError("Processes running as root, expected none:\n" + "\n".join(wrong))
