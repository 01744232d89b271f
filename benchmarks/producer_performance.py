"""Kafka's own ProducerPerformance: the same values, without keys, headers, timestamps or order."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.arms import run_command
from benchmarks.kafka_records import PARTITIONS
from benchmarks.process_tree import Cost
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.spark.jars import fetch as jars
from kafka_drain.spark.java import require_java

__all__ = ["producer_performance", "write_values"]

#: The settings of the bare loop; `acks=all` and idempotence are Kafka's defaults.
SETTINGS = ("linger.ms=50", "batch.size=1048576", "compression.type=lz4")
#: Number of values that fit into its heap of 512 MiB, the default of `kafka-producer-perf-test.sh`.
VALUES = 100_000


def write_values(archive: str, file: Path) -> None:
    """Write values of an archive, one per line, of which it sends random ones repeatedly."""
    data = next(Path(archive).rglob("*.parquet"))
    values = pq.ParquetFile(data).read(["value"])["value"].slice(0, VALUES)
    file.write_bytes(b"".join(value + b"\n" for value in values.to_pylist()))


def producer_performance(values: Path, servers: str, records: int, target: str) -> Cost:
    """Send records; the duration in seconds is the one that ProducerPerformance reports.

    Raises:
        RuntimeError: If it failed, or the target holds a different number of records.
    """
    class_path = os.pathsep.join(map(str, jars.fetch(jars.BROKER) + jars.fetch(jars.TOOLS)))
    command = [str(require_java().path), "-Xmx512m", "-cp", class_path]
    command += ["org.apache.kafka.tools.ProducerPerformance", "--topic", target]
    command += ["--num-records", str(records), "--throughput", "-1"]
    command += ["--payload-file", str(values)]
    command += ["--producer-props", f"bootstrap.servers={servers}", *SETTINGS]
    printed, cost = run_command(command)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": servers}))
    partitions = [TopicPartition(target, p) for p in range(PARTITIONS)]
    held = sum(cluster.latest(partitions, "read_uncommitted").values())
    *_, (said, rate) = re.findall(r"(\d+) records sent, ([\d.]+) records/sec", printed)
    if held != records or int(said) != records:
        raise RuntimeError(f"{target} holds {held:,} of {records:,} records, reported: {said}")
    return replace(cost, seconds=records / float(rate))
