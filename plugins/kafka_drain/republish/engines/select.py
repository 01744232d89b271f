"""Select the engine that sends a plan's shards: this machine's processes or Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import DeliveryError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import say
from kafka_drain.progress import Progress, Ticker
from kafka_drain.republish.engines.spark import RepublishJob, prepare_send, prepare_sink
from kafka_drain.republish.engines.worker import Worker, processes_for, side_by_side
from kafka_drain.republish.engines.worker_main import Job, VerifyJob
from kafka_drain.republish.planning.plan import AT_LEAST_ONCE, RepublishPlan
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.republish.verifying.matching import PartitionMatch
from kafka_drain.spark.engine import SparkRunner

#: A shard costs as much as this number of records, however few it has.
SHARD_RECORDS = 1_000


class Engines:
    """Send each plan with its engine.

    Args:
        cluster: The target.
        pipeline: Provides Spark's configuration, jars and memory.
        folder: A private folder (mode 0700) for the files that Spark reads.
        runner: Runs Spark applications.
        processes: Maximum number of processes of the worker engine; None for one per core, up to
            four.
    """

    def __init__(
        self,
        root: str,
        cluster: KafkaCluster,
        pipeline: Pipeline,
        folder: Path,
        runner: SparkRunner,
        processes: int | None = None,
    ) -> None:
        self._root = root
        self._cluster = cluster
        self._pipeline = pipeline
        self._folder = folder
        self._runner = runner
        self._processes = processes
        self._worker = Worker()

    def __enter__(self) -> Engines:
        """Return the engines, whose processes end with the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Wait until this machine's processes have ended."""
        self._worker.close()

    def stop(self) -> None:
        """Stop sending from this machine."""
        self._worker.stop()

    def __call__(
        self, plan: RepublishPlan, groups: list[list[SendJob]], tick: Callable[[], None]
    ) -> None:
        """Send a plan and return when all of it is sent.

        Raises:
            KafkaDrainError: A subclass that names the problem.
        """
        if plan.delivery == AT_LEAST_ONCE:
            self._run(prepare_sink(plan, self._root, self._pipeline, self._cluster, self._folder))
        elif plan.engine == "spark":
            self._run(prepare_send(plan, groups, self._pipeline, self._cluster, self._folder))
        else:
            processes = processes_for(groups, _work(plan), self._processes)
            writers = side_by_side(groups, processes)
            shared = [[job.shared_by(writers) for job in jobs] for jobs in groups]
            self._worker.run(shared, processes, tick)

    def verify(
        self, plan: RepublishPlan, jobs: list[VerifyJob]
    ) -> dict[TopicPartition, PartitionMatch]:
        """Verify target partitions with this machine's processes, whichever engine sent them.

        Raises:
            KafkaDrainError: See `verify_partitions`.
        """
        groups = [[job] for job in jobs]
        processes = processes_for(groups, _work(plan), self._processes)
        matches: dict[TopicPartition, PartitionMatch] = {}
        progress = Progress("records", plan.records)

        def answered(job: Job, answer: dict[str, Any]) -> None:
            assert isinstance(job, VerifyJob)
            found = map(PartitionMatch.from_dict, answer["matches"])
            matches.update(zip(job.tps, found, strict=True))

        def done() -> int:
            return sum(match.expected for match in list(matches.values()))

        ticker = Ticker(f"verify {plan.pipeline}", progress)
        self._worker.run(groups, processes, lambda: ticker.at(done()), answered)
        say(progress.line(f"verify {plan.pipeline}", done()))
        return matches

    def _run(self, job: RepublishJob) -> None:
        if "records" not in job.run(self._runner):
            raise DeliveryError("the Spark job ended before all shards were sent; run it again")


def _work(plan: RepublishPlan) -> int:
    """Return the work of a plan, as a number of records."""
    return plan.records + SHARD_RECORDS * len(plan.shards)
