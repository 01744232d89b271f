"""Decide whether Spark read the topic that the archive means, or one recreated since.

A topic that is deleted and recreated gets another id, and ids never come back: one that is the
same before and after Spark's read was the same throughout. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum

from kafka_drain.kafka.identity import is_told


class Incarnation(str, Enum):
    """The incarnation of a topic that Spark has read."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"
    #: Kafka tells no ids: only records can be compared.
    UNTOLD = "untold"

    def __str__(self) -> str:
        return str(self.value)


_NOT_OTHER = (Incarnation.SAME, Incarnation.UNTOLD)


def incarnation_of(meant: str | None, after_read: str | None, now: str | None) -> Incarnation:
    """Return the incarnation of a topic that was read, given that preflight saw the expected one.

    Args:
        meant: The topic id in the archive; None when it has none.
        after_read: The topic id after Spark had read; None when no drain recorded it.
        now: The current topic id; None when the topic no longer exists.
    """
    if meant is None:
        return Incarnation.UNKNOWN
    if now is not None and not (is_told(meant) and is_told(now)):
        return Incarnation.UNTOLD
    if after_read is not None:
        return Incarnation.SAME if after_read == meant else Incarnation.OTHER
    # It may have been recreated before or after it was read.
    return Incarnation.SAME if now == meant else Incarnation.UNKNOWN


def other_incarnations(
    meant: Mapping[str, str],
    names: Collection[str],
    after_read: Mapping[str, str | None],
    now: Mapping[str, str],
) -> list[str]:
    """Describe the topics of which another incarnation may have been read, with the ids seen.

    Args:
        meant: The topic ids in the archive.
        names: The topics that were read.
        after_read: The topic ids after Spark had read, as far as a drain recorded them.
        now: The current ids of the topics that exist.
    """
    found = []
    for name in sorted(names):
        seen = after_read.get(name)
        if incarnation_of(meant.get(name), seen, now.get(name)) in _NOT_OTHER:
            continue
        is_there = seen or now.get(name)
        what = f"has topic id {is_there}" if is_there else "no longer exists"
        found.append(f"{name} {what}, the archive has {meant.get(name)}")
    return found


def made_again(other: Collection[str]) -> str:
    """Describe topics of which another incarnation may have been read."""
    return (
        f"a topic was deleted or recreated while it was being drained: {'; '.join(other)}. Spark "
        "may have read a different topic than the archive's"
    )
