"""Republish with Spark's own Kafka sink: at least once, without timestamps."""

from __future__ import annotations

from threading import Thread
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from kafka_drain.job_spec import RepublishSpec
from kafka_drain.progress import Progress
from kafka_drain_spark.data_files import read_files
from kafka_drain_spark.job import SPARK_ERRORS, JobFailed, explain, secret_options
from kafka_drain_spark.tasks import finished_tasks

__all__ = ["run_republish"]

PROGRESS_SECONDS = 2.0


def run_republish(spark: SparkSession, spec: RepublishSpec) -> dict[str, Any]:
    """Send all records of the files to Kafka, in offset order within each source partition.

    Returns:
        records (that Spark read and its sink reported no error for), seconds, records_per_second.

    Raises:
        JobFailed: When Spark reads another number of rows than the files hold, or the sink failed;
            says whether something was sent.
        PySparkException: When Spark failed before it sent something.
    """
    records = read_files(spark, spec.sources)
    rows = records.count()
    if rows != spec.records:
        raise JobFailed(
            f"Spark reads {rows:,} rows, the files hold {spec.records:,}; nothing was sent"
        )
    # One task a source partition, so that its records stay in order.
    ordered = records.repartition(spec.partitions, "topic", "partition").sortWithinPartitions(
        "topic", "partition", "offset"
    )
    options = spec.writer_options | secret_options(spec.secrets_path)
    if spec.topic is not None:
        options["topic"] = spec.topic
    progress = Progress("source partitions", spec.partitions)
    save = Saving(ordered.select("key", "value", "headers", "topic", "partition"), options)
    try:
        while not save.ended(PROGRESS_SECONDS):
            print(f"republish {spec.run}: {progress.line(finished_tasks(spark))}", flush=True)
    except SPARK_ERRORS as error:
        raise JobFailed(f"{explain(error)}; some records may have been sent") from error
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
