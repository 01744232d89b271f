"""The progress of running tasks, from Spark's own status store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession

__all__ = ["finished_tasks", "records_read"]


def records_read(spark: SparkSession) -> int:
    """Count the records that the active stages have read, as of the last executor heartbeat."""
    return sum(int(stage.inputRecords()) for stage in _active_stages(spark))


def finished_tasks(spark: SparkSession) -> int:
    """Count the finished tasks of the active stages."""
    return sum(int(stage.numCompleteTasks()) for stage in _active_stages(spark))


def _active_stages(spark: SparkSession) -> Iterator[Any]:
    stages = spark.sparkContext._jsc.sc().statusStore().activeStages()
    for position in range(stages.size()):
        yield stages.apply(position)
