"""The versions of the archive's format that this release writes and reads. Opens nothing.

Keys may be added within a version, and are ignored by older releases of the same version; if the
meaning of a key changes, so does the version (`docs/format.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["FORMAT_VERSION", "READABLE", "known_fields", "require_readable"]

#: The version that this release writes.
FORMAT_VERSION = 1
#: The versions that it reads: the current one and its predecessor, if any.
READABLE = tuple(version for version in (FORMAT_VERSION - 1, FORMAT_VERSION) if version >= 1)

T = TypeVar("T")


def require_readable(version: object) -> None:
    """Raise an error for a version that this release doesn't read.

    Raises:
        ValueError: When the version isn't readable; names it.
    """
    if version not in READABLE:
        raise ValueError(f"format version {version!r}")


def known_fields(kind: type[T], row: Mapping[str, Any]) -> T:
    """Build a dataclass from the keys of a JSON object that it knows.

    Raises:
        TypeError: When a required key is missing.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in names if name in row})
