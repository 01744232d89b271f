"""Republish exactly once with shards as tasks: on each executor the function that the worker uses.

A task that is tried again makes a producer of the same transactional id, which fences the one
before it, and goes on where that one's last transaction ended.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

from kafka_drain.errors import KafkaDrainError, TerminalError
from kafka_drain.job_spec import SendSpec
from kafka_drain.progress import Progress
from kafka_drain.republishing.ledger import Ledger
from kafka_drain.republishing.sending import SendJob, send_shard
from kafka_drain_spark.background import Background
from kafka_drain_spark.job import secret_options

__all__ = ["run_send", "send_groups"]

PROGRESS_SECONDS = 2.0


def run_send(spark: SparkSession, spec: SendSpec) -> dict[str, Any]:
    """Send all shards; a task sends the shards of one group in turn.

    Returns:
        records that were sent by these tasks, or shard_error and message of the first shard that
        can't be sent.

    Raises:
        Py4JJavaError: When a task failed more often than Spark tries it.
    """
    settings = secret_options(spec.secrets_path)
    groups = [
        [SendJob.from_dict({**job, "settings": settings}) for job in jobs] for jobs in spec.groups
    ]
    slots = [job.shard.progress for jobs in groups for job in jobs]
    ledger = Ledger(settings, waits=False)
    progress = Progress("records", spec.records)

    def tick() -> None:
        sent = sum(at.records for at in ledger.read(slots).values() if at is not None)
        print(f"republish {spec.run}: {progress.line(sent)}", flush=True)

    try:
        return send_groups(spark, groups, tick)
    finally:
        ledger.close()


def send_groups(
    spark: SparkSession, groups: list[list[SendJob]], tick: Callable[[], None]
) -> dict[str, Any]:
    """Send groups of shards, each group by a task; calls `tick` every two seconds meanwhile."""
    context = spark.sparkContext
    side_by_side = min(len(groups), context.defaultParallelism)
    shared = [[job.shared_by(side_by_side) for job in jobs] for jobs in groups]
    sending = Background(context.parallelize(shared, len(shared)).map(_send_group).collect)
    while not sending.ended(PROGRESS_SECONDS):
        tick()
    answers = sending.result()
    failed = next((answer for answer in answers if "shard_error" in answer), None)
    return failed or {"records": sum(answer["records"] for answer in answers)}


def _send_group(jobs: list[SendJob]) -> dict[str, Any]:
    """Send some shards in turn, on an executor."""
    try:
        return {"records": sum(send_shard(job) for job in jobs)}
    except TerminalError as error:
        # Spark would try the task again, in vain.
        return {"shard_error": type(error).__name__, "message": str(error)}
    except KafkaDrainError as error:
        # Spark's own message of a failed task is the error's last line.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
