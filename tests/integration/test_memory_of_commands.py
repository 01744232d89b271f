"""Three gigabytes that compress a thousandfold: what each command takes, with all its processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from benchmarks.process_tree import PeakMemory
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topics import TopicSettings
from tests.integration.command_line import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.soak]

RECORDS, SIZE = 30_000, 100_000
#: What docs/sizing.md promises, in MiB: of a command that starts Spark with the default heap on two
#: cores, and of one that doesn't.
SPARK, PYTHON = 1_792, 1_024

#: The codec of Kafka's batches, the format, and the codec of its files.
CODECS = [
    ("zstd", "parquet", "zstd"),
    ("gzip", "parquet", "gzip"),
    ("snappy", "parquet", "snappy"),
    ("lz4", "parquet", "lz4_raw"),
    ("zstd", "orc", "zstd"),
    ("zstd", "avro", "zstandard"),
    ("zstd", "json", "gzip"),
]


@pytest.fixture(scope="module")
def large(cluster: KafkaCluster) -> Iterator[Any]:
    """Topics of 3 GB in two partitions, by the codec of their batches."""
    made: dict[str, str] = {}

    def make(codec: str) -> str:
        if codec not in made:
            made[codec] = f"large-{codec}"
            settings = TopicSettings(2, 1, config={"retention.ms": "-1"})
            cluster.create_topic(made[codec], settings)
            fill(cluster, made[codec], codec)
        return made[codec]

    return make


def fill(cluster: KafkaCluster, topic: str, codec: str) -> None:
    """Send the records, in batches of 1 MB before compression."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.config.bootstrap_servers,
            "compression.type": codec,
            "batch.size": 1_000_000,
            "linger.ms": 60_000,
            "log_level": 0,
        }
    )
    for number in range(RECORDS):
        value = b"%010d" % number + b"x" * (SIZE - 10)
        producer.produce(topic, value, b"%d" % number, number % 2)
        if number % 500 == 499:
            assert producer.flush(60) == 0


def measured(*arguments: object) -> float:
    """Run a command; return the peak memory of its process tree, in MiB."""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "kafka_drain.cli", *map(str, arguments)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}/plugins:{ROOT}/spark_jobs"},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
        )
        memory = PeakMemory(process.pid)
        code = process.wait(600)
        peak = memory.stop()
        said.seek(0)
        assert code == 0, (arguments, said.read().decode()[-3000:])
    return peak


@pytest.mark.parametrize(("batches", "form", "codec"), CODECS)
def test_memory_of_commands(
    batches: str,
    form: str,
    codec: str,
    cluster: KafkaCluster,
    large: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each command stays within what the documentation promises."""
    topic = large(batches)
    archive, keys = tmp_path / "archive", tmp_path / "keys"
    keys.write_text("17\n18\n")
    servers = ("--bootstrap-servers", cluster.config.bootstrap_servers)
    local = ("--master", "local[2]")
    job = (*servers, *local)
    files = ("--format", form, "--compression", codec)
    restored = (*servers, "--create-target", "--apply", "--target-topic")
    commands: dict[str, tuple[int, tuple[object, ...]]] = {
        "drain": (SPARK, ("drain", archive, "--topic", topic, *job, *files)),
        "validate": (PYTHON, ("validate", archive, *servers)),
        "validate --deep": (PYTHON, ("validate", archive, *servers, "--deep")),
        "find": (PYTHON, ("find", archive, "--value-contains", "0000029999xx")),
        "republish": (
            PYTHON,
            ("republish", archive, *restored, f"{tmp_path.name}-w", "--engine", "worker"),
        ),
        "republish, Spark": (
            SPARK,
            ("republish", archive, *restored, f"{tmp_path.name}-s", "--engine", "spark", *local),
        ),
        "drill": (
            PYTHON,
            ("drill", archive, "--to-bootstrap", servers[1], "--sample", "whole"),
        ),
        "reprocess": (SPARK, ("reprocess", archive, *job, "--from-batch", "0", "--apply")),
        "erase": (
            SPARK,
            ("erase", archive, *job, "--request", "r", "--by", "b", "--keys", keys, "--apply"),
        ),
        "maintain": (SPARK, ("maintain", archive, *job, "--apply")),
        "validate at last": (PYTHON, ("validate", archive, *servers, "--deep")),
    }
    peaks = {}
    try:
        for name, (_, arguments) in commands.items():
            peaks[name] = measured(*arguments)
    finally:
        with capsys.disabled():
            print(batches, form, codec, {name: round(peak) for name, peak in peaks.items()})  # noqa: T201
        for suffix in "ws":
            if f"{tmp_path.name}-{suffix}" in cluster.topic_names():
                cluster.delete_topic(f"{tmp_path.name}-{suffix}")
    assert {name: peak for name, peak in peaks.items() if peak > commands[name][0]} == {}
