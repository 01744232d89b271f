"""A typical handwritten drain on a Spark Connect server, without kafka-drain.

`connect_script.py SERVER SERVERS TOPIC FOLDER same|naive`; prints its seconds as JSON. `same` has
the columns, folders and compression of a kafka-drain archive; `naive` leaves all at Spark's
defaults, and so loses headers.
"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession
from pyspark.sql import functions as F


def main() -> None:
    """Drain once and print the query's duration."""
    server, servers, topic, folder, kind = sys.argv[1:]
    spark = SparkSession.builder.remote(server).getOrCreate()
    began = time.perf_counter()
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if kind == "same":
        records = reader.option("includeHeaders", "true").load()
        records = records.withColumn("date", F.date_format("timestamp", "yyyy-MM-dd"))
        writer = records.writeStream.format("parquet").option("compression", "zstd")
        writer = writer.partitionBy("topic", "date")
    else:
        writer = reader.load().writeStream.format("parquet")
    writer = writer.option("path", f"{folder}/data")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
