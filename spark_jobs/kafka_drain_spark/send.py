"""Republish exactly once with shards as tasks; executors call the same function as the worker.

A retried task creates a producer with the same transactional id, which fences the previous one, and
resumes after the last transaction that it committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from pyspark.sql import SparkSession

from kafka_drain.background import Background
from kafka_drain.errors import KafkaDrainError, TerminalError, TransientError
from kafka_drain.progress import Progress
from kafka_drain.republish.sending.progress_store import ProgressStore
from kafka_drain.republish.sending.shard_sender import SendJob, send_shard
from kafka_drain.spark.job_spec import HASH_KEY, SendSpec
from kafka_drain_spark.executors import in_tasks
from kafka_drain_spark.job import secret_options
from kafka_drain_spark.session import cores_of

PROGRESS_SECONDS = 2.0
#: Longest time for reading the progress.
TICK_SECONDS = 5.0

#: Number of groups that a task sends at once: one is sent while another waits for Kafka.
LANES = 2

G = TypeVar("G")


def run_send(spark: SparkSession, spec: SendSpec) -> dict[str, Any]:
    """Send all shards; the shards of a group are sent one after another.

    Returns:
        records (the number that these tasks sent), or shard_error and message of the first shard
        that can't be sent.

    Raises:
        Exception: One of `SPARK_ERRORS`, when a task used up its retries.
    """
    settings = dict(secret_options(spec.secrets_path))
    key = settings.pop(HASH_KEY, "")
    groups = [[_job(job, settings, key) for job in jobs] for jobs in spec.groups]
    slots = [job.shard.progress for jobs in groups for job in jobs]
    store = ProgressStore(settings, waits=False)
    progress, what = Progress("records", spec.records), f"republish {spec.run}"
    is_quiet = False

    def tick() -> None:
        nonlocal is_quiet
        try:
            found = store.read(slots, TICK_SECONDS)
        except TransientError as error:
            # The senders handle outages themselves.
            if not is_quiet:
                print(f"{what}: the progress is unknown: {error}", flush=True)
            is_quiet = True
            return
        is_quiet = False
        print(progress.line(what, sum(at.records for at in found.values() if at)), flush=True)

    try:
        return send_groups(spark, groups, tick)
    finally:
        store.close()


def _job(job: dict[str, Any], settings: dict[str, Any], key: str) -> SendJob:
    """Return a job with its secrets."""
    change = job["change"]
    return SendJob.from_dict(
        {**job, "settings": settings, "change": change and {**change, "key": key}}
    )


def send_groups(
    spark: SparkSession, groups: list[list[SendJob]], tick: Callable[[], None]
) -> dict[str, Any]:
    """Send groups of shards with Spark tasks, calling `tick` every two seconds meanwhile."""
    slots = max(cores_of(spark), configured_cores(spark.conf.get))
    is_limited = any(job.is_limited for jobs in groups for job in jobs)
    tasks = shared_out(groups, slots, is_limited=is_limited)
    writers = most_at_once(tasks)
    shared = [[[job.shared_by(writers) for job in jobs] for jobs in task] for task in tasks]
    sending = Background(in_tasks(spark, shared, len(shared), _send_tasks))
    while not sending.ended(PROGRESS_SECONDS):
        tick()
    answers = sending.result()
    failed = next((answer for answer in answers if "shard_error" in answer), None)
    return failed or {"records": sum(answer["records"] for answer in answers)}


def configured_cores(conf: Callable[[str, str], str | None]) -> int:
    """Return the number of cores that an application has asked a cluster for; 0 if it hasn't.

    A cluster's executors register one after another, so a session that has just started says less.

    Args:
        conf: Returns the value of one of Spark's settings, or a default.
    """
    most = int(conf("spark.cores.max", "0") or 0)
    executors = int(conf("spark.executor.instances", "0") or 0)
    return most or executors * int(conf("spark.executor.cores", "1") or 1)


def shared_out(groups: list[G], slots: int, *, is_limited: bool = False) -> list[list[G]]:
    """Return the groups of each task: one, or several if there are more groups than task slots.

    With limited rates there are no more tasks than slots: then all of them send at the same time,
    and each may have its share of the limit. Without, smaller tasks level out what lasts longer.
    """
    if is_limited:
        tasks = max(1, min(len(groups), slots))
        return [groups[at::tasks] for at in range(tasks)]
    lanes = LANES if len(groups) > slots else 1
    return [groups[at : at + lanes] for at in range(0, len(groups), lanes)]


def most_at_once(tasks: list[list[G]]) -> int:
    """Return the number of groups sent at once if all tasks run, regardless of known slots."""
    return sum(min(len(groups), LANES) for groups in tasks)


def _send_tasks(tasks: Iterable[list[list[SendJob]]]) -> Iterator[dict[str, Any]]:
    """Send each task's records, on an executor."""
    for groups in tasks:
        yield from _send_task(groups)


def _send_task(groups: list[list[SendJob]]) -> list[dict[str, Any]]:
    """Send groups on an executor, some at once; wait for all of them, even if one fails."""
    with ThreadPoolExecutor(LANES) as pool:
        return list(pool.map(_send_group, groups))


def _send_group(jobs: list[SendJob]) -> dict[str, Any]:
    """Send shards one after another on an executor."""
    try:
        return {"records": sum(send_shard(job) for job in jobs)}
    except TerminalError as error:
        # Returned instead of raised: Spark would retry the task in vain.
        return {"shard_error": type(error).__name__, "message": str(error)}
    except KafkaDrainError as error:
        # `explain` finds it in the message of a failed task.
        raise RuntimeError(f"{type(error).__name__}: {error}") from error
