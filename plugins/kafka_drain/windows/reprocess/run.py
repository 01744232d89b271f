"""Reprocess: drain archived offsets again, and replace the old files with the new ones.

    freeze     maintenance/reprocess.json: which offsets, in which windows, for which files
    roll       closes the generation at its sealed end: from then on, drains write to the next one
    windows    each drained, proven to hold every record of the old files, and sealed;
               readers switch over at the moment its receipt is written
    remove     the old files, the manifests that list them, and the checkpoints of these

Each step can be killed and rerun: the archive's state shows what is left to do. Drains continue
in the meantime.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import refuse_unsound
from kafka_drain.archive.window import Window
from kafka_drain.config.offset_ranges import NOTHING, Accepted
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import check_identity, find_partitions
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.output import say
from kafka_drain.proof.sealing import Identity
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job import private_folder
from kafka_drain.storage.lease import hold_lease
from kafka_drain.windows.reprocess.plan import (
    OFFSETS_PER_GROUP,
    Cut,
    comparable_receipts,
    deleted_offsets,
    plan_groups,
)
from kafka_drain.windows.reprocess.refusals import (
    abandoning,
    refuse_already_replaced,
    refuse_expired,
    refuse_half_sent,
)
from kafka_drain.windows.reprocess.state import (
    ReprocessPlan,
    forget_reprocess,
    reprocess_path,
    sealing_groups,
    unfinished_reprocess,
)
from kafka_drain.windows.roll import plan_roll, refuse_discarding, roll
from kafka_drain.windows.superseded_files import remove_superseded
from kafka_drain.windows.window_jobs import (
    WindowJob,
    freeze_window,
    prepare_window,
    prove_window,
    seal_superseding,
)


def plan_reprocess(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    cut: Cut | None,
    *,
    offsets_per_group: int = OFFSETS_PER_GROUP,
    last: tuple[int, int] | None = None,
) -> ReprocessPlan:
    """Plan a reprocess, without changing anything.

    Args:
        pipeline: The drained pipeline, with the settings for new files.
        cluster: The Kafka cluster to drain from.
        cut: Start of the reprocess; None to resume an unfinished one.
        offsets_per_group: Number of offsets to drain at once.
        last: Generation and batch of the last segment to drain again; None for the newest.

    Raises:
        ConfigError: When nothing is sealed from there on, or another reprocess is unfinished.
        ArchiveError: When the folder is not an archive or belongs to another pipeline, or another
            window has replaced files since the reprocess was started.
        CheckpointError: When complete batches aren't sealed yet: validate first.
        TopicError: When a topic was recreated: Kafka has other records at these offsets.
        DataLossError: When Kafka no longer holds all of the offsets: the files are the only copy.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    archive = Archive.at(pipeline.archive)
    snapshot = archive.snapshot()
    cluster = cluster.counting(snapshot.topics_now)
    topics, _ = find_partitions(pipeline, cluster)
    check_identity(snapshot, pipeline, cluster.cluster_id(), topics)
    begun = unfinished_reprocess(archive)
    if begun is not None:
        if cut is not None and str(cut) != begun.since:
            raise ConfigError(
                f"{archive.root}: a reprocess from {begun.since} was started and hasn't finished; "
                f"run that one again first, or end it with {abandoning(archive.root)}"
            )
        refuse_already_replaced(begun, snapshot)
        refuse_expired(begun, cluster)
        return begun
    if cut is None:
        raise ConfigError("the start is missing; give a batch, a time or offsets")
    # Refuses what can't be rolled.
    refuse_discarding(plan_roll(archive, cluster))
    topic_ids = {name: topic.id for name, topic in topics.items()}
    # A new look: another process may have rolled and sealed since the first one.
    now = archive.snapshot()
    plan = plan_from(now, pipeline, topic_ids, cut, offsets_per_group, last=last)
    refuse_half_sent(plan)
    refuse_expired(plan, cluster)
    return plan


def plan_from(
    snapshot: Snapshot,
    pipeline: Pipeline,
    topic_ids: Mapping[str, str],
    cut: Cut,
    offsets_per_group: int = OFFSETS_PER_GROUP,
    *,
    last: tuple[int, int] | None = None,
) -> ReprocessPlan:
    """Plan a reprocess of an archive; Kafka isn't asked whether it holds the offsets.

    Args:
        snapshot: The archive; if something is being sealed, a later look at it is planned from.
        pipeline: Settings for the new files.
        topic_ids: The ids of the topics in Kafka.
        cut: Start of the reprocess.
        offsets_per_group: Number of offsets to drain at once.
        last: Generation and batch of the last segment to drain again; None for the newest.

    Raises:
        ConfigError: When nothing is sealed from there on.
        ManifestInvalidError: When sealed data is missing or changed.
    """
    snapshot = refuse_unsound(snapshot).snapshot
    receipts = comparable_receipts(
        [
            receipt
            for generation in snapshot.generations
            for receipt in generation.receipts(snapshot.journal.noted.forgotten)
        ],
        topic_ids,
        cut,
    )
    files = [
        file.sealed
        for file in archive_files(snapshot)
        if file.sealed is not None and topic_ids.items() >= file.own_topic_ids.items()
    ]
    receipts = [receipt for receipt in receipts if last is None or receipt.position <= last]
    deleted = deleted_offsets(snapshot.fold.receipts, topic_ids)
    groups = plan_groups(receipts, files, cut, offsets_per_group, deleted)
    number = snapshot.next_number
    return ReprocessPlan(
        archive=Archive(snapshot.root),
        since=str(cut),
        closes=snapshot.generations[-1].number,
        file_format=pipeline.format,
        compression=pipeline.compression,
        partition_by=list(pipeline.partition_by),
        topic_ids=dict(topic_ids),
        groups={f"reprocess_{number:04d}_{n:04d}": group for n, group in enumerate(groups, 1)},
    )


def open_reprocess(plan: ReprocessPlan, cluster: KafkaCluster, *, run: str) -> None:
    """Freeze a plan and close the generation, unless a previous attempt already did.

    Raises:
        LockedError: When a drain holds the archive's lease; a retry may help.
        ConfigError: When another reprocess was faster.
    """
    archive = plan.archive
    with hold_lease(archive.root, run=run) as lease:
        if not plan.document().create(reprocess_path(archive)):
            there = unfinished_reprocess(archive)
            if there is None or there.groups != plan.groups:
                raise ConfigError(f"{archive.root}: another reprocess was faster; run it again")
        newest = archive.snapshot().open_generation
        asked = plan.file_format, plan.partition_by
        if newest is not None and (
            newest.number == plan.closes
            # Somebody else has closed it, and kept its format.
            or (newest.document.format, newest.document.partition_by) != asked
        ):
            planned = plan_roll(archive, cluster)
            refuse_discarding(planned)
            roll(
                planned,
                lease=lease,
                reason="reprocess",
                file_format=plan.file_format,
                partition_by=plan.partition_by,
            )


def run_reprocess(
    plan: ReprocessPlan,
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    *,
    run: str,
    replaceable: Accepted = NOTHING,
) -> dict[str, int]:
    """Carry out a plan; whatever a previous attempt finished is kept.

    Args:
        pipeline: Settings for reading and writing.
        cluster: The Kafka cluster to drain from.
        runner: Runs Spark applications.
        run: Name of this run, for display.
        replaceable: As for `finish_group`.

    Returns:
        removed_files and removed_bytes.

    Raises:
        LockedError: When a drain holds the archive's lease; a retry may help.
        ConfigError: When another reprocess was faster.
        SparkJobError: When Spark failed; a retry drains what isn't sealed.
        KafkaDrainError: As `finish_group` and `finish_reprocess` do.
    """
    open_reprocess(plan, cluster, run=run)
    for key in plan.waiting:
        with private_folder() as folder:
            job = prepare_group(plan, key, pipeline, cluster, folder)
            job.run(runner)
            receipt = finish_group(plan, job, cluster, run=run, replaceable=replaceable)
        say(f"reprocess {plan.archive.root}: window {key} holds {receipt.records:,} records")
    return finish_reprocess(plan, run=run)


def prepare_group(
    plan: ReprocessPlan, key: str, pipeline: Pipeline, cluster: KafkaCluster, folder: Path
) -> WindowJob:
    """Freeze the window of a group, and prepare its drain.

    Raises:
        MachineError: When Java, pyspark or a jar is missing.
    """
    group, window = plan.groups[key], Window(plan.archive.root, key)
    freeze_window(
        window,
        group.ranges,
        kind=WindowKind.REPROCESS,
        replaces=group.replaces,
        file_format=plan.file_format,
        partition_by=plan.partition_by,
        replaced=group.replaced(),
    )
    # Use the format it was started with, whatever the pipeline has by now.
    pipeline = pipeline.model_copy(
        update={"format": plan.file_format, "compression": plan.compression}
    )
    return prepare_window(window, group.ranges, pipeline=pipeline, cluster=cluster, folder=folder)


def finish_group(
    plan: ReprocessPlan,
    job: WindowJob,
    cluster: KafkaCluster,
    *,
    run: str,
    replaceable: Accepted = NOTHING,
) -> Receipt:
    """Prove that a window holds every record of the old files, and seal it.

    Args:
        job: The finished job of one of its windows.
        cluster: The Kafka cluster that it was drained from.
        run: Name of this run, for display.
        replaceable: Offsets at which the user accepts other records than the old files'.

    Raises:
        DataLossError: When Kafka has fewer records than the files, because the topic was compacted,
            or other ones, because its log was rewritten.
        ConfigError: When the reprocess was abandoned in the meantime.
        ManifestInvalidError: When offsets are missing or duplicated.
        SparkJobError: When the job failed.
        LockedError: When another window has replaced the files in the meantime.
    """
    group = plan.groups[job.window.key]
    document = plan.archive.snapshot().document
    identity = Identity(document.pipeline, document.cluster_id, plan.topic_ids)
    receipt = prove_window(
        job,
        cluster,
        identity,
        held=group.records,
        replaceable=replaceable,
        way_out=f"; end this reprocess with {abandoning(plan.archive.root)}, which keeps the files",
    )
    with sealing_groups(plan.archive, run=run):
        there = unfinished_reprocess(plan.archive)
        if there is None or job.window.key not in there.groups:
            raise ConfigError(
                f"{plan.archive.root}: the reprocess from {plan.since} was abandoned in the "
                "meantime"
            )
        return seal_superseding(plan.archive, job.window, receipt, run=run)


def finish_reprocess(plan: ReprocessPlan, *, run: str) -> dict[str, int]:
    """Remove the files that the sealed windows replace, and the plan.

    Returns:
        removed_files and removed_bytes.

    Raises:
        ArchiveError: When a window isn't sealed yet.
        ManifestInvalidError: When a window's files don't match what was sealed: nothing was
            removed.
        LockedError: When another maintenance is running.
    """
    if plan.waiting:
        raise ArchiveError(f"{', '.join(plan.waiting)} isn't sealed; run the reprocess again")
    with hold_lease(plan.archive.root / "maintenance", run=run):
        removed = remove_superseded(plan.archive)
        forget_reprocess(plan)
    return removed
