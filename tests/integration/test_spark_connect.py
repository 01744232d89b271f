"""Every kind of job on a Spark Connect server, from a client that has pyspark-client alone.

`make test-connect` makes the client's environment; see tests/spark_connect.py.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from demo.broker.ports import free_ports
from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation_state import read_state
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.group import open_group, raise_failures, run_group
from kafka_drain.proof.executor_reading import read_by_spark
from kafka_drain.spark.client_mode import SparkConnect
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.submit import for_master
from tests.spark_connect import (
    PYTHON,
    RECORDS,
    Server,
    assert_exact,
    client,
    command_lines,
    drain_second_half,
    fill,
    start_client,
    without_java,
)

pytestmark = [pytest.mark.integration, pytest.mark.connect]


def test_imports_without_py4j() -> None:
    """A client's jobs load neither Py4J nor the JVM's side of pyspark."""
    code = """
import sys
sys.modules["py4j"] = None
import kafka_drain_spark.application
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
    many = ("--source-option", "maxOffsetsPerTrigger=500")
    drain_second_half(client, send, topic, archive, *kafka, drain=many)

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
        open_group(pipelines, {"kafka_default": cluster}, tmp_path / "run", run="tests") as group,
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
        files, findings = read(archive.generation(1), listed, "parquet")
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
    started = start_client(
        tmp_path,
        *("drain", tmp_path / "archive", "--topic", topic, "--master", server.master),
        *("--bootstrap-servers", bootstrap_servers),
        SPARK_CONNECT_AUTHENTICATE_TOKEN="s3cret",
    )
    seen = []
    while started.process.poll() is None:
        seen += command_lines()
        time.sleep(0.05)

    assert any(b"main.py" in line for line in seen)
    assert not [line for line in seen if b"s3cret" in line]
