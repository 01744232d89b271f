"""A disk that fills up during a drain."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError, SparkJobError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from tests.conftest import Drain, manifest_files
from tests.faults.conftest import Start
from tests.faults.injection import NOON, generation, held, listed_files, records

pytestmark = pytest.mark.integration


def fill(path: Path, leave: int) -> None:
    """Write a file that leaves the given number of bytes free on its disk."""
    with path.open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(4096))
    os.truncate(path, path.stat().st_size - leave)


@pytest.mark.parametrize(
    ("leave", "planned", "told"),
    [(4096, False, os.strerror(errno.ENOSPC)), (64 << 10, True, os.strerror(errno.ENOSPC))],
    ids=["checkpoint", "sink"],
)
def test_drain_disk_full(
    leave: int,
    planned: bool,
    told: str,
    small_disk: Path,
    start: Start,
    drain: Drain,
    cluster: KafkaCluster,
    make_topic: Any,
    send: Any,
) -> None:
    """A full disk, during planning or writing, is reported; with free space the drain recovers."""
    topic = make_topic(partitions=1)
    archive = str(small_disk / "archive")
    pipeline = Pipeline(name="p", topics=[topic], archive=archive)
    send(topic, [(b"k", b"small", None, NOON)])
    drain(pipeline)
    # 200 KiB that no codec can compress.
    values = [random.Random(n).randbytes(20_000) for n in range(10)]
    send(topic, [(b"k", value, None, NOON) for value in values])

    fill(small_disk / "ballast", leave)
    running = start(pipeline)
    with pytest.raises(SparkJobError) as raised:
        running.finish()

    assert running.code() == 1
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)
    assert (generation(archive) / "checkpoint" / "offsets" / "1").exists() == planned
    assert manifest_files(Archive.at(archive)) == ["0"]
    assert held(archive) == {0: [0]}

    (small_disk / "ballast").unlink()
    result = drain(pipeline)

    assert result["records"] == 10
    assert len(listed_files(archive)) == 2
    assert held(archive) == {0: list(range(11))}
    report = validate_archive(Archive.at(archive), cluster)
    assert report.complete, report.findings


def test_drain_disk_full_before_it_starts(
    small_disk: Path, drain: Drain, cluster: KafkaCluster, make_topic: Any, send: Any
) -> None:
    """Without a free byte a drain is refused before Spark starts, and nothing breaks."""
    topic = make_topic(partitions=1)
    archive = str(small_disk / "archive")
    pipeline = Pipeline(name="p", topics=[topic], archive=archive)
    send(topic, records(3))
    drain(pipeline)
    send(topic, records(3))

    fill(small_disk / "ballast", leave=0)
    with pytest.raises(ArchiveError, match=os.strerror(errno.ENOSPC)):
        drain(pipeline)
    (small_disk / "ballast").unlink()

    assert drain(pipeline)["records"] == 3
    assert held(archive) == {0: list(range(6))}
    assert validate_archive(Archive.at(archive), cluster).findings == []
