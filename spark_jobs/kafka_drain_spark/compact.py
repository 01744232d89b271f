"""Compact files: rewrite the records of many small files, sorted by offset, to a few large ones."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F

from kafka_drain.progress import Progress
from kafka_drain.spark.job_spec import CompactSpec
from kafka_drain_spark.data_files import read_files, with_exact_times, without_wrong_times
from kafka_drain_spark.decoding import with_decoded
from kafka_drain_spark.encryption import set_keys
from kafka_drain_spark.fingerprint import NAME, fingerprint_columns, fingerprint_of, together
from kafka_drain_spark.job import JobFailed
from kafka_drain_spark.offset_ranges import IS_ERASED, with_erased
from kafka_drain_spark.session import require_source
from kafka_drain_spark.tasks import save_shown

_NOTHING = {"records": 0, NAME: f"{0:016x}"}


def run_compact(spark: SparkSession, spec: CompactSpec) -> dict[str, Any]:
    """Rewrite the records of some files, and read the new files back.

    Returns:
        records and fingerprint (of what was read back), erased (the same of what was left out),
        seconds.

    Raises:
        JobFailed: When the records read back differ from the source records.
        MachineError: When a Spark Connect server can't read or write what is needed.
    """
    began = time.monotonic()
    require_source(spark, spec.file_format, *{each["file_format"] for each in spec.sources})
    if spec.encryption:
        # So that no other job's files are encrypted.
        spark = spark.newSession()
        set_keys(spark, spec.encryption)
    records = read_files(spark, spec.sources)
    if spec.erased:
        records = with_erased(spark, records, spec.erased)
    for column, expression in spec.columns.items():
        records = records.withColumn(column, F.expr(expression))
    # Partition columns first, so that each task writes to few folders.
    order = list(dict.fromkeys([*spec.partition_by, "topic", "partition", "offset"]))
    ordered = records.repartitionByRange(spec.files, *order).sortWithinPartitions(*order)
    # After the exchange, which reads everything twice: the first time to sample the range bounds.
    observation = Observation(NAME)
    metrics = fingerprint_columns(ordered)
    if spec.erased:
        metrics += fingerprint_columns(ordered, IS_ERASED)
    observed = ordered.observe(observation, *metrics)
    if spec.erased:
        observed = observed.where(f"NOT {IS_ERASED}").drop(IS_ERASED)
    observed = with_exact_times(observed, spec.file_format)
    # Decoded from the raw bytes again: schemas that were unknown may be known by now.
    observed = with_decoded(observed, spec.values)
    observed = without_wrong_times(observed, spec.file_format)
    if spec.encryption:
        set_keys(spark, spec.encryption, observed.schema, spec.partition_by)
    writer = observed.write.format(spec.file_format).options(**spec.writer_options)
    if spec.partition_by:
        writer = writer.partitionBy(*spec.partition_by)
    save_shown(
        spark,
        lambda: writer.mode("overwrite").save(spec.path),
        Progress("records", spec.records),
        f"compact {spec.window}",
    )
    before = fingerprint_of(observation.get)
    gone = fingerprint_of(observation.get, IS_ERASED) if spec.erased else dict(_NOTHING)
    written = read_files(
        spark,
        [{"data_folder": spec.path, "file_format": spec.file_format, "files": [spec.path]}],
    )
    reading = Observation(NAME)
    written.observe(reading, *fingerprint_columns(written)).write.format("noop").mode(
        "overwrite"
    ).save()
    after = fingerprint_of(reading.get)
    if before != together(after, gone):
        erased = f" and {gone} of them are erased" if spec.erased else ""
        raise JobFailed(f"{spec.path} holds {after}, but its sources hold {before}{erased}")
    print(f"compact {spec.window}: {after['records']:,} records", flush=True)
    return {**after, "erased": gone, "seconds": round(time.monotonic() - began, 1)}
