"""Repair: restore sealed documents, rebuild a damaged manifest, drain lost offsets again.

    documents  restored from their copies, or moved aside
    validate   finds what else is damaged or lost, and what Kafka still holds of it
    manifest   rebuilt from the receipts, then validated again
    window     the lost offsets, drained, proven and sealed
    validate   says whether the archive is complete now

Each step can be killed and rerun. A repair only adds, and renames what is damaged; it deletes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.soundness import recreate_journal, refuse_unsound
from kafka_drain.archive.window import Window
from kafka_drain.clock import now_text
from kafka_drain.config.offset_ranges import NOTHING, Accepted, range_name
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import CheckpointError, KafkaDrainError
from kafka_drain.findings import errors
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.output import say
from kafka_drain.proof.report import Report
from kafka_drain.proof.sealing import Identity, seal_deletion
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job import private_folder
from kafka_drain.storage.lease import hold_lease, wait_for_lease
from kafka_drain.windows.manifest_rebuild import rebuild_manifest
from kafka_drain.windows.receipt_repair import (
    DocumentRepairPlan,
    plan_document_repair,
    repair_documents,
)
from kafka_drain.windows.repair_plan import RepairPlan, plan_repair
from kafka_drain.windows.window_jobs import (
    WindowJob,
    open_window,
    prepare_window,
    prove_window,
    seal_superseding,
)


@dataclass(frozen=True)
class RepairRequest:
    """A request for a repair.

    Attributes:
        cluster: The Kafka cluster that it was drained from.
        deep: Whether to read all bytes of sealed files.
        acknowledged: Expired offsets to accept as lost.
        replaceable: Offsets at which to accept other records than the damaged files held, or such
            as can't be compared.
        new_journal: Whether to recreate the journal from what exists, and so to forget what was
            sealed but is missing and has no copy.
    """

    archive: Archive
    cluster: KafkaCluster
    deep: bool = False
    acknowledged: Accepted = field(default_factory=dict)
    replaceable: Accepted = field(default_factory=dict)
    new_journal: bool = False

    def validate(self, *, writes: bool) -> Report:
        """Validate the archive; seal proven segments if `writes`."""
        return validate_archive(
            self.archive,
            self.cluster,
            deep=self.deep,
            acknowledged=self.acknowledged,
            writes=writes,
        )


@dataclass(frozen=True)
class RepairPreview:
    """A preview of a repair.

    Attributes:
        documents: The repair of damaged sealed documents.
        plan: The plan to rebuild and drain; None if that only shows once documents are restored.
        is_sound: Whether the archive has no errors now.
    """

    documents: DocumentRepairPlan
    plan: RepairPlan | None
    is_sound: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as JSON types."""
        if self.plan is not None:
            return self.plan.to_dict()
        return {"archive": str(self.documents.root), "mends": self.documents.lines()}


def preview_repair(request: RepairRequest) -> RepairPreview:
    """Preview a repair, and print it, without changing anything.

    Raises:
        KafkaDrainError: When the archive can't be validated, and no document can be restored.
    """
    archive = request.archive
    documents = plan_document_repair(archive.root, forget=request.new_journal)
    _say_all(documents.lines())
    if request.new_journal and not documents.to_do:
        recreate_journal(archive, dry_run=True)
    try:
        report = request.validate(writes=False)
        plan = plan_repair(archive, report)
    except KafkaDrainError as error:
        # The validation may need the very documents that a repair would restore.
        if not documents.to_do:
            raise
        say(f"repair {archive.root}: any other damage only shows once this is repaired: {error}")
        return RepairPreview(documents, None, is_sound=False)
    _say_all(plan.lines())
    return RepairPreview(documents, plan, is_sound=not errors(report.findings))


def run_repair(
    request: RepairRequest, pipeline: Callable[[], Pipeline], runner: SparkRunner, *, run: str
) -> Report:
    """Restore, rebuild and drain everything that can be repaired, and validate the result.

    Args:
        pipeline: Returns how to read and write; called if something has to be drained, after
            documents were restored that it may be read from.
        runner: Runs Spark applications.
        run: Name of this run, for display.

    Returns:
        The report of the last validation, which isn't written to the archive.

    Raises:
        LockedError: When another run holds one of the archive's leases; a retry may help.
        ManifestInvalidError: When the documents contradict each other, or the window isn't
            complete.
        CheckpointError: When a receipt that the manifest is to be rebuilt from is damaged.
        KafkaDrainError: As `validate_archive` and `finish_repair` do.
    """
    archive = request.archive
    _repair_documents(request, run=run)
    report = request.validate(writes=True)
    plan = plan_repair(archive, report)
    _say_all(plan.lines())
    if plan.nothing_to_do:
        return report
    with hold_lease(archive.root, run=run):
        if plan.manifest is not None:
            say(f"repair {archive.root}: the manifest lists {repair_manifest(plan):,} files again")
            # Offsets that looked lost may just not have been listed.
            plan = plan_repair(archive, request.validate(writes=True))
        if plan.given_up:
            _give_up(plan, pipeline(), run=run)
        drained: Mapping[TopicPartition, list[OffsetRange]] = {}
        while plan.ranges and plan.ranges != drained:
            _drain_lost(plan, request, pipeline(), runner, run=run)
            if not plan.later:
                break
            drained, plan = plan.ranges, plan_repair(archive, request.validate(writes=True))
            _say_all(plan.lines())
    return request.validate(writes=True)


def _repair_documents(request: RepairRequest, *, run: str) -> None:
    """Restore or move aside damaged sealed documents, then recreate the journal if requested."""
    root = request.archive.root
    # Without a lease: if nothing is wrong, a drain may be running.
    documents = plan_document_repair(root, forget=request.new_journal)
    if not documents.to_do and not request.new_journal:
        _say_all(documents.lines())
        return
    with (
        hold_lease(root, run=run),
        hold_lease(root / "maintenance", run=run),
        wait_for_lease(root / "windows", run=run),
    ):
        repair_documents(root, forget=request.new_journal)
        if request.new_journal:
            recreate_journal(request.archive, dry_run=False)


def repair_manifest(plan: RepairPlan) -> int:
    """Rebuild the damaged manifest; the caller holds the archive's lease.

    Returns:
        The number of files that it lists.

    Raises:
        CheckpointError: When a receipt is damaged too.
    """
    assert plan.manifest is not None
    try:
        forgotten = plan.archive.snapshot().journal.noted.forgotten
        return rebuild_manifest(plan.manifest, forgotten)
    except ValueError as error:
        raise CheckpointError(
            f"{plan.manifest.folder}: a receipt is damaged too ({error}); restore it from a copy"
        ) from error


def _drain_lost(
    plan: RepairPlan, request: RepairRequest, pipeline: Pipeline, runner: SparkRunner, *, run: str
) -> None:
    """Drain and seal a window with the lost offsets."""
    archive, cluster = plan.archive, request.cluster
    window, identity = _open(plan, plan.ranges, pipeline)
    with private_folder() as folder:
        job = prepare_window(window, plan.ranges, pipeline=pipeline, cluster=cluster, folder=folder)
        job.run(runner)
        receipt = finish_repair(
            job,
            cluster,
            identity,
            run=run,
            acknowledged=plan.acknowledged,
            replaceable=request.replaceable,
        )
    say(f"repair {archive.root}: window {receipt.window} holds {receipt.records:,} records, sealed")


def finish_repair(
    job: WindowJob,
    cluster: KafkaCluster,
    identity: Identity,
    *,
    run: str,
    acknowledged: Sequence[str] = (),
    replaceable: Accepted = NOTHING,
) -> Receipt:
    """Prove Spark's result for a window, and seal it; see `prove_window` for the arguments.

    Raises:
        DataLossError: When it has other records than Spark read, of batches that aren't sealed.
        LockedError: When another window has replaced a file in the meantime; plan again.
        KafkaDrainError: As `prove_window` does.
    """
    archive = Archive(job.window.root)
    receipt = prove_window(job, cluster, identity, acknowledged, replaceable=replaceable)
    snapshot = archive.snapshot()
    # A faster attempt has been compared.
    if not snapshot.is_sealed(job.window.key):
        # Not at the top: few repairs drain something, and importing pyarrow takes a while.
        from kafka_drain.windows.repaired_records import refuse_other_records

        refuse_other_records(snapshot, receipt, job.plan.format)
    return seal_superseding(archive, job.window, receipt, run=run)


def _open(
    plan: RepairPlan, ranges: Mapping[TopicPartition, list[OffsetRange]], pipeline: Pipeline
) -> tuple[Window, Identity]:
    """Open the plan's window for some of its offsets; return also what these belong to."""
    # Check before draining for hours: with damage like this, the window couldn't be sealed.
    document = refuse_unsound(plan.archive.snapshot(), filling=True).snapshot.document
    topics = {**document.topics, **plan.topics}
    window = open_window(
        plan.archive, plan.window_key, ranges, pipeline=pipeline, replaces=plan.replaces
    )
    return window, Identity(document.pipeline, document.cluster_id, topics)


def _give_up(plan: RepairPlan, pipeline: Pipeline, *, run: str) -> None:
    """Seal a window without records in the place of files that nothing can replace."""
    archive, ranges = plan.archive, plan.given_up
    window, identity = _open(plan, ranges, pipeline)
    gaps = [Gap(tp, r, GapReason.EXPIRED, True) for tp in sorted(ranges) for r in ranges[tp]]
    receipt = seal_deletion(
        gaps,
        identity=identity,
        window=window.key,
        replaces=plan.replaces,
        sealed_at=now_text(),
    )
    receipt = replace(receipt, acknowledged=tuple(range_name(gap.tp, gap.range) for gap in gaps))
    seal_superseding(archive, window, receipt, run=run)
    say(f"repair {archive.root}: window {window.key} stands for what was given up, sealed")


def _say_all(lines: Sequence[str]) -> None:
    for line in lines:
        say(line)
