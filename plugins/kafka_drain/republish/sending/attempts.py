"""Open a run: write all shards' progress to Kafka before the first record, and count attempts."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.errors import ProgressError, SupersededError
from kafka_drain.republish.planning.openings import Claim
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.planning.shards import PREFIX, ProgressSlot, Shard
from kafka_drain.republish.sending.producer import (
    ProducerLost,
    commit,
    fenced_producer,
    repeat,
    shard_transactional_id,
)
from kafka_drain.republish.sending.progress_store import ProgressStore, ShardProgress, entry
from kafka_drain.republish.sending.send_errors import explained


def open_run(
    plan: RepublishPlan,
    run: RepublishRun,
    settings: Mapping[str, Any],
    claim: Claim | None = None,
    *,
    only_after: int | None = None,
) -> int:
    """Start an attempt of a run; the first attempt writes the progress of all shards.

    Everything is written in one transaction of the run's own transactional id, so that no older
    attempt can overwrite a later one's progress with an initial one. `opened.json` is written
    afterwards: without that file, no record was ever sent, and missing progress may be written
    (again).

    Whether the run may resume depends only on its progress, however long ago it started. Kafka
    expires offsets that were committed long ago (offsets.retention.minutes, seven days), so the
    progress of finished chains, which doesn't advance any more, is committed again.

    Args:
        plan: The plan, with at least one shard.
        run: The run's folder.
        settings: librdkafka settings for the target cluster.
        claim: The run's claim to open; None if it has opened before.
        only_after: Number of the attempt that must be the latest one so far; None for any.

    Returns:
        The attempt's number, from 1.

    Raises:
        ConfigError: When another run has opened with the same records; no record was sent.
        ProgressError: When progress is missing, or belongs to another plan.
        SupersededError: When there is a later attempt than `only_after`; nothing was changed.
        AuthorizationError: When an ACL is missing.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    # Not waiting: what an attempt before left open is decided when its shard is sent, not here.
    glance = ProgressStore(settings, waits=False)
    with closing(glance), closing(ProgressStore(settings)) as store:
        return _in_transaction(
            settings,
            f"{PREFIX}{plan.transactional_name}-open",
            plan.shards[0].target_topic,
            # Runs after the fence, so that an older attempt's initial progress is decided.
            lambda producer: _begin(producer, plan, glance, store, run, claim, only_after),
        )


def _in_transaction(
    settings: Mapping[str, Any], transactional_id: str, topic: str, work: Callable[[Producer], int]
) -> int:
    for _ in range(5):
        try:
            return work(fenced_producer(settings, transactional_id, topic, 30.0))
        except ProducerLost as error:
            lost = error
    raise explained(lost.error, f"transactional id {transactional_id}") from lost


def _begin(
    producer: Producer,
    plan: RepublishPlan,
    glance: ProgressStore,
    store: ProgressStore,
    run: RepublishRun,
    claim: Claim | None,
    only_after: int | None,
) -> int:
    # Before the progress: another attempt may open the run in between, and then it was only later.
    is_opened = run.is_opened
    found = glance.read(plan.slots)
    glance.close()
    # A coordinator may take in an offset later than its transaction was decided: what seems to be
    # missing counts only after the wait for that.
    found |= store.read([plan.attempts, *(slot for slot, at in found.items() if at is None)])
    latest = found.pop(plan.attempts)
    if only_after is not None and latest is not None and latest.offset > only_after:
        raise SupersededError(
            f"attempt {latest.offset} of run {plan.key} took over from attempt {only_after}"
        )
    way_out = f"end this run ({run.abandoning}) and start a new one into an empty topic"
    known = [progress for progress in found.values() if progress is not None]
    if known and not is_opened:
        replaced = run.replaced()
        if all(at.plan in replaced and not at.records for at in known):
            # Progress of a plan that never opened and that this plan replaces (openings.py).
            known = []
    if known and (len(known) < len(found) or any(p.plan != plan.sha256 for p in known)):
        raise ProgressError(
            f"Kafka holds the progress of {len(known):,} of {len(found):,} writers of run "
            f"{plan.key}, {sum(p.plan == plan.sha256 for p in known):,} of them for this plan, "
            "expected all of them; it expired, was deleted, or a target topic was recreated. "
            f"Nothing more was sent; {way_out}"
        )
    if not known and is_opened:
        raise ProgressError(
            f"Kafka holds no progress of run {plan.key}, which was opened before; it expired, was "
            f"deleted, or the target topic was recreated. Nothing more was sent; {way_out}"
        )
    attempt = (latest.offset if latest else 0) + 1
    if latest is None and known:
        # The count has expired below an attempt that ran for a week, and is still running perhaps:
        # a number above all counts, as two with the same one would fence each other.
        attempt = int(time.time())
    entries: dict[ProgressSlot, ShardProgress] = {
        plan.attempts: ShardProgress(attempt, 0, plan.sha256)
    }
    if not known:
        entries |= {
            chain[0].progress: ShardProgress(chain[0].first, 0, plan.sha256)
            for chain in plan.chains
        }
    else:
        entries |= _finished(plan, found)
    repeat(producer.begin_transaction, "begin_transaction")
    by_group: dict[str, list[KafkaTopicPartition]] = {}
    for slot, at in entries.items():
        by_group.setdefault(slot.group, []).append(entry(slot, at))
    for group, offsets in by_group.items():
        repeat(
            lambda offsets=offsets, group=group: producer.send_offsets_to_transaction(  # type: ignore[misc]
                offsets, store.group_metadata(group), 60.0
            ),
            f"the progress in group {group}",
        )
    commit(producer)
    if claim is not None:
        claim.confirm()
    run.mark_opened(plan)
    return attempt


def _finished(
    plan: RepublishPlan, found: Mapping[ProgressSlot, ShardProgress | None]
) -> dict[ProgressSlot, ShardProgress]:
    """Return the progress of finished chains, which no later attempt would commit again."""
    return {
        slot: progress
        for chain, slot in zip(plan.chains, plan.slots, strict=True)
        if (progress := found[slot]) is not None and progress.records >= _records(chain)
    }


def _records(chain: Sequence[Shard]) -> int:
    return sum(shard.records for shard in chain)


def abort_shards(
    plan: RepublishPlan, run: RepublishRun, settings: Mapping[str, Any], attempt: int
) -> int:
    """Abort the open transactions of a killed attempt, so that consumers don't wait for them.

    Counts as an attempt: whatever is still running of older ones stops at its next call. If a later
    attempt has started, nothing is left to abort, and that attempt is left alone.

    Args:
        plan: The run's plan.
        run: The run's folder.
        settings: librdkafka settings for the target cluster.
        attempt: Number of the attempt that was killed.

    Returns:
        Number of shards that were fenced, which are those that aren't finished.

    Raises:
        SupersededError: When there is a later attempt.
        KafkaDrainError: When Kafka refuses; the transactions then end at their timeout.
    """
    open_run(plan, run, settings, only_after=attempt)
    with closing(ProgressStore(settings, waits=False)) as store:
        found = store.read(plan.slots)
    unfinished = 0
    for chain in plan.chains:
        first, progress = chain[0], found[chain[0].progress]
        if progress is None or progress.records < _records(chain):
            try:
                name = shard_transactional_id(plan.transactional_name, first.number)
                fenced_producer(settings, name, first.target_topic, 10.0)
            except ProducerLost as lost:
                raise explained(lost.error, f"aborting {first.source}") from lost
            unfinished += len(chain)
    return unfinished
