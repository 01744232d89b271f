"""Copies of what is sealed and of what decides how it is read: `copies/<path in the archive>`.

A copy proves nothing by itself. It counts where it has the hash that the journal, or another
receipt, names: written back, it changes neither of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from upath import UPath

from kafka_drain.storage.json_files import write_text
from kafka_drain.storage.paths import read_bytes

__all__ = ["KEPT", "clear_copies", "copy_path", "keep_copies", "keep_copy", "read_copy"]

#: So many of a generation's newest receipts have a copy.
KEPT = 32

# An archive that no copies were kept of yet gets those of all its windows at once.
_LANES = 16


def copy_path(root: UPath, where: str) -> UPath:
    """Return where the copy of a file of the archive is."""
    return root / "copies" / where


def read_copy(root: UPath, where: str) -> bytes | None:
    """Return a copy's bytes; None when there is none."""
    try:
        return read_bytes(copy_path(root, where))
    except (FileNotFoundError, NotADirectoryError):
        return None


def keep_copy(root: UPath, where: str, content: bytes) -> None:
    """Write the copy of a file, unless it is there as it should be.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    if read_copy(root, where) != content:
        write_text(copy_path(root, where), content.decode("utf-8"))


def keep_copies(root: UPath, wheres: Iterable[str]) -> None:
    """Copy files as they are now; what isn't there has no copy.

    Raises:
        ArchiveError: When the archive can't be written.
    """

    def keep(where: str) -> None:
        try:
            content = read_bytes(root / where)
        except (FileNotFoundError, NotADirectoryError):
            return
        keep_copy(root, where, content)

    with ThreadPoolExecutor(_LANES) as pool:
        list(pool.map(keep, sorted(set(wheres))))


def clear_copies(root: UPath, generations: Iterable[str]) -> None:
    """Remove copies of receipts that newer ones vouch for, of generations by their folders."""
    for generation in generations:
        folder = copy_path(root, f"{generation}/receipts")
        entries = sorted(folder.iterdir()) if folder.is_dir() else []
        for entry in entries[:-KEPT]:
            entry.unlink(missing_ok=True)
