"""Records for a topic of two partitions, drains of them, and what an archive must then hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive

__all__ = [
    "RECORDS",
    "assert_exact",
    "assert_once",
    "drain_second_half",
    "fill",
    "many_partitions",
    "offsets_in",
]

RECORDS = 2000


def fill(send: Any, topic: str, records: int = RECORDS) -> None:
    """Send as many records to a topic, half of them to each of its two partitions."""
    for partition in (0, 1):
        values = [(b"k", b"%d" % n, None, 1_767_225_600_000 + n) for n in range(records // 2)]
        send(topic, values, partition=partition)


def many_partitions(make_topic: Callable[..., str], send: Any, partitions: int = 40) -> str:
    """Make a topic whose records are in many small files after a drain."""
    topic = make_topic(partitions=partitions)
    for partition in range(partitions):
        values = [(b"k", b"%d" % n, None, 1_767_225_600_000 + n) for n in range(50)]
        send(topic, values, partition=partition)
    return topic


def offsets_in(archive: Path) -> Counter[tuple[int, int]]:
    """Count how often each offset of each partition is in an archive's committed files."""
    files = [file["path"] for file in committed_files(Archive.at(str(archive)))]
    rows = ds.dataset(files).to_table(columns=["partition", "offset"])
    pairs = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    return Counter(pairs)


def assert_exact(archive: Path, cluster: KafkaCluster, records: int = RECORDS) -> None:
    """Assert that an archive holds each record once, and that this is proven."""
    report = validate_archive(Archive.at(str(archive)), cluster, deep=True)
    assert report.complete, report.findings
    assert (report.offsets, report.records) == (records, records)
    assert_once(archive, records)


def assert_once(archive: Path, records: int = RECORDS) -> None:
    """Assert that an archive's files hold as many records, and each of them once."""
    found = offsets_in(archive)
    assert (len(found), set(found.values())) == (records, {1})


def drain_second_half(
    run: Callable[..., object],
    send: Any,
    topic: str,
    archive: Path,
    *options: object,
    drain: tuple[object, ...] = (),
) -> None:
    """Fill a topic twice, and drain and seal the second half, which a backfill completes.

    Args:
        run: Runs a command.
        send: Sends records.
        topic: An empty topic.
        archive: The archive's folder.
        options: Options of each command.
        drain: Further options of the second half's drain.
    """
    latest = ("--topic", topic, "--source-option", "startingOffsets=latest", *options)
    fill(send, topic)
    run("drain", archive, *latest)
    fill(send, topic)
    run("drain", archive, *latest, *drain)
    run("validate", archive, *options)
