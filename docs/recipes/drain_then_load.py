"""Drain a topic, then work on exactly the files that are new, in the same DAG."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from typing import Any

from airflow.providers.common.compat.sdk import AirflowSkipException, dag, task

from kafka_drain_airflow import Pipeline, create_task_group

flights = Pipeline(
    name="flights",
    topics=["flights"],
    archive=os.environ.get("KAFKA_DRAIN_ARCHIVES", "/var/lib/kafka-drain") + "/flights",
    partition_by=["topic"],
)


@task
def new_files(sealed: dict[str, Any]) -> list[str]:
    """Return the files of this run; without any, the tasks after it are skipped."""
    from kafka_drain.reading import sealed_paths

    if not sealed["files"]:
        raise AirflowSkipException("nothing new in Kafka")
    return sealed_paths(sealed)


@task
def flights_by_carrier(paths: list[str]) -> dict[str, int]:
    """Count the new flights of each carrier with Spark.

    With dbt instead: a BashOperator that runs `dbt build --vars` with the paths as JSON.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    with spark.getOrCreate() as session:
        rows = session.read.parquet(*paths).groupBy("key").count().collect()
    return {row["key"].decode(): row["count"] for row in rows}


@dag(
    schedule="@hourly",
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
    max_active_runs=1,
    tags=["recipe"],
)
def drain_then_load() -> None:
    """Drain flights, prove them, and count what is new."""
    kafka = create_task_group(flights, task_kwargs={"drain": {"retries": 2}})
    # What the validation has sealed, an XCom of its own beside the returned summary.
    sealed = kafka.get_child_by_label("validate").output["sealed"]
    flights_by_carrier(new_files(sealed))


drain_then_load()
