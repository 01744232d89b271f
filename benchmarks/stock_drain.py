"""Spark application: a typical handwritten drain, with Spark's options and without kafka-drain.

`spark-submit stock_drain.py SERVERS TOPIC FOLDER files|nowhere`; prints its seconds as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main() -> None:
    """Drain once and print the query's duration."""
    servers, topic, folder, kind = sys.argv[1:]
    began = time.perf_counter()
    spark = SparkSession.builder.appName("stock").getOrCreate()
    session = time.perf_counter() - began
    began = time.perf_counter()
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        # Off by default, which would lose headers and make the result wrong.
        .option("includeHeaders", "true")
        .load()
    )
    if kind == "nowhere":
        writer = records.writeStream.format("noop")
    else:
        records = records.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
        writer = records.writeStream.format("parquet").partitionBy("topic", "date")
        writer = writer.option("path", f"{folder}/data")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    seconds = time.perf_counter() - began
    print(json.dumps({"session": session, "seconds": seconds}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
