"""The arms of `republish.py` on Spark: its own sink, and the Spark engine, in one warm session."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.worker_arms import checked, planned
from kafka_drain import jars
from kafka_drain.lease import utc_now
from kafka_drain.republishing.plan import AT_LEAST_ONCE
from kafka_drain.republishing.republish import Limits
from kafka_drain.republishing.sending import SendJob
from kafka_drain.republishing.spark import PRODUCER_SETTINGS
from kafka_drain.spark_conf import DEFAULTS, FIXED, JAVA_OPTIONS
from kafka_drain_spark.send import send_groups

__all__ = ["run", "session"]

ROOT = Path(__file__).resolve().parents[1]


@contextmanager
def session() -> Iterator[SparkSession]:
    """Start Spark as spark-submit starts it for a republish."""
    conf = {
        **DEFAULTS,
        **FIXED,
        "spark.master": "local[2]",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    }
    options = " ".join(f'--conf "{name}={value}"' for name, value in conf.items())
    jar_list = ",".join(str(jar) for jar in jars.verified(jars.CONNECTOR))
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"{options} --jars {jar_list} pyspark-shell"
    # Tasks import our packages from where they are; spark-submit would take a zip of them.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = f"{ROOT}/plugins{os.pathsep}{ROOT}/spark_jobs"
    spark = SparkSession.builder.getOrCreate()
    yield spark
    spark.stop()


def run(spark: SparkSession, archive: str, servers: str, target: str, arm: str) -> float:
    """Send by one arm, check what came, and return the seconds."""
    engine, _, kind = arm.partition("-")
    if engine == "spark":
        return _engine(spark, archive, servers, target, kind)
    return _sink(spark, archive, servers, target, PRODUCER_SETTINGS if kind == "tuned" else {})


def _sink(
    spark: SparkSession, archive: str, servers: str, target: str, settings: dict[str, str]
) -> float:
    """Write the files to Kafka as one does: a task a file, which is a task a partition here."""
    plan = planned(archive, servers, target).plan
    paths = [f"{archive}/{file.path}" for shard in plan.shards for file in shard.files]
    began = time.perf_counter()
    (
        spark.read.parquet(*paths)
        .select("key", "value", "headers", "partition")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", target)
        .options(**settings)
        .save()
    )
    seconds = time.perf_counter() - began
    # The sink can't set timestamps, and its tasks cut files as they like: the content counts.
    checked(replace(plan, delivery=AT_LEAST_ONCE), archive, servers)
    return seconds


def _engine(
    spark: SparkSession, archive: str, servers: str, target: str, transactions: str
) -> float:
    republish = planned(archive, servers, target, transactions)

    class Engine:
        """Sends by the Spark engine's own function, and leaves verifying to `checked`."""

        def __call__(self, plan: Any, groups: list[list[SendJob]], tick: Any) -> None:
            send_groups(spark, groups, lambda: None)

        def verify(self, plan: Any, jobs: Any, say: Any) -> Any:
            from kafka_drain.republishing.verifying import verify_partition

            return {job.tp: verify_partition(job.root, plan, job.settings, job.tp) for job in jobs}

    return float(republish.execute(Engine(), utc_now, Limits())["seconds"])
