"""The drills of an archive, in `drills/<drill>/`."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import datetime, timedelta

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillDocument, DrillStarted
from kafka_drain.archive.drill_status import DrillStatus
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError
from kafka_drain.storage.json_files import write_document
from kafka_drain.storage.paths import list_folder

#: The archive's folder of drills.
FOLDER = "drills"

#: Number of the newest drills that are looked at.
NEWEST = 24

#: A drill's name: its start, which sorts by time, and random digits.
_NAME = re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}")


def drill_names(root: UPath) -> list[str]:
    """Return the names of an archive's drills, oldest first."""
    return sorted(filter(_NAME.fullmatch, list_folder(root / FOLDER)))


def read_drills(root: UPath, newest: int = NEWEST) -> list[DrillDocument]:
    """Return the results of the newest drills that have ended, oldest first.

    A result that can't be read, or is that of another drill, is left out: it proves nothing.
    """
    names = drill_names(root)[-newest:]
    found = {
        name: result
        for name in names
        if (result := DrillDocument.read_note(root / FOLDER / name / "result.json")) is not None
    }
    # Names have seconds, and two drills may start in one.
    own = (result for name, result in found.items() if result.drill == name)
    return sorted(own, key=lambda result: result.started_at)


def drill_status(pipeline: Pipeline, now: datetime) -> DrillStatus | None:
    """Return the status of a pipeline's drills; None if it declares none."""
    if pipeline.drill is None:
        return None
    max_age = timedelta(days=pipeline.drill.max_age_days)
    return DrillStatus.of(read_drills(Archive.at(pipeline.archive).root), max_age, now)


def unfinished_drills(root: UPath) -> list[DrillStarted]:
    """Return the drills that may have left something behind, oldest first.

    Raises:
        ArchiveError: When the note of one was changed.
    """
    left = []
    for name in drill_names(root):
        with suppress(FileNotFoundError):
            path = root / FOLDER / name / "started.json"
            started = DrillStarted.read(path)
            if started.drill != name:
                raise ArchiveError(f"{path} is of drill {started.drill!r}, expected {name!r}")
            left.append(started)
    return left


def write_started(root: UPath, started: DrillStarted) -> None:
    """Record a drill and its scratch topics, before and after they are created.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    started.write(root / FOLDER / started.drill / "started.json")


def forget_started(root: UPath, drill: str) -> None:
    """Remove the note of a drill in progress, which has left nothing behind."""
    (root / FOLDER / drill / "started.json").unlink(missing_ok=True)


def write_result(root: UPath, result: DrillDocument) -> str:
    """Write the result of a drill; return its path relative to the archive.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    where = f"{FOLDER}/{result.drill}/result.json"
    write_document(root / where, result.content())
    return where
