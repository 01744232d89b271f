"""The search for records to erase."""

from __future__ import annotations

import pyarrow as pa

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.erased_records import _add


def test_add_neighbours() -> None:
    """Records next to each other are one range, across batches too."""
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for first in (0, 1000):
        rows = pa.RecordBatch.from_pydict(
            {"partition": [0] * 1000, "offset": list(range(first, first + 1000))}
        )
        _add(ranges, rows, "t", [pa.array([True] * 1000)])

    assert ranges == {TopicPartition("t", 0): [OffsetRange(0, 2000)]}
