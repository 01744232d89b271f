"""Kafka's internal topics, which Spark's source leaves out unless it is told how to look."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from kafka_drain.config.source_options import INTERNAL_TOPICS, subscribed_topics

__all__ = ["find_internal_topics", "names_internal_topics"]


def names_internal_topics(options: Mapping[str, str]) -> bool:
    """Tell whether options of Spark's source name an internal topic."""
    return bool(subscribed_topics(options) & INTERNAL_TOPICS)


def find_internal_topics(session: SparkSession, options: Mapping[str, str]) -> None:
    """Let a session of its own find internal topics, where options of Spark's source name one.

    By default the source asks Kafka's Admin, and drops internal topics also where they are named
    (ConsumerStrategy.retrieveAllPartitions in Spark 4.0); a consumer finds them.
    """
    if names_internal_topics(options):
        session.conf.set("spark.sql.streaming.kafka.useDeprecatedOffsetFetching", "true")
