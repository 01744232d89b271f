"""Auxiliary documents, which no proof depends on and which each run rewrites."""

from __future__ import annotations

from collections.abc import Iterable

from upath import UPath

from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.storage.json_files import read_document

__all__ = ["unreadable_notes"]

#: Paths relative to the archive.
_NOTES = ("observed.json", "overview.json", "topics.json", "told/generations.json")


def unreadable_notes(root: UPath, generations: Iterable[str] = ()) -> list[Finding]:
    """Find auxiliary documents that can't be read; missing ones are fine.

    Args:
        root: The archive's folder.
        generations: Folders of generations whose documents are checked, relative to the archive.
    """
    findings = []
    for name in (*_NOTES, *(f"{folder}/read_from.json" for folder in generations)):
        try:
            read_document(root / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ArchiveError as error:
            detail = str(error).removeprefix(f"{root / name} ").partition(";")[0]
            findings.append(Finding(Reason.NOTE_UNREADABLE, name, detail))
    return findings
