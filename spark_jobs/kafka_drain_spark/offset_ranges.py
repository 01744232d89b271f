"""Select records by ranges of offsets, of which there may be very many: an erasure leaves holes.

The ranges are cut at multiples of a number of offsets, and joined by these blocks: a record is
compared with the ranges of its own block only, and a long range is a few rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

#: Name of the column that says whether a record is at one of the offsets.
IS_ERASED = "_kafka_drain_erased"

#: Number of offsets of a block.
BLOCK = 1024

Rows = Iterable[Mapping[str, Any]]

_IN_RANGE = (
    f"topic = _range_topic AND partition = _range_partition AND offset div {BLOCK} = _range_block"
    " AND offset >= _range_start AND offset < _range_end"
)


def at_offsets(spark: SparkSession, records: DataFrame, ranges: Rows) -> DataFrame:
    """Return the records at some offsets; all of them if no range is given.

    Args:
        records: Has the columns topic, partition and offset.
        ranges: Topic, partition, start and end of each range of offsets; disjoint.
    """
    rows = list(ranges)
    return _joined(spark, records, rows, "left_semi") if rows else records


def without_offsets(spark: SparkSession, records: DataFrame, ranges: Rows) -> DataFrame:
    """Return the records at other offsets; arguments as for `at_offsets`."""
    rows = list(ranges)
    return _joined(spark, records, rows, "left_anti") if rows else records


def with_erased(spark: SparkSession, records: DataFrame, ranges: Rows) -> DataFrame:
    """Return all records, with the column `IS_ERASED`; arguments as for `at_offsets`."""
    found = _joined(spark, records, list(ranges), "left")
    return found.select(*records.columns, F.expr("_range_block IS NOT NULL").alias(IS_ERASED))


def _joined(
    spark: SparkSession,
    records: DataFrame,
    rows: list[Mapping[str, Any]],
    how: Literal["left", "left_semi", "left_anti"],
) -> DataFrame:
    ranges = spark.createDataFrame(
        [(row["topic"], row["partition"], row["start"], row["end"]) for row in rows],
        "_range_topic string, _range_partition int, _range_start bigint, _range_end bigint",
    )
    blocks = F.expr(f"explode(sequence(_range_start div {BLOCK}, (_range_end - 1) div {BLOCK}))")
    # Small beside the records: no exchange of these for it.
    small = F.broadcast(ranges.select("*", blocks.alias("_range_block")))
    return records.join(small, F.expr(_IN_RANGE), how)
