"""Two drains of one archive: the second one gives up, and a dead drain's lease expires."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import open_drain
from kafka_drain.errors import LockedError
from kafka_drain.maintenance.unlock import list_leases, remove_lease
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.job_spec import DrainSpec, write_private
from kafka_drain.storage.lease import Lease, hold_lease
from tests.integration.command_line import ROOT, kafka_drain, listing

pytestmark = pytest.mark.integration

RECORDS = 600
PATIENCE = 120
BATCHES = 6


@pytest.fixture
def pipeline(archive_folder: str, make_topic: Any, send: Any) -> Pipeline:
    """A pipeline of six batches, with its records in Kafka."""
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        records = [(b"k", b"%d" % n, None, 1_767_225_600_000 + n) for n in range(RECORDS // 2)]
        send(topic, records, partition=partition)
    return Pipeline(
        name="archive",
        topics=[topic],
        archive=archive_folder,
        source_options={"maxOffsetsPerTrigger": RECORDS // BATCHES},
    )


@pytest.fixture
def arguments(pipeline: Pipeline, bootstrap_servers: str, tmp_path: Path) -> tuple[object, ...]:
    """The same pipeline as arguments of `kafka-drain`."""
    file = tmp_path / "pipeline.json"
    file.write_text(json.dumps({"source_options": pipeline.source_options}))
    kafka = ("--bootstrap-servers", bootstrap_servers, "--master", "local[2]")
    topics = ("--topic", *pipeline.topics)  # type: ignore[misc]
    return ("drain", pipeline.archive, *topics, *kafka, "--pipeline", file)


@contextmanager
def drain_started(
    arguments: tuple[object, ...], log: Path, reached: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Start `kafka-drain drain` in its own process group, and wait for a file that it writes."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_drain.cli", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT / "plugins")},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        wait_for(reached.exists, process, log)
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(seen: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not seen():
        assert process.poll() is None, log.read_text()[-2000:]
        assert time.monotonic() < deadline
        time.sleep(0.005)


def check_exact(pipeline: Pipeline, cluster: Any) -> None:
    """Check that every offset is in exactly one committed file."""
    archive = Archive.at(pipeline.archive)
    report = validate_archive(archive, cluster)
    assert report.complete, report.findings
    assert (report.offsets, report.records) == (RECORDS, RECORDS)
    rows = ds.dataset([file["path"] for file in committed_files(archive)]).to_table(
        columns=["partition", "offset"]
    )
    seen = set(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    assert rows.num_rows == len(seen) == RECORDS


def test_drain_while_another_drains(
    pipeline: Pipeline, arguments: Any, cluster: Any, spark: Any, tmp_path: Path, said: list[str]
) -> None:
    """The second drain names the lease's holder and gives up; the first one finishes."""
    from kafka_drain_spark.drain import run_drain

    archive = Path(pipeline.archive)
    with open_drain(pipeline, cluster, tmp_path, run="scheduled__1") as job:
        before = {name: at for name, at in listing(archive).items() if name != "lock.json"}

        second = kafka_drain(*arguments)

        after = {name: at for name, at in listing(archive).items() if name != "lock.json"}
        result = run_drain(spark, DrainSpec.read(tmp_path / "drain.json"))
        write_private(job.result_path, result)
        job.result()

    assert second.code == 1
    assert second.out == ""
    assert "Traceback" not in second.err
    assert "Try again when it has finished" in second.err
    assert f"process {os.getpid()} (run scheduled__1)" in second.err
    assert before == after
    assert result["records"] == RECORDS
    assert said == []
    assert not (archive / "lock.json").exists()


def test_drain_beside_another_without_lease(
    pipeline: Pipeline,
    arguments: Any,
    cluster: Any,
    drain: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two drains without a lease, Spark fails the later one; each offset is there once.

    On one machine, the second is refused as long as the first runs.
    """
    archive, log = Path(pipeline.archive), tmp_path / "log"
    planned = archive / "generations" / "0001" / "checkpoint" / "offsets" / "1"

    with drain_started(arguments, log, planned) as first:
        os.killpg(first.pid, signal.SIGSTOP)
        (archive / "lock.json").unlink()
        with pytest.raises(LockedError, match="is being drained without its lease"):
            drain(pipeline)
        # From here on, the first drain counts as another machine's.
        monkeypatch.setattr("kafka_drain.drain.drain.refuse_orphans", lambda _: None)
        second = drain(pipeline)
        os.killpg(first.pid, signal.SIGCONT)
        first.wait(PATIENCE)

    assert second["records"] > 0
    # It had to finish a batch that the second drain had already written.
    assert first.returncode == 1, log.read_text()[-2000:]
    assert "THE LEASE IS LOST" in log.read_text()
    check_exact(pipeline, cluster)
    assert drain(pipeline)["offsets"] == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_drain_signalled(
    number: signal.Signals, pipeline: Pipeline, arguments: Any, cluster: Any, tmp_path: Path
) -> None:
    """When a drain is ended alone, its Spark ends too; SIGTERM also gives the lease back."""
    archive, log = Path(pipeline.archive), tmp_path / "log"
    planned = archive / "generations" / "0001" / "checkpoint" / "offsets" / "1"

    with drain_started(arguments, log, planned) as process:
        process.send_signal(number)
        code = process.wait(PATIENCE)
        deadline = time.monotonic() + PATIENCE
        while group_lives(process.pid):
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.05)
    commits = [*(archive / "generations" / "0001" / "checkpoint" / "commits").glob("[0-9]*")]

    assert len(commits) < BATCHES, "it ended before it was signalled"
    assert (archive / "lock.json").exists() is (number == signal.SIGKILL)
    if number == signal.SIGTERM:
        assert code == 143
        assert "Run the same command again to continue" in log.read_text()
        assert kafka_drain(*arguments).code == 0
        check_exact(pipeline, cluster)


def group_lives(number: int) -> bool:
    """Return whether a process group has a process that hasn't ended."""
    try:
        os.killpg(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_drain_after_kill(
    pipeline: Pipeline, arguments: Any, cluster: Any, spark: Any, tmp_path: Path, said: list[str]
) -> None:
    """The lease of a killed drain refuses others only until it expires."""
    from kafka_drain_spark.drain import run_drain

    archive = Path(pipeline.archive)
    opened = archive / "generations" / "0001" / "generation.json"
    with drain_started(arguments, tmp_path / "log", opened) as killed:
        os.killpg(killed.pid, signal.SIGKILL)
        killed.wait()
    left = json.loads((archive / "lock.json").read_text())
    expires_at = datetime.fromisoformat(left["expires_at"])

    def start(at: datetime) -> Any:
        return open_drain(pipeline, cluster, tmp_path, run="retry", clock=lambda: at)

    early = kafka_drain(*arguments)
    with pytest.raises(LockedError), start(expires_at - timedelta(milliseconds=1)):
        pytest.fail("wasn't refused")
    with start(expires_at) as job:
        write_private(job.result_path, run_drain(spark, DrainSpec.read(tmp_path / "drain.json")))
        job.result()

    assert early.code == 1
    assert f"process {killed.pid} (run terminal)" in early.err
    assert len(said) == 1
    assert f"took over the lease of {left['holder']} (run terminal), which expired" in said[0]
    assert not (archive / "lock.json").exists()
    check_exact(pipeline, cluster)


def test_drain_after_clock_was_ahead(
    pipeline: Pipeline, cluster: Any, drain: Any, tmp_path: Path, said: list[str]
) -> None:
    """A lease that a wrong clock dated into the future is shown, and locks the archive no longer.

    One minute in which nobody renews it is enough, for the next drain as for `unlock`.
    """
    archive = Archive.at(pipeline.archive)
    ahead = timedelta(days=1_200)
    waited: list[float] = []

    def left() -> None:
        clock = lambda: utc_now() + ahead  # noqa: E731 - of a machine that is years ahead
        Lease(archive.root, run="scheduled__1", clock=clock).acquire()

    left()
    shown = kafka_drain("unlock", pipeline.archive, "--json")
    (lease,) = json.loads(shown.out)["leases"]
    (held,) = list_leases(archive.root)
    remove_lease(held, wait=waited.append)
    first = drain(pipeline)
    left()
    with hold_lease(archive.root, run="next", wait=waited.append):
        pass
    none = kafka_drain("unlock", pipeline.archive)

    assert (shown.code, lease["run"]) == (0, "scheduled__1")
    assert lease["clock_ahead_seconds"] == pytest.approx(ahead.total_seconds(), abs=120)
    assert f"process {os.getpid()}" in lease["holder"]
    assert "dry run: nothing was changed" in shown.err
    assert first["records"] == RECORDS
    assert sum(waited) == pytest.approx(120)
    assert sum("one of the two clocks is wrong by 1," in line for line in said) == 2
    assert (none.code, none.out) == (0, "")
    assert "no lease is held" in none.err
    check_exact(pipeline, cluster)
