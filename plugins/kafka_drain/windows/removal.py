"""Decide which files may be replaced, and which superseded ones removed. Opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Finding


@dataclass(frozen=True)
class ReplacingWindow:
    """A sealed window that replaces intact files.

    Attributes:
        key: The window's name.
        files: Its own files, relative to the archive.
        replaces: The files that it replaces.
    """

    key: str
    files: Collection[str]
    replaces: Collection[str]


def relied_on(windows: Iterable[ReplacingWindow], there: Collection[str]) -> frozenset[str]:
    """Return the windows that readers depend on once the given files are gone.

    These are the windows that replace the files; if another window replaces a window's own files,
    that one is included too, and so on.
    """
    left = list(windows)
    found: set[str] = set()
    asked = set(there)
    while asked:
        more = [w for w in left if w.key not in found and not asked.isdisjoint(w.replaces)]
        found |= {window.key for window in more}
        asked = {path for window in more for path in window.files}
    return frozenset(found)


def removable(
    there: Collection[str], needed: Collection[str], damage: Mapping[str, Sequence[Finding]]
) -> list[str]:
    """Return which of the superseded files may be removed.

    Args:
        there: The superseded files that exist.
        needed: Files of republishes that may be resumed; these stay for now.
        damage: By window that readers depend on, how its files differ from what was sealed.

    Raises:
        ManifestInvalidError: When a window's files don't match what was sealed: the superseded
            files may be the only copy.
    """
    for key, found in damage.items():
        if found:
            raise ManifestInvalidError(
                f"window {key} differs from what was sealed: {'; '.join(map(str, found[:5]))}; "
                "nothing was removed"
            )
    return sorted(set(there) - set(needed))
