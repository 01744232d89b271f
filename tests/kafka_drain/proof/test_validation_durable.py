"""What a receipt seals is on the disk before the receipt is: Spark's sink doesn't wait for it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ArchiveError
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import END, add_batch, golden_cluster, sealed_copy

FSYNC = os.fsync


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """The golden archive, sealed up to batch 13, and batch 14, which isn't sealed."""
    archive = sealed_copy(tmp_path / "archive")
    add_batch(archive.generation(1), 14, END, 50)
    return archive


def test_validate_syncs_before_sealing(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """New files are synced, those that are sealed aren't; the receipt comes after them."""
    synced: list[str] = []

    def follow(opened: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{opened}"))
        FSYNC(opened)

    monkeypatch.setattr(os, "fsync", follow)

    report = validate_archive(archive, golden_cluster())

    files = {str(archive.root / file.path) for receipt in report.sealed for file in receipt.files}
    data = [path for path in synced if path.endswith(".parquet")]
    receipts = [number for number, path in enumerate(synced) if "/receipts/" in path]
    assert report.receipts_written == 1
    assert files
    assert sorted(data) == sorted(files)
    assert min(receipts) > max(synced.index(path) for path in files)


def test_validate_file_not_written(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that can't take in a file has no receipt for it; the next validation seals."""

    def fail(opened: int) -> None:
        if os.readlink(f"/proc/self/fd/{opened}").endswith(".parquet"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        FSYNC(opened)

    monkeypatch.setattr(os, "fsync", fail)
    before = archive.generation(1).receipt_names()

    with pytest.raises(ArchiveError, match="nothing was sealed"):
        validate_archive(archive, golden_cluster())

    assert archive.generation(1).receipt_names() == before
    monkeypatch.undo()
    assert validate_archive(archive, golden_cluster()).receipts_written == 1
