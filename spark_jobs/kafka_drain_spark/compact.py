"""Compaction: the records of many small files, sorted by offset, in few large files."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from kafka_drain.progress import Progress
from kafka_drain.spark.job_spec import CompactSpec
from kafka_drain_spark.background import Background
from kafka_drain_spark.data_files import read_files, with_exact_times
from kafka_drain_spark.decoding import with_decoded
from kafka_drain_spark.fingerprint import NAME, fingerprint_columns, fingerprint_of
from kafka_drain_spark.job import JobFailed
from kafka_drain_spark.tasks import records_read

__all__ = ["run_compact"]

PROGRESS_SECONDS = 2.0


def run_compact(spark: SparkSession, spec: CompactSpec) -> dict[str, Any]:
    """Write the records of some files anew, and read back what was written.

    Returns:
        records and fingerprint (of what was read back), seconds.

    Raises:
        JobFailed: When other records were read back than were read before.
    """
    began = time.monotonic()
    records = read_files(spark, spec.sources)
    for column, expression in spec.columns.items():
        records = records.withColumn(column, F.expr(expression))
    # Folders first, so that a task writes few of them.
    order = list(dict.fromkeys([*spec.partition_by, "topic", "partition", "offset"]))
    ordered = records.repartitionByRange(spec.files, *order).sortWithinPartitions(*order)
    # Behind the exchange, which reads everything twice: first to find out where to cut.
    observation = Observation(NAME)
    observed = ordered.observe(observation, *fingerprint_columns(ordered))
    observed = with_exact_times(observed, spec.file_format)
    # From the raw bytes again: schemas that were unknown then may be known now.
    observed = with_decoded(observed, spec.values)
    writer = observed.write.format(spec.file_format).options(**spec.writer_options)
    if spec.partition_by:
        writer = writer.partitionBy(*spec.partition_by)
    save = Background(lambda: writer.mode("overwrite").save(spec.path))
    progress = Progress("records", spec.records)
    while not save.ended(PROGRESS_SECONDS):
        print(progress.line(f"compact {spec.window}", records_read(spark)), flush=True)
    before = fingerprint_of(observation.get)
    written = read_files(
        spark,
        [{"data_folder": spec.path, "file_format": spec.file_format, "files": [spec.path]}],
    )
    reading = Observation(NAME)
    written.observe(reading, *fingerprint_columns(written)).write.format("noop").mode(
        "overwrite"
    ).save()
    after = fingerprint_of(reading.get)
    if before != after:
        raise JobFailed(f"{spec.path} holds {after}, its sources {before}; expected the same")
    print(f"compact {spec.window}: {after['records']:,} records", flush=True)
    return {**after, "seconds": round(time.monotonic() - began, 1)}
