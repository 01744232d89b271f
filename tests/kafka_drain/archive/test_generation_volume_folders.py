"""Folders of a file system inside an archive: readable to nobody but root, and no part of it."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.proof.validation import validate_archive
from kafka_drain.republish.planning.planner import make_plan
from kafka_drain.republish.planning.request import RepublishRequest
from tests.kafka_drain.archive.test_generation_list_data_files import as_nobody
from tests.kafka_drain.golden import sealed_copy
from tests.kafka_drain.made_archive import NOW
from tests.kafka_drain.republish.planning.test_planner import cluster_with

OF_VOLUMES = ("lost+found", "@eaDir", ".snapshot")


@pytest.fixture
def archive() -> Iterator[Archive]:
    """A sealed archive that every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = Path(folder) / "archive"
        yield sealed_copy(root)
        for name in OF_VOLUMES:
            for path in root.rglob(name):
                path.chmod(0o755)


def seen(archive: Archive) -> list[Any]:
    """Return what validation, readers and a republish's plan make of an archive."""
    reports = [validate_archive(archive, None, deep=deep, writes=False) for deep in (False, True)]
    cluster: Any = cluster_with(copy=8)
    request = RepublishRequest(target_topic="copy", placement="key")
    plan = make_plan(archive.snapshot(), cluster, request, run="r", now=NOW)
    return [
        *((report.complete, report.findings, report.records) for report in reports),
        sorted(file.path for file in archive_files(archive.snapshot())),
        (plan.records, [shard.files for shard in plan.shards]),
    ]


def test_archive_on_volume(archive: Archive) -> None:
    """With such a folder in each of its own, an archive is as it was to whoever reads it."""
    before = seen(archive)
    root = Path(str(archive.root))
    for folder in [root, *(path for path in root.rglob("*") if path.is_dir())]:
        for name in OF_VOLUMES:
            (folder / name).mkdir(mode=0o000)

    with as_nobody():
        after = seen(archive)

    assert after == before
    assert before[0][0]
    assert before[0][2] > 0
