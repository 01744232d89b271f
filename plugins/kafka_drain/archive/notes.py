"""Auxiliary documents, which no proof depends on and which each run rewrites."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from upath import UPath

from kafka_drain.archive.documents import (
    Document,
    ObservedDocument,
    OverviewDocument,
    ReadFromDocument,
    ToldDocument,
    TopicsDocument,
)
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason

#: By path relative to the archive.
_NOTES: Mapping[str, type[Document]] = {
    "observed.json": ObservedDocument,
    "overview.json": OverviewDocument,
    "topics.json": TopicsDocument,
    "told/generations.json": ToldDocument,
}


def unreadable_notes(root: UPath, generations: Iterable[str] = ()) -> list[Finding]:
    """Find auxiliary documents that can't be read; missing ones are fine.

    Args:
        generations: Folders of generations whose documents are checked, relative to the archive.
    """
    findings = []
    kinds = dict(_NOTES)
    kinds |= {f"{folder}/read_from.json": ReadFromDocument for folder in generations}
    for name, kind in kinds.items():
        try:
            kind.read(root / name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except ArchiveError as error:
            detail = str(error).removeprefix(f"{root / name} ").partition(";")[0]
            findings.append(Finding(Reason.NOTE_UNREADABLE, name, detail))
    return findings
