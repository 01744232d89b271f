"""How Spark's counts by partition become a note's."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from kafka_drain.offsets import TopicPartition
from kafka_drain_spark.fingerprint import SHIFT, counts_of

P0, P1, Q0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("ü", 0)


def bin_of(tp: TopicPartition, records: float, off: float = 0.0) -> dict[str, float]:
    return {"x": crc32(tp.topic.encode()) * SHIFT + tp.partition + off, "y": records}


@pytest.mark.parametrize(
    ("records", "bins", "expected"),
    [
        (
            6,
            [bin_of(P0, 1.0), bin_of(P1, 2.0), bin_of(Q0, 3.0)],
            '{"t":{"0":1,"1":2},"\\u00fc":{"0":3}}',
        ),
        # Histograms of several tasks may keep several bins of a value, and round when they merge.
        (
            6,
            [bin_of(P0, 1.0), bin_of(P0, 2.0, 0.01), bin_of(P1, 3.0, -0.01)],
            '{"t":{"0":3,"1":3}}',
        ),
        (0, [], "{}"),
        (0, None, "{}"),
        # Not known: another number in total, or a partition that nobody planned.
        (7, [bin_of(P0, 1.0), bin_of(P1, 2.0)], None),
        (3, [bin_of(P0, 1.0), bin_of(TopicPartition("t", 2), 2.0)], None),
    ],
)
def test_counts_of(records: int, bins: list[Any] | None, expected: str | None) -> None:
    """Counts are told only if they are of the partitions that were read, and of all records."""
    found = counts_of({"records": records, "partitions": bins}, [P0, P1, Q0])

    assert found == ({} if expected is None else {"by_partition": expected})


def test_counts_of_same_key() -> None:
    """Two topics whose checksums are the same can't be told apart."""
    assert crc32(b"plumless") == crc32(b"buckeroo")
    both = [TopicPartition("plumless", 0), TopicPartition("buckeroo", 0)]

    assert counts_of({"records": 2, "partitions": [bin_of(both[0], 2.0)]}, both) == {}


@pytest.mark.parametrize(
    ("read", "bins", "expected"),
    [
        ([P0, P1], [(0, 1.0), (1, 2.0)], '{"t":{"0":1,"1":2}}'),
        ([P0, P1], [(1, 1.0), (1, 2.0)], '{"t":{"1":3}}'),
        ([P0], [(0, 1.0), (1, 2.0)], None),
        # A topic that wasn't planned, with a partition of the same number, or of another one.
        ([P0, P1, Q0], [(0, 1.0), (1, 2.0)], None),
        ([P0, P1], [(0, 1.0), (1, 1.0)], None),
    ],
)
def test_counts_of_one_topic(
    read: list[TopicPartition], bins: list[tuple[int, float]], expected: str | None
) -> None:
    """Of one topic, the partitions' numbers suffice."""
    observed = {"records": 3, "partitions_of_topic": [{"x": x, "y": y} for x, y in bins]}

    assert counts_of(observed, read) == ({} if expected is None else {"by_partition": expected})
