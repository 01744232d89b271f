"""The progress of running tasks: from Spark's own status store, or as a server reports it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from kafka_drain.background import Background
from kafka_drain.progress import Progress
from kafka_drain_spark.session import is_remote

PROGRESS_SECONDS = 2.0


def save_shown(
    spark: SparkSession, save: Callable[[], object], progress: Progress, what: str
) -> None:
    """Run a write, and print how many of its source records Spark has read.

    Args:
        save: Writes.
        progress: Counts records or offsets.
        what: The work, for display.

    Raises:
        Exception: What the write raises.
    """
    saving = Background(save)
    while not saving.ended(PROGRESS_SECONDS):
        read = records_read(spark)
        if read is None:
            print(f"{what}: {finished_tasks(spark):,} tasks finished", flush=True)
        else:
            print(progress.line(what, read), flush=True)


def records_read(spark: SparkSession) -> int | None:
    """Count the records that the active stages have read, as of the last executor heartbeat.

    Returns:
        None if Spark doesn't say: a Spark Connect server.
    """
    if is_remote(spark):
        return None
    return sum(int(stage.inputRecords()) for stage in _active_stages(spark))


def finished_tasks(spark: SparkSession) -> int:
    """Count the finished tasks of the active stages."""
    if is_remote(spark):
        return _finished_remotely(spark)
    return sum(int(stage.numCompleteTasks()) for stage in _active_stages(spark))


def _active_stages(spark: SparkSession) -> Iterator[Any]:
    stages = spark.sparkContext._jsc.sc().statusStore().activeStages()
    for position in range(stages.size()):
        yield stages.apply(position)


#: The finished tasks of each running operation, by session.
_FINISHED: WeakKeyDictionary[SparkSession, dict[str, int]] = WeakKeyDictionary()


def _finished_remotely(spark: SparkSession) -> int:
    if spark not in _FINISHED:
        counts = _FINISHED[spark] = {}

        def hear(stages: Any, inflight_tasks: int, operation_id: str, done: bool) -> None:
            counts[operation_id] = 0 if done else sum(s.num_completed_tasks for s in stages or ())

        spark.registerProgressHandler(hear)
    return sum(_FINISHED[spark].values())
