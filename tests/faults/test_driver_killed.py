"""A driver that is killed between the files, the manifest and the checkpoint, and the next run.

One spark-submit is stopped (SIGSTOP) at three moments. A copy of the archive at that moment is
what a SIGKILL would leave behind; the last moment ends with a SIGKILL.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import prepare_drain
from kafka_drain.findings import summary
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.paths import is_local, locate
from tests.conftest import Drain
from tests.faults.injection import (
    NOON,
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

pytestmark = pytest.mark.integration

TOPIC = f"t-{uuid.uuid4().hex[:8]}"
RECORDS = 60
BATCH = 6


@dataclass(frozen=True)
class State:
    """The progress of an archive's newest batch."""

    batch: int
    files: int
    readable: bool
    in_manifest: bool
    in_checkpoint: bool


def state_of(archive: str) -> State | None:
    """Return the newest batch's state; None before the first one is planned.

    Each batch writes one file, because the other partition's records are aborted.
    """
    checkpoint = generation(archive) / "checkpoint"
    planned = [int(n) for n in _names(checkpoint / "offsets") if n.isdigit()]
    if not planned:
        return None
    batch = max(planned)
    files = part_files(archive)
    return State(
        batch=batch,
        files=len(files) - batch,
        readable=all(map(_is_readable, files)),
        in_manifest=manifest_file(archive, batch).exists(),
        in_checkpoint=(checkpoint / "commits" / str(batch)).exists(),
    )


def _names(folder: UPath) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.exists() else []


def _is_readable(path: UPath) -> bool:
    try:
        with path.open("rb") as file:
            return bool(pq.ParquetFile(file).metadata.num_rows)
    except (pa.ArrowInvalid, OSError):
        return False


def copy(source: str, target: str) -> None:
    """Copy an archive in its current state, on a disk or in a store."""
    if is_local(locate(source)):
        shutil.copytree(source, target)
    else:
        store = locate(source).fs
        for path, about in store.find(source, detail=True).items():
            # S3A creates an empty object for a folder.
            if about["size"]:
                store.cp_file(path, path.replace(locate(source).path, locate(target).path))


#: Each moment, and the archive's state at that moment.
MOMENTS: dict[str, Callable[[State], bool]] = {
    "planned": lambda at: not at.files and not at.in_manifest,
    "committed": lambda at: at.in_manifest and not at.in_checkpoint,
    "written": lambda at: at.files == 1 and at.readable and not at.in_manifest,
}


def stop_at(moment: str, process: subprocess.Popen[bytes], archive: str, log: Path) -> None:
    """Stop a drain's processes at a moment; if they were too fast, at the next batch's."""
    deadline = time.monotonic() + 2 * PATIENCE
    while True:
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline, f"the drain was never seen {moment}"
        seen = state_of(archive)
        if seen is None or not MOMENTS[moment](seen):
            time.sleep(0.02 if seen is None else 0.001)
            continue
        os.killpg(process.pid, signal.SIGSTOP)
        wait_for(lambda: _is_stopped(process.pid), "the driver stopped", pause=0.001)
        stopped = state_of(archive)
        if stopped is not None and MOMENTS[moment](stopped):
            return
        os.killpg(process.pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def fill_topic(topic: str, send: Any, bootstrap_servers: str) -> None:
    """Send records to partition 0, and to partition 1 records that a slow drain reads in vain.

    So a batch's file is complete long before all of its tasks are.
    """
    send(topic, records(RECORDS), partition=0)
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "transactional.id": topic, "log_level": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(RECORDS):
        producer.produce(topic, b"aborted", partition=1, timestamp=NOON + number)
        assert producer.flush(30) == 0
    producer.abort_transaction(30)


@pytest.fixture(scope="module")
def filled() -> set[str]:
    """The topics that have been filled."""
    return set()


@pytest.fixture(scope="module")
def places() -> dict[str, str]:
    """Where the copies of the archive at each moment are, once a test has requested them."""
    return {}


@pytest.fixture(
    params=[
        "disk",
        pytest.param("s3", marks=pytest.mark.store),
        pytest.param("gcs", marks=pytest.mark.store),
        pytest.param("hdfs", marks=pytest.mark.store),
    ]
)
def states(
    request: pytest.FixtureRequest,
    places: dict[str, str],
    filled: set[str],
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
    bucket_in: Callable[[str], str],
    bootstrap_servers: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """The folder or bucket with copies of the archive at each moment."""
    # Each time, as it opens the store for this test, too.
    bucket = "" if request.param == "disk" else bucket_in(request.param)
    if not filled:
        make_topic(partitions=2, name=TOPIC)
        fill_topic(TOPIC, send, bootstrap_servers)
        filled.add(TOPIC)
    if request.param not in places:
        folder = tmp_path_factory.mktemp("killed")
        states = bucket or str(folder)
        slow = {**SLOW, "maxOffsetsPerTrigger": 2 * BATCH}
        _kill(_pipeline(f"{states}/archive", slow), cluster, folder / "run", states)
        places[request.param] = states
    return places[request.param]


def _pipeline(archive: str, source_options: dict[str, Any]) -> Pipeline:
    return Pipeline(
        name="p",
        topics=[TOPIC],
        archive=archive,
        source_options=source_options,
        spark_conf=QUICK_START,
    )


def _kill(pipeline: Pipeline, cluster: KafkaCluster, folder: Path, states: str) -> None:
    """Stop a drain at each moment and copy the archive to `states`; then kill it."""
    folder.mkdir()
    job = prepare_drain(pipeline, cluster, folder)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            job.application.command("local[2]"),
            env={**os.environ, **job.application.environment, "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        for moment in MOMENTS:
            stop_at(moment, process, pipeline.archive, log)
            copy(pipeline.archive, f"{states}/{moment}")
            if moment != "written":
                os.killpg(process.pid, signal.SIGCONT)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("moment", MOMENTS)
def test_drain_killed_at(moment: str, states: str, drain: Drain, cluster: KafkaCluster) -> None:
    """If planned or written, the range is written again; if committed, it is skipped."""
    folder = f"{states}/archive"
    archive = Archive.at(folder)
    archive.root.fs.rm(archive.root.path, recursive=True)
    copy(f"{states}/{moment}", folder)
    killed = state_of(folder)
    assert killed is not None
    assert MOMENTS[moment](killed)
    checkpoint, _ = archive.generation(1).read_checkpoint({})
    files, listed = part_files(folder), listed_files(folder)
    manifest = manifest_file(folder, killed.batch)
    lines = manifest.read_text() if killed.in_manifest else None

    drain(_pipeline(folder, {}))

    after, _ = archive.generation(1).read_checkpoint({})
    assert after.ends[killed.batch] == checkpoint.ends[killed.batch]
    assert lines is None or manifest.read_text() == lines
    # The killed run's file stays, next to the one that replaces it.
    left = files - listed
    assert len(left) == (moment == "written")
    assert left == part_files(folder) - listed_files(folder)
    assert len(listed_files(folder)) == killed.batch + 2
    assert held(folder) == {0: list(range(RECORDS))}
    report = validate_archive(archive, cluster)
    assert report.complete, report.findings
    assert {archive.root / path for path in orphans(report)} == left
    # What the killed drain left no note of was read again from Kafka.
    assert summary(report.findings) == ({"file_orphan": len(left)} if left else {})
    assert all(receipt.fingerprint for receipt in report.sealed)
    assert validate_archive(archive, cluster, deep=True).complete
