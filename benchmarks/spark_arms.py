"""The Spark arms of `republish.py`: Spark's sink and the Spark engine, each in a new session."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.process_tree import Cost, Meter
from benchmarks.worker_arms import checked, planned, sent
from kafka_drain.config.spark_conf import DEFAULTS, FIXED, JAVA_OPTIONS
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.engines.spark import PRODUCER_SETTINGS
from kafka_drain.republish.engines.worker_main import VerifyJob
from kafka_drain.republish.planning.plan import AT_LEAST_ONCE, RepublishPlan
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.republish.verifying.matching import PartitionMatch
from kafka_drain.republish.verifying.verify import verify_partitions
from kafka_drain.spark.jars import fetch as jars
from kafka_drain_spark.send import send_groups

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[1]


def run(archive: str, servers: str, arm: str, target: str) -> Cost:
    """Send with one arm from a fresh JVM, as a republish does, and check the result.

    The calling process should exit afterwards, because the JVM runs as long as the process.

    Returns:
        The cost of sending for the JVM and its workers, without the session's start.
    """
    engine, _, kind = arm.partition("-")
    spark = _session()
    # spark-submit's script execs Java, so this process is the JVM.
    pid = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    if engine == "spark":
        return sent(planned(archive, servers, target), SparkEngine(spark), pid)
    return _sink(spark, archive, servers, target, PRODUCER_SETTINGS if kind == "tuned" else {}, pid)


def _session() -> SparkSession:
    """Start Spark with the settings that spark-submit uses for a republish."""
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
    # Tasks import our packages from the checkout; spark-submit would use a zip of them.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = f"{ROOT}/plugins{os.pathsep}{ROOT}/spark_jobs"
    return SparkSession.builder.getOrCreate()


def _sink(
    spark: SparkSession, archive: str, servers: str, target: str, settings: dict[str, str], pid: int
) -> Cost:
    """Write the files to Kafka in the usual way, with one task per file and so per partition."""
    plan = planned(archive, servers, target).plan
    paths = [f"{archive}/{file.path}" for shard in plan.shards for file in shard.files]
    with Meter(pid) as meter:
        (
            spark.read.parquet(*paths)
            .select("key", "value", "headers", "partition")
            .write.format("kafka")
            .option("kafka.bootstrap.servers", servers)
            .option("topic", target)
            .options(**settings)
            .save()
        )
    # The sink can't set timestamps, and its tasks may split files: only compare the content.
    checked(replace(plan, delivery=AT_LEAST_ONCE), archive, servers)
    return meter.cost


@dataclass
class SparkEngine:
    """The Spark engine's own functions, in an existing session."""

    spark: SparkSession

    def __call__(
        self, plan: RepublishPlan, groups: list[list[SendJob]], tick: Callable[[], None]
    ) -> None:
        """Send groups of jobs."""
        send_groups(self.spark, groups, lambda: None)

    def verify(
        self, plan: RepublishPlan, jobs: list[VerifyJob]
    ) -> dict[TopicPartition, PartitionMatch]:
        """Verify target partitions in this process, one after another."""
        return {
            tp: match
            for job in jobs
            for tp, match in verify_partitions(
                job.root, plan, job.settings, job.tps, change=job.change
            )
        }
