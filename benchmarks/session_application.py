"""Spark application: run drains one after another, as in a group, then Kafka to nowhere twice.

`spark-submit session_application.py FOLDER SERVERS TOPIC SPEC…`; prints the seconds of each query
as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_drain.spark.job_spec import DrainSpec, write_private
from kafka_drain_spark.drain import run_drain
from kafka_drain_spark.session import forget_numpy


def main() -> None:
    """Run the queries."""
    folder, servers, topic, *specs = sys.argv[1:]
    forget_numpy()
    spark = SparkSession.builder.getOrCreate()
    seconds = {}
    for path in specs:
        spec = DrainSpec.read(Path(path))
        began = time.perf_counter()
        result = run_drain(spark, spec)
        seconds[spec.pipeline] = time.perf_counter() - began
        write_private(Path(spec.result_path), result)
    for name in ("nowhere 1", "nowhere 2") if topic else ():
        began = time.perf_counter()
        read_to_nowhere(spark, servers, topic, f"{folder}/{name}")
        seconds[name] = time.perf_counter() - began
    print(json.dumps(seconds), flush=True)
    spark.stop()


def read_to_nowhere(spark: SparkSession, servers: str, topic: str, checkpoint: str) -> None:
    """Read a topic with Spark's default options without writing anything."""
    query = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
