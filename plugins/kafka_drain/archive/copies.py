"""Copies of sealed files and of documents needed to read them: `copies/<path in the archive>`.

A copy proves nothing by itself. It is valid if it has the hash named by the journal or by another
receipt; restoring it changes neither of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from upath import UPath

from kafka_drain.storage.json_files import write_text
from kafka_drain.storage.paths import list_folder, read_if_there

#: Number of newest receipts per generation that have a copy.
KEPT = 32

# An archive without copies gets the copies of all its windows at once.
_LANES = 16


def copy_path(root: UPath, where: str) -> UPath:
    """Return the path of the copy of an archive file."""
    return root / "copies" / where


def read_copy(root: UPath, where: str) -> bytes | None:
    """Return the content of a copy; None if there is none."""
    return read_if_there(copy_path(root, where))


def copied_paths(root: UPath) -> list[str]:
    """Return the archive files of which there is a copy, except unfinished ones."""
    found, waiting = [], [""]
    while waiting:
        folder = waiting.pop()
        for name, is_folder in list_folder(copy_path(root, folder)).items():
            if is_folder:
                waiting.append(f"{folder}{name}/")
            elif name.endswith(".json") and not name.startswith("."):
                found.append(folder + name)
    return sorted(found)


def keep_copy(root: UPath, where: str, content: bytes) -> None:
    """Write the copy of a file, unless it already has that content.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    if read_copy(root, where) != content:
        write_text(copy_path(root, where), content.decode("utf-8"))


def keep_copies(root: UPath, wheres: Iterable[str]) -> None:
    """Copy files in their current state; missing files are skipped.

    Raises:
        ArchiveError: When the archive can't be written.
    """

    def keep(where: str) -> None:
        content = read_if_there(root / where)
        if content is not None:
            keep_copy(root, where, content)

    with ThreadPoolExecutor(_LANES) as pool:
        list(pool.map(keep, sorted(set(wheres))))


def clear_copies(root: UPath, generations: Iterable[str]) -> None:
    """Remove copies of receipts in some generations that newer receipts vouch for."""
    for generation in generations:
        folder = copy_path(root, f"{generation}/receipts")
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        for entry in entries[:-KEPT]:
            entry.unlink(missing_ok=True)
