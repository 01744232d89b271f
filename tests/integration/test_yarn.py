"""Every kind of job on YARN: a real ResourceManager, NodeManager and HDFS; drivers in the cluster.

The archive is a folder that this machine and the node share. `make test-yarn` runs it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation_state import read_state
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.group import open_group, raise_failures, run_group
from kafka_drain.proof.executor_reading import read_by_spark
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.runner import runner_for
from kafka_drain.spark.submit import for_master
from tests.faults.injection import wait_for
from tests.filled_topic import (
    RECORDS,
    assert_exact,
    assert_once,
    drain_second_half,
    fill,
    many_partitions,
)
from tests.yarn_cluster import CONF, YarnCluster

pytestmark = [pytest.mark.integration, pytest.mark.yarn]

ROOT = Path(__file__).parents[2]
#: For a drain of many batches.
SLOW = ("--source-option", "maxOffsetsPerTrigger=100")
PATIENCE = 600.0


@pytest.fixture
def topic(make_topic: Any, send: Any) -> str:
    """A topic with records in two partitions."""
    name: str = make_topic(partitions=2)
    fill(send, name)
    return name


def arguments(servers: str) -> list[str]:
    """The options of a command that runs Spark on YARN."""
    conf = [part for name, value in CONF.items() for part in ("--conf", f"{name}={value}")]
    return ["--bootstrap-servers", servers, "--master", "yarn", "--deploy-mode", "cluster", *conf]


def start(yarn: YarnCluster, *words: object) -> subprocess.Popen[str]:
    """Start a command in a process group of its own."""
    path = os.pathsep.join(str(ROOT / name) for name in ("plugins", "spark_jobs", "."))
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_drain.cli", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, "HADOOP_CONF_DIR": str(yarn.conf)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A run of tests in the background ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def command(yarn: YarnCluster, *words: object) -> tuple[str, str]:
    """Run a command; return what it printed."""
    with start(yarn, *words) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, f"{err}\n{yarn.said()}"
    return out, err


def run_folders(archive: Path) -> list[str]:
    return sorted(path.name for path in archive.glob("runs/*"))


def test_drain_and_republish(
    yarn: YarnCluster,
    topic: str,
    tmp_path: Path,
    cluster: Any,
    bootstrap_servers: str,
    read: Any,
) -> None:
    """A drain, and both ways of a republish on executors, with their drivers in the cluster."""
    archive = tmp_path / "archive"
    options = arguments(bootstrap_servers)

    out, err = command(yarn, "drain", archive, "--topic", topic, "--json", *options)

    assert json.loads(out)["records"] == RECORDS
    assert f"{RECORDS:,} offsets planned" in err
    assert f"{RECORDS:,} of {RECORDS:,} offsets (100 %)" in err
    assert_exact(archive, cluster)
    for number, how in enumerate((["--engine", "spark"], ["--delivery", "at_least_once"])):
        target = f"{topic}.copy{number}"
        sending = ("--target-topic", target, "--create-target", "--apply")
        command(yarn, "republish", archive, *options, *sending, *how)
        assert {p: [r[1] for r in rows] for p, rows in read(target).items()} == {
            p: [r[1] for r in rows] for p, rows in read(topic).items()
        }
    assert not run_folders(archive)
    assert not [*archive.glob("lock.json")]


#: When the command is killed, and how many applications there may have been in the end.
PHASES = {"submitting": (1, 2), "accepted": (1, 1), "running": (1, 1), "ended": (1, 1)}


def kill_in(phase: str, yarn: YarnCluster, process: subprocess.Popen[str], archive: Path) -> None:
    """Kill a command in a phase of its drain; what it has started goes on."""
    before = len(yarn.applications())

    def submitted() -> bool:
        return len(yarn.applications()) > before

    def committed() -> bool:
        return len([*archive.glob("generations/0001/checkpoint/commits/[0-9]*")]) > 2

    reached: dict[str, Callable[[], bool]] = {
        "submitting": lambda: bool(run_folders(archive)),
        "accepted": submitted,
        "running": committed,
        "ended": committed,
    }
    wait_for(lambda: reached[phase]() or process.poll() is not None, phase, patience=PATIENCE)
    assert process.poll() is None, f"{process.communicate()}\n{yarn.said()}"
    if phase == "ended":
        # It can't read the result, but lives.
        process.send_signal(signal.SIGSTOP)
        wait_for(yarn.is_quiet, "the application's end", patience=PATIENCE)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def follow(process: subprocess.Popen[str]) -> tuple[str, str, float | None]:
    """Return what a drain printed, and the seconds until it saw its driver's progress."""
    assert process.stdout is not None
    assert process.stderr is not None
    began, watched, lines = time.monotonic(), None, []
    for line in process.stderr:
        lines.append(line)
        if watched is None and " offsets (" in line:
            watched = round(time.monotonic() - began, 1)
    return process.stdout.read(), "".join(lines), watched


@pytest.mark.parametrize("phase", PHASES)
def test_killed_worker(
    phase: str, yarn: YarnCluster, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """After SIGKILL, the retry follows the same application to its end; the archive is exact."""
    archive = tmp_path / "archive"
    known = {app["id"] for app in yarn.applications()}
    words = ["drain", archive, "--topic", topic, "--json", *arguments(bootstrap_servers)]
    words += SLOW
    kill_in(phase, yarn, start(yarn, *words), archive)

    began, answers = time.monotonic(), []
    while True:
        with start(yarn, *words) as process:
            out, err, watched = follow(process)
        answers.append((out, err))
        if process.returncode == 0:
            sys.stdout.write(f"{phase}: watched again after {watched} s\n")
            break
        # The lease of a worker that was killed before its driver lived.
        assert "is being drained by" in answers[-1][1], f"{answers}\n{yarn.said()}"
        assert time.monotonic() - began < PATIENCE
        time.sleep(5)

    wait_for(yarn.is_quiet, "the end of all applications", patience=PATIENCE)
    new = [app for app in yarn.applications() if app["id"] not in known]
    least, most = PHASES[phase]
    assert least <= len(new) <= most, new
    if most == 1:
        assert new[0]["finalStatus"] == "SUCCEEDED"
        assert json.loads(answers[-1][0])["records"] == RECORDS
    assert_exact(archive, cluster)
    assert not [*archive.glob("lock.json")]


def test_interrupted(
    yarn: YarnCluster, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """Ctrl-C ends the application; the next drain resumes after its last batch."""
    archive = tmp_path / "archive"
    words = ["drain", archive, "--topic", topic, *arguments(bootstrap_servers)]
    process = start(yarn, *words, *SLOW)
    commits = archive / "generations/0001/checkpoint/commits"
    wait_for(
        lambda: process.poll() is not None or len([*commits.glob("[0-9]*")]) > 1,
        "batches",
        patience=PATIENCE,
    )

    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=120)

    assert yarn.applications()[-1]["finalStatus"] == "KILLED"
    assert len([*commits.glob("[0-9]*")]) < RECORDS // 100
    assert not [*archive.glob("lock.json")]
    command(yarn, *words)
    assert_exact(archive, cluster)


def test_window_and_compact(
    yarn: YarnCluster,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    cluster: Any,
    bootstrap_servers: str,
) -> None:
    """A backfill's window is drained, and small files are compacted, by drivers in the cluster."""
    topic, archive = make_topic(partitions=2), tmp_path / "archive"
    kafka = ("--bootstrap-servers", bootstrap_servers)
    options = arguments(bootstrap_servers)
    many, here = ("--source-option", "maxOffsetsPerTrigger=500"), ("--master", "local[1]")
    drain_second_half(partial(command, yarn), send, topic, archive, *kafka, *here, drain=many)

    window = ("--start", "2026-01-01T00:00Z", "--end", "2026-01-02T00:00Z")
    command(yarn, "backfill", archive, *options, *window)
    command(yarn, "roll", archive, *kafka)
    command(yarn, "maintain", archive, *options, "--apply")

    assert [*(archive / "windows").glob("compact_*")]
    assert not run_folders(archive)
    assert_exact(archive, cluster, 2 * RECORDS)


def test_killed_backfill(
    yarn: YarnCluster,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    cluster: Any,
    bootstrap_servers: str,
) -> None:
    """The retry of a killed backfill follows the application that writes its window."""
    topic, archive = make_topic(partitions=2), tmp_path / "archive"
    here = ("--bootstrap-servers", bootstrap_servers, "--master", "local[1]")
    drain_second_half(partial(command, yarn), send, topic, archive, *here)
    window = ("--start", "2026-01-01T00:00Z", "--end", "2026-01-02T00:00Z")
    words = ("backfill", archive, *arguments(bootstrap_servers), *window)
    before = len(yarn.applications())
    process = start(yarn, *words)
    wait_for(lambda: len(yarn.applications()) > before, "the application", patience=PATIENCE)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()

    command(yarn, *words)

    assert len(yarn.applications()) == before + 1
    assert not run_folders(archive)
    assert_exact(archive, cluster, 2 * RECORDS)


def kill_while_it_writes(yarn: YarnCluster, archive: Path, *words: object) -> None:
    """Kill a command while executors write its window."""
    process = start(yarn, *words)
    writing = "windows/*/data/*/_temporary/0/*"
    wait_for(
        lambda: any(archive.glob(writing)) or process.poll() is not None,
        "its write",
        patience=PATIENCE,
        pause=0.01,
    )
    assert process.poll() is None, f"{process.communicate()}\n{yarn.said()}"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not [*archive.glob("windows/*/receipt.json")]


def end_at_last(yarn: YarnCluster, *words: object) -> None:
    """Run a command again until the killed one's lease has run out, and all has ended."""
    began = time.monotonic()
    while True:
        with start(yarn, *words) as process:
            _, err = process.communicate(timeout=PATIENCE)
        if process.returncode == 0:
            wait_for(yarn.is_quiet, "the end of all applications", patience=PATIENCE)
            return
        assert "is being drained by" in err, f"{err}\n{yarn.said()}"
        assert time.monotonic() - began < PATIENCE
        time.sleep(5)


@pytest.fixture
def validated(
    yarn: YarnCluster,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    bootstrap_servers: str,
) -> Path:
    """An archive with files of many partitions, drained without YARN and validated."""
    archive = tmp_path / "archive"
    kafka = ("--bootstrap-servers", bootstrap_servers)
    topic = many_partitions(make_topic, send)
    command(yarn, "drain", archive, "--topic", topic, *kafka, "--master", "local[2]")
    command(yarn, "validate", archive, *kafka)
    return archive


def test_killed_compaction(
    yarn: YarnCluster, validated: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """Killed while its driver writes, a compaction has replaced nothing; the next one replaces."""
    for each in ("roll", "validate"):
        command(yarn, each, validated, "--bootstrap-servers", bootstrap_servers)
    words = ("maintain", validated, *arguments(bootstrap_servers), "--apply")

    kill_while_it_writes(yarn, validated, *words)

    assert_exact(validated, cluster)
    end_at_last(yarn, *words)
    assert len([*validated.glob("windows/compact_*/receipt.json")]) == 1
    assert_exact(validated, cluster)


def test_killed_repair(
    yarn: YarnCluster, validated: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """Killed while its driver writes, a repair is run again: the lost records are there once."""
    for file in validated.glob("generations/0001/data/*/*/*.parquet"):
        file.unlink()
    words = ("repair", validated, *arguments(bootstrap_servers), "--apply")

    kill_while_it_writes(yarn, validated, *words)

    end_at_last(yarn, *words)
    report = validate_archive(Archive.at(str(validated)), cluster, deep=True)
    assert report.complete, report.findings
    assert_once(validated)


def test_group_and_validation_by_executors(
    yarn: YarnCluster,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group's drains share a driver in the cluster; executors read files for a validation."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(yarn.conf))
    topics = [make_topic(partitions=2) for _ in range(2)]
    for topic in topics:
        fill(send, topic)
    conf = {name: value for name, value in CONF.items() if name != "spark.driver.memory"}
    pipelines = [
        Pipeline(
            name=f"p{number}",
            topics=[topic],
            archive=str(tmp_path / f"{number}"),
            spark_conf=conf,
            driver_memory="600m",
        )
        for number, topic in enumerate(topics)
    ]
    runner = runner_for(SparkConnection("yarn", deploy_mode="cluster"), print)
    (tmp_path / "run").mkdir()
    before = len(yarn.applications())

    with (
        for_master("yarn", "cluster"),
        open_group(
            pipelines, {"kafka_default": cluster}, tmp_path / "run", run="tests", find=runner.find
        ) as group,
    ):
        run_group(group, runner)
    raise_failures(group)

    assert {name: r["records"] for name, r in group.results.items()} == dict.fromkeys(
        ("p0", "p1"), RECORDS
    )
    assert len(yarn.applications()) == before + 1
    archive = Archive.at(pipelines[0].archive)
    snapshot = archive.snapshot()
    assert snapshot.open_generation is not None
    listed = [*read_state(snapshot, snapshot.open_generation).manifest.files.values()]
    with for_master("yarn", "cluster"):
        read = read_by_spark(pipelines[0], runner)
        files, findings = read(archive.generation(1), listed, "parquet")
    assert (len(files), findings) == (len(listed), [])
    for pipeline in pipelines:
        assert not run_folders(Path(pipeline.archive))
        assert_exact(Path(pipeline.archive), cluster)
