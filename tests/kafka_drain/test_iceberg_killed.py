"""Registrations that are killed at every step: the table is as before or as after, never else."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

# For pyiceberg's SQL catalog. Airflow 2 pins SQLAlchemy 1.4.
pytest.importorskip("sqlalchemy", minversion="2")

import duckdb

from kafka_drain import iceberg
from kafka_drain.archive.archive import Archive
from kafka_drain.iceberg import Registration, register_archive
from tests.forks import run_forked
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.test_iceberg import (
    NAME,
    T0,
    T1,
    Killed,
    made,
    open_catalog,
    rows_of,
    sealed_rows,
)

__all__ = ["made"]

#: Kills of each registration, spread over its steps.
KILLS = int(os.environ.get("TESTS_REGISTRATION_KILLS", "6"))
#: Parts of pyiceberg that write: a step is a line of them, or of ours.
STEPS = ("catalog/sql.py", "table/__init__.py", "table/update/snapshot.py", "io/pyarrow.py")

Change = Callable[[MadeArchive], object]


def first(_: MadeArchive) -> None:
    """Nothing: the table doesn't exist yet."""


def more(made: MadeArchive) -> None:
    made.seal({T0: dense(9, 15)})


def replaced(made: MadeArchive) -> None:
    old = [file.path for file in made.files()[:2]]
    made.seal_window("compact_0001", {T0: dense(0, 5), T1: dense(0, 5)}, old)


CHANGES: list[Change] = [first, more, replaced]


@pytest.fixture(params=CHANGES, ids=lambda change: change.__name__)
def folder(request: pytest.FixtureRequest, made: MadeArchive, tmp_path: Path) -> Path:
    """A folder with an archive that has changed since its table was registered, in `before`."""
    made.seal({T0: dense(0, 5), T1: dense(0, 5)})
    made.seal({T0: dense(5, 9)})
    before = tmp_path / "before"
    (before / "tables").mkdir(parents=True)
    with closing(open_catalog(tmp_path)) as catalog:
        catalog.create_namespace("kafka")
        if request.param is not first:
            register_archive(made.archive, catalog, NAME)
            shutil.copytree(tmp_path / "tables", before / "tables", dirs_exist_ok=True)
    shutil.copy(tmp_path / "catalog.db", before / "catalog.db")
    request.param(made)
    return tmp_path


def start_again(folder: Path) -> None:
    """Put the catalog and its tables back to what they were before the archive changed."""
    shutil.rmtree(folder / "tables", ignore_errors=True)
    shutil.copytree(folder / "before" / "tables", folder / "tables")
    shutil.copy(folder / "before" / "catalog.db", folder / "catalog.db")


def register(folder: Path) -> Registration:
    with closing(open_catalog(folder)) as catalog:
        return register_archive(str(folder / "archive"), catalog, NAME)


def register_until(folder: Path, number: int, end: Callable[[], None]) -> int:
    """Register until the nth step, at which `end` is called; 0 for never. Return the steps."""
    steps = 0

    def step(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal steps
        if not frame.f_code.co_filename.endswith((iceberg.__file__, *STEPS)):
            return None
        if event == "line":
            steps += 1
            if steps == number:
                end()
        return step

    before = sys.gettrace()
    sys.settrace(step)
    try:
        register(folder)
    finally:
        sys.settrace(before)
    return steps


def raise_killed() -> None:
    raise Killed


def kill_self() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def seen(folder: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the table's rows and the number of its snapshots; no rows if there is no table."""
    with closing(open_catalog(folder)) as catalog:
        if not catalog.table_exists(NAME):
            return [], 0
        table = catalog.load_table(NAME)
        return rows_of(table), len(table.snapshots())


def in_duckdb(folder: Path) -> list[tuple[int, int]]:
    """Return what DuckDB's own Parquet reader finds in the files of the table's snapshot."""
    with closing(open_catalog(folder)) as catalog:
        files = [task.file.file_path for task in catalog.load_table(NAME).scan().plan_files()]
    query = 'SELECT "partition", "offset" FROM read_parquet($files) ORDER BY ALL'
    return duckdb.execute(query, {"files": [each[len("file://") :] for each in files]}).fetchall()


def check_kills(folder: Path, kills: int, kill: Callable[[int], None]) -> None:
    """Kill registrations at steps that are spread evenly, and repeat each.

    The table is as it was or as it will be; then whole, with no snapshot more than without a kill.
    """
    expected = sealed_rows(Archive.at(str(folder / "archive")))
    offsets = [(row["partition"], row["offset"]) for row in expected]
    rows_before, _ = seen(folder)
    steps = register_until(folder, 0, raise_killed)
    after = (expected, seen(folder)[1])

    for number in sorted({1 + n * (steps - 1) // (kills - 1) for n in range(kills)}):
        start_again(folder)
        kill(number)

        assert seen(folder)[0] in (rows_before, expected), number
        found = register(folder)
        assert seen(folder) == after, number
        assert found.records == len(expected)
        assert in_duckdb(folder) == offsets


def test_register_archive_killed_anywhere(folder: Path) -> None:
    """Killed at any step, a first registration and those after a change leave nothing half done."""

    def kill(number: int) -> None:
        with pytest.raises(Killed):
            register_until(folder, number, raise_killed)

    check_kills(folder, KILLS, kill)


@pytest.mark.parametrize("folder", [replaced], indirect=True)
def test_register_archive_killed_by_signal(folder: Path) -> None:
    """So does a process that ends by SIGKILL."""

    def kill(number: int) -> None:
        assert run_forked(register_until, folder, number, kill_self) == -signal.SIGKILL

    check_kills(folder, 3, kill)
