"""Compute the number of tasks that read Kafka's partitions, so that every core gets its share.

A few large partitions are split into pieces; thousands of small ones are read many to a task.
Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection

#: Smallest piece, in offsets: smaller ones would cost more in consumers and files than they save.
LEAST_PIECE = 250_000
#: Number of pieces per core: pieces don't all take the same time.
_PIECES_OF_CORE = 2
#: Number of small partitions that a task reads one after another, unless a pipeline says otherwise.
#: A task keeps the consumer of each until it ends.
PARTITIONS_PER_TASK = 32
#: Number of partitions up to which each has a task and a file, unless a pipeline says otherwise.
FEW_PARTITIONS = 64
#: Factor by which the largest partition may exceed a core's share before it is split.
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


def merged_tasks(sizes: Collection[int], cores: int, per_task: int | None = None) -> int | None:
    """Return the number of tasks for many small partitions, or None for one task for each of them.

    A task's cost doesn't depend on what it reads: it is started, it writes a file for each date,
    and the driver collects its result. Each core gets tasks for at least two rounds, and on average
    no task reads more than `LEAST_PIECE` offsets.

    Args:
        sizes: Number of offsets of each partition.
        cores: Number of tasks that run at once.
        per_task: Number of partitions that a task reads at most; None for the default.
    """
    sizes = [size for size in sizes if size > 0]
    if per_task is None and len(sizes) <= FEW_PARTITIONS:
        return None
    if not sizes or max(sizes) > LEAST_PIECE:
        return None
    by_count = -(-len(sizes) // (per_task or PARTITIONS_PER_TASK))
    by_size = -(-sum(sizes) // LEAST_PIECE)
    tasks = max(by_count, by_size, cores * _PIECES_OF_CORE)
    return tasks if tasks < len(sizes) else None
