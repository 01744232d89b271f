"""Drills in an archive's folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from upath import UPath

from kafka_drain.archive.documents import DrillStarted
from kafka_drain.archive.drills import (
    drill_names,
    forget_started,
    read_drills,
    unfinished_drills,
    write_result,
    write_started,
)
from kafka_drain.errors import ArchiveError
from tests.kafka_drain.archive.test_drill_status import drill

NAMES = [f"2026010{day}T000000Z-0000000{day}" for day in (1, 2, 3)]


def started(name: str) -> DrillStarted:
    """The note of a drill that runs."""
    return DrillStarted(
        format_version=1, drill=name, started_at="now", cluster_id="c", run="r", topics={"t": "id"}
    )


def test_read_drills(tmp_path: Path) -> None:
    """The newest results are read, oldest first; what isn't a result is left out."""
    root = UPath(tmp_path)
    assert read_drills(root) == []
    results = [drill(9 - day, drill=name) for day, name in enumerate(NAMES)]
    for result in results:
        where = write_result(root, result)
        assert where == f"drills/{result.drill}/result.json"
    (tmp_path / "drills" / "copy of one").mkdir()
    (tmp_path / "drills" / "lock.json").write_text("{}")
    torn = tmp_path / "drills" / "20260104T000000Z-00000004"
    torn.mkdir()
    (torn / "result.json").write_text("{")

    assert drill_names(root) == [*NAMES, torn.name]
    assert read_drills(root) == results
    assert read_drills(root, 2) == results[-1:]


def test_read_drills_of_no_time(tmp_path: Path) -> None:
    """A result that doesn't say when it was proves nothing."""
    write_result(UPath(tmp_path), drill(2, drill=NAMES[0]))
    path = tmp_path / "drills" / NAMES[0] / "result.json"
    document = json.loads(path.read_text())
    for time in ("yesterday", "2026-11-29T10:00:00"):
        path.write_text(json.dumps(document | {"started_at": time}))
        assert read_drills(UPath(tmp_path)) == []


def test_read_drills_of_one_second(tmp_path: Path) -> None:
    """Of two drills that started in the same second, the later one is the newest."""
    root = UPath(tmp_path)
    first = drill(2, drill="20260101T000000Z-00000009")
    second = drill(1, drill="20260101T000000Z-00000001")
    for result in (first, second):
        write_result(root, result)

    assert read_drills(root) == [first, second]


def test_unfinished_drills(tmp_path: Path) -> None:
    """A drill is unfinished until its note is removed, whether or not it has a result."""
    root = UPath(tmp_path)
    for name in NAMES:
        write_started(root, started(name))
    write_result(root, drill(1, drill=NAMES[0]))
    forget_started(root, NAMES[1])
    forget_started(root, NAMES[1])

    assert unfinished_drills(root) == [started(NAMES[0]), started(NAMES[2])]


def test_unfinished_drills_changed(tmp_path: Path) -> None:
    """A note that was changed is an error: it says what may be removed."""
    write_started(UPath(tmp_path), started(NAMES[0]))
    (tmp_path / "drills" / NAMES[0] / "started.json").write_text("{}")

    with pytest.raises(ArchiveError, match=r"started.json has format version|started.json"):
        unfinished_drills(UPath(tmp_path))


def test_drills_misplaced(tmp_path: Path) -> None:
    """A copy of another drill's result proves nothing, and one of its note is an error."""
    root = UPath(tmp_path)
    write_result(root, drill(1, drill=NAMES[0]))
    write_started(root, started(NAMES[0]))
    folder = tmp_path / "drills"
    shutil.copytree(folder / NAMES[0], folder / NAMES[1])

    assert read_drills(root) == [drill(1, drill=NAMES[0])]
    with pytest.raises(ArchiveError, match="is of drill"):
        unfinished_drills(root)
