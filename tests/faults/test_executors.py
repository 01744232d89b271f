"""Executors that stall or die in mid-file, in a Spark cluster of two workers."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import prepare_drain
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from tests.faults.injection import (
    DAY,
    PATIENCE,
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
from tests.faults.spark_cluster import executors, process
from tests.read_only import read_only

pytestmark = [pytest.mark.integration, pytest.mark.cluster]

BATCHES = 40  # record batches per partition and day, 100 ms each
SIZE = 5
DAYS = 2


def writing(workers: list[int], folder: Path) -> list[tuple[int, Path]]:
    """Return the executors that have a data file below a folder open, with that file."""
    found = []
    for executor in executors(workers):
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


def test_drain_executors_stalled_and_killed(
    archive_folder: str,
    spark_workers: tuple[str, list[int]],
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    tmp_path: Path,
) -> None:
    """A losing speculative task, its failed cleanup and a killed task only leave files behind.

    First batch: an executor stalls in mid-file, the other executor's copy of its task wins, the
    folder becomes read-only, and the loser wakes up and can't remove its file. Second batch: an
    executor is killed in mid-file, and its task is retried.
    """
    with read_only(tmp_path):
        pass  # skips immediately if it isn't possible
    master, pids = spark_workers
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
    result = job.result()

    total = DAYS * BATCHES * SIZE
    assert (result["batches"], result["records"]) == (2, 2 * total)
    assert held(archive_folder) == {0: list(range(total)), 1: list(range(total))}
    left = part_files(archive_folder) - listed_files(archive_folder)
    assert left >= {losing, torn}
    report = validate_archive(Archive.at(archive_folder), cluster)
    assert report.complete, report.findings
    assert {Path(archive_folder) / path for path in orphans(report)} == left
    assert len(report.findings) == len(left)


def _ended(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_two_drains_executors_killed(
    spark_workers: tuple[str, list[int]],
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    tmp_path: Path,
) -> None:
    """Two concurrent drains each lose their executor in mid-file: both are exact."""
    master, pids = spark_workers
    total = BATCHES * SIZE
    pipelines = []
    for name in ("first", "second"):
        topic = make_topic(partitions=1)
        for number in range(BATCHES):
            send(topic, records(SIZE, number * SIZE), partition=0)
        pipelines.append(
            Pipeline(
                name=name,
                topics=[topic],
                archive=str(tmp_path / name / "archive"),
                source_options=SLOW,
                spark_conf={**QUICK_START, "spark.cores.max": 1, "spark.executor.memory": "512m"},
            )
        )
    with ExitStack() as stack:
        jobs, drivers = [], []
        for pipeline in pipelines:
            folder = tmp_path / pipeline.name / "run"
            folder.mkdir(parents=True)
            job = prepare_drain(pipeline, cluster, folder)
            environment = {**job.application.environment, "SPARK_LOCAL_IP": "127.0.0.1"}
            command = job.application.command(master)
            driver, _ = stack.enter_context(process("driver", folder, *command, **environment))
            jobs.append(job)
            drivers.append(driver)

        killed = set()
        waiting = dict(zip(drivers, pipelines, strict=True))

        def each_lost_its_executor() -> bool:
            # Both are watched, because either may write first, and keeps writing for seconds.
            for driver, pipeline in list(waiting.items()):
                assert not _ended(driver), f"drain {pipeline.name} ended too early"
                for executor, _ in writing(pids, generation(pipeline.archive) / "data")[:1]:
                    os.kill(executor, signal.SIGKILL)
                    killed.add(executor)
                    del waiting[driver]
            return not waiting

        wait_for(each_lost_its_executor, "a file of each drain", patience=2 * PATIENCE)
        wait_for(lambda: all(map(_ended, drivers)), "the drains' end", patience=3 * PATIENCE)

    assert len(killed) == 2
    for pipeline, job in zip(pipelines, jobs, strict=True):
        assert job.result()["records"] == total
        assert held(pipeline.archive) == {0: list(range(total))}
        assert validate_archive(Archive.at(pipeline.archive), cluster).complete
