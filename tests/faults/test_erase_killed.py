"""An erasure killed at each change of the archive's file system."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.erasures import read_erasures
from kafka_drain.archive.files import archive_files
from tests.forks import kill_points, run_forked
from tests.integration.killed_steps import kill_at_change
from tests.kafka_drain.made_archive import MadeArchive
from tests.kafka_drain.maintenance.test_erase import erase, left, made, prove, refuse_inexact

__all__ = ["made"]


def until(root: Path, number: int) -> None:
    """Erase until the archive's nth change; 0 for no limit."""
    kill_at_change(str(root), number)
    erase(root)


def test_run_erasure_killed(made: MadeArchive, tmp_path: Path) -> None:
    """If killed at any change, readers get all or all but the erased; the next run finishes."""
    for number in kill_points():
        copy = tmp_path / f"killed-{number}"
        shutil.copytree(str(made.root), copy)
        code = run_forked(until, copy, number)
        assert code in (0, -signal.SIGKILL)
        archive = Archive.at(str(copy))
        live = Counter(
            offset
            for file in archive_files(archive.snapshot())
            for offset in pq.ParquetFile(copy / file.path).read(["offset"])["offset"].to_pylist()
        )
        assert live in (left(but=frozenset()), left())
        prove(archive)
        for lock in copy.rglob("lock.json"):
            lock.unlink()
        assert run_forked(until, copy, 0) == 0
        refuse_inexact(copy, left())
        [erasure] = read_erasures(archive.root)
        assert erasure.done is not None
        assert erasure.done.records == 4
        shutil.rmtree(copy)
        if code == 0:
            break
    assert number > 20
