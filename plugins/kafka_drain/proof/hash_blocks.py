"""Combine the hashes of records by blocks of offsets, so that memory doesn't grow with records.

Where the blocks of two sides differ, only these are compared again, record by record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.offsets import OffsetRange

#: Number of offsets whose hashes are combined.
BLOCK = 4096


class Offsets:
    """The offsets in sorted disjoint ranges."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        self._ranges = ranges
        self._starts = [r.start for r in ranges]

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._starts, offset) - 1
        return at >= 0 and offset < self._ranges[at].end


@dataclass
class HashBlocks:
    """Hashes of records at some offsets of a partition, combined by block.

    Attributes:
        size: Number of offsets in a block.
        hashes: XOR of the records' hashes, by block.
        offsets: The offsets of these records.
    """

    size: int
    hashes: dict[int, int] = field(default_factory=dict)
    offsets: list[OffsetRange] = field(default_factory=list)

    def add(self, offsets: Iterable[int], hashes: Iterable[int], wanted: Offsets) -> None:
        """Add the records at offsets that are wanted."""
        found = self.offsets
        for at, value in zip(offsets, hashes, strict=True):
            if at not in wanted:
                continue
            block = at // self.size
            self.hashes[block] = self.hashes.get(block, 0) ^ value
            if found and found[-1].end == at:
                found[-1] = OffsetRange(found[-1].start, at + 1)
            else:
                found.append(OffsetRange(at, at + 1))

    def differing(self, other: HashBlocks) -> list[OffsetRange]:
        """Return the blocks whose hashes differ from another's."""
        blocks = self.hashes.keys() | other.hashes.keys()
        return [
            OffsetRange(block * self.size, (block + 1) * self.size)
            for block in sorted(blocks)
            if self.hashes.get(block) != other.hashes.get(block)
        ]


def rows_of(
    rows: pa.RecordBatch, hashes: Sequence[int], number: int
) -> tuple[list[int], list[int]]:
    """Return offsets and hashes of those of some records that are in a partition."""
    places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), hashes, strict=True)
    kept = [(at, value) for partition, at, value in places if partition == number]
    return [at for at, _ in kept], [value for _, value in kept]


def without_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return records without their headers."""
    position = SCHEMA.get_field_index("headers")
    return batch.set_column(
        position, SCHEMA.field("headers"), pa.nulls(len(batch), SCHEMA.field("headers").type)
    )
