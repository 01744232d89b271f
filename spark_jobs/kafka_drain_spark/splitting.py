"""Several tasks for one large partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import SparkSession

from kafka_drain.spark.splitting import min_partitions

__all__ = ["with_splits"]


def with_splits(
    spark: SparkSession, options: Mapping[str, str], sizes: Sequence[int]
) -> dict[str, str]:
    """Return the options of Spark's Kafka source with how it cuts partitions.

    Args:
        spark: The session; its number of cores counts.
        options: The options; those that say how to cut stay.
        sizes: How many offsets are read of each partition.
    """
    if "minPartitions" in options or "maxRecordsPerPartition" in options:
        return dict(options)
    limit = options.get("maxOffsetsPerTrigger")
    if limit:
        # Spark takes so many from all partitions together, in proportion.
        share = min(1.0, int(limit) / max(1, sum(sizes)))
        sizes = [int(size * share) for size in sizes]
    pieces = min_partitions(sizes, spark.sparkContext.defaultParallelism)
    return {**options, "minPartitions": str(pieces)} if pieces else dict(options)
