"""The types of matching: records reduced to the parts that are compared. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

#: Content hash, timestamp in milliseconds, offset, hash of the key (only computed for compacted
#: targets).
Record: TypeAlias = "tuple[int, int, int, int]"

#: Starts a new iteration over a shard's records, in order, with the source's offsets.
Expected: TypeAlias = "Callable[[], Iterable[Record]]"

#: Starts a new read of the target partition, in batches, with the target's offsets. A batch is
#: requested after the previous ones were matched. Takes a function that says whether all was found.
Actual: TypeAlias = "Callable[[Callable[[], bool]], Iterator[Iterable[Record]]]"

#: Content hash and timestamp: records that share both are indistinguishable to a reader.
Token: TypeAlias = "tuple[int, int]"


def token_of(record: Record, compare_timestamps: bool) -> Token:
    """Return a record's identity; the timestamp is 0 if timestamps aren't compared."""
    return record[0], record[1] if compare_timestamps else 0
