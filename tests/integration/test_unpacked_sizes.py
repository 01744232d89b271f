"""Records that compress a thousandfold: what reads them from Kafka holds few of them at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_drain.archive.archive import Archive
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.spark.poll_sizes import POLL_BYTES, POLL_RECORDS, poll_options
from tests.integration.command_line import ROOT, kafka_drain

pytestmark = pytest.mark.integration

RECORDS, SIZE = 6_000, 100_000
#: A reader's process may have so much; 100 MiB of it are Python, pyarrow and librdkafka.
MOST_KIB = 400 << 10
#: A heap that Spark just accepts for a small drain.
HEAP = "640m"

#: Reads a topic's first partition in one of the ways in which kafka-drain does, and prints the
#: number of records and the process's largest size in memory, in KiB.
_READ = """
import sys
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.gap_probe import classify_gaps
from kafka_drain.republish.verifying.target_reader import TargetReader

servers, topic, how = sys.argv[1:]
cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))
partitions = sorted(cluster.topics([topic])[topic].partitions)
tps = [TopicPartition(topic, number) for number in partitions]
ends = cluster.latest(tps, "read_committed")
found = 0
if how == "records":
    for batch in cluster.records(tps[0], OffsetRange(0, ends[tps[0]]), "read_committed"):
        found += batch.num_rows
elif how == "target":
    reader = TargetReader(
        cluster, tps[0], first=0, end=ends[tps[0]], with_keys=True, timeout_seconds=60
    )
    found = sum(1 for batch in reader.read(lambda: False) for _ in batch)
elif how == "single":
    found = len(cluster.single_records(dict.fromkeys(tps, 0)))
else:
    [gap] = classify_gaps(cluster, {tps[0]: [OffsetRange(0, 5)]})
    found = len(gap.range)
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(found, peak)
"""


@pytest.fixture(scope="module")
def thousandfold(cluster: KafkaCluster) -> str:
    """A topic with 600 MB in six partitions, most of it in the first, as 200 kB on the broker."""
    topic = "thousandfold"
    cluster.create_topic(topic, TopicSettings(6, 1, config={"retention.ms": "-1"}))
    fill(cluster, topic, [n % 36 if n % 36 < 6 else 0 for n in range(RECORDS)], 1_000_000)
    return topic


@pytest.fixture(scope="module")
def one_batch(cluster: KafkaCluster) -> str:
    """A topic with a single batch of 120 MB, as 12 kB on the broker."""
    topic = "one-batch"
    cluster.create_topic(topic, TopicSettings(1, 1, config={"retention.ms": "-1"}))
    fill(cluster, topic, [0] * 1_200, 200_000_000)
    return topic


def fill(cluster: KafkaCluster, topic: str, partitions: list[int], batch_bytes: int) -> None:
    """Send a record to each of some partitions, in batches of so many bytes before compression."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.config.bootstrap_servers,
            "compression.type": "zstd",
            "batch.size": batch_bytes,
            "message.max.bytes": batch_bytes,
            "linger.ms": 60_000,
            "queue.buffering.max.kbytes": 300_000,
            "log_level": 0,
        }
    )
    for number, partition in enumerate(partitions, 1):
        value = b"%010d" % number + b"x" * (SIZE - 10)
        producer.produce(topic, value, b"%d" % number, partition)
        if number % 1_200 == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0


@pytest.mark.parametrize("how", ["records", "target", "single", "gaps"])
def test_readers_memory(cluster: KafkaCluster, thousandfold: str, how: str) -> None:
    """Each of our readers holds a small part of what it reads, whatever a response unpacks to."""
    found, peak = read(cluster, thousandfold, how)

    first = TopicPartition(thousandfold, 0)
    end = cluster.latest([first], "read_committed")[first]
    assert found == {"records": end, "target": end, "single": 6, "gaps": 5}[how]
    assert peak < MOST_KIB


@pytest.mark.parametrize("how", ["records", "target", "single", "gaps"])
def test_readers_large_batch(cluster: KafkaCluster, one_batch: str, how: str) -> None:
    """Each reads a batch that is larger unpacked than the client's largest response by default."""
    found, peak = read(cluster, one_batch, how)

    assert found == {"records": 1_200, "target": 1_200, "single": 1, "gaps": 5}[how]
    assert peak < MOST_KIB + 2 * 120_000


def read(cluster: KafkaCluster, topic: str, how: str) -> tuple[int, int]:
    """Return how many records a process found, and how large it was in KiB."""
    command = [sys.executable, "-c", _READ, cluster.config.bootstrap_servers, topic, how]
    ended = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT / "plugins")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found, peak = map(int, ended.stdout.split())
    return found, peak


def test_poll_options_of_broker(cluster: KafkaCluster, thousandfold: str, make_topic: Any) -> None:
    """The size of a broker's records decides, unpacked."""
    first = TopicPartition(thousandfold, 0)
    end = cluster.latest([first], "read_committed")[first]

    found = poll_options(cluster, {first: [OffsetRange(0, end)]}, {})

    polled = int(found[POLL_RECORDS])
    assert 0.9 * POLL_BYTES < polled * SIZE <= POLL_BYTES

    empty = TopicPartition(make_topic(partitions=1), 0)
    assert poll_options(cluster, {empty: [OffsetRange(0, 1_000)]}, {}) == {}


def test_drain_in_small_heap(cluster: KafkaCluster, thousandfold: str, tmp_path: Path) -> None:
    """A drain fits into a heap that can't hold what 20,000 records would be."""
    pipeline, archive = tmp_path / "pipeline.json", tmp_path / "archive"
    pipeline.write_text(json.dumps({"driver_memory": HEAP}))

    ended = kafka_drain(
        *("drain", archive, "--topic", thousandfold, "--pipeline", pipeline),
        *("--bootstrap-servers", cluster.config.bootstrap_servers, "--master", "local[2]"),
    )

    assert ended.code == 0, ended.err
    validated = kafka_drain(
        *("validate", archive, "--bootstrap-servers", cluster.config.bootstrap_servers)
    )
    assert validated.code == 0, validated.err
    [receipt] = Archive.at(str(archive)).generation(1).receipts()
    assert sum(part.records for part in receipt.partitions) == RECORDS


@pytest.mark.soak
def test_erase_in_small_heap(
    cluster: KafkaCluster, make_topic: Any, send: Any, tmp_path: Path
) -> None:
    """What a heap drains, it also rewrites: Spark's readers hold a few rows at a time."""
    topic = make_topic(partitions=1)
    pipeline, archive, keys = tmp_path / "pipeline.json", tmp_path / "archive", tmp_path / "keys"
    pipeline.write_text(json.dumps({"driver_memory": HEAP}))
    keys.write_text("17\n")
    for first in range(0, 3_000, 500):
        send(topic, [(b"%d" % n, os.urandom(100_000), None, n) for n in range(first, first + 500)])
    servers = ("--bootstrap-servers", cluster.config.bootstrap_servers)
    job = ("--pipeline", pipeline, "--master", "local[2]")

    assert kafka_drain("drain", archive, "--topic", topic, *servers, *job).code == 0
    assert kafka_drain("validate", archive, *servers).code == 0
    asked = ("--request", "r", "--by", "b", "--keys", keys, "--apply")
    erased = kafka_drain("erase", archive, *servers, *job, *asked)

    assert erased.code == 0, erased.err[-3000:]
    assert kafka_drain("validate", archive, *servers, "--deep").code == 0
