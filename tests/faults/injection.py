"""Helpers for fault injections: waiting for a moment, a slow source, and an archive's content."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pyarrow.dataset as ds
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.proof.report import Report
from kafka_drain.storage.paths import locate

NOON = 1_357_041_600_000  # 2013-01-01 12:00 UTC, in milliseconds
DAY = 86_400_000
PATIENCE = 60.0

#: Source options that make a drain slow: each fetch waits 100 ms for a MiB that doesn't come, and
#: then returns one record batch, as `send` creates with each call.
SLOW = {
    "kafka.max.partition.fetch.bytes": "1",
    "kafka.fetch.max.bytes": "1",
    "kafka.fetch.min.bytes": str(1 << 20),
    "kafka.fetch.max.wait.ms": "100",
}

#: Java options for a start with less CPU time; they would be slower in the long run.
QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
QUICK_START = {f"spark.{side}.extraJavaOptions": QUICK_JAVA for side in ("driver", "executor")}


def wait_for(
    condition: Callable[[], bool], what: str, *, patience: float = PATIENCE, pause: float = 0.02
) -> None:
    """Wait until a condition holds; fail if it doesn't in time."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {patience:g} s"
        time.sleep(pause)


def records(count: int, first: int = 0) -> list[Any]:
    """Return numbered records of one day."""
    return [(b"k", b"%d" % n, None, NOON + n) for n in range(first, first + count)]


def send_slowly(send: Any, topic: str, batches: int, size: int = 5) -> None:
    """Send record batches to both partitions of a topic; a slow drain fetches each separately."""
    for number in range(batches):
        for partition in (0, 1):
            send(topic, records(size, number * size), partition=partition)


def generation(archive: str) -> UPath:
    """Return the folder of generation 1, on a disk or in a store."""
    return Archive.at(archive).generation(1).folder


def manifest_file(archive: str, batch: int) -> UPath:
    # Spark compacts every tenth one.
    name = str(batch) if (batch + 1) % 10 else f"{batch}.compact"
    return generation(archive) / "data" / "_spark_metadata" / name


def part_files(archive: str) -> set[UPath]:
    """Return all data files in the sink, committed or not."""
    return set((generation(archive) / "data").rglob("part-*"))


def listed_files(archive: str) -> set[UPath]:
    """Return the data files that the manifest commits."""
    return {locate(file["path"]) for file in committed_files(Archive.at(archive))}


def held(archive: str) -> dict[int, list[int]]:
    """Return the offsets in the committed files by partition, sorted, including duplicates."""
    files = sorted(file.path for file in listed_files(archive))
    filesystem = Archive.at(archive).root.fs
    table = ds.dataset(files, filesystem=filesystem).to_table(columns=["partition", "offset"])
    found: dict[int, list[int]] = {}
    for row in table.to_pylist():
        found.setdefault(row["partition"], []).append(row["offset"])
    return {partition: sorted(offsets) for partition, offsets in sorted(found.items())}


def orphans(report: Report) -> set[str]:
    """Return the paths of the data files about which validation warns."""
    return {f.where for f in report.findings if str(f.reason) == "file_orphan"}
