"""Into how many pieces Spark cuts what it reads from Kafka, so that every core has its share.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection

__all__ = ["LEAST_PIECE", "min_partitions"]

#: Offsets: smaller pieces would cost more for their consumers and files than they save.
LEAST_PIECE = 250_000
#: How many pieces a core gets of what is cut: they don't all take the same time.
_PIECES_OF_CORE = 2
#: How much longer than a core's share the largest partition may be.
_TOLERANCE = 1.2


def min_partitions(sizes: Collection[int], cores: int) -> int | None:
    """Return `minPartitions` for Spark's Kafka source, or None where a task a partition will do.

    Spark cuts partitions in proportion to their share of all offsets, and leaves those whole that
    would get one piece (`KafkaOffsetRangeCalculator`).

    Args:
        sizes: How many offsets each partition has.
        cores: How many tasks run at once.
    """
    sizes = [size for size in sizes if size > 0]
    total = sum(sizes)
    if not sizes or max(sizes) <= max(total / cores * _TOLERANCE, LEAST_PIECE):
        return None
    piece = max(total // (cores * _PIECES_OF_CORE), LEAST_PIECE)
    # Rounded together: Spark rounds each on its own, by as much as half a piece.
    large = [size for size in sizes if size > piece]
    return len(sizes) - len(large) + round(sum(large) / piece)
