"""Freeze a republish that a dry run has planned, and carry out exactly that one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import archive_files
from kafka_drain.archive.frozen_plan import (
    LIFETIME,
    FrozenPlan,
    PlanState,
    bullets,
    paragraphs,
    table,
)
from kafka_drain.archive.frozen_plans import Approval, freeze_plan
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.errors import ArchiveError, ConfigError
from kafka_drain.intervals import time_text
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import cluster_text
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.masks import key_id
from kafka_drain.republish.planning.changes import Approved, Outline, changes
from kafka_drain.republish.planning.plan import RepublishPlan, Target
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.planning.shards import Shard
from kafka_drain.republish.run import Republish, plan_republish
from kafka_drain.storage.typed_json import DocumentError, parse, reason_of


def freeze_republish(
    archive: Archive,
    cluster: KafkaCluster,
    request: RepublishRequest,
    *,
    now: datetime,
    lifetime: timedelta = LIFETIME,
    hash_key: bytes = b"",
) -> tuple[Republish, FrozenPlan]:
    """Plan a republish and freeze the plan; sends nothing.

    The plan is written to the archive's `plans/`, and has one run, which its name belongs to.

    Args:
        archive: The archive to read the files from.
        cluster: The cluster to send the records to.
        request: The requested republish.
        lifetime: Time within which the plan may be started.
        hash_key: The key of pseudonyms, if the request names no file that has it.

    Raises:
        ConfigError: When the request names a run or follows: these have plans of their own.
        KafkaDrainError: As `plan_republish` does.
    """
    if request.run_name or request.follow:
        given = "run_name" if request.run_name else "follow"
        raise ConfigError(
            f"{given} can't be set for a plan that is to be approved: a frozen plan has one run of "
            "its own, which sends what was seen and nothing later"
        )
    pipeline = archive.snapshot().document.pipeline
    named = f"{pipeline} plan {now.isoformat()} {request.name(pipeline)}"
    request = request.model_copy(update={"run_name": named})
    republish = plan_republish(archive, cluster, request, now=now, apply=False, hash_key=hash_key)
    plan = republish.plan
    frozen = freeze_plan(
        archive,
        "republish",
        asked=request.model_dump(mode="json", exclude_unset=True),
        seen={**plan.document(), "sha256": plan.sha256},
        text=plan_text(
            plan,
            _times(archive.snapshot(), plan, request),
            str(archive.root),
            request,
            cluster.named(),
        ),
        now=now,
        lifetime=lifetime,
    )
    return republish, frozen


def plan_approved(
    archive: Archive,
    cluster: KafkaCluster,
    plan_id: str,
    *,
    now: datetime,
    apply: bool,
    hash_key: bytes = b"",
) -> tuple[Republish, FrozenPlan]:
    """Load a frozen plan, if it would still send the approved records.

    A run that has started is resumed, and one that has ended sends nothing more.

    Args:
        archive: The archive to read the files from.
        cluster: The cluster to send the records to.
        plan_id: The frozen plan's id.
        apply: Whether the run will be executed.
        hash_key: The key of pseudonyms, if the request names no file that has it.

    Raises:
        PlanChangedError: When it has expired, or something has changed; says what.
        ConfigError: When there is no such plan.
        ArchiveError: When its bytes were changed.
        KafkaDrainError: As `plan_republish` does.
    """
    approval = Approval.of(archive, "republish", plan_id, now)
    frozen = approval.frozen
    # A plan of another kind has no run.
    if frozen.kind != "republish":
        approval.proceed(PlanState.NEW)
    seen = _plan_of(frozen)
    run = RepublishRun(archive.state, seen.key)
    approval.proceed(_state(run))
    # An older release's plan may have options that don't affect which records go where.
    kept = {name: of for name, of in frozen.asked.items() if name not in RepublishRequest.removed}
    if hash_key and seen.change is not None and seen.change["key_id"] == key_id(hash_key):
        # Its file may be on the machine that froze the plan.
        kept.pop("hash_key_file", None)
    request = RepublishRequest(**kept)

    def accept(again: Outline) -> None:
        approval.proceed(
            PlanState.NEW, changes(Outline.of(seen), again, may_grow=request.into_source)
        )

    republish = plan_republish(
        archive,
        cluster,
        request,
        now=now,
        apply=apply,
        approved=Approved({path for path, _ in Outline.of(seen).files}, accept),
        hash_key=hash_key,
    )
    return republish, frozen


def _plan_of(frozen: FrozenPlan) -> RepublishPlan:
    try:
        # Its hash is among what the frozen plan's own seal covers.
        return parse(RepublishPlan, json.dumps(frozen.seen).encode())
    except DocumentError as error:
        raise ArchiveError(
            f"plan {frozen.id} isn't as it was written ({reason_of(error)}); make a new one. "
            "Nothing was sent"
        ) from error


def _state(run: RepublishRun) -> PlanState:
    if run.has_ended:
        return PlanState.DONE
    return PlanState.STARTED if run.is_opened else PlanState.NEW


def plan_text(
    plan: RepublishPlan,
    times: Mapping[TopicPartition, tuple[int, int]],
    root: str,
    request: RepublishRequest,
    named: Mapping[str, str],
) -> str:
    """Return the plan for people, in Markdown; its length doesn't depend on the archive's.

    Args:
        times: First and last timestamp of the files by source partition, in Unix ms.
        request: The requested republish.
        named: Addresses and id of the cluster that gets them.
    """
    whole = [ms for pair in times.values() for ms in pair]
    facts = [
        ("records", plan.records),
        ("files", f"{plan.files:,} ({plan.size:,} bytes)"),
        ("timestamps", _between((min(whole), max(whole))) if whole else "unknown"),
        ("from", root),
        ("to", ", ".join(_target(target) for target in plan.targets) or "nowhere"),
        ("Kafka", cluster_text(named)),
        ("keeps", f"{plan.keeps} ({plan.delivery})"),
        ("takes", f"{plan.takes(*request.limits)}; engine {plan.engine}"),
    ]
    shards = [
        (
            shard.source,
            shard.target,
            f"{shard.first:,} to {shard.end - 1:,}",
            shard.records,
            _between(times[shard.source]) if shard.source in times else "unknown",
        )
        for shard in plan.shards
    ]
    parts = [
        f"### Send {plan.records:,} records of {plan.pipeline} to Kafka",
        table(("", ""), facts),
        table(("source", "target", "offsets", "records", "timestamps"), shards),
        bullets(plan.notes),
        "Records sent to Kafka can't be taken back.",
    ]
    return paragraphs(parts)


def _target(target: Target) -> str:
    held = sum(target.start)
    state = f"holds up to {held:,} records" if held else "empty" if target.id else "to be created"
    return f"{target.topic} ({target.partitions:,} partitions, {state})"


def _between(times: tuple[int, int]) -> str:
    return f"{time_text(times[0])} to {time_text(times[1])}"


def _times(
    snapshot: Snapshot, plan: RepublishPlan, request: RepublishRequest
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the first and last timestamp of each source partition, within the requested times."""
    parts: dict[tuple[TopicPartition, str], Shard] = {
        (shard.source, file.path): shard for shard in plan.shards for file in shard.files
    }
    found: dict[TopicPartition, tuple[int, int]] = {}
    chosen = request.selection
    for file in archive_files(snapshot, chosen.times, chosen.asked_offsets):
        for content in file.sealed.contents if file.sealed else ():
            shard = parts.get((content.tp, file.path))
            low, high = content.first_timestamp, content.last_timestamp
            if shard is None or low is None or high is None:
                continue
            rows = shard.rows
            low = low if rows.from_ms is None else max(low, rows.from_ms)
            high = high if rows.to_ms is None else min(high, rows.to_ms - 1)
            known = found.get(content.tp, (low, high))
            found[content.tp] = min(known[0], low), max(known[1], high)
    return found
