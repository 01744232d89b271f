"""Freeze a maintenance that a dry run has planned, and carry out exactly that one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plan import (
    LIFETIME,
    FrozenPlan,
    PlanDecision,
    bullets,
    paragraphs,
    table,
)
from kafka_drain.archive.frozen_plans import approved, carrying_out, freeze_plan
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.intervals import in_utc, time_text
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.bound_cluster import refuse_other_if_known
from kafka_drain.maintenance.maintain import MaintenancePlan, plan_maintenance, run_maintenance
from kafka_drain.spark.engine import SparkRunner

#: Keys of a pipeline that decide what maintenance does.
SETTINGS = (
    "retention_days",
    "max_future_days",
    "target_file_bytes",
    "max_manifest_lines",
    "max_generation_days",
)


@dataclass(frozen=True)
class MaintenanceScope:
    """The files that a maintenance changes.

    Attributes:
        rolls: Whether it closes the open generation.
        deletes: The files that it deletes.
        compacts: For each compaction, the files that it replaces.
    """

    rolls: bool
    deletes: frozenset[str]
    compacts: frozenset[frozenset[str]]

    @classmethod
    def of(cls, plan: MaintenancePlan) -> MaintenanceScope:
        """Return the scope of a plan."""
        return cls(
            rolls=bool(plan.roll),
            deletes=frozenset(file.path for found in plan.deletions for file in found.files),
            compacts=frozenset(frozenset(found.group.replaces) for found in plan.compactions),
        )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> MaintenanceScope:
        """Parse a document from `to_dict`."""
        return cls(
            rolls=document["rolls"],
            deletes=frozenset(document["deletes"]),
            compacts=frozenset(map(frozenset, document["compacts"])),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "rolls": self.rolls,
            "deletes": sorted(self.deletes),
            "compacts": sorted(map(sorted, self.compacts)),
        }

    def choose(self, plan: MaintenancePlan) -> MaintenancePlan:
        """Return the approved part of a plan: actions that have become due since aren't taken."""
        deletions = [
            replace(found, files=[file for file in found.files if file.path in self.deletes])
            for found in plan.deletions
        ]
        return replace(
            plan,
            roll=plan.roll if self.rolls else "",
            deletions=[found for found in deletions if found.files],
            compactions=[
                found
                for found in plan.compactions
                if frozenset(found.group.replaces) in self.compacts
            ],
        )

    def changes(self, now: MaintenancePlan) -> list[str]:
        """Return the changes, as parts of a sentence; empty if there are none.

        Args:
            now: The plan, made again for the time at which this one was made.
        """
        if now.waits_for and (self.deletes or self.compacts):
            return [now.waits_for]
        there = MaintenanceScope.of(now)
        found = ["the open generation was closed"] if self.rolls and not there.rolls else []
        if gone := sorted(self.deletes - there.deletes):
            found.append(
                f"{len(gone):,} files to be deleted are gone, or not to be deleted any more, such "
                f"as {gone[0]}"
            )
        if other := sorted(map(sorted, self.compacts - there.compacts)):
            found.append(
                f"{len(other):,} groups of files to be compacted were replaced, or aren't to be "
                f"compacted any more, such as that of {other[0][0]}"
            )
        return found


def settings_of(pipeline: Pipeline) -> dict[str, Any]:
    """Return the pipeline's keys that decide about maintenance."""
    return {name: getattr(pipeline, name) for name in SETTINGS}


def freeze_maintenance(
    pipeline: Pipeline, *, now: datetime, lifetime: timedelta = LIFETIME
) -> tuple[MaintenancePlan, FrozenPlan]:
    """Plan maintenance and freeze the plan in the archive's `plans/`.

    What becomes closed by this maintenance is compacted by the next one.

    Raises:
        ArchiveError: When the folder is not an archive, or can't be written.
        ManifestInvalidError: When a receipt is damaged, or something sealed is missing or changed.
    """
    plan = plan_maintenance(pipeline, will_roll=False, clock=lambda: now)
    frozen = freeze_plan(
        plan.archive,
        "maintain",
        asked={"at": now.isoformat()} | settings_of(pipeline),
        seen=MaintenanceScope.of(plan).to_dict(),
        text=plan_text(plan),
        now=now,
        lifetime=lifetime,
    )
    return plan, frozen


def plan_approved(
    pipeline: Pipeline, plan_id: str, *, now: datetime
) -> tuple[MaintenancePlan, FrozenPlan, PlanDecision]:
    """Load a frozen plan if its scope is still the approved one; see `approved`.

    Raises:
        KafkaDrainError: As `approved` and `plan_maintenance` do.
    """

    def plan_again(frozen: FrozenPlan) -> tuple[MaintenancePlan, list[str]]:
        seen = MaintenanceScope.from_dict(frozen.seen)
        again = plan_maintenance(pipeline, will_roll=False, clock=_clock(frozen))
        # A plan of a release without a key lacks it; that release did the same as with None.
        found = [
            f"the pipeline's {name} became {value}, and was {frozen.asked.get(name)}"
            for name, value in settings_of(pipeline).items()
            if frozen.asked.get(name) != value
        ]
        return seen.choose(again), found + seen.changes(again)

    archive = Archive.at(pipeline.archive)
    return approved(archive, "maintain", plan_id, now=now, plan_again=plan_again)


def run_approved(
    pipeline: Pipeline, cluster: KafkaCluster, runner: SparkRunner, frozen: FrozenPlan, *, run: str
) -> dict[str, Any]:
    """Carry out a frozen plan that `plan_approved` has accepted, or the rest of it.

    Returns:
        As `run_maintenance` does.

    Raises:
        KafkaDrainError: As `run_maintenance` does.
    """
    archive = Archive.at(pipeline.archive)
    refuse_other_if_known(archive, cluster)
    with carrying_out(archive.root, frozen, run):
        return run_maintenance(
            pipeline,
            cluster,
            runner,
            run=run,
            clock=_clock(frozen),
            choose=MaintenanceScope.from_dict(frozen.seen).choose,
        )


def _clock(frozen: FrozenPlan) -> Callable[[], datetime]:
    """Return a clock that shows the time at which the plan was made: the same files are due."""
    at = in_utc(datetime.fromisoformat(frozen.asked["at"]))
    return lambda: at


def plan_text(plan: MaintenancePlan) -> str:
    """Return the plan for people, in Markdown; its length doesn't depend on the archive's."""
    figures = plan.to_dict()
    deleted = sum(sum(found.records.values()) for found in plan.deletions)
    facts = [
        ("archive", figures["archive"]),
        ("closes the open generation", plan.roll or "no"),
        ("carries out on what was sealed since", plan.carried_out),
        ("records deleted", deleted),
        ("files deleted", f"{figures['deleted_files']:,} ({figures['deleted_bytes']:,} bytes)"),
        (
            "files compacted",
            f"{figures['compacted_files']:,} ({figures['compacted_bytes']:,} bytes)",
        ),
    ]
    deletions: dict[object, int] = {}
    for found in plan.deletions:
        for tp, records in found.records.items():
            deletions[tp] = deletions.get(tp, 0) + records
    before = max((found.before_ms for found in plan.deletions), default=0)
    later = {content.tp for found in plan.deletions for content in found.dated_later.values()}
    rows = [
        (tp, records, f"{'dated or drained ' * (tp in later)}before {time_text(before)}")
        for tp, records in deletions.items()
    ]
    lines = [f"deletes {found.line()}" for found in plan.deletions if found.dated_later]
    lines += [f"compacts {found.line()}" for found in plan.compactions]
    lines += [f"leaves {held}" for held in plan.held]
    lines += [plan.waiting] * bool(plan.waits_for)
    parts = [
        f"### Maintain {figures['archive']}: delete {deleted:,} records",
        table(("", ""), facts),
        table(("partition", "records deleted", "all of them"), rows) if rows else "",
        bullets(lines),
        "Deleted records are gone. Files that were compacted, now or before, are deleted once the "
        "new ones are proven to hold the same records.",
    ]
    return paragraphs(parts)
