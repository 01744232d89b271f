"""Every kind of job on a Spark Connect server, from a client that has pyspark-client alone.

`make test-connect` makes the client's environment and names its Python in TESTS_CONNECT_PYTHON.
Without it, this test run's own Python is the client.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from demo.broker.ports import free_ports
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation_state import read_state
from kafka_drain.archive.inspection import committed_files
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.group import open_group, raise_failures, run_group
from kafka_drain.proof.executor_reading import read_by_spark
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.runner import SparkConnect, SparkConnection
from kafka_drain.spark.submit import for_master
from tests.faults.injection import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.connect]

ROOT = Path(__file__).parents[2]
PYTHON = os.environ.get("TESTS_CONNECT_PYTHON", sys.executable)
RECORDS = 2000


@dataclass
class Server:
    """A server that a test may kill, and start again at the same port."""

    port: int
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def master(self) -> str:
        return f"sc://127.0.0.1:{self.port}"

    def start(self, *more: str) -> None:
        command = [sys.executable, "-m", "kafka_drain.cli", "spark-server"]
        command += ["--port", str(self.port), "--master", "local[2]", "--memory", "1g", *more]
        self.log.unlink(missing_ok=True)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, env=environment(), stdout=log, stderr=log, start_new_session=True
            )
        wait_for(
            lambda: "listens on" in self.said() or self.has_ended(), "the server", patience=120
        )
        assert not self.has_ended(), self.said()

    def said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""

    def has_ended(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def kill(self) -> None:
        """Kill the server and the command that started it."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> int:
        """Stop the command, as Ctrl-C does; return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(60)


def environment(**more: str) -> dict[str, str]:
    path = os.pathsep.join(str(ROOT / name) for name in ("plugins", "spark_jobs", "."))
    return {**os.environ, "PYTHONPATH": path, **more}


def without_java(**more: str) -> dict[str, str]:
    """The environment of a worker that has neither Java nor the connector's jars."""
    nowhere = {"JAVA_HOME": "/nowhere", "KAFKA_DRAIN_CACHE": "/nowhere", "SPARK_HOME": "/nowhere"}
    return environment(**nowhere, **more)


def start_client(*arguments: object, **more: str) -> subprocess.Popen[str]:
    """Start a command in the client's Python."""
    return subprocess.Popen(
        [PYTHON, "-m", "kafka_drain.cli", *map(str, arguments)],
        env=without_java(**more),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def client(*arguments: object, code: int = 0, **more: str) -> tuple[str, str]:
    """Run a command in the client's Python; return what it printed."""
    with start_client(*arguments, **more) as process:
        out, err = process.communicate(timeout=400)
    assert process.returncode == code, err
    return out, err


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The one server of these tests."""
    (port,) = free_ports(1, ())
    found = Server(port, tmp_path_factory.mktemp("server") / "log")
    found.start()
    yield found
    if not found.has_ended():
        assert found.stop() == 0, found.said()


@pytest.fixture
def topic(make_topic: Any, send: Any) -> str:
    """A topic with records in two partitions."""
    name: str = make_topic(partitions=2)
    fill(send, name)
    return name


def fill(send: Any, topic: str, records: int = RECORDS) -> None:
    for partition in (0, 1):
        values = [(b"k", b"%d" % n, None, 1_767_225_600_000 + n) for n in range(records // 2)]
        send(topic, values, partition=partition)


def offsets_in(archive: Path) -> Counter[tuple[int, int]]:
    """Count how often each offset of each partition is in an archive's committed files."""
    files = [file["path"] for file in committed_files(Archive.at(str(archive)))]
    rows = ds.dataset(files).to_table(columns=["partition", "offset"])
    pairs = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    return Counter(pairs)


def assert_exact(archive: Path, cluster: Any, records: int = RECORDS) -> None:
    """Assert that an archive holds each record once, and that this is proven."""
    report = validate_archive(Archive.at(str(archive)), cluster, deep=True)
    assert report.complete, report.findings
    assert (report.offsets, report.records) == (records, records)
    found = offsets_in(archive)
    assert (len(found), set(found.values())) == (records, {1})


def test_imports_without_py4j() -> None:
    """A client's jobs load neither Py4J nor the JVM's side of pyspark."""
    code = """
import sys
sys.modules["py4j"] = None
import kafka_drain_spark.job
for kind in ("drain", "window", "compact", "validate", "send", "sink"):
    __import__(f"kafka_drain_spark.{kind}")
print(sorted(name for name in sys.modules if name.startswith("pyspark.core")))
"""
    ended = subprocess.run(
        [PYTHON, "-c", code], env=without_java(), capture_output=True, text=True, check=False
    )

    assert (ended.stdout, ended.returncode) == ("[]\n", 0), ended.stderr


def test_drain_validate_republish(
    server: Server, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str, read: Any
) -> None:
    """A worker without Java drains, and republishes in both ways, on the server."""
    archive = tmp_path / "archive"
    kafka = ("--bootstrap-servers", bootstrap_servers)

    out, err = client(
        *("drain", archive, "--topic", topic, "--master", server.master, "--json", *kafka)
    )

    assert json.loads(out)["records"] == RECORDS
    assert not json.loads(out)["adopted"]
    assert f"{RECORDS:,} offsets planned" in err
    assert_exact(archive, cluster)
    for number, how in enumerate((["--engine", "spark"], ["--delivery", "at_least_once"])):
        target = f"{topic}.copy{number}"
        sending = ("--master", server.master, "--target-topic", target, "--create-target")
        client("republish", archive, *kafka, *sending, *how, "--apply")
        assert {p: [r[1] for r in rows] for p, rows in read(target).items()} == {
            p: [r[1] for r in rows] for p, rows in read(topic).items()
        }


def start_and_kill(
    server: Server, topic: str, archive: Path, servers: str, *more: str
) -> tuple[str, ...]:
    """Start a slow drain, kill its client in mid-query; return the command for another one."""
    command = ("drain", str(archive), "--topic", topic, "--bootstrap-servers", servers)
    command += ("--master", server.master, "--json", "--source-option", "maxOffsetsPerTrigger=40")
    command += more
    process = start_client(*command)
    batches = archive / "generations/0001/checkpoint/commits"
    wait_for(
        lambda: process.poll() is not None or len([*batches.glob("[0-9]*")]) > 2,
        "batches",
        patience=120,
    )
    assert process.poll() is None, process.communicate()[1]
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return command


def test_drain_follows_query_of_killed_client(
    server: Server, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """After SIGKILL, the query goes on; the next client follows that query, and starts none."""
    archive = tmp_path / "archive"
    command = start_and_kill(server, topic, archive, bootstrap_servers)
    known = json.loads((archive / "generations/0001/checkpoint/metadata").read_text())["id"]

    remove_lease(archive)
    out, err = client(*command)

    result = json.loads(out)
    assert (result["query_id"], result["adopted"]) == (known, True)
    assert f"query {known} is running; following it" in err
    assert_exact(archive, cluster)


def test_drain_stops_query_of_other_options(
    server: Server, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """A query that was started with other options is stopped before the next one starts."""
    archive = tmp_path / "archive"
    command = start_and_kill(server, topic, archive, bootstrap_servers)

    remove_lease(archive)
    out, err = client(*command[:-1], "maxOffsetsPerTrigger=500")

    assert "it isn't needed" in err
    assert not json.loads(out)["adopted"]
    assert_exact(archive, cluster)


def remove_lease(archive: Path) -> None:
    """Remove the killed client's lease, as `kafka-drain unlock` does once it has ended."""
    (archive / "lock.json").unlink()


def test_drain_interrupted_stops_its_query(
    server: Server, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """A client that is interrupted stops its query, as the driver would end with spark-submit."""
    archive = tmp_path / "archive"
    command = ("drain", archive, "--topic", topic, "--bootstrap-servers", bootstrap_servers)
    options = ("--master", server.master, "--source-option", "maxOffsetsPerTrigger=40")
    process = subprocess.Popen(
        [PYTHON, "-m", "kafka_drain.cli", *map(str, (*command, *options))],
        env=without_java(),
        start_new_session=True,
        # A run of tests in the background ignores it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    commits = archive / "generations/0001/checkpoint/commits"
    wait_for(lambda: len([*commits.glob("[0-9]*")]) > 1, "batches", patience=120)

    os.killpg(process.pid, signal.SIGINT)

    process.wait(60)
    count = len([*commits.glob("[0-9]*")])
    time.sleep(3)
    assert len([*commits.glob("[0-9]*")]) == count < RECORDS // 40
    client(*command, "--master", server.master)
    assert_exact(archive, cluster)


def test_server_killed_and_started_again(
    server: Server, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """A server that dies in mid-drain fails the drain; the next one on a new server is exact."""
    archive = tmp_path / "archive"
    command = ("drain", archive, "--topic", topic, "--bootstrap-servers", bootstrap_servers)
    slow = ("--master", server.master, "--source-option", "maxOffsetsPerTrigger=40")
    process = start_client(*command, *slow)
    commits = archive / "generations/0001/checkpoint/commits"
    wait_for(lambda: len([*commits.glob("[0-9]*")]) > 2, "batches", patience=120)

    server.kill()
    server.start()

    _, err = process.communicate(timeout=200)
    assert process.returncode == 1, err
    assert re.search("the drain failed in Spark", err), err
    client(*command, "--master", server.master)
    assert_exact(archive, cluster)


def test_window_and_compact(
    server: Server,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    cluster: Any,
    bootstrap_servers: str,
) -> None:
    """A backfill's window is drained, and small files are compacted, on the server."""
    topic, archive = make_topic(partitions=2), tmp_path / "archive"
    kafka = ("--bootstrap-servers", bootstrap_servers, "--master", server.master)
    fill(send, topic)
    latest = ("--source-option", "startingOffsets=latest")
    client("drain", archive, "--topic", topic, *kafka, *latest)
    fill(send, topic)
    many = ("--source-option", "maxOffsetsPerTrigger=500")
    client("drain", archive, "--topic", topic, *kafka, *latest, *many)
    client("validate", archive, *kafka)

    client(
        "backfill", archive, *kafka, "--start", "2026-01-01T00:00Z", "--end", "2026-01-02T00:00Z"
    )
    client("roll", archive, *kafka[:2])
    client("maintain", archive, *kafka, "--apply")

    assert [*(archive / "windows").glob("compact_*")]
    assert_exact(archive, cluster, 2 * RECORDS)


def test_group_and_validation_by_executors(
    server: Server, make_topic: Callable[..., str], send: Any, tmp_path: Path, cluster: Any
) -> None:
    """A group's drains have a session each in one client; executors read files for a validation."""
    topics = [make_topic(partitions=2) for _ in range(3)]
    for topic in topics:
        fill(send, topic)
    pipelines = [
        Pipeline(name=f"p{number}", topics=[topic], archive=str(tmp_path / f"{number}"))
        for number, topic in enumerate(topics)
    ]
    runner = SparkConnect(SparkConnection(server.master), print)
    (tmp_path / "run").mkdir()

    with (
        for_master(server.master),
        open_group(
            pipelines, {"kafka_default": cluster}, tmp_path / "run", run="tests", say=print
        ) as group,
    ):
        run_group(group, runner)
    raise_failures(group)

    assert {name: r["records"] for name, r in group.results.items()} == dict.fromkeys(
        ("p0", "p1", "p2"), RECORDS
    )
    archive = Archive.at(pipelines[0].archive)
    snapshot = archive.snapshot()
    assert snapshot.open_generation is not None
    listed = [*read_state(snapshot, snapshot.open_generation).manifest.files.values()]
    with for_master(server.master):
        read = read_by_spark(pipelines[0], runner)
        files, findings = read(archive.generation(1), listed, "parquet", print)
    assert (len(files), findings) == (len(listed), [])
    assert_exact(tmp_path / "0", cluster)


def test_no_server(tmp_path: Path, topic: str, bootstrap_servers: str) -> None:
    """Where nothing listens, the message says how to start a server, at once."""
    (port,) = free_ports(1, ())
    began = time.monotonic()

    _, err = client(
        *("drain", tmp_path / "archive", "--topic", topic, "--master", f"sc://127.0.0.1:{port}"),
        *("--bootstrap-servers", bootstrap_servers),
        code=1,
    )

    assert f"no Spark Connect server answers at sc://127.0.0.1:{port}" in err
    assert "kafka-drain spark-server" in err
    assert time.monotonic() - began < 60


def test_setting_of_the_server(
    server: Server, tmp_path: Path, topic: str, bootstrap_servers: str
) -> None:
    """What a session can't set is refused, and the message says what to start the server with."""
    _, err = client(
        *("drain", tmp_path / "archive", "--topic", topic, "--master", server.master),
        *("--bootstrap-servers", bootstrap_servers, "--conf", "spark.executor.cores=7"),
        code=2,
    )

    assert "start the server with `kafka-drain spark-server --conf spark.executor.cores=7`" in err


def test_secrets_of_a_query(
    server: Server, tmp_path: Path, topic: str, bootstrap_servers: str
) -> None:
    """The token is on no command line."""
    process = start_client(
        *("drain", tmp_path / "archive", "--topic", topic, "--master", server.master),
        *("--bootstrap-servers", bootstrap_servers),
        SPARK_CONNECT_AUTHENTICATE_TOKEN="s3cret",
    )
    seen = []
    while process.poll() is None:
        seen += command_lines()
        time.sleep(0.05)
    process.communicate()

    assert any(b"main.py" in line for line in seen)
    assert not [line for line in seen if b"s3cret" in line]


def command_lines() -> Iterator[bytes]:
    """Yield the command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()
