"""Faults of a drain in each store: a checkpoint, a manifest's file, a data file gone; two drains.

`make test-stores` and `make test-s3` run them on S3's servers, `make test-azure-gcs` on Google's
and Azure's, `make test-hdfs` on an HDFS. Spark can't drain to Azurite: its archive is drained to a
disk and copied, and what needs Spark after that is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import open_drain
from kafka_drain.errors import CheckpointError, LockedError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from kafka_drain.storage.lease import find_lease
from kafka_drain.storage.paths import hadoop_path, locate
from kafka_drain.windows.manifest_rebuild import rebuild_manifest
from kafka_drain.windows.repair import repair_manifest
from kafka_drain.windows.repair_plan import plan_repair
from kafka_drain.windows.roll import plan_roll, roll
from tests.conftest import Drain
from tests.stores.conftest import RECORDS, numbered
from tests.stores.test_s3_archive import pipeline_of, reasons, rows

pytestmark = [pytest.mark.integration, pytest.mark.store]


@pytest.fixture(params=["s3", "gcs", "azure", "hdfs"])
def store(request: pytest.FixtureRequest) -> str:
    """Each store."""
    return str(request.param)


@pytest.fixture
def drained(
    store: str,
    topic: str,
    bucket_in: Callable[[str], str],
    drain: Drain,
    cluster: KafkaCluster,
    tmp_path: Path,
) -> Pipeline:
    """The pipeline of an archive with two batches, which a validation has sealed."""
    pipeline = pipeline_of(topic, f"{bucket_in(store)}/folder/archive")
    if store == "azure":
        on_disk = pipeline_of(topic, str(tmp_path / "archive"))
        assert drain(on_disk)["batches"] == 2
        assert validate_archive(Archive.at(on_disk.archive), cluster).complete
        root = locate(pipeline.archive)
        root.fs.put(on_disk.archive, root.path, recursive=True)
        # Spark's own lists the files where they were.
        rebuild_manifest(Archive.at(pipeline.archive).generation(1))
    else:
        assert drain(pipeline)["batches"] == 2
    assert validate_archive(Archive.at(pipeline.archive), cluster).complete
    return pipeline


def test_checkpoint_deleted(
    store: str, drained: Pipeline, drain: Drain, send: Any, topic: str, cluster: KafkaCluster
) -> None:
    """The drain refuses before it writes, and goes on in a new generation (fault 7)."""
    archive = Archive.at(drained.archive)
    folder = archive.generation(1).checkpoint
    folder.fs.rm(folder.path, recursive=True)
    send(topic, numbered(RECORDS), partition=0)
    before = sorted(archive.root.fs.find(archive.root.path))

    with pytest.raises(CheckpointError, match="roll"):
        drain(drained)

    assert sorted(archive.root.fs.find(archive.root.path)) == before
    roll(plan_roll(archive, cluster))
    if store == "azure":
        return
    assert drain(drained)["records"] == RECORDS
    assert validate_archive(archive, cluster, scope="all").complete
    assert rows(drained.archive).num_rows == 3 * RECORDS


def test_manifest_file_missing(drained: Pipeline, cluster: KafkaCluster) -> None:
    """The hole is found, and the manifest written anew from the receipts (fault 13)."""
    archive = Archive.at(drained.archive)
    manifest = archive.generation(1).data / "_spark_metadata"
    (manifest / "0").unlink()

    damaged = [validate_archive(archive, cluster) for _ in range(2)]

    for report in damaged:
        assert "manifest_hole" in reasons(report)
        assert not report.complete
    assert repair_manifest(plan_repair(archive, damaged[1])) > 0
    assert validate_archive(archive, cluster, deep=True).findings == []
    # Spark takes it: nothing is new, and nothing is drained twice.
    listed = json.loads((manifest / "0").read_text().splitlines()[1])
    assert listed["path"].startswith(hadoop_path(archive.root))


def test_listed_file_deleted(
    store: str, drained: Pipeline, repair: Any, cluster: KafkaCluster
) -> None:
    """It is missing, and drained again into a window (fault 14)."""
    archive = Archive.at(drained.archive)
    data = archive.generation(1).data
    lost = sorted(archive.generation(1).list_data_files())[0]
    (data / lost).unlink()

    damaged = [validate_archive(archive, cluster) for _ in range(2)]

    assert [reasons(report) for report in damaged] == [{"file_missing", "offset_missing"}] * 2
    if store == "azure":
        return
    repair(archive, drained)
    assert validate_archive(archive, cluster, scope="all").complete
    assert rows(drained.archive).num_rows == 2 * RECORDS


def test_second_drain(
    store: str,
    drained: Pipeline,
    drain: Drain,
    cluster: KafkaCluster,
    tmp_path: Path,
    send: Any,
    topic: str,
) -> None:
    """While one drain holds the lease, the second one is told who it is (fault 22)."""
    send(topic, numbered(RECORDS), partition=0)
    with (
        open_drain(drained, cluster, tmp_path, run="first"),
        pytest.raises(LockedError, match="run first"),
    ):
        drain(drained)

    root = Archive.at(drained.archive).root
    assert find_lease(root) is None
    if store == "azure":
        return
    assert drain(drained)["records"] == RECORDS
    assert find_lease(root) is None
