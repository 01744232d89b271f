"""Whether what Spark read is of the topic that the archive means, or of one recreated since.

A topic that is deleted and recreated gets another id, and ids never come back: one that is the
same before and after Spark's read was the same throughout. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

__all__ = ["Life", "life_of", "made_again", "other_lives"]


class Life(str, Enum):
    """Which life of a topic Spark has read."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return str(self.value)


def life_of(meant: str | None, after_read: str | None, now: str | None) -> Life:
    """Say which life of a topic was read, after a drain whose preflight saw the one that is meant.

    Args:
        meant: The id that the archive has; None when it has none.
        after_read: The id that the topic had when Spark had read; None when nobody has asked.
        now: The id that it has; None when there is no such topic any more.
    """
    if meant is None:
        return Life.UNKNOWN
    if after_read is not None:
        return Life.SAME if after_read == meant else Life.OTHER
    # It may have been made again before it was read, or after that.
    return Life.SAME if now == meant else Life.UNKNOWN


def other_lives(
    meant: Mapping[str, str],
    names: Collection[str],
    after_read: Mapping[str, str | None],
    now: Mapping[str, str],
) -> list[str]:
    """Say of which topics another life may have been read, each with the ids that were seen.

    Args:
        meant: The ids that the archive has.
        names: The topics that were read.
        after_read: The ids when Spark had read, where a drain has asked.
        now: The ids of those that exist.
    """
    found = []
    for name in sorted(names):
        seen = after_read.get(name)
        if life_of(meant.get(name), seen, now.get(name)) == Life.SAME:
            continue
        is_there = seen or now.get(name)
        what = f"has topic id {is_there}" if is_there else "doesn't exist any more"
        found.append(f"{name} {what}, the archive has {meant.get(name)}")
    return found


def made_again(other: Collection[str]) -> str:
    """Say in words what happened to topics of which another life may have been read."""
    return (
        f"a topic was deleted or made again while it was drained: {'; '.join(other)}. What Spark "
        "read may be of another topic than the archive's"
    )
