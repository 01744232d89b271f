"""Spark's Kafka source in a job: internal topics, and the number of tasks that read partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession

from kafka_drain.config.source_options import INTERNAL_TOPICS, subscribed_topics
from kafka_drain.spark.splitting import LEAST_PIECE, merged_tasks, min_partitions
from kafka_drain_spark.session import cores_of


def names_internal_topics(options: Mapping[str, str]) -> bool:
    """Return whether options of Spark's source name an internal topic."""
    return bool(subscribed_topics(options) & INTERNAL_TOPICS)


def find_internal_topics(session: SparkSession, options: Mapping[str, str]) -> None:
    """Configure a session to find internal topics if options of Spark's source name one.

    By default the source uses Kafka's admin client and drops internal topics even if they are named
    (ConsumerStrategy.retrieveAllPartitions in Spark 4.0); a consumer finds them.
    """
    if names_internal_topics(options):
        session.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")


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


def merged(
    records: DataFrame, options: Mapping[str, str], sizes: Sequence[int], per_task: int | None
) -> DataFrame:
    """Return the source's rows, with many small partitions read by each task.

    Spark doesn't shuffle them: a partition's records stay in one task, in order.

    Args:
        records: The rows of Spark's Kafka source.
        options: Its options; with settings for splitting, each piece keeps its task.
        sizes: Number of offsets to read from each partition.
        per_task: Number of partitions that a task reads at most; None for the default.
    """
    is_split = "minPartitions" in options or "maxRecordsPerPartition" in options
    if is_split or not merged_tasks(sizes, 1, per_task):
        # Whatever the number of cores, which a remote session has to ask for.
        return records
    tasks = merged_tasks(sizes, cores_of(records.sparkSession), per_task)
    return records.coalesce(tasks) if tasks else records
