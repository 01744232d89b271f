"""Freeze a reprocess that a dry run has planned, and carry out exactly that one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ReprocessDocument
from kafka_drain.archive.fold import WindowKind, replaced_by
from kafka_drain.archive.frozen_plan import (
    LIFETIME,
    FrozenPlan,
    PlanDecision,
    PlanState,
    expiry,
    files_changed,
    table,
)
from kafka_drain.archive.frozen_plans import Approval, carrying_out, freeze_plan, state_of
from kafka_drain.config.offset_ranges import NOTHING, Accepted
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ConfigError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import count
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain.windows.reprocess.run import plan_reprocess, run_reprocess
from kafka_drain.windows.reprocess.state import ReprocessPlan, plan_of, unfinished_reprocess


def freeze_reprocess(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    cut: Cut | None,
    *,
    now: datetime,
    lifetime: timedelta = LIFETIME,
) -> tuple[ReprocessPlan, FrozenPlan]:
    """Plan a reprocess and freeze the plan in the archive's `plans/`.

    Raises:
        ConfigError: When a reprocess is unfinished: it has its plan.
        KafkaDrainError: As `plan_reprocess` does.
    """
    plan = plan_reprocess(pipeline, cluster, cut)
    archive = plan.archive
    if plan.begun:
        raise ConfigError(
            f"{archive.root}: the reprocess from {plan.since} was started and hasn't finished; it "
            "has been approved, so resume it, or abandon it"
        )
    receipts = [receipt for group in plan.groups.values() for receipt in group.receipts]
    frozen = freeze_plan(
        archive,
        "reprocess",
        asked={"first": list(receipts[0].position), "last": list(receipts[-1].position)},
        seen={**plan.document().content(), "opened_at": expiry(now, lifetime)[0]},
        text=plan_text(plan),
        now=now,
        lifetime=lifetime,
    )
    return plan, frozen


def plan_approved(
    pipeline: Pipeline, cluster: KafkaCluster, plan_id: str, *, now: datetime
) -> tuple[ReprocessPlan, FrozenPlan, PlanDecision]:
    """Load a frozen plan if its scope is still the approved one; changes nothing.

    Segments that were sealed since are left alone. A reprocess that has started is resumed.

    Args:
        pipeline: The drained pipeline, with the settings for new files.
        cluster: The Kafka cluster to drain from.
        plan_id: The frozen plan's id.

    Returns:
        The plan to carry out, the frozen plan, and the decision: RUN, RESUME or DO_NOTHING.

    Raises:
        PlanChangedError: When it has expired, or something has changed; says what.
        ConfigError: When there is no such plan.
        ArchiveError: When its bytes were changed.
        KafkaDrainError: As `plan_reprocess` does.
    """
    archive = Archive.at(pipeline.archive)
    approval = Approval.of(archive, "reprocess", plan_id, now)
    frozen = approval.frozen
    decision = approval.proceed(state_of(archive.state, frozen.id))
    seen = plan_of(archive, ReprocessDocument.model_validate(frozen.seen), begun=False)
    if decision is PlanDecision.DO_NOTHING:
        return seen, frozen, decision
    if decision is PlanDecision.RESUME:
        begun = unfinished_reprocess(archive)
        if begun is not None and _groups(begun) == _groups(seen):
            return plan_reprocess(pipeline, cluster, None), frozen, decision
        done = archive.snapshot().fold.of_kind(WindowKind.REPROCESS)
        if begun is None and _replaced(seen) <= replaced_by(window.receipt for window in done):
            # Killed after the last file was removed. What others have replaced since doesn't say
            # that it was carried out: it may have been abandoned.
            return seen, frozen, PlanDecision.DO_NOTHING
    first, last = (tuple(frozen.asked[name]) for name in ("first", "last"))
    again = plan_reprocess(pipeline, cluster, Cut(batch=first), last=last)
    decision = approval.proceed(PlanState.NEW, changes(seen, again))
    return replace(again, since=seen.since), frozen, decision


def run_approved(
    plan: ReprocessPlan,
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    frozen: FrozenPlan,
    *,
    run: str,
    replaceable: Accepted = NOTHING,
) -> dict[str, int]:
    """Carry out a frozen plan that `plan_approved` has accepted, or the rest of it.

    Returns:
        As `run_reprocess` does.

    Raises:
        KafkaDrainError: As `run_reprocess` does.
    """
    with carrying_out(plan.archive.root, frozen, run):
        return run_reprocess(plan, pipeline, cluster, runner, run=run, replaceable=replaceable)


def changes(seen: ReprocessPlan, now: ReprocessPlan) -> list[str]:
    """Return the changes, as parts of a sentence; empty if there are none.

    Args:
        seen: The plan that was made.
        now: The same plan, made again of the same segments.
    """
    if now.begun:
        return [f"another reprocess was started, from {now.since}"]
    found = [
        f"the pipeline's {name} became {is_now or '-'}, and was {was or '-'}"
        for name, was, is_now in (
            ("format", seen.file_format, now.file_format),
            ("compression", seen.compression, now.compression),
            ("partition_by", ", ".join(seen.partition_by), ", ".join(now.partition_by)),
        )
        if was != is_now
    ]
    if seen.closes != now.closes:
        found.append(f"generation {seen.closes} was closed")
    if gone := _replaced(seen) - _replaced(now):
        found.append(files_changed(gone))
    elif _groups(seen) != _groups(now):
        found.append("the offsets or the files of a window became others")
    return found


def _groups(plan: ReprocessPlan) -> list[object]:
    """Return the content of each window; the windows' names may have been taken since."""
    return list(plan.groups.values())


def _replaced(plan: ReprocessPlan) -> set[str]:
    return {path for group in plan.groups.values() for path in group.replaces}


def plan_text(plan: ReprocessPlan) -> str:
    """Return the plan for people, in Markdown; its length doesn't depend on the archive's."""
    figures = plan.to_dict()
    facts = [
        ("archive", figures["archive"]),
        ("from", plan.since),
        ("offsets", figures["offsets"]),
        ("records", figures["records"]),
        ("files replaced, then deleted", f"{figures['files']:,} ({figures['bytes']:,} bytes)"),
        ("new files", f"{plan.file_format}, {plan.compression}"),
        ("folders by", ", ".join(plan.partition_by) or "-"),
        ("windows", len(plan.groups)),
    ]
    partitions: dict[object, list[int]] = {}
    for group in plan.groups.values():
        for tp, ranges in group.ranges.items():
            held = partitions.setdefault(tp, [ranges[0].start, ranges[-1].end, 0, 0])
            held[0], held[1] = min(held[0], ranges[0].start), max(held[1], ranges[-1].end)
            held[2] += count(ranges)
            held[3] += group.records.get(tp, 0)
    rows = [
        (tp, f"{first:,} to {end - 1:,}", offsets, records)
        for tp, (first, end, offsets, records) in partitions.items()
    ]
    title = f"Drain {figures['offsets']:,} offsets again and replace {figures['files']:,} files"
    return "\n\n".join(
        (
            f"### {title}",
            table(("", ""), facts),
            table(("partition", "offsets", "number", "records"), rows),
            "Kafka holds all of these offsets. The old files are deleted once the new ones are "
            "proven to hold every record of theirs, as it was.",
        )
    )
