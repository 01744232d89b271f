"""Spark application: two drains one after the other, as in a group, then Kafka to nowhere twice.

`spark-submit warm_session.py SPEC SPEC SERVERS TOPIC FOLDER`; prints seconds of each as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_drain.job_spec import DrainSpec, write_private
from kafka_drain_spark.drain import run_drain
from kafka_drain_spark.job import forget_numpy


def main() -> None:
    """Run the queries."""
    first, second, servers, topic, folder = sys.argv[1:]
    forget_numpy()
    spark = SparkSession.builder.getOrCreate()
    seconds = {}
    for name, path in (("first", first), ("second", second)):
        spec = DrainSpec.read(Path(path))
        began = time.perf_counter()
        result = run_drain(spark, spec)
        seconds[name] = time.perf_counter() - began
        write_private(Path(spec.result_path), result)
    for name in ("nowhere-first", "nowhere"):
        began = time.perf_counter()
        query = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .load()
            .writeStream.format("noop")
            .option("checkpointLocation", f"{folder}/{name}")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        seconds[name] = time.perf_counter() - began
    print(json.dumps(seconds), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
