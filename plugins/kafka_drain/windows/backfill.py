"""Carry out a planned backfill: freeze, drain, prove, and seal unless another run was faster."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from kafka_drain.archive.coverage import read_owned
from kafka_drain.archive.fold import WindowKind, is_of_interval
from kafka_drain.archive.index import Query
from kafka_drain.archive.journal.entries import REMOVED, Noted
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import restricted
from kafka_drain.archive.window import Window
from kafka_drain.config.offset_ranges import NOTHING, Accepted, range_name
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import LockedError, ManifestInvalidError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import count, subtract
from kafka_drain.output import say
from kafka_drain.proof.sealed_files import NOT_DEEP
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.window_checks import check_files_of
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.spark.job import private_folder
from kafka_drain.storage.lease import Lease, wait_for_lease
from kafka_drain.storage.object_retention import locked_in
from kafka_drain.storage.paths import exists, quoted
from kafka_drain.windows.backfill_plan import BackfillPlan, is_planned
from kafka_drain.windows.superseded_files import held_back, needed_files
from kafka_drain.windows.window_jobs import (
    WindowJob,
    freeze_window,
    prepare_window,
    prove_window,
    seal_proven,
)


def open_backfill(
    plan: BackfillPlan, pipeline: Pipeline, cluster: KafkaCluster, folder: Path
) -> WindowJob:
    """Freeze a plan and prepare its drain.

    Args:
        plan: The plan; it must have something to drain.
        pipeline: Settings for reading and writing.
        cluster: The Kafka cluster to drain from.
        folder: A private folder of this run (mode 0700) for the spec and the secrets.

    Raises:
        LockedError: When another run has frozen other offsets in the meantime.
        MachineError: When Java, pyspark or a jar is missing.
    """
    freeze_window(
        plan.window,
        {tp: [r] for tp, r in plan.offsets.items()},
        kind=WindowKind.BACKFILL,
        replaces=plan.replaces,
        file_format=pipeline.format,
        partition_by=pipeline.partition_by,
        interval=[plan.interval.start.isoformat(), plan.interval.end.isoformat()],
        topics=plan.topic_ids,
    )
    if not is_planned(plan.ranges, plan.topic_ids, plan.window.read_plan()):
        # A receipt with offsets that its plan doesn't have would be damage.
        raise LockedError(
            f"window {plan.window.key}: another run has frozen other offsets in the meantime; "
            "nothing was drained, a retry plans again"
        )
    return prepare_window(
        plan.window, plan.ranges, pipeline=pipeline, cluster=cluster, folder=folder
    )


def run_backfill(
    plan: BackfillPlan,
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    *,
    run: str,
    replaceable: Accepted = NOTHING,
) -> dict[str, Any]:
    """Drain, prove and seal a plan's window; the plan must have something to drain.

    With force, `replaceable` are the offsets at which the user accepts other records than the
    replaced files'.

    Returns:
        The plan as JSON types, with records and receipt (relative to the archive).

    Raises:
        KafkaDrainError: As `open_backfill` and `finish_backfill` do.
    """
    with private_folder() as folder:
        job = open_backfill(plan, pipeline, cluster, folder)
        job.run(runner)
        receipt = finish_backfill(plan, job, cluster, run=run, replaceable=replaceable)
    return plan.to_dict() | {"records": receipt.records, "receipt": receipt.where}


def finish_backfill(
    plan: BackfillPlan,
    job: WindowJob,
    cluster: KafkaCluster,
    *,
    run: str,
    replaceable: Accepted = NOTHING,
) -> Receipt:
    """Prove drained records, and seal them unless another run has sealed some in the meantime.

    Raises:
        DataLossError: When Kafka has fewer records than the files to replace, because the topic was
            compacted, or other ones, because its log was rewritten: the files are the only copy.
        LockedError: When another run was faster; a retry drains what is left.
        ManifestInvalidError: When offsets are missing or duplicated.
        SparkJobError: When the job failed.
    """
    document = plan.archive.snapshot().document
    identity = Identity(document.pipeline, document.cluster_id, plan.topic_ids)
    receipt = prove_window(
        job,
        cluster,
        identity,
        plan.acknowledged,
        plan.accepts,
        held=plan.held,
        replaceable=replaceable,
    )
    with wait_for_lease(plan.archive.root / "windows", run=run) as lease:
        if not plan.replaces:
            _refuse_owned(plan)
        sealed = seal_proven(plan.archive, plan.window, receipt, lease)
        if plan.replaces:
            _remove_replaced(plan, lease)
    return sealed


def sealed_windows(plan: BackfillPlan) -> Sequence[Receipt]:
    """Return the receipts of the interval's own windows."""
    return _of_interval(plan).fold.of_interval(plan.interval.key).receipts


def _of_interval(plan: BackfillPlan) -> Snapshot:
    """Return the archive with at least the interval's windows, and who replaces files of theirs."""
    snapshot = plan.archive.snapshot()
    own = (w.name for w in snapshot.folders.values() if is_of_interval(w.key, plan.interval.key))
    return restricted(snapshot, Query(names=frozenset(own)))


def _remove_replaced(plan: BackfillPlan, lease: Lease) -> None:
    """Remove windows whose files this one replaces; if killed, the next forced backfill continues.

    The oldest goes first: the window that replaces its files must be present as long as it is.
    The windows' plans stay, because they contain the interval's frozen offsets. A locked window
    stays as a whole; no reader uses its files any more. So does one that an unfinished republish
    still sends, and one that another release has replaced by a window with other records. What
    replaces files of a window that stays, stays too.
    """
    snapshot = plan.archive.snapshot()
    standing = snapshot.fold.standing_for(plan.interval.key)
    going = [receipt for receipt in standing.receipts if not standing.holds_records(receipt)]
    staying = {*held_back(snapshot, {file.path for receipt in going for file in receipt.files})}
    needed = needed_files(plan.archive) if going else {}
    for receipt in standing.but([plan.window.key]).by_time:
        window, paths = Window(plan.archive.root, receipt.window), {f.path for f in receipt.files}
        if receipt not in going or not staying.isdisjoint([*paths, *receipt.replaces]):
            staying |= paths
        elif (locked := locked_in(window.folder)).files:
            say(f"backfill {plan.archive.root}: keeping window {window.key}: {locked}")
            staying |= paths
        elif run := next((run for run, files in needed.items() if files & paths), None):
            say(
                f"backfill {plan.archive.root}: keeping window {window.key}: republish {run} still "
                "needs its files; if it won't be resumed, end it with "
                f"{RepublishRun(plan.archive.root, run).abandoning}"
            )
            staying |= paths
        else:
            note_sealed(plan.archive.root, Noted(documents={receipt.where: REMOVED}))
            lease.confirm()
            (plan.archive.root / receipt.where).unlink()
            if exists(window.data):
                window.data.fs.rm(window.data.path, recursive=True)


def _refuse_owned(plan: BackfillPlan) -> None:
    """Refuse offsets that belong to another segment by now, also those still to be drained.

    The open generation owns offsets that it hasn't sealed yet: no receipt says so. It may have been
    opened for a log that was rewritten since the plan was made.
    """
    horizon = {tp: ranges[-1].end for tp, ranges in plan.ranges.items()}
    # The index says which offsets are covered; by whom, nobody asks here.
    snapshot = restricted(plan.archive.snapshot(), Query(offsets=plan.ranges))
    ids = [plan.topic_ids]
    ids += [now] if (now := plan.topic_ids | snapshot.topics_now) != plan.topic_ids else []
    owned = [read_owned(snapshot, each, horizon).ranges for each in ids]
    twice = [
        range_name(tp, r)
        for tp, ranges in plan.ranges.items()
        for r in ranges
        if any(count(subtract(r, each.get(tp, []))) < len(r) for each in owned)
    ]
    if twice:
        raise LockedError(
            f"window {plan.window.key}: another run has sealed some of {', '.join(twice[:5])} in "
            "the meantime; nothing was sealed here, a retry drains what is left"
        )


def refuse_incomplete(plan: BackfillPlan) -> None:
    """Refuse an interval with offsets left to drain, or with damaged files.

    Raises:
        ManifestInvalidError: Names the offsets or the damage.
    """
    if plan.left:
        left = [range_name(tp, r) for tp, ranges in plan.ranges.items() for r in ranges]
        raise ManifestInvalidError(
            f"{plan.interval}: {plan.left:,} offsets are in no segment: {', '.join(left[:5])}; "
            "run the interval's backfill again"
        )
    fold = _of_interval(plan).fold
    standing = fold.standing_for(plan.interval.key)
    checked = check_files_of(standing, deep=NOT_DEEP, superseded=fold.replaced)
    found = list(chain.from_iterable(checked.values()))
    if found:
        raise ManifestInvalidError(
            f"{plan.interval}: {'; '.join(map(str, found[:5]))}; run `kafka-drain repair "
            f"{quoted(plan.archive.root)} --apply`, or the interval's backfill with force"
        )
