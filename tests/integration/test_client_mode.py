"""Every kind of job on clusters with its driver in spark-submit: YARN's, and Spark's standalone.

`make test-yarn` and `make test-clusters` run it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation_state import read_state
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.group import open_group, raise_failures, run_group
from kafka_drain.proof.executor_reading import read_by_spark
from kafka_drain.spark.place import SparkConnection
from kafka_drain.spark.runner import runner_for
from kafka_drain.spark.submit import for_master
from tests.faults.injection import wait_for
from tests.filled_topic import RECORDS, assert_exact, drain_second_half, fill
from tests.yarn_cluster import CONF as YARN_CONF

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PATIENCE = 600.0


@dataclass(frozen=True)
class SparkOn:
    """A cluster for executors.

    Attributes:
        master: Its address.
        conf: Spark's settings for it.
        environment: What a worker needs in its environment.
    """

    master: str
    conf: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)

    def start(self, *words: object) -> subprocess.Popen[str]:
        """Start a command."""
        path = os.pathsep.join(str(ROOT / name) for name in ("plugins", "spark_jobs", "."))
        return subprocess.Popen(
            [sys.executable, "-m", "kafka_drain.cli", *map(str, words)],
            env={**os.environ, "PYTHONPATH": path, **self.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def command(self, *words: object) -> str:
        """Run a command; return its standard output."""
        with self.start(*words) as process:
            out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        return out

    def options(self, servers: str) -> list[str]:
        """The options of a command that runs Spark here."""
        conf = [part for name, value in self.conf.items() for part in ("--conf", f"{name}={value}")]
        return ["--bootstrap-servers", servers, "--master", self.master, *conf]


@pytest.fixture(
    params=[
        pytest.param("yarn", marks=pytest.mark.yarn),
        pytest.param("standalone", marks=pytest.mark.cluster),
    ]
)
def spark_on(request: pytest.FixtureRequest) -> SparkOn:
    """A cluster of each kind."""
    if request.param == "yarn":
        yarn = request.getfixturevalue("yarn")
        return SparkOn("yarn", YARN_CONF, {"HADOOP_CONF_DIR": str(yarn.conf)})
    master, _ = request.getfixturevalue("spark_workers")
    conf = {
        "spark.cores.max": "2",
        "spark.driver.memory": "600m",
        "spark.executor.memory": "512m",
        "spark.pyspark.python": sys.executable,
    }
    return SparkOn(master, conf)


@pytest.fixture
def topic(make_topic: Any, send: Any) -> str:
    """A topic with records in two partitions."""
    name: str = make_topic(partitions=2)
    fill(send, name)
    return name


def test_drain_and_republish(
    spark_on: SparkOn, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str, read: Any
) -> None:
    """A drain, and both ways of a republish on executors."""
    archive, options = tmp_path / "archive", spark_on.options(bootstrap_servers)

    out = spark_on.command("drain", archive, "--topic", topic, "--json", *options)

    assert json.loads(out)["records"] == RECORDS
    assert not [*archive.glob("runs/*")]
    assert_exact(archive, cluster)
    for number, how in enumerate((["--engine", "spark"], ["--delivery", "at_least_once"])):
        target = f"{topic}.copy{number}"
        sending = ("--target-topic", target, "--create-target", "--apply")
        spark_on.command("republish", archive, *options, *sending, *how)
        assert {p: [r[1] for r in rows] for p, rows in read(target).items()} == {
            p: [r[1] for r in rows] for p, rows in read(topic).items()
        }


def test_window_and_compact(
    spark_on: SparkOn,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    cluster: Any,
    bootstrap_servers: str,
) -> None:
    """A backfill's window is drained, and small files are compacted."""
    topic, archive = make_topic(partitions=2), tmp_path / "archive"
    kafka = ("--bootstrap-servers", bootstrap_servers)
    options = spark_on.options(bootstrap_servers)
    many, here = ("--source-option", "maxOffsetsPerTrigger=500"), ("--master", "local[1]")
    drain_second_half(spark_on.command, send, topic, archive, *kafka, *here, drain=many)

    window = ("--start", "2026-01-01T00:00Z", "--end", "2026-01-02T00:00Z")
    spark_on.command("backfill", archive, *options, *window)
    spark_on.command("roll", archive, *kafka)
    spark_on.command("maintain", archive, *options, "--apply")

    assert [*(archive / "windows").glob("compact_*")]
    assert_exact(archive, cluster, 2 * RECORDS)


def test_group_and_validation_by_executors(
    spark_on: SparkOn,
    make_topic: Callable[..., str],
    send: Any,
    tmp_path: Path,
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group's drains share a driver; executors read files for a validation."""
    for name, value in spark_on.environment.items():
        monkeypatch.setenv(name, value)
    topics = [make_topic(partitions=2) for _ in range(2)]
    for topic in topics:
        fill(send, topic)
    conf = {name: value for name, value in spark_on.conf.items() if name != "spark.driver.memory"}
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
    runner = runner_for(SparkConnection(spark_on.master), print)
    (tmp_path / "run").mkdir()

    with (
        for_master(spark_on.master, "client"),
        open_group(
            pipelines, {"kafka_default": cluster}, tmp_path / "run", run="tests", find=runner.find
        ) as group,
    ):
        run_group(group, runner)
    raise_failures(group)

    assert {name: r["records"] for name, r in group.results.items()} == dict.fromkeys(
        ("p0", "p1"), RECORDS
    )
    archive = Archive.at(pipelines[0].archive)
    snapshot = archive.snapshot()
    assert snapshot.open_generation is not None
    listed = [*read_state(snapshot, snapshot.open_generation).manifest.files.values()]
    with for_master(spark_on.master, "client"):
        read = read_by_spark(pipelines[0], runner)
        files, findings = read(archive.generation(1), listed, "parquet")
    assert (len(files), findings) == (len(listed), [])
    for pipeline in pipelines:
        assert_exact(Path(pipeline.archive), cluster)


def test_drain_killed(
    spark_on: SparkOn, topic: str, tmp_path: Path, cluster: Any, bootstrap_servers: str
) -> None:
    """After SIGKILL of a worker and its driver in mid-query, the next drain goes on."""
    archive = tmp_path / "archive"
    words = ["drain", archive, "--topic", topic, *spark_on.options(bootstrap_servers)]
    slow = ("--source-option", "maxOffsetsPerTrigger=100")
    commits = archive / "generations/0001/checkpoint/commits"
    with spark_on.start(*words, *slow) as process:
        wait_for(
            lambda: process.poll() is not None or len([*commits.glob("[0-9]*")]) > 1,
            "batches",
            patience=PATIENCE,
        )
        assert process.poll() is None, process.communicate()
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = len([*commits.glob("[0-9]*")])

    def drained() -> bool:
        with spark_on.start(*words) as retry:
            _, err = retry.communicate(timeout=PATIENCE)
        assert retry.returncode == 0 or "is being drained by" in err, err
        return retry.returncode == 0

    # Until the lease of the killed worker has expired.
    wait_for(drained, "a drain that takes over", patience=PATIENCE)

    assert before < RECORDS // 100
    assert_exact(archive, cluster)
