"""Hashes of records, combined by blocks of offsets."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.offsets import OffsetRange, merge
from kafka_drain.proof.hash_blocks import HashBlocks, Offsets, rows_of, without_headers
from tests.kafka_drain.drained import offsets_in
from tests.kafka_drain.golden import P0, P1, row


@given(st.sets(st.integers(0, 40)), st.sets(st.integers(0, 40)), st.integers(1, 9))
def test_hash_blocks_property(there: set[int], wanted: set[int], size: int) -> None:
    """Each block sums the hashes of the records at wanted offsets, and these offsets are known."""
    ranges = merge(OffsetRange(at, at + 1) for at in wanted)
    blocks, order = HashBlocks(size), sorted(there)
    half = len(order) // 2

    for some in (order[:half], order[half:]):
        blocks.add(some, [1 << at for at in some], Offsets(ranges))

    held = there & wanted
    assert offsets_in(blocks.offsets) == held
    assert blocks.offsets == merge(OffsetRange(at, at + 1) for at in held)
    assert blocks.hashes == {
        block: sum(1 << at for at in held if at // size == block)
        for block in {at // size for at in held}
    }


def test_differing() -> None:
    """A block differs if a record is other there, or only one of two sides has any."""
    wanted = Offsets([OffsetRange(0, 100)])
    one, other = HashBlocks(10), HashBlocks(10)
    one.add([5, 15, 25, 35], [1, 2, 3, 4], wanted)
    other.add([5, 15, 26, 45], [1, 9, 3, 5], wanted)

    differing = [OffsetRange(10, 20), OffsetRange(30, 40), OffsetRange(40, 50)]
    assert one.differing(other) == other.differing(one) == differing
    assert one.differing(one) == []


def test_rows_of() -> None:
    """Only records of the partition count, each with its own hash."""
    rows = [row(tp, at) for at in (3, 4) for tp in (P0, P1)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    assert rows_of(batch, [10, 11, 12, 13], 1) == ([3, 4], [11, 13])


def test_without_headers() -> None:
    """Only the headers are gone, and their column stays."""
    rows = [row(P0, at) for at in (3, 4)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    without = without_headers(batch)

    assert without.schema == SCHEMA
    assert without["headers"].null_count == 2
    assert without.drop_columns(["headers"]) == batch.drop_columns(["headers"])
