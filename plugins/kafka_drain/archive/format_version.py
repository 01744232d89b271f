"""Which versions of the archive's format this release writes and reads. Opens nothing.

Within a version keys may be added, which an older release of the same version leaves aside; where
the meaning of one changes, the version does (`docs/format.md`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

__all__ = ["FORMAT_VERSION", "READABLE", "known_fields", "require_readable"]

#: What this release writes.
FORMAT_VERSION = 1
#: What it reads: this version, and the one before where there is one.
READABLE = tuple(version for version in (FORMAT_VERSION - 1, FORMAT_VERSION) if version >= 1)

T = TypeVar("T")


def require_readable(version: object) -> None:
    """Refuse a version that this release doesn't read.

    Raises:
        ValueError: Names it.
    """
    if version not in READABLE:
        raise ValueError(f"format version {version!r}")


def known_fields(kind: type[T], row: Mapping[str, Any]) -> T:
    """Make a dataclass of those keys of a JSON object that it knows.

    Raises:
        TypeError: When one is missing.
    """
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: row[name] for name in names if name in row})
