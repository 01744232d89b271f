"""A drain that is killed at its worst moments, and the next drain."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import prepare_drain
from kafka_drain.proof.validation import validate_archive

pytestmark = pytest.mark.integration

RECORDS = 6000
MOMENTS = [
    # Planned, but not run: the same range is read again.
    "checkpoint/offsets/1",
    # Its files are committed, but the checkpoint isn't: the batch is skipped, not written twice.
    "data/_spark_metadata/3",
]


def kill_when(path: Path, pipeline: Pipeline, cluster: Any, folder: Path) -> None:
    """Start a drain with spark-submit and SIGKILL it as soon as a file exists."""
    folder.mkdir()
    job = prepare_drain(pipeline, cluster, folder)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            job.application.command("local[2]"),
            env={**os.environ, **job.application.environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + 120
    while not path.exists():
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_drain_killed_and_run_again(
    archive_folder: str,
    tmp_path: Path,
    drain: Any,
    cluster: Any,
    make_topic: Any,
    send: Any,
) -> None:
    """After two kills the next drain leaves every offset in exactly one committed file."""
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        records = [(b"k", b"%d" % n, None, 1_767_225_600_000 + n) for n in range(RECORDS // 2)]
        send(topic, records, partition=partition)
    pipeline = Pipeline(
        name="killed",
        topics=[topic],
        archive=archive_folder,
        source_options={"maxOffsetsPerTrigger": 500},
    )
    archive = Archive.at(archive_folder)

    for number, moment in enumerate(MOMENTS):
        path = Path(str(archive.generation(1).folder / moment))
        kill_when(path, pipeline, cluster, tmp_path / f"run-{number}")
    drain(pipeline)

    report = validate_archive(archive, cluster)
    assert report.complete, report.findings
    assert (report.offsets, report.records) == (RECORDS, RECORDS)
    rows = ds.dataset([file["path"] for file in committed_files(archive)]).to_table(
        columns=["partition", "offset"]
    )
    seen = set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert rows.num_rows == len(seen) == RECORDS
