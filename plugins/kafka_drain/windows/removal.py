"""Decide which superseded files may be removed. Opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from kafka_drain.archive.fold import owner_of
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Finding


def removable(
    free: Collection[str], needed: Collection[str], damage: Mapping[str, Sequence[Finding]]
) -> list[str]:
    """Return which of the superseded files may be removed.

    Args:
        free: The superseded files that exist and that their store doesn't lock.
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
    return sorted(set(free) - set(needed))


def held_before(paths: Collection[str], replaced: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return files, and all others that held their records before: what their windows replaced.

    Args:
        paths: The files.
        replaced: By the folder of a window, the files that it replaces.
    """
    found: set[str] = set()
    asked = set(paths)
    while asked:
        found |= asked
        owners = {owner_of(path) for path in asked}
        asked = {path for owner in owners for path in replaced.get(owner, ())} - found
    return frozenset(found)
