"""The environment in which spark-submit runs."""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_drain.spark.java import Java
from kafka_drain.spark.submit import spark_environment


def test_spark_environment() -> None:
    """The driver is a classic one of this Python, also where pyspark-connect is installed."""
    found = spark_environment(Java(Path("/jdk/bin/java"), 17), {"PATH": "/bin"})

    assert found["SPARK_CONNECT_MODE"] == "0"
    assert found["PYSPARK_PYTHON"] == sys.executable
    assert found["JAVA_HOME"] == "/jdk"
    assert found["PATH"] == f"{found['SPARK_HOME']}/bin:/bin"
