"""Costs in counts that are the same on every machine, so that a slower product fails here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from benchmarks.growth import make
from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.cds_training import write_class_archive
from kafka_drain.spark.java import require_java
from tests.integration.command_line import ROOT, kafka_drain

pytestmark = pytest.mark.integration

NOON = 1_357_041_600_000  # 2013-01-01 12:00:00 UTC, in milliseconds

# Counts what Python opens and lists while a new batch is validated; in a process of its own, an
# audit hook stays for good.
COUNT_FILES = """
import json, sys
from collections import Counter
from benchmarks.growth import validate
seen = Counter()
def hook(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and sys.argv[1] in str(arguments[0]):
        seen[event] += 1
sys.addaudithook(hook)
answer = validate(sys.argv[1], "open")
print(json.dumps([answer["complete"], answer["written"], seen]))
"""


def test_drain_starts_two_javas(
    bootstrap_servers: str, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    """A drain starts Java twice, for spark-submit and Spark, and checks its version once.

    A drain with nothing new only checks the version.
    """
    topic = make_topic(partitions=1)
    send(topic, [(b"k", b"v", [("n", b"1")], NOON)])
    starts = tmp_path / "starts"
    java = tmp_path / "home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        f'#!/bin/sh\necho "$@" >> {starts}\nexec {require_java().path.resolve()} "$@"\n'
    )
    java.chmod(0o755)
    drain = (
        *("drain", tmp_path / "archive", "--topic", topic, "--json", "--master", "local[2]"),
        *("--bootstrap-servers", bootstrap_servers),
    )

    ended = kafka_drain(*drain, environment={"JAVA_HOME": str(tmp_path / "home")})
    again = kafka_drain(*drain, environment={"JAVA_HOME": str(tmp_path / "home")})

    assert json.loads(ended.out)["records"] == 1
    assert json.loads(again.out)["records"] == 0
    kinds = Counter(
        "launcher" if "launcher.Main" in line else "Spark" if "SparkSubmit" in line else line
        for line in starts.read_text().splitlines()
    )
    assert kinds == {"-version": 2, "launcher": 1, "Spark": 1}


def test_drain_loads_shared_classes(
    bootstrap_servers: str, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    """Nine tenths of a drain's classes come from the CDS archive."""
    write_class_archive()
    topic = make_topic(partitions=1)
    send(topic, [(b"k", b"v", [("n", b"1")], NOON)])
    loaded = tmp_path / "classes"
    log = f"spark.driver.extraJavaOptions=-Xlog:class+load:file={loaded}"

    ended = kafka_drain(
        *("drain", tmp_path / "archive", "--topic", topic, "--json", "--master", "local[2]"),
        *("--bootstrap-servers", bootstrap_servers, "--conf", log),
    )

    assert json.loads(ended.out)["records"] == 1
    sources = Counter(
        "shared" if "shared objects file" in source else "jar" if "jar" in source else "other"
        for source in re.findall(r" source: (.*)", loaded.read_text())
    )
    assert sources["shared"] > 10_000
    assert sources["jar"] < sources["shared"] / 10


@pytest.mark.parametrize("partitions", [1, 40])
def test_validation_asks_kafka_as_often(
    partitions: int,
    bootstrap_servers: str,
    drain: Any,
    make_topic: Any,
    send: Any,
    tmp_path: Path,
) -> None:
    """However many partitions a topic has, a validation sends Kafka the same few requests.

    Describing the cluster takes six more, and those for each group that the cluster knows: its
    offsets once, and its coordinator, whom librdkafka looks for until it answers.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    groups = len(admin.list_consumer_groups().result(30).valid)
    topic = make_topic(partitions=partitions)
    send(topic, [(b"k", b"v", None, NOON)])
    drain(Pipeline(name="p", topics=[topic], archive=str(tmp_path / "archive")))
    config = tmp_path / "kafka.json"
    config.write_text(json.dumps({"bootstrap.servers": bootstrap_servers, "debug": "protocol"}))

    for parts, at_most, of_groups in (
        ("none", 6, 0),
        ("groups,topics,acls,users,brokers", 12, groups),
    ):
        ended = kafka_drain(
            *("validate", tmp_path / "archive", "--kafka-config", config, "--json"),
            *("--describe-cluster", parts),
        )

        assert ended.code == 0, ended.err[-2000:]
        sent = Counter(re.findall(r"Sent (\w+?)Request", ended.err))
        # For each connection: the broker's API versions and its metadata.
        for greeting in ("ApiVersion", "Metadata"):
            sent.pop(greeting, None)
        # librdkafka looks for it for each consumer with a group, such as the one of newest records.
        sent.pop("FindCoordinator", None)
        assert sent.pop("OffsetFetch", 0) <= of_groups, (groups, sent)
        assert sum(sent.values()) <= at_most, (groups, sent)


def test_validation_reads_new_files_twice(
    cluster: Any, drain: Any, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    """Proving a batch reads its new files twice, and sealed ones not at all.

    Once for the SHA-256 of their bytes, and once for their records, which have to be those that
    Spark read.
    """
    topic = make_topic(partitions=1, max_message_bytes=str(2 << 20))
    send(topic, [(b"k", os.urandom(1 << 20), None, NOON + n) for n in range(20)])
    archive = Archive.at(str(tmp_path / "archive"))
    drain(Pipeline(name="p", topics=[topic], archive=str(archive.root)))
    size = sum(archive.generation(1).list_data_files().values())

    before = bytes_read()
    report = validate_archive(archive, cluster)
    read = bytes_read() - before

    assert (report.complete, report.receipts_written) == (True, 1)
    assert size > 20 << 20
    assert 2 * size <= read < 2 * size * 1.1

    before = bytes_read()
    assert validate_archive(archive, cluster, scope="open").complete
    assert bytes_read() - before < size * 0.1


def bytes_read() -> int:
    """Return the number of bytes that this process has read so far."""
    return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text()).group(1))  # type: ignore[union-attr]


def test_validation_opens_as_many_files(tmp_path: Path) -> None:
    """Validating a new batch opens the same number of files in an old archive as in a new one."""
    counts = []
    for name, generations in {"young": (80, 80), "old": (800, 800, 80)}.items():
        folder = tmp_path / name
        make(str(folder), generations)
        ended = subprocess.run(
            [sys.executable, "-c", COUNT_FILES, str(folder)],
            env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT}/plugins"},
            capture_output=True,
            text=True,
        )
        complete, written, seen = json.loads(ended.stdout)
        assert (complete, written) == (True, 1), ended.stderr
        counts.append(seen)

    young, old = counts
    # One more generation: its folder, its document, its first and its last receipt.
    assert old["open"] - young["open"] <= 6
    assert sum(old.values()) - sum(young.values()) <= 12
