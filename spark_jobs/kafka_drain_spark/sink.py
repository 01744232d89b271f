"""Republish with Spark's own Kafka sink: at least once, without timestamps."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import coalesce, col, concat_ws, create_map, lit

from kafka_drain.background import Background
from kafka_drain.progress import Progress
from kafka_drain.spark.job_spec import SinkSpec
from kafka_drain_spark.data_files import read_files
from kafka_drain_spark.job import JobFailed, explain, secret_options
from kafka_drain_spark.session import SPARK_ERRORS, require_source
from kafka_drain_spark.tasks import finished_tasks

PROGRESS_SECONDS = 2.0


def run_sink(spark: SparkSession, spec: SinkSpec) -> dict[str, Any]:
    """Send all records of the files to Kafka, in offset order within each source partition.

    Returns:
        records (read by Spark, and sent without an error from its sink), seconds,
        records_per_second.

    Raises:
        JobFailed: When Spark reads a different number of rows than the files hold, or the sink
            failed; says whether records may have been sent.
        MachineError: When a Spark Connect server can't read or write what is needed.
        PySparkException: When Spark failed before it sent anything.
    """
    require_source(spark, "kafka", *{source["file_format"] for source in spec.sources})
    records = read_files(spark, spec.sources).withColumn("topic", coalesce("topic", lit("")))
    wanted = records.where(concat_ws("-", "topic", "partition").isin(spec.partitions))
    rows = wanted.count()
    if rows != spec.records:
        raise JobFailed(
            f"Spark reads {rows:,} rows, but the files hold {spec.records:,}; nothing was sent"
        )
    # One task per source partition, so that its records stay in order.
    ordered = wanted.repartition(len(spec.partitions), "topic", "partition").sortWithinPartitions(
        "topic", "partition", "offset"
    )
    targets = create_map(*(lit(name) for pair in spec.targets.items() for name in pair))
    sent = ordered.select(
        "key", "value", "headers", targets[col("topic")].alias("topic"), "partition"
    )
    options = spec.writer_options | secret_options(spec.secrets_path)
    progress = Progress("source partitions", len(spec.partitions))
    save = Background(lambda: sent.write.format("kafka").options(**options).save())
    try:
        while not save.ended(PROGRESS_SECONDS):
            print(progress.line(f"republish {spec.run}", finished_tasks(spark)), flush=True)
    except SPARK_ERRORS as error:
        raise JobFailed(f"{explain(error)}; some records may have been sent") from error
    print(f"republish {spec.run}: {rows:,} records sent", flush=True)
    return {
        "records": rows,
        "seconds": round(progress.seconds, 1),
        "records_per_second": round(rows / progress.seconds),
    }
