"""Republish with Spark's own Kafka sink: at least once, without timestamps."""

from __future__ import annotations

from threading import Thread
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_drain.job_spec import RepublishSpec
from kafka_drain.progress import Progress
from kafka_drain_spark.job import JobFailed, secret_options
from kafka_drain_spark.tasks import finished_tasks

__all__ = ["run_republish"]

PROGRESS_SECONDS = 2.0
SCHEMA = """
    key binary, value binary, headers array<struct<key:string,value:binary>>,
    partition int, offset bigint, timestamp timestamp, timestampType int, topic string
"""


def run_republish(spark: SparkSession, spec: RepublishSpec) -> dict[str, Any]:
    """Send all records of the files to Kafka, in offset order within each source partition.

    Returns:
        records (that Spark read and its sink reported no error for), seconds, records_per_second.

    Raises:
        JobFailed: When a row has no topic, or Spark reads another number of rows than the files
            hold; before anything is sent.
        PySparkException: When Spark failed; some records may have been sent.
    """
    records = read_files(spark, spec)
    rows = records.count()
    if rows != spec.records:
        raise JobFailed(f"Spark reads {rows:,} rows, the files hold {spec.records:,}: nothing sent")
    if spec.topic is None:
        refuse_null_topics(records)
    columns = ["key", "value", "headers", "topic"] + ["partition"] * spec.keep_partitions
    # One task a source partition, so that its records stay in order.
    ordered = records.repartition(spec.partitions, "topic", "partition").sortWithinPartitions(
        "topic", "partition", "offset"
    )
    options = spec.writer_options | secret_options(spec.secrets_path)
    if spec.topic is not None:
        options["topic"] = spec.topic
    progress = Progress("source partitions", spec.partitions)
    save = Saving(ordered.select(*columns), options)
    while not save.ended(PROGRESS_SECONDS):
        print(progress.line(finished_tasks(spark)), flush=True)
    print(f"republish {spec.run}: {rows:,} records sent", flush=True)
    return {
        "records": rows,
        "seconds": round(progress.seconds, 1),
        "records_per_second": round(rows / progress.seconds),
    }


class Saving:
    """A blocking write in a thread of its own, so that its progress can be shown."""

    def __init__(self, records: DataFrame, options: dict[str, str]) -> None:
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, args=(records, options), daemon=True)
        self._thread.start()

    def _run(self, records: DataFrame, options: dict[str, str]) -> None:
        try:
            records.write.format("kafka").options(**options).save()
        except BaseException as error:  # raised again in the thread that waits
            self._error = error

    def ended(self, seconds: float) -> bool:
        """Wait so long; return whether the write has ended; raise what it raised."""
        self._thread.join(seconds)
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()


def read_files(spark: SparkSession, spec: RepublishSpec) -> DataFrame:
    """Read exactly the files of the spec, with the topic from the column or the folder."""
    # A topic named 2024 is no number.
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    return (
        spark.read.format(spec.file_format)
        .schema(SCHEMA)
        .option("basePath", spec.data_folder)
        .load(spec.files)
    )


def refuse_null_topics(records: DataFrame) -> None:
    """Refuse rows without a topic, which would fail a task after others have sent theirs.

    Raises:
        JobFailed: Names the file, partition and offset of the first such row.
    """
    bad = (
        records.where(F.col("topic").isNull())
        .select("_metadata.file_path", "partition", "offset")
        .limit(1)
        .collect()
    )
    if bad:
        path, partition, offset = bad[0]
        raise JobFailed(
            f"the row with partition {partition} and offset {offset} in {path} has no topic; "
            "name a target topic, or correct the file. Nothing was sent"
        )
