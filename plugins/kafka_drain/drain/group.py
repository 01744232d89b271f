"""Run several drains in one Spark application: Spark starts once, and stays warm for later queries.

Each pipeline keeps its own archive, lease, checks and result; a failure of one doesn't stop others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kafka_drain.config.groups import check_group
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.drain import DrainJob, FindAgain, nothing_new, open_drain
from kafka_drain.drain.preflight import DrainPlan
from kafka_drain.errors import (
    KafkaDrainError,
    SparkJobError,
    StoreUnavailableError,
    TransientError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.spark.engine import NoServerError, SparkRunner, StillRunningError
from kafka_drain.spark.submit import SparkApplication, with_needs_of


@dataclass
class GroupJob:
    """The drains of a group that are ready to be submitted, and the outcome of the others.

    Attributes:
        application: One application for all of `jobs`; None when there are none.
        plans: The plans by pipeline, including those with nothing to do.
        jobs: The drains that have something to do, by pipeline.
        results: The results of drains with nothing to do, by pipeline.
        failures: The errors of pipelines that can't be drained, by pipeline.
    """

    application: SparkApplication | None = None
    plans: dict[str, DrainPlan] = field(default_factory=dict)
    jobs: dict[str, DrainJob] = field(default_factory=dict)
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: dict[str, KafkaDrainError] = field(default_factory=dict)


@contextmanager
def open_group(
    pipelines: Sequence[Pipeline],
    clusters: Mapping[str, KafkaCluster],
    folder: Path,
    *,
    run: str,
    registry_of: Callable[[Pipeline], SchemaRegistry | None] = lambda pipeline: None,
    find: FindAgain = lambda _: None,
    check: Callable[[Pipeline], None] = lambda pipeline: None,
) -> Iterator[GroupJob]:
    """Prepare the drains of a group, each as its archive's only writer until the context exits.

    Args:
        pipelines: The pipelines to drain, in this order.
        clusters: The clusters to drain from, by the pipeline's `kafka_conn_id`.
        folder: A private folder for this run (mode 0700).
        run: Name of the run to show to the user.
        registry_of: Returns the registry of the schemas of a pipeline's values.
        find: See `open_drain`.
        check: Raises what keeps a pipeline from being drained.

    Raises:
        ConfigError: When the pipelines can't form a group.
    """
    check_group(pipelines)
    group = GroupJob()
    with ExitStack() as leases:
        for number, pipeline in enumerate(pipelines):
            own = folder / f"{number:03d}"
            own.mkdir(mode=0o700)
            try:
                check(pipeline)
                opened = open_drain(
                    pipeline,
                    clusters[pipeline.kafka_conn_id],
                    own,
                    run=run,
                    registry=registry_of(pipeline),
                    find=find,
                )
                job = leases.enter_context(opened)
            except (KafkaDrainError, OSError) as error:
                group.failures[pipeline.name] = _named(error, pipeline.archive)
                continue
            group.plans[pipeline.name] = job.plan
            if job.nothing_to_run:
                group.results[pipeline.name] = nothing_new(job.plan)
            else:
                group.jobs[pipeline.name] = job
        if group.jobs:
            group.application = _application(list(group.jobs.values()))
        yield group


def _application(jobs: list[DrainJob]) -> SparkApplication:
    """Return one application for several drains: the largest drain's, with the specs of all.

    It also has the settings that any of them needs.
    """
    largest = max(jobs, key=lambda job: job.plan.offsets)
    specs = [str(path) for job in jobs for path in job.application.specs]
    arguments = [largest.application.kind, *specs]
    leases = {root: token for job in jobs for root, token in job.application.leases.items()}
    needed = with_needs_of(largest.application, [job.application for job in jobs])
    return replace(needed, name="drain_group", arguments=arguments, leases=leases)


def run_group(group: GroupJob, runner: SparkRunner) -> None:
    """Run the group's application, if there is one; store the outcome in `results` and `failures`.

    Raises:
        SparkJobError: When spark-submit failed and no drain reports why.
        StillRunningError: When the application can't be followed any more: its driver goes on, and
            `open_group` leaves the leases to it.
    """
    failed = None
    if group.application is not None:
        try:
            runner(group.application)
        except (NoServerError, StillRunningError):
            raise
        except SparkJobError as error:
            failed = error
    finish_group(group)
    if failed is not None and not group.failures:
        raise failed


def finish_group(group: GroupJob) -> None:
    """Read the application's results into the group's `results` and `failures`."""
    for name, job in group.jobs.items():
        try:
            group.results[name] = job.result()
        except (KafkaDrainError, OSError) as error:
            group.failures[name] = _named(error, str(job.plan.archive.root))


def _named(error: KafkaDrainError | OSError, archive: str) -> KafkaDrainError:
    """Return kafka-drain's error for one of a file system: it may be of one archive only."""
    if isinstance(error, KafkaDrainError):
        return error
    return StoreUnavailableError(
        f"{error.filename or archive}: {error.strerror or error}; check that this user may read "
        "and write the archive, and the machine's disks"
    )


def raise_failures(group: GroupJob) -> None:
    """Raise an error if any pipeline of a group failed.

    Raises:
        SparkJobError: When a retry can help at least one of them.
        KafkaDrainError: Otherwise, with the type of the first error and the messages of all.
    """
    if not group.failures:
        return
    message = "; ".join(f"{name}: {error}" for name, error in group.failures.items())
    kinds = [type(error) for error in group.failures.values()]
    transient = [kind for kind in kinds if issubclass(kind, TransientError)]
    kind = SparkJobError if transient else kinds[0]
    raise kind(f"{len(kinds)} of the group's pipelines weren't drained: {message}")
