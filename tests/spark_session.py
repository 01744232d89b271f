"""The one Spark session of a test run, configured as spark-submit configures a drain's."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.spark_conf import AVRO_LIMITS, DEFAULTS, FIXED, add_java_options
from kafka_drain.spark.jars import fetch as jars
from tests.brokers import SHORT_LIVED
from tests.object_stores import FAKE_GCS

__all__ = ["spark_session"]


@contextmanager
def spark_session(warehouse: Path) -> Iterator[Any]:
    """Start Spark in this process; its JVM's machine lives in New York.

    Nothing may depend on the machine's time zone.

    Args:
        warehouse: An empty folder for Spark's own tables.
    """
    from pyspark.sql import SparkSession

    # What it says when the process ends, nobody can print any more.
    logging.getLogger("py4j.clientserver").setLevel(logging.WARNING)
    conf = {
        **DEFAULTS,
        **FIXED,
        "spark.master": "local[2]",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "2g",
        "spark.sql.warehouse.dir": str(warehouse),
        # As the product's small drains: C2 wouldn't pay off within a test run.
        "spark.driver.extraJavaOptions": " ".join(SHORT_LIVED),
    }
    add_java_options(conf, for_driver=(), for_both=AVRO_LIMITS)
    options = " ".join(f'--conf "{name}={value}"' for name, value in conf.items())
    others = [jars.GCS] if FAKE_GCS in os.environ else []
    jar_list = ",".join(
        str(jar)
        for conf in (jars.CONNECTOR, jars.S3, jars.ENCRYPTION, *others)
        if not jars.not_offered(conf)
        for jar in jars.verified(conf)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{options} --jars {jar_list} pyspark-shell")
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("TZ", "America/New_York")
        session = SparkSession.builder.getOrCreate()
    yield session
    session.stop()
