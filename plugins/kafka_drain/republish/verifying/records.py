"""Consecutive records, a list for each of their parts: compared as a whole, or one by one.

Where a target has what was sent in the same order, whole lists are compared, byte by byte, which
takes a fraction of the time of a loop over records. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from kafka_drain.data_files.content_hash import content_hashes
from kafka_drain.republish.verifying.match_types import Record

if TYPE_CHECKING:
    from kafka_drain.data_files.rows import Headers


def key_hash(key: bytes | None) -> int:
    """Return a hash of a key; 0 if there is no key."""
    return 0 if key is None else xxh3_64_intdigest(key)


@dataclass(frozen=True, slots=True)
class Records:
    """Consecutive records; iterating yields what is compared of each one.

    Attributes:
        keys: Their keys.
        values: Their values.
        headers: Their headers; None for none.
        timestamps: Their timestamps, in milliseconds since 1970.
        offsets: Their offsets, ascending.
        with_keys: Whether keys are hashed.
    """

    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]
    timestamps: Sequence[int]
    offsets: Sequence[int]
    with_keys: bool = False

    def __len__(self) -> int:
        """Return their number."""
        return len(self.offsets)

    def __iter__(self) -> Iterator[Record]:
        """Yield the parts of each record that are compared."""
        keys = map(key_hash, self.keys) if self.with_keys else repeat(0, len(self))
        return zip(self.hashes(), self.timestamps, self.offsets, keys, strict=True)

    def hashes(self) -> list[int]:
        """Return the hash of each record's content."""
        return content_hashes(self.keys, self.values, self.headers)

    def part(self, start: int, end: int) -> Records:
        """Return those from one place to another."""
        if start <= 0 and end >= len(self):
            return self
        places = slice(start, end)
        return Records(
            self.keys[places],
            self.values[places],
            self.headers[places],
            self.timestamps[places],
            self.offsets[places],
            self.with_keys,
        )

    def chosen(self, wanted: Sequence[bool]) -> Records:
        """Return those that are wanted."""
        return Records(
            [*compress(self.keys, wanted)],
            [*compress(self.values, wanted)],
            [*compress(self.headers, wanted)],
            [*compress(self.timestamps, wanted)],
            [*compress(self.offsets, wanted)],
            self.with_keys,
        )

    def is_like(self, others: Records, compare_timestamps: bool) -> bool:
        """Return whether as many others have the same content, and the same timestamps.

        A timestamp of 0 is like any: librdkafka replaces it with the time of sending.
        """
        if (self.keys, self.values, self.headers) != (others.keys, others.values, others.headers):
            return False
        if not compare_timestamps or self.timestamps == others.timestamps:
            return True
        pairs = zip(self.timestamps, others.timestamps, strict=True)
        return all(mine in (0, other) for mine, other in pairs)


class ExpectedRecords:
    """The records that a chain sends to a target partition: iterated over, or taken as they come.

    Args:
        parts: All of them, in order.
    """

    def __init__(self, parts: Iterator[Records]) -> None:
        self._parts = parts
        self._rest: Records | None = None

    def __iter__(self) -> Iterator[Record]:
        """Yield the parts of each remaining record that are compared."""
        while (records := self.following()) is not None:
            self._rest = None
            yield from records

    def following(self) -> Records | None:
        """Return the next records, some of those that remain; None at the end."""
        while not self._rest:
            self._rest = next(self._parts, None)
            if self._rest is None:
                return None
        return self._rest

    def skip(self, number: int) -> None:
        """Leave out some of the records that `following` returned."""
        if self._rest is not None:
            self._rest = self._rest.part(number, len(self._rest))


#: Starts a new iteration over what a chain sends.
Expecting = Callable[[], ExpectedRecords]
