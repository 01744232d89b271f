"""Freeze an erasure that a dry run has planned, and carry out exactly that one.

What is frozen has the hashes of what is erased, and no more: who carries it out needs no keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ErasureDocument
from kafka_drain.archive.frozen_plan import (
    LIFETIME,
    FrozenPlan,
    PlanDecision,
    bullets,
    files_changed,
    paragraphs,
    table,
)
from kafka_drain.archive.frozen_plans import FOLDER, approved, carrying_out, freeze_plan
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import ArchiveError
from kafka_drain.intervals import time_text
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.bound_cluster import refuse_other_if_known
from kafka_drain.maintenance.erase import (
    ErasurePlan,
    erasure_document,
    incomplete,
    plan_document,
    run_erasure,
)
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.spark.engine import SparkRunner


@dataclass(frozen=True)
class ErasureScope:
    """The files that an erasure changes.

    Attributes:
        rolls: Whether it closes the open generation.
        records: Number of records to be erased, by file.
        rewrites: The files that it replaces.
    """

    rolls: bool
    records: Mapping[str, int]
    rewrites: frozenset[str]

    @classmethod
    def of(cls, plan: ErasurePlan) -> ErasureScope:
        """Return the scope of a plan."""
        return cls(
            rolls=plan.rolls,
            records={found.file.path: found.number for found in plan.found},
            rewrites=frozenset(path for each in plan.rewrites for path in each.group.replaces),
        )

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ErasureScope:
        """Parse a document from `to_dict`."""
        return cls(
            rolls=document["rolls"],
            records=dict(document["records"]),
            rewrites=frozenset(document["rewrites"]),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "rolls": self.rolls,
            "records": dict(sorted(self.records.items())),
            "rewrites": sorted(self.rewrites),
        }

    def changes(self, now: ErasureScope) -> list[str]:
        """Return the changes, as parts of a sentence; empty if there are none.

        Args:
            now: The scope of the same erasure now.
        """
        found = []
        if self.rolls and not now.rolls:
            found.append("the open generation was closed")
        if gone := (self.records.keys() | self.rewrites) - (now.records.keys() | now.rewrites):
            found.append(files_changed(gone))
        if more := sorted(now.records.items() - self.records.items()):
            found.append(
                f"{len(more):,} other files hold records to be erased, such as {more[0][0]}"
            )
        other = sorted(now.rewrites - self.rewrites)
        if other and not found:
            found.append(f"{len(other):,} other files have to be rewritten, such as {other[0]}")
        return found


def freeze_erasure(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    request: ErasureRequest | None,
    *,
    now: datetime,
    lifetime: timedelta = LIFETIME,
) -> tuple[ErasurePlan, FrozenPlan]:
    """Plan an erasure and freeze the plan in the archive's `plans/`.

    Args:
        pipeline: The pipeline, with its archive.
        cluster: The Kafka cluster that it was drained from.
        request: The request; None for those made before.
        lifetime: Time within which it may be started.

    Raises:
        ArchiveError: When something has to be done first, or the archive can't be written.
        KafkaDrainError: As `plan_erasure` does.
    """
    archive = Archive.at(pipeline.archive)
    archive.require()
    document = None
    if request is not None:
        document = erasure_document(archive, cluster, request, pipeline)
    plan = plan_document(pipeline, document)
    if plan.obstacles:
        raise ArchiveError(f"{archive.root}: {'; '.join(plan.obstacles)}. Nothing was planned")
    frozen = freeze_plan(
        archive,
        "erase",
        asked={"erasure": None if document is None else document.content()},
        seen=ErasureScope.of(plan).to_dict(),
        text=plan_text(plan),
        now=now,
        lifetime=lifetime,
    )
    return plan, frozen


def plan_approved(
    pipeline: Pipeline, plan_id: str, *, now: datetime
) -> tuple[ErasurePlan, FrozenPlan, PlanDecision]:
    """Load a frozen plan if its scope is still the approved one; see `approved`.

    Raises:
        KafkaDrainError: As `approved` and `plan_document` do.
    """
    archive = Archive.at(pipeline.archive)

    def plan_again(frozen: FrozenPlan) -> tuple[ErasurePlan, list[str]]:
        plan = plan_document(pipeline, _document(archive, frozen))
        changes = ErasureScope.from_dict(frozen.seen).changes(ErasureScope.of(plan))
        return plan, [*plan.obstacles, *changes]

    return approved(archive, "erase", plan_id, now=now, plan_again=plan_again)


def run_approved(
    pipeline: Pipeline, cluster: KafkaCluster, runner: SparkRunner, frozen: FrozenPlan, *, run: str
) -> dict[str, Any]:
    """Carry out a frozen plan that `plan_approved` has accepted, or the rest of it.

    Returns:
        As `run_erasure` does.

    Raises:
        KafkaDrainError: As `run_erasure` does.
    """
    archive = Archive.at(pipeline.archive)
    refuse_other_if_known(archive, cluster)
    with carrying_out(archive.root, frozen, run):
        return run_erasure(pipeline, cluster, runner, _document(archive, frozen), run=run)


def _document(archive: Archive, frozen: FrozenPlan) -> ErasureDocument | None:
    asked = frozen.asked["erasure"]
    if asked is None:
        return None
    path = archive.root / FOLDER / f"{frozen.id}.json"
    return ErasureDocument.parse(path, json.dumps(asked).encode())


def plan_text(plan: ErasurePlan) -> str:
    """Return the plan for people, in Markdown; its length doesn't depend on the archive's.

    It has no keys, headers' values or hashes.
    """
    figures = plan.to_dict()
    rewritten = f"{figures['rewritten_files']:,} ({figures['rewritten_bytes']:,} bytes)"
    facts = [
        ("archive", figures["archive"]),
        ("closes the open generation", "yes, it holds some of them" if plan.rolls else "no"),
        ("records erased", plan.records),
        ("files that hold them", figures["files"]),
        ("files searched", figures["searched_files"]),
        ("files rewritten, of which the old ones are deleted", rewritten),
    ]
    rows = [
        (
            each.number,
            each.document.request,
            each.document.by,
            _named(each.document),
            sum(found.records.get(each.number, 0) for found in plan.found),
        )
        for each in plan.erasures
    ]
    parts = [
        f"### Erase {plan.records:,} records of {figures['archive']}",
        table(("", ""), facts),
        table(("erasure", "request", "asked for by", "names", "records"), rows),
        bullets([f"doesn't reach {copy}" for copy in plan.copies]),
        f"The erasure {incomplete(plan.locked)}." if plan.locked.files else "",
        "Erased records are gone: this can't be undone. All others are proven to be as they were. "
        "What is drained between this plan and its end, and is named, belongs to it.",
    ]
    return paragraphs(parts)


def _named(document: ErasureDocument) -> str:
    """Return the targets of an erasure, without its secrets."""
    counts = [
        f"{len(names):,} {what}"
        for names, what in ((document.keys, "keys"), (document.headers, "headers"))
        if names
    ]
    bounds = [
        f"{word} {time_text(at)}"
        for word, at in (("from", document.from_ms), ("until", document.to_ms))
        if at is not None
    ]
    topics = f"topics {', '.join(document.topics)}" if document.topics else "all topics"
    reach = "those written later too" if document.for_ever else "those written before the request"
    return "; ".join([*counts, topics, *bounds, reach])
