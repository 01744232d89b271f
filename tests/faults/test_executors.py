"""Executors that stall or die in mid-file, in a Spark cluster of two workers."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.broker.ports import free_ports
from kafka_drain.archive import Archive
from kafka_drain.draining import finish_drain, prepare_drain
from kafka_drain.java import require_java
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.pipeline import Pipeline
from kafka_drain.spark_submit import spark_home
from kafka_drain.validation import validate_archive
from tests.faults.injection import (
    DAY,
    PATIENCE,
    QUICK_JAVA,
    QUICK_START,
    SLOW,
    generation,
    held,
    listed_files,
    manifest_file,
    orphans,
    part_files,
    records,
    wait_for,
)

pytestmark = pytest.mark.integration

BATCHES = 15  # record batches of each partition and day, 100 ms each
SIZE = 5
DAYS = 2


@contextmanager
def process(
    name: str, folder: Path, *command: str, **environment: str
) -> Iterator[tuple[int, Path]]:
    """Run a process of the Spark cluster; yields its id and log, ends it."""
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        started = subprocess.Popen(
            command,
            env={
                **os.environ,
                "SPARK_HOME": str(spark_home()),
                "JAVA_HOME": str(require_java().path.resolve().parents[1]),
                "SPARK_DAEMON_MEMORY": "256m",
                "SPARK_DAEMON_JAVA_OPTS": QUICK_JAVA,
                **environment,
            },
            stdout=output,
            stderr=output,
            cwd=folder,
            start_new_session=True,
        )
    try:
        yield started.pid, log
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


@pytest.fixture
def workers(tmp_path: Path) -> Iterator[tuple[str, list[int]]]:
    """A standalone Spark cluster: its master's address, and two workers of one core each.

    They have addresses of their own: Spark runs no second copy of a task on the same host.
    """
    port, *_ = free_ports(1, avoid=())
    address = f"spark://127.0.0.1:{port}"
    spark_class = str(spark_home() / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    with ExitStack() as stack:
        pids = []
        master = [spark_class, f"{deploy}.master.Master", "--host", "127.0.0.1"]
        master += ["--port", str(port), "--webui-port", "0"]
        _, log = stack.enter_context(process("master", tmp_path, *master))
        wait_for(lambda: "I have been elected leader" in log.read_text(), "Spark's master")
        logs = []
        for host in ("127.0.0.2", "127.0.0.3"):
            worker = [spark_class, f"{deploy}.worker.Worker", "--host", host, "--port", "0"]
            worker += ["--webui-port", "0", "--cores", "1", "--memory", "1g"]
            worker += ["--work-dir", str(tmp_path / host), address]
            pid, log = stack.enter_context(
                process(f"worker-{host}", tmp_path, *worker, SPARK_LOCAL_IP=host)
            )
            pids.append(pid)
            logs.append(log)
        for log in logs:
            wait_for(
                lambda log=log: "Successfully registered" in log.read_text(),  # type: ignore[misc]
                "a Spark worker",
            )
        yield address, pids
        for pid in pids:
            for executor in children(pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(executor, signal.SIGKILL)


def children(pid: int) -> list[int]:
    """Return the processes that a process started, by their ids."""
    with contextlib.suppress(FileNotFoundError):
        lists = [
            (thread / "children").read_text() for thread in Path(f"/proc/{pid}/task").iterdir()
        ]
        return [int(child) for text in lists for child in text.split()]
    return []


def writing(workers: list[int], folder: Path) -> list[tuple[int, Path]]:
    """Return the executors that have a data file below a folder open, with that file."""
    found = []
    for executor in (executor for worker in workers for executor in children(worker)):
        with contextlib.suppress(FileNotFoundError):
            for descriptor in Path(f"/proc/{executor}/fd").iterdir():
                with contextlib.suppress(FileNotFoundError):
                    path = descriptor.readlink()
                    if path.name.startswith("part-") and path.is_relative_to(folder):
                        found.append((executor, path))
    return found


def in_mid_file(workers: list[int], folder: Path, running: Callable[[], bool]) -> tuple[int, Path]:
    """Wait until an executor writes a data file below a folder; return both."""

    found: list[tuple[int, Path]] = []

    def seen() -> bool:
        assert running(), "the drain ended too early"
        found.extend(writing(workers, folder))
        return bool(found)

    wait_for(seen, f"a file in {folder.name}", patience=2 * PATIENCE)
    return found[0]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nobody delete what is in a folder; for root that takes an attribute of its own."""
    if os.geteuid():
        folder.chmod(0o555)
    else:
        changed = subprocess.run(
            ["chattr", "+i", str(folder)], capture_output=True, text=True, check=False
        )
        if changed.returncode:
            pytest.skip(f"root can't make a folder read-only here: {changed.stderr.strip()}")
    try:
        yield
    finally:
        if os.geteuid():
            folder.chmod(0o755)
        else:
            subprocess.run(["chattr", "-i", str(folder)], check=True)


def test_drain_executors_stalled_and_killed(
    archive_folder: str,
    workers: tuple[str, list[int]],
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    tmp_path: Path,
) -> None:
    """A speculated task's loser, its refused cleanup and a killed task leave files, no harm.

    First batch: an executor stalls in mid-file, the other one's copy of its task wins, the folder
    becomes read-only, and the loser wakes up and can't remove its file. Second batch: an executor
    is killed in mid-file, and its task is tried again.
    """
    with read_only(tmp_path):
        pass  # skips at once where it can't be done
    master, pids = workers
    topic = make_topic(partitions=2)
    for number in range(DAYS * BATCHES):
        shift = DAY * (number // BATCHES)
        for partition in (0, 1):
            batch = [(k, v, h, t + shift) for k, v, h, t in records(SIZE, number * SIZE)]
            send(topic, batch, partition=partition)
    pipeline = Pipeline(
        name="p",
        topics=[topic],
        archive=archive_folder,
        source_options={**SLOW, "maxOffsetsPerTrigger": 2 * BATCHES * SIZE},
        spark_conf={
            **QUICK_START,
            "spark.cores.max": 2,
            "spark.executor.memory": "512m",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.locality.wait": "0s",
            "spark.speculation": True,
            "spark.speculation.interval": "100ms",
            "spark.speculation.quantile": "0.5",
            "spark.speculation.multiplier": "1.1",
        },
    )
    (tmp_path / "run").mkdir()
    job = prepare_drain(pipeline, cluster, tmp_path / "run")
    first, second = (
        generation(archive_folder) / "data" / f"topic={topic}" / f"date=2013-01-0{day}"
        for day in (1, 2)
    )
    command = job.application.command(master)
    environment = {**job.application.environment, "SPARK_LOCAL_IP": "127.0.0.1"}
    with process("driver", tmp_path, *command, **environment) as (driver, _):

        def running() -> bool:
            return not _ended(driver)

        stalled, losing = in_mid_file(pids, first, running)
        os.kill(stalled, signal.SIGSTOP)
        assert (stalled, losing) in writing(pids, first)
        wait_for(manifest_file(archive_folder, 0).exists, "the copy of the task to win")
        with read_only(first):
            os.kill(stalled, signal.SIGCONT)
            wait_for(lambda: (stalled, losing) not in writing(pids, first), "the loser's end")
            killed, torn = in_mid_file(pids, second, running)
            os.kill(killed, signal.SIGKILL)
            wait_for(lambda: not running(), "the drain's end")
    result = finish_drain(job)

    total = DAYS * BATCHES * SIZE
    assert (result["batches"], result["records"]) == (2, 2 * total)
    assert held(archive_folder) == {0: list(range(total)), 1: list(range(total))}
    left = part_files(archive_folder) - listed_files(archive_folder)
    assert left >= {losing, torn}
    report = validate_archive(Archive.at(archive_folder), cluster)
    assert report.complete, report.lines()
    assert {Path(archive_folder) / path for path in orphans(report)} == left
    assert len(report.findings) == len(left)


def _ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
