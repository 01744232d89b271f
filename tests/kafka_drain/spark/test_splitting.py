"""Cutting large partitions, and reading many small ones with one task: when, and how many."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_drain.spark.splitting import (
    FEW_PARTITIONS,
    LEAST_PIECE,
    PARTITIONS_PER_TASK,
    merged_tasks,
    min_partitions,
)

HOT = [4_500_000, *[71_428] * 7]


def spark_pieces(sizes: list[int], least: int) -> list[int]:
    """What `KafkaOffsetRangeCalculator.getRanges` of Spark 4.0 makes of `minPartitions`."""
    total = sum(sizes)
    whole = [size for size in sizes if max(1, round(size / total * least)) == 1]
    rest_total, rest = total - sum(whole), max(1, least - len(whole))
    pieces = []
    for size in sizes:
        count = 1 if size in whole else max(1, round(size / rest_total * rest))
        pieces += [size // count + (n < size % count) for n in range(count)]
    return pieces


def test_min_partitions_of_even_partitions() -> None:
    """Eight even partitions on two cores stay whole."""
    assert min_partitions([250_000] * 8, 2) is None


def test_min_partitions_of_a_hot_partition() -> None:
    """A partition with nine tenths of everything is cut into four pieces for two cores."""
    least = min_partitions(HOT, 2)

    assert least == 7 + 4
    assert max(spark_pieces(HOT, least)) <= sum(HOT) / 2


@pytest.mark.parametrize("sizes", [[], [0, 0], [1], [1000, 0], [LEAST_PIECE, 1, 1]])
def test_min_partitions_of_little(sizes: list[int]) -> None:
    """What one task reads in a second isn't cut."""
    assert min_partitions(sizes, 64) is None


@pytest.mark.parametrize(
    ("sizes", "least"),
    [
        # A fifth more than a core's share is no reason.
        ([1_100_000, 900_000], None),
        # Every partition with something to read counts, and no other.
        ([*HOT, 1], 12),
        ([*HOT, 0], 11),
        # A piece is a whole number of offsets.
        ([625_003, 187_502, 187_502], 5),
    ],
)
def test_min_partitions(sizes: list[int], least: int | None) -> None:
    """Pieces are counted from what is read."""
    assert min_partitions(sizes, 2) == least


@given(
    st.lists(st.integers(0, 50_000_000), min_size=1, max_size=40),
    st.integers(min_value=1, max_value=64),
)
@example([375_001, 750_006, 1_125_000], 10)
@example([375_002, 500_007, 625_000], 7)
@example([372_500] * 30 + [547_500], 64)
def test_min_partitions_property(sizes: list[int], cores: int) -> None:
    """No piece that Spark makes is larger than a core's share and a half.

    Or than the least and three quarters: half a piece by Spark's rounding, a quarter by ours.
    """
    sizes = [size for size in sizes if size > 0]
    least = min_partitions(sizes, cores)

    pieces = spark_pieces(sizes, least) if least else sizes

    assert sum(pieces) == sum(sizes)
    if sizes:
        # Pieces are whole offsets.
        assert max(pieces) <= max(sum(sizes) / cores * 1.5, LEAST_PIECE * 1.75) + 1


@pytest.mark.parametrize(
    ("sizes", "cores", "per_task", "tasks"),
    [
        ([], 2, None, None),
        ([0] * 1_000, 2, None, None),
        # Few partitions keep tasks of their own, unless the pipeline says otherwise.
        ([1] * FEW_PARTITIONS, 2, None, None),
        ([1] * (FEW_PARTITIONS + 1), 2, None, 4),
        ([1] * 5, 2, 32, 4),
        # No fewer tasks than two rounds of each core.
        ([1] * 4, 2, 32, None),
        ([1, *[0] * 999], 2, None, None),
        ([1] * 1_000, 64, None, 128),
        # As many partitions in each task as the default allows, or the pipeline says.
        ([3] * 10_000, 2, None, -(-10_000 // PARTITIONS_PER_TASK)),
        ([3] * 10_001, 2, 100, 101),
        ([3] * 1_000, 2, 1, None),
        ([3, 0] * 1_000, 2, 10, 100),
        # As many offsets as are worth a task of their own.
        ([LEAST_PIECE // 10] * 1_000, 2, None, 100),
        ([LEAST_PIECE] * 1_000, 2, None, None),
        ([LEAST_PIECE - 1] * 1_001, 2, None, None),
        ([LEAST_PIECE + 1, *[1] * 1_000], 2, None, None),
        ([LEAST_PIECE, *[1] * 1_000], 2, None, -(-1_001 // PARTITIONS_PER_TASK)),
    ],
)
def test_merged_tasks(
    sizes: list[int], cores: int, per_task: int | None, tasks: int | None
) -> None:
    """Many small partitions share tasks; what is large keeps a task of its own."""
    assert merged_tasks(sizes, cores, per_task) == tasks
