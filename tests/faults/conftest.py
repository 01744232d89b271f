"""What fault injections need besides the shared broker and Spark session."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from kafka_drain.draining import DrainJob, finish_drain, prepare_drain
from kafka_drain.job_spec import DrainSpec
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.pipeline import Pipeline
from tests.faults.injection import PATIENCE


@dataclass(frozen=True)
class Running:
    """A drain that runs beside the test."""

    job: DrainJob
    exit_code: Future[int]

    def ended(self) -> bool:
        return self.exit_code.done()

    def code(self) -> int:
        """Wait for the end; return what spark-submit's exit code would be."""
        return self.exit_code.result(2 * PATIENCE)

    def finish(self) -> dict[str, Any]:
        """Wait for the end; return the result, or raise the error, as the operator does."""
        self.code()
        return finish_drain(self.job)


Start = Callable[[Pipeline], Running]


@pytest.fixture
def start(
    spark: Any, cluster: KafkaCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    """Start a drain as spark-submit would, but in the shared session, and don't wait for it."""
    from kafka_drain_spark.drain import run_drain
    from kafka_drain_spark.job import run_job

    # The session outlives the job.
    monkeypatch.setattr(type(spark), "stop", lambda self: None)
    folders = (tmp_path / f"run-{number}" for number in range(100))
    with ThreadPoolExecutor(1) as pool:

        def run(pipeline: Pipeline) -> Running:
            folder = next(folders)
            folder.mkdir()
            job = prepare_drain(pipeline, cluster, folder)
            spec = DrainSpec.read(folder / "drain.json")
            return Running(job, pool.submit(run_job, spec, run_drain))

        yield run
        for query in spark.streams.active:
            query.stop()


@pytest.fixture
def admin(bootstrap_servers: str) -> AdminClient:
    """A client that changes topics."""
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    as_root = ["sudo", "--non-interactive"] if os.geteuid() and shutil.which("sudo") else []
    mounted = subprocess.run(
        [*as_root, "mount", "-t", "tmpfs", "-o", "size=1m,mode=0777", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small file system needs the right to mount: {mounted.stderr.strip()}")
    yield folder
    # Lazily: Spark may still have a file open.
    subprocess.run([*as_root, "umount", "--lazy", str(folder)], check=True)
