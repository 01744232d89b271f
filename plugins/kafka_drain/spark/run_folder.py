"""A job's run folder, `<archive>/runs/<run>/`: all that passes between its caller and its driver.

For drivers that run on another machine. The caller writes `run.json` and `spec.json`; the driver
writes `progress.json` and `result.json`, and `answers.jsonl` if the job has answers. None of them
contains a secret, and none is part of the archive's proof.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from upath import UPath

from kafka_drain.errors import ArchiveError
from kafka_drain.spark.job_spec import OF_ONE_ATTEMPT
from kafka_drain.storage.json_files import write_document, write_text
from kafka_drain.storage.paths import has_folders, list_folder, read_bytes
from kafka_drain.storage.typed_json import DocumentError, Row, parse

NAME = "runs"

#: After this time, a run whose result nobody has read is of no use to anybody.
KEPT = timedelta(days=7)


class RunDocument(Row):
    """A `run.json`: which job it is, and the lease that its driver renews."""

    kind: str
    key: str
    submitted_at: str
    lease: str
    archive: str


class ProgressDocument(Row):
    """A `progress.json`: the last lines that the driver printed, and how many it printed in all."""

    printed: int
    lines: list[str]


def job_key(kind: str, spec: Mapping[str, Any]) -> str:
    """Identify a job: those with equal keys read and write the same in the same way."""
    decisive = {name: value for name, value in spec.items() if name not in OF_ONE_ATTEMPT}
    return hashlib.sha256(json.dumps([kind, decisive], sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class RunFolder:
    """One job's run folder.

    Attributes:
        path: The folder.
    """

    path: UPath

    @classmethod
    def all_of(cls, archive: UPath) -> list[RunFolder]:
        """Return an archive's run folders, the newest first."""
        folders = sorted(list_folder(archive / NAME), reverse=True)
        return [cls(archive / NAME / name) for name in folders]

    @classmethod
    def new(cls, archive: UPath, run: str) -> RunFolder:
        """Return the folder of a new run; removes those that are too old, if it can."""
        too_old = name_of(datetime.now(timezone.utc) - KEPT, "")
        for folder in cls.all_of(archive):
            if folder.path.name < too_old:
                # Another user's, or one that another process is removing just now; each store has
                # its own exceptions.
                with suppress(Exception):
                    folder.remove()
        return cls(archive / NAME / run)

    def write(self, run: RunDocument, spec: Mapping[str, Any]) -> None:
        """Write the driver's documents.

        Raises:
            ArchiveError: When the folder can't be written.
        """
        write_document(self.path / "spec.json", dict(spec))
        write_document(self.path / "run.json", run.content())

    def run(self) -> RunDocument | None:
        """Read `run.json`; None if it isn't there, or can't be read."""
        try:
            return parse(RunDocument, read_bytes(self.path / "run.json"))
        except (OSError, DocumentError):
            return None

    def spec(self) -> dict[str, Any]:
        """Read `spec.json`.

        Raises:
            ArchiveError: When it can't be read.
        """
        try:
            found: dict[str, Any] = json.loads(read_bytes(self.path / "spec.json"))
        except (OSError, ValueError) as error:
            raise ArchiveError(f"{self.path / 'spec.json'} can't be read: {error}") from error
        return found

    def attempt(self) -> dict[str, str]:
        """Return the name of the folder that the job writes to, if each attempt has its own."""
        path = self.spec().get("path")
        return {"attempt": path.rpartition("/")[2]} if path else {}

    def write_progress(self, printed: int, lines: Sequence[str]) -> None:
        """Replace `progress.json`."""
        document = ProgressDocument(printed=printed, lines=list(lines))
        write_document(self.path / "progress.json", document.content())

    def progress(self) -> ProgressDocument:
        """Read `progress.json`; empty if it isn't there."""
        try:
            return parse(ProgressDocument, read_bytes(self.path / "progress.json"))
        except (OSError, DocumentError):
            return ProgressDocument(printed=0, lines=[])

    def write_result(self, result: Mapping[str, Any], answers: str | None = None) -> None:
        """Write the job's answers, if any, and then its result."""
        if answers is not None:
            write_text(self.path / "answers.jsonl", answers)
        write_document(self.path / "result.json", dict(result))

    def result(self) -> dict[str, Any] | None:
        """Read `result.json`; None if it isn't there."""
        try:
            found: dict[str, Any] = json.loads(read_bytes(self.path / "result.json"))
        except FileNotFoundError:
            return None
        return found

    def answers(self) -> str:
        """Read `answers.jsonl`."""
        return read_bytes(self.path / "answers.jsonl").decode()

    def remove(self) -> None:
        """Remove the folder, and the code that Spark put into it; does nothing if it is gone."""
        # First: whatever can't be removed after it is no later run's.
        (self.path / "run.json").unlink(missing_ok=True)
        _remove(self.path)


def _remove(folder: UPath) -> None:
    for name, is_folder in list_folder(folder).items():
        if is_folder:
            _remove(folder / name)
        else:
            (folder / name).unlink(missing_ok=True)
    if has_folders(folder) and folder.exists():
        folder.rmdir()


def name_of(time: datetime, token: str) -> str:
    """Return the name of a run; names sort by time. In lower case, as YARN writes tags."""
    return f"{time:%Y%m%dt%H%M%Sz}-{token}"
