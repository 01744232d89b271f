"""Read a large partition with several tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from kafka_drain.spark.splitting import LEAST_PIECE, min_partitions
from kafka_drain_spark.session import cores_of


def with_splits(
    spark: SparkSession, options: Mapping[str, str], sizes: Sequence[int]
) -> dict[str, str]:
    """Return the options of Spark's Kafka source with a setting for splitting partitions.

    Args:
        spark: The session, which determines the number of cores.
        options: The options; existing settings for splitting are kept.
        sizes: Number of offsets to read from each partition.
    """
    if "minPartitions" in options or "maxRecordsPerPartition" in options:
        return dict(options)
    limit = options.get("maxOffsetsPerTrigger")
    if limit:
        # Spark distributes the limit over all partitions in proportion to their size.
        share = min(1.0, int(limit) / max(1, sum(sizes)))
        sizes = [int(size * share) for size in sizes]
    if max(sizes, default=0) <= LEAST_PIECE:
        # Whatever the number of cores, which a remote session has to ask for.
        return dict(options)
    pieces = min_partitions(sizes, cores_of(spark))
    return {**options, "minPartitions": str(pieces)} if pieces else dict(options)
