"""Our own functions in Spark's tasks."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from kafka_drain_spark.session import is_remote, settings

T = TypeVar("T")
R = TypeVar("R")

#: Results of a remote task that are sent together.
_TOGETHER = 500


def in_tasks(
    spark: SparkSession,
    items: Sequence[T],
    tasks: int,
    function: Callable[[Iterable[T]], Iterable[R]],
) -> Callable[[], list[R]]:
    """Return a function that applies `function` to items with Spark's tasks.

    Args:
        items: The items; each task gets about as many, in this order.
        tasks: Number of tasks; a remote session doesn't start more than there are items.
        function: Receives a task's items, and returns results, which are returned in order. A
            module's function: executors import it.
    """
    if not is_remote(spark):
        return spark.sparkContext.parallelize(items, tasks).mapPartitions(function).collect
    spark.addArtifacts(settings()["py_files"], pyfile=True)
    # The number of slices of a local relation.
    spark.conf.set("spark.sql.leafNodeDefaultParallelism", str(tasks))
    rows = spark.createDataFrame([(pickle.dumps(item),) for item in items], "item binary")
    results = rows.mapInArrow(partial(_apply, function), "result binary")
    return lambda: [pickle.loads(row[0]) for row in results.collect()]


def _apply(function: Callable[[Iterable[Any]], Iterable[Any]], batches: Iterable[Any]) -> Any:
    """Apply a function to pickled items in Arrow batches, on an executor."""
    import pyarrow as pa

    items = (pickle.loads(value) for batch in batches for value in batch.column(0).to_pylist())
    results: Iterator[Any] = iter(function(items))
    while found := [pickle.dumps(result) for result in islice(results, _TOGETHER)]:
        yield pa.RecordBatch.from_arrays([pa.array(found, pa.binary())], names=["result"])
