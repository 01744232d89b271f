"""A drain without Kafka, from which Java archives the classes that a drain needs."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from kafka_drain.spark.job_spec import WarmUpSpec
from kafka_drain_spark.drain import session_for, start_writing
from kafka_drain_spark.job import JobFailed

#: The columns of Spark's Kafka source, from those of `rate-micro-batch`.
COLUMNS = (
    "CAST('key' AS BINARY) AS key",
    "CAST(CAST(value AS STRING) AS BINARY) AS value",
    "'topic' AS topic",
    "0 AS partition",
    "value AS offset",
    "timestamp",
    "0 AS timestampType",
    "array(struct('name' AS key, CAST('value' AS BINARY) AS value)) AS headers",
)

#: Packages of the connector with classes that a drain may need.
PACKAGES = (
    "org/apache/commons/pool2/",
    "org/apache/kafka/clients/",
    "org/apache/kafka/common/",
    "org/apache/spark/kafka010/",
    "org/apache/spark/sql/kafka010/",
)
#: A thousand classes for all messages of Kafka's protocol; a drain needs only a handful.
MESSAGES = "/common/message/"


def run_warm_up(spark: SparkSession, spec: WarmUpSpec) -> dict[str, Any]:
    """Write generated records like a drain, and load the classes of the Kafka connector.

    Returns:
        records, classes (the number loaded from the jars).

    Raises:
        JobFailed: When less than half of the classes could be loaded: the jars aren't on the
            driver's class path.
    """
    source = session_for(spark, spec).readStream.format("rate-micro-batch")
    made_up = source.option("rowsPerBatch", 1000).load().selectExpr(*COLUMNS)
    query = start_writing(made_up, spec)
    query.awaitTermination()
    progress = query.lastProgress
    names = list(class_names(spec.jars))
    loaded = sum(load(spark, name) for name in names)
    if loaded < len(names) / 2:
        found = f"only {loaded:,} of {len(names):,} classes"
        raise JobFailed(f"{found} of {', '.join(spec.jars)} are on the driver's class path")
    return {"records": progress["numInputRows"] if progress else 0, "classes": loaded}


def class_names(jars: Sequence[str]) -> Iterator[str]:
    """Yield the names of the classes in the jars that a drain may need."""
    for jar in jars:
        with zipfile.ZipFile(jar) as archive:
            for name in archive.namelist():
                if name.endswith(".class") and name.startswith(PACKAGES) and MESSAGES not in name:
                    yield name.removesuffix(".class").replace("/", ".")


def load(spark: SparkSession, name: str) -> bool:
    """Load a class without initializing it; return False if a library that it needs is missing."""
    java: Any = spark._jvm
    loader = java.java.lang.ClassLoader.getSystemClassLoader()
    try:
        java.java.lang.Class.forName(name, False, loader)
    except Py4JJavaError:
        return False
    return True
