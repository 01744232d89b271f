"""Recognise the records at given offsets, which are to be erased or were."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: What identifies a record, besides the topic's id.
PLACE = ("topic", "partition", "offset")

#: Name of the column that says whether a record is at one of the offsets.
IS_ERASED = "_kafka_drain_erased"


def without_erased(
    spark: SparkSession, records: DataFrame, erased: Iterable[Mapping[str, Any]]
) -> DataFrame:
    """Return the records at other offsets.

    Args:
        spark: The session.
        records: Has the columns of `PLACE`.
        erased: Topic, partition, start and end of each range of offsets; disjoint.
    """
    rows = list(erased)
    if not rows:
        return records
    # A join puts the columns that it joins by first.
    left = records.join(_offsets(spark, rows), [*PLACE], "left_anti")
    return left.select(*records.columns)


def with_erased(
    spark: SparkSession, records: DataFrame, erased: Iterable[Mapping[str, Any]]
) -> DataFrame:
    """Return all records, with the column `IS_ERASED`; arguments as for `without_erased`."""
    marked = _offsets(spark, list(erased)).withColumn(IS_ERASED, F.expr("true"))
    found = records.join(marked, [*PLACE], "left")
    is_erased = F.expr(f"coalesce({IS_ERASED}, false)").alias(IS_ERASED)
    return found.select(*records.columns, is_erased)


def _offsets(spark: SparkSession, rows: list[Mapping[str, Any]]) -> DataFrame:
    ranges = spark.createDataFrame(
        [(row["topic"], row["partition"], row["start"], row["end"]) for row in rows],
        "topic string, partition int, start bigint, `end` bigint",
    )
    # Small beside the records: no exchange of these for it.
    return F.broadcast(
        ranges.select(
            "topic", "partition", F.expr("explode(sequence(start, `end` - 1))").alias("offset")
        )
    )
