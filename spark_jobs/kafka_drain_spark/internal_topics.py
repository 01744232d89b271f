"""Kafka's internal topics, which Spark's source leaves out by default."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession

from kafka_drain.config.source_options import INTERNAL_TOPICS, subscribed_topics


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
