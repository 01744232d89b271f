"""Records of a cut-over's steps, in `cut-over/<key>/`: a document for each attempt."""

from __future__ import annotations

import re
from datetime import datetime

from upath import UPath

from kafka_drain.archive.documents import CutOverDocument
from kafka_drain.errors import ArchiveError
from kafka_drain.storage.json_files import create_document
from kafka_drain.storage.paths import list_folder

#: The archive's folder of cut-overs.
FOLDER = "cut-over"

#: The name of a document: its end, which sorts by time, and the step.
_NAME = re.compile(r"\d{8}T\d{12}Z-[a-z_]+\.json")


def cut_over_names(root: UPath, key: str) -> list[str]:
    """Return the names of the documents of a cut-over's steps, oldest first."""
    return sorted(filter(_NAME.fullmatch, list_folder(root / FOLDER / key)))


def read_cut_over(root: UPath, key: str) -> list[CutOverDocument]:
    """Return the records of a cut-over's steps, oldest first.

    Raises:
        ArchiveError: When a document was changed.
    """
    folder = root / FOLDER / key
    found = {name: CutOverDocument.read(folder / name) for name in cut_over_names(root, key)}
    for name, document in found.items():
        if not name.endswith(f"-{document.step}.json"):
            raise ArchiveError(
                f"{folder / name} is of step {document.step!r}, which its name doesn't say; "
                "restore it from a copy"
            )
    return [*found.values()]


def write_step(root: UPath, key: str, document: CutOverDocument, finished_at: datetime) -> str:
    """Write a step's record; return the file's path relative to the archive.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    where = f"{FOLDER}/{key}/{finished_at:%Y%m%dT%H%M%S%fZ}-{document.step}.json"
    create_document(root / where, document.content())
    return where
