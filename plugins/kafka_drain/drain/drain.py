"""The caller's side of a drain: plan, open the generation, write the spec, read the result."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ArchiveDocument
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import read_state
from kafka_drain.archive.journal.entries import Noted
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.journal.identity import note_of_settings
from kafka_drain.archive.keys import keys_for_writing
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.archive.window import range_rows
from kafka_drain.clock import Clock, utc_now
from kafka_drain.config.offset_ranges import NOTHING, Accepted
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.sink_options import partition_columns
from kafka_drain.config.source_options import reader_options, whole_pattern
from kafka_drain.drain.preflight import DrainPlan, preflight
from kafka_drain.errors import (
    ArchiveError,
    CheckpointError,
    DataLossError,
    KafkaDrainError,
    LockedError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import is_other_cluster
from kafka_drain.kafka.topic_watch import TopicWatch
from kafka_drain.offsets import OffsetRange, TopicPartition, to_spark_json
from kafka_drain.proof.fingerprints import notes_folder, write_notes
from kafka_drain.proof.topic_ids import (
    ReadFrom,
    read_from,
    refuse_other_incarnations,
    write_read_from,
)
from kafka_drain.schemas.decoding import ValuePlan, plan_values
from kafka_drain.schemas.registry import SchemaRegistry
from kafka_drain.spark.drivers import refuse_orphans
from kafka_drain.spark.engine import (
    SparkRunner,
    StartEarly,
    StartedApplication,
    StillRunningError,
    find_again,
    started_early,
)
from kafka_drain.spark.job import SparkJob, private_folder
from kafka_drain.spark.job_errors import too_far_records, unread_partitions
from kafka_drain.spark.job_spec import DrainSpec
from kafka_drain.spark.poll_sizes import poll_options, records_polled
from kafka_drain.spark.submit import (
    SparkApplication,
    check_spark_version,
    for_offsets,
    kafka_options,
    may_outlive,
    prepare_application,
)
from kafka_drain.storage.json_files import clear_unfinished
from kafka_drain.storage.lease import hold_lease, refuse_while_held
from kafka_drain.storage.paths import hadoop_path, quoted

#: Returns the application that an earlier process started with the same jobs.
FindAgain = Callable[[SparkApplication], "StartedApplication | None"]

#: Number of looks at apparent damage, beside a query that may be writing.
LOOKS = 3


@dataclass(frozen=True)
class DrainJob(SparkJob):
    """A drain that is ready to run.

    Attributes:
        plan: The plan that preflight returned.
        values: The plan for decoding values.
        cluster: The cluster to drain from.
        is_found: Whether an earlier process started it, and its result wasn't read.
    """

    what = "drain"

    plan: DrainPlan
    values: ValuePlan
    cluster: KafkaCluster
    is_found: bool = False

    @property
    def nothing_to_run(self) -> bool:
        """Whether nothing is new, and nothing runs."""
        return self.plan.nothing_new and not self.is_found

    def result(self) -> dict[str, Any]:
        """Read the Spark job's result and return it as a small dict.

        Raises:
            ConfigError: When Spark can't create the columns that `values` asks for.
            DataLossError: When Kafka no longer had offsets that the job needed.
            KafkaUnavailableError: When Kafka can't be asked whether its topics are still the same.
            LockedError: When the generation was closed meanwhile: this process was suspended, and
                its lease has expired. What was drained isn't in the archive.
            SourceRecordError: When a record can't be kept as it was sent; names it.
            SparkJobError: When the job failed otherwise, or ended without a result.
            TopicError: When a topic was recreated after preflight: its batches are never sealed.
        """
        result = super().result()
        notes = result.pop("notes", [])
        # Durably; Spark has written most of it already.
        write_notes(self.generation, notes)
        if notes:
            _confirm_open(self.generation)
            _confirm_topics(self, max(note["batch"] for note in notes))
        else:
            # A driver that nobody follows any more may have read what this one only committed.
            snapshot = self.plan.archive.snapshot()
            newest = snapshot.open_generation
            if newest is not None and newest.number == self.generation.number:
                _confirm_listed(self, read_state(snapshot, newest).manifest.last_batch)
        return {"archive": str(self.plan.archive.root), **result}

    def failed(self, result: dict[str, Any]) -> KafkaDrainError:
        """Write the notes of the committed batches, and return the job's error."""
        # On a full disk, the drain's own error is more useful.
        with suppress(ArchiveError, OSError):
            write_notes(self.generation, result.get("notes", []))
        return super().failed(result)

    @property
    def generation(self) -> Generation:
        """The generation that the drain appends to."""
        return self.plan.generation or self.plan.archive.generation(1)

    def watch(self) -> TopicWatch:
        """Return the drained topics."""
        place = quoted(self.plan.archive.root)
        return TopicWatch(
            self.cluster,
            {name: topic.id for name, topic in self.plan.topics.items()},
            "while it was being drained. What was committed before stays in the archive and can be "
            f"sealed (`kafka-drain validate {place}`); the rest went with the topic. Find out who "
            f"deleted it; to go on, make it again and run `kafka-drain roll {place}`, or take it "
            "out of the pipeline's topics",
        )

    def too_far(self) -> list[str]:
        """Return the records whose timestamps Spark can't represent."""
        return too_far_records(self.cluster, self._reach())

    def unread(self, offset: int) -> list[str]:
        """Name the partitions that don't deliver an offset."""
        return unread_partitions(self.cluster, self._reach(), offset)

    def _reach(self) -> dict[TopicPartition, list[OffsetRange]]:
        # No upper bound: records that arrived after planning may have been read as well.
        return {tp: [OffsetRange(start, sys.maxsize)] for tp, start in self.plan.start.items()}


@contextmanager
def open_drain(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    folder: Path,
    *,
    run: str,
    acknowledged: Accepted = NOTHING,
    registry: SchemaRegistry | None = None,
    clock: Clock = utc_now,
    find: FindAgain = lambda _: None,
    early: StartEarly = lambda _: nullcontext(),
) -> Iterator[DrainJob]:
    """Prepare a drain as the archive's only writer until the context exits.

    Plans twice: before taking the lease, so that a refused drain leaves nothing behind, and while
    holding it, so that the plan is of an archive that no other process changes. The application is
    assembled once.

    Args:
        pipeline: The pipeline to drain.
        cluster: The cluster to drain from.
        folder: A private folder for this run (mode 0700); receives the spec and the secrets.
        run: Name of the run to show to the user: Airflow's run id, or `terminal`.
        acknowledged: Expired offsets that are accepted as lost.
        registry: The registry of the values' schemas.
        clock: Returns the current time; replaced in tests.
        find: Returns the application that an earlier process started for this drain. Its driver
            holds the lease, which this process then shares.
        early: Starts the application while the lease is taken and the plan made again.

    Raises:
        LockedError: When another drain holds the lease, or a driver without one still drains the
            archive; nothing was changed.
        KafkaDrainError: When a check fails; nothing was changed.
    """
    root = Archive.at(pipeline.archive).root
    base = drain_application(pipeline, folder)
    try:
        checked, _ = check_beside_query(
            lambda: check_drain(pipeline, cluster, folder, acknowledged, registry, base)
        )
    except (ArchiveError, CheckpointError, DataLossError, OSError):
        # A concurrent drain's writes can look like damage.
        refuse_while_held(root, clock=clock)
        raise
    found = find(checked.application)
    shared = found.leases.get(hadoop_path(root)) if found else None
    with ExitStack() as stack:
        if found is None and not checked.plan.nothing_new:
            stack.enter_context(early(checked.application))
        lease = stack.enter_context(hold_lease(root, run=run, clock=clock, token=shared))
        if found is None:
            refuse_orphans(hadoop_path(root))
        job = prepare_drain(pipeline, cluster, folder, acknowledged, registry, base)
        application = replace(job.application, leases={hadoop_path(root): lease.token})
        try:
            yield replace(job, application=application, is_found=found is not None)
        except StillRunningError:
            lease.left.set()
            raise


def drain_application(pipeline: Pipeline, folder: Path) -> SparkApplication:
    """Assemble the application of a drain, whatever its plan; check that it could start.

    Raises:
        ConfigError: When the installed Spark doesn't support one of the pipeline's options.
        MachineError: When Java, pyspark or a jar is missing.
    """
    check_spark_version(pipeline)
    return prepare_application(
        f"drain_{pipeline.name}",
        kind="drain",
        spec_path=folder / "drain.json",
        pipeline=pipeline,
        folder=folder,
    )


def check_drain(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    folder: Path,
    acknowledged: Accepted = NOTHING,
    registry: SchemaRegistry | None = None,
    base: SparkApplication | None = None,
) -> tuple[DrainJob, DrainSpec]:
    """Check everything and write the job spec; change nothing outside the run's folder.

    Args:
        pipeline: The pipeline to drain.
        cluster: The cluster to drain from.
        folder: A private folder for this run (mode 0700); receives the spec and the secrets.
        acknowledged: Expired offsets that are accepted as lost.
        registry: The registry of the values' schemas.
        base: The drain's application; None to assemble it.

    Raises:
        KafkaDrainError: When a check fails; nothing was changed.
    """
    base = base or drain_application(pipeline, folder)
    plan = preflight(pipeline, cluster, acknowledged=acknowledged)
    generation = plan.generation or plan.archive.generation(1)
    drained = plan.generation if generation.has_begun else None
    values = plan_values(pipeline, plan.archive, drained, registry)
    plan = replace(plan, warnings=[*plan.warnings, *values.warnings])
    # Refuses a connection that Java can't use.
    spec = compile_spec(pipeline, plan, generation, cluster, folder)
    spec = replace(spec, values=values.spec)
    # An application that an earlier process has started in a cluster is found by it.
    spec.write(folder / "drain.json")
    application = for_offsets(base, plan.offsets)
    return DrainJob(application, Path(spec.result_path), plan, values, cluster), spec


def check_beside_query(
    check: Callable[[], tuple[DrainJob, DrainSpec]], pause: float = 1.0
) -> tuple[DrainJob, DrainSpec]:
    """Check a drain; where one may outlive its process, look again at apparent damage.

    A query that a killed process left may write between two reads. Real damage stays.

    Args:
        check: Checks everything.
        pause: Seconds between two looks.

    Raises:
        KafkaDrainError: When a check fails.
    """
    for _ in range(LOOKS if may_outlive() else 0):
        try:
            return check()
        except CheckpointError:
            time.sleep(pause)
    return check()


def prepare_drain(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    folder: Path,
    acknowledged: Accepted = NOTHING,
    registry: SchemaRegistry | None = None,
    base: SparkApplication | None = None,
) -> DrainJob:
    """Check everything, write the job spec, and open the first generation if there is none.

    The caller must hold the archive's lease; `open_drain` takes it. See `check_drain` for the
    arguments.

    Raises:
        KafkaDrainError: When a check fails; nothing was changed.
    """
    job, spec = check_beside_query(
        lambda: check_drain(pipeline, cluster, folder, acknowledged, registry, base)
    )
    plan = job.plan
    generation = plan.generation or plan.archive.generation(1)
    # Only documents that no other command writes.
    for name in ("archive.json", "topics.json", f"{generation.name}/generation.json"):
        clear_unfinished(plan.archive.root / name)
    known = plan.snapshot.document if plan.snapshot else None
    topic_ids = {name: topic.id for name, topic in plan.topics.items()}
    if plan.generation is not None and topic_ids.items() - plan.generation.document.topics.items():
        # First, because archive.json may only say ids that are sealed, or that a generation has.
        _confirm_open(generation)
        plan.generation.add_topics(topic_ids)
    _note_settings(plan, known)
    plan.archive.create(
        pipeline=pipeline.name,
        cluster_id=plan.cluster_id,
        topic_ids=(known.topics if known else {}) | topic_ids,
        source=pipeline.source,
        isolation_level=pipeline.isolation_level,
        retention=_retention(plan, known),
        immutable=pipeline.immutable,
        known=known,
    )
    write_topic_settings(
        plan.archive.root,
        {name: cluster.topic_settings(name) for name in plan.topics},
        topic_ids,
        plan.were_read,
        {tp: at + plan.hidden.get(tp, 0) for tp, at in plan.end.items()},
    )
    if plan.has_unsealed:
        _confirm_listed(job, plan.last_listed)
    job.values.keep(plan.archive.root, utc_now())
    spec = replace(
        spec,
        poll_options=poll_options(cluster, plan.ranges, pipeline.source_options),
        encryption=keys_for_writing(plan.archive.root, pipeline.encryption),
    )
    spec.write(folder / "drain.json")
    if not generation.has_begun:
        if plan.generation is not None:
            _confirm_open(generation)
        generation.write(
            starting_offsets=plan.starting_offsets,
            file_format=pipeline.format,
            partition_by=pipeline.partition_by,
            topic_ids=topic_ids,
            reason=plan.generation.document.reason if plan.generation else "first",
            values=job.values.frozen,
            is_new=plan.generation is None,
        )
    return replace(job, polled=records_polled(spec.source_options))


def _note_settings(plan: DrainPlan, known: ArchiveDocument | None) -> None:
    """Let the journal accept settings that a pipeline has changed, before archive.json says them.

    The former ones stay accepted: this run may be killed between the two.
    """
    if known is None or not plan.archive.snapshot().journal.newest:
        return
    locks = plan.pipeline.immutable
    immutable = None if locks is None else asdict(locks)
    before = known.settings
    now = plan.pipeline.isolation_level, _retention(plan, known), immutable
    if now != before:
        accepted = {**note_of_settings(*before), **note_of_settings(*now)}
        note_sealed(plan.archive.root, Noted(documents=accepted))


def _retention(plan: DrainPlan, known: ArchiveDocument | None) -> str | None:
    """Return the sink's retention, or the former one if unset: it has removed manifest lines."""
    return plan.pipeline.sink_options.get("retention") or (known.retention if known else None)


def compile_spec(
    pipeline: Pipeline,
    plan: DrainPlan,
    generation: Generation,
    cluster: KafkaCluster,
    folder: Path,
) -> DrainSpec:
    """Translate a pipeline into Spark's option names, and write the secret options to a file."""
    connection, secrets_path = kafka_options(cluster.config, folder)
    options = reader_options(pipeline.source_options, pipeline.name, is_bounded=False)
    # Resolved when the generation was opened; Spark reads them only on its first run.
    options["startingOffsets"] = to_spark_json(plan.starting_offsets)
    if plan.skips_expired:
        options["failOnDataLoss"] = "false"
    if pipeline.topics:
        options["subscribe"] = ",".join(pipeline.topics)
    elif pipeline.topic_pattern:
        options["subscribePattern"] = whole_pattern(pipeline.topic_pattern)
    else:
        options["assign"] = json.dumps(pipeline.assign)
    return DrainSpec(
        pipeline=pipeline.name,
        reader_options=options | connection,
        file_format=pipeline.format,
        writer_options={
            **pipeline.writer_options,
            "path": hadoop_path(generation.data),
            "checkpointLocation": hadoop_path(generation.checkpoint),
        },
        partition_by=pipeline.partition_by,
        columns=partition_columns(pipeline.partition_by),
        log_levels=pipeline.log_levels,
        start=to_spark_json(plan.start),
        planned_end=to_spark_json(plan.end),
        result_path=str(folder / "result.json"),
        secrets_path=secrets_path,
        notes_path=hadoop_path(notes_folder(generation)),
        first_unlisted=0 if plan.last_listed is None else plan.last_listed + 1,
        skipped=range_rows(plan.skipped),
        archive=hadoop_path(plan.archive.root),
        partitions_per_task=pipeline.partitions_per_task,
    )


def run_drain(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    *,
    run: str,
    show: Callable[[list[str]], None],
    acknowledged: Accepted = NOTHING,
    registry: SchemaRegistry | None = None,
) -> tuple[DrainPlan, dict[str, Any]]:
    """Drain to Kafka's current end as the archive's only writer; skip Spark when nothing is new.

    Args:
        pipeline: The pipeline to drain.
        cluster: The cluster to drain from.
        runner: Runs Spark applications.
        run: Name of the run to show to the user: Airflow's run id, or `terminal`.
        show: Receives the plan's lines before anything is drained.
        acknowledged: Expired offsets that are accepted as lost.
        registry: The registry of the values' schemas.

    Returns:
        The plan, and the job's result.

    Raises:
        LockedError: When another drain holds the lease; nothing was changed.
        KafkaDrainError: See `open_drain` and `DrainJob.result`.
    """
    with (
        private_folder() as folder,
        open_drain(
            pipeline,
            cluster,
            folder,
            run=run,
            acknowledged=acknowledged,
            registry=registry,
            find=partial(find_again, runner),
            early=partial(started_early, runner),
        ) as job,
    ):
        show(job.plan.lines())
        return job.plan, nothing_new(job.plan) if job.nothing_to_run else job.run(runner)


def nothing_new(plan: DrainPlan) -> dict[str, Any]:
    """Return the result of a drain with nothing to do, in the form that a Spark job writes."""
    return {
        "archive": str(plan.archive.root),
        "batches": 0,
        "offsets": 0,
        "records": 0,
        "seconds": 0.0,
        "offsets_per_second": 0,
        "offsets_behind_latest": {},
        "start": to_spark_json(plan.start),
        "end": to_spark_json(plan.start),
    }


def _confirm_open(generation: Generation) -> None:
    """Check that what was drained is in the generation that readers get unsealed batches of."""
    newest = Archive(generation.root).snapshot().open_generation
    if newest is not None and newest.number > generation.number:
        raise LockedError(
            f"{generation.folder} was closed while it was being drained: this process was "
            "suspended for longer than its lease lasts, and another one rolled the archive. What "
            "it has drained isn't part of the archive; a retry drains it again"
        )


def _confirm_listed(job: DrainJob, last_batch: int | None) -> None:
    """Confirm the topics of batches whose own drain was killed before it could.

    Once a topic is made again, nobody can tell any more from which one they were read.

    Args:
        last_batch: The last batch whose files the manifest lists; None if there is none.
    """
    if last_batch is None:
        return
    plan, seen = job.plan, read_from(job.generation)
    drained = plan.generation.document.topics if plan.generation else {}
    if (seen is None or seen.last_batch < last_batch) and drained.keys() <= plan.topics.keys():
        _confirm_topics(job, last_batch)


def _confirm_topics(job: DrainJob, last_batch: int) -> None:
    """Check the topic ids again after Spark's read, and record them for validation."""
    plan = job.plan
    cluster_id = job.cluster.cluster_id()
    if is_other_cluster(plan.cluster_id, cluster_id):
        raise ArchiveError(
            f"the connection led to Kafka cluster {plan.cluster_id} before Spark read, but leads "
            f"to {cluster_id} now: what was read can't be sealed. Correct the connection, then run "
            f"`kafka-drain validate {quoted(plan.archive.root)}` to see what to do with the archive"
        )
    meant = {name: topic.id for name, topic in plan.topics.items()}
    refuse_other_incarnations(
        job.cluster,
        meant,
        "its new batches will never be sealed. Run `kafka-drain roll "
        f"{quoted(plan.archive.root)}`: the next generation leaves them out and starts at the "
        "beginning of the new topic",
    )
    write_read_from(job.generation, ReadFrom(last_batch, meant))
