"""What matching works on: records reduced to what is compared. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

__all__ = ["Actual", "Expected", "Record", "Token", "token_of"]

#: Content hash, timestamp in milliseconds, offset, hash of the key (asked for on compacted targets
#: only).
Record: TypeAlias = "tuple[int, int, int, int]"

#: Makes a shard's records anew, in order; their offsets are the source's.
Expected: TypeAlias = "Callable[[], Iterator[Record]]"

#: Reads the target partition anew, in batches; the offsets are the target's. A batch is asked for
#: after the ones before were matched. It gets a function that says whether all was found.
Actual: TypeAlias = "Callable[[Callable[[], bool]], Iterator[Iterable[Record]]]"

#: Content hash and timestamp: records alike in both are the same to a reader.
Token: TypeAlias = "tuple[int, int]"


def token_of(record: Record, compare_timestamps: bool) -> Token:
    """Return what tells a record from others; a timestamp of 0 where times aren't compared."""
    return record[0], record[1] if compare_timestamps else 0
