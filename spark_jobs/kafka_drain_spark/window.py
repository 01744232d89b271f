"""A window: a bounded batch read from Kafka and written to files."""

from __future__ import annotations

import time
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from kafka_drain.offsets import from_spark_json, ranges_between
from kafka_drain.progress import Progress
from kafka_drain.spark.job_spec import WindowSpec
from kafka_drain_spark.data_files import with_exact_times, without_wrong_times
from kafka_drain_spark.decoding import sources_of, with_decoded
from kafka_drain_spark.encryption import set_keys
from kafka_drain_spark.fingerprint import NAME, fingerprint_columns, fingerprint_of
from kafka_drain_spark.job import secret_options
from kafka_drain_spark.kafka_source import find_internal_topics, names_internal_topics, with_splits
from kafka_drain_spark.offset_ranges import at_offsets, without_offsets
from kafka_drain_spark.session import is_remote, require_source
from kafka_drain_spark.source_records import as_sent
from kafka_drain_spark.tasks import save_shown


def run_window(spark: SparkSession, spec: WindowSpec) -> dict[str, Any]:
    """Drain the offsets of a window; a repeated run rewrites the same contents.

    Returns:
        records, fingerprint, seconds.

    Raises:
        MachineError: When a Spark Connect server can't read or write what is needed.
    """
    began = time.monotonic()
    require_source(spark, "kafka", *sources_of(spec.file_format, spec.values))
    bounds = [
        from_spark_json(spec.reader_options[name]) for name in ("startingOffsets", "endingOffsets")
    ]
    sizes = [len(r) for _, r in ranges_between(*bounds)]
    options = with_splits(spark, spec.source_options, sizes) | secret_options(spec.secrets_path)
    print(f"window {spec.window}: {spec.offsets:,} offsets planned", flush=True)
    # A new session only if needed, so that the session's other settings are kept; a remote one is
    # this job's alone.
    is_new = (names_internal_topics(options) or spec.encryption) and not is_remote(spark)
    session = spark.newSession() if is_new else spark
    find_internal_topics(session, options)
    records: DataFrame = session.read.format("kafka").options(**options).load()
    records = as_sent(at_offsets(session, records, spec.ranges))
    records = without_offsets(session, records, spec.erased)
    observation = Observation(NAME)
    records = records.observe(observation, *fingerprint_columns(records))
    records = with_exact_times(records, spec.file_format)
    records = with_decoded(records, spec.values)
    for column, expression in spec.columns.items():
        records = records.withColumn(column, F.expr(expression))
    records = without_wrong_times(records, spec.file_format)
    if spec.encryption:
        set_keys(session, spec.encryption, records.schema, spec.partition_by)
    # Overwrite a partial window that a killed run left.
    writer = records.write.format(spec.file_format).options(**spec.writer_options)
    if spec.partition_by:
        writer = writer.partitionBy(*spec.partition_by)
    save_shown(
        session,
        lambda: writer.mode("overwrite").save(spec.path),
        Progress("offsets", spec.offsets),
        f"window {spec.window}",
    )
    observed = fingerprint_of(observation.get)
    print(f"window {spec.window}: {observed['records']:,} records", flush=True)
    return {**observed, "seconds": round(time.monotonic() - began, 1)}
