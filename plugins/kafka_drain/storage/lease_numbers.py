"""Names of the numbered files that hold a lease where nothing is replaced on a condition.

The file with the highest number counts. It is never removed, because a writer that was suspended
could otherwise bring back a number from the past. Opens nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_NAME = re.compile(r"(\d{12})\.json")
#: The unfinished write of one of them.
_UNFINISHED = re.compile(r"\.(\d{12})\.json\.[0-9a-f]{32}\.tmp")


def name_of(number: int) -> str:
    """Return the name of a file."""
    return f"{number:012d}.json"


def newest(names: Iterable[str]) -> int:
    """Return the highest number among some names; 0 if none is a lease's."""
    return max((int(found[1]) for found in map(_NAME.fullmatch, names) if found), default=0)


def superseded(names: Iterable[str], number: int) -> list[str]:
    """Return which of some names a lease makes superfluous, unfinished writes among them.

    A writer of the same number may still be at work; it will be told that it exists.

    Args:
        names: Those in the folder.
        number: The lease's.
    """
    found = ((name, _NAME.fullmatch(name) or _UNFINISHED.fullmatch(name)) for name in names)
    return sorted(name for name, match in found if match and int(match[1]) < number)
