"""Compute into how many pieces Spark splits Kafka partitions, so that every core gets its share.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection

#: Smallest piece, in offsets: smaller ones would cost more in consumers and files than they save.
LEAST_PIECE = 250_000
#: Number of pieces per core: pieces don't all take the same time.
_PIECES_OF_CORE = 2
#: How much larger than a core's share the largest partition may be before it is split.
_TOLERANCE = 1.2


def min_partitions(sizes: Collection[int], cores: int) -> int | None:
    """Return `minPartitions` for Spark's Kafka source, or None if one task per partition is enough.

    Spark splits partitions in proportion to their share of all offsets, and doesn't split those
    that would get a single piece (`KafkaOffsetRangeCalculator`).

    Args:
        sizes: Number of offsets of each partition.
        cores: Number of tasks that run at once.
    """
    sizes = [size for size in sizes if size > 0]
    total = sum(sizes)
    if not sizes or max(sizes) <= max(total / cores * _TOLERANCE, LEAST_PIECE):
        return None
    piece = max(total // (cores * _PIECES_OF_CORE), LEAST_PIECE)
    # Rounded in sum: Spark rounds each partition on its own, by up to half a piece.
    large = [size for size in sizes if size > piece]
    return len(sizes) - len(large) + round(sum(large) / piece)
