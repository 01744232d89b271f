"""Opening a run: the progress of all shards in Kafka before the first record, attempts counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.errors import ProgressError, SupersededError
from kafka_drain.republish.planning.openings import Claim
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.planning.shards import PREFIX, ProgressSlot, Shard
from kafka_drain.republish.sending.errors import explained
from kafka_drain.republish.sending.producer import (
    ProducerLost,
    fenced_producer,
    repeat,
    shard_transactional_id,
)
from kafka_drain.republish.sending.progress_store import Ledger, Progress, entry

__all__ = ["abort_shards", "open_run"]

_WAY_OUT = (
    "end this run (`kafka-drain republish ARCHIVE --abandon RUN --apply`) and start a new one into "
    "an empty topic"
)


def open_run(
    plan: RepublishPlan,
    run: RepublishRun,
    settings: Mapping[str, Any],
    claim: Claim | None = None,
    *,
    only_after: int | None = None,
) -> int:
    """Begin an attempt of a run; the first one writes the progress of all shards.

    All in one transaction of the run's own transactional id, after which no older attempt can
    write a beginning over a later one's progress. `opened.json` follows it: without that file
    no record was ever sent, so that missing progress may be written (again).

    Whether the run may go on is for its progress to say, however long ago it began. Kafka forgets
    what was committed long ago (offsets.retention.minutes, seven days): what of the progress
    nobody moves any more is committed again.

    Args:
        plan: With one shard at least.
        run: Its folder.
        settings: librdkafka's settings of the target cluster.
        claim: That the run opens; None when it has opened before.
        only_after: Number of the attempt that has to be the latest one so far; None for any.

    Returns:
        The attempt's number, from 1.

    Raises:
        ConfigError: When another run has opened with the same records; no record was sent.
        ProgressError: When progress that was there is gone, or of another plan.
        SupersededError: When there is a later attempt than `only_after`; nothing was changed.
        AuthorizationError: When an ACL is missing.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    # Not waiting: what an attempt before left open is decided when its shard is sent, not here.
    ledger = Ledger(settings, waits=False)
    try:
        return _in_transaction(
            settings,
            f"{PREFIX}{plan.transactional_name}-open",
            plan.shards[0].target_topic,
            # After the fence: an older attempt's beginning is decided.
            lambda producer: _begin(producer, plan, ledger, run, claim, only_after),
        )
    finally:
        ledger.close()


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
    ledger: Ledger,
    run: RepublishRun,
    claim: Claim | None,
    only_after: int | None,
) -> int:
    found = ledger.read([plan.attempts, *plan.slots])
    latest = found.pop(plan.attempts)
    if only_after is not None and latest is not None and latest.offset > only_after:
        raise SupersededError(
            f"attempt {latest.offset} of run {plan.key} took over from attempt {only_after}"
        )
    is_opened = run.is_opened
    known = [progress for progress in found.values() if progress is not None]
    if known and not is_opened:
        replaced = run.replaced()
        if all(at.plan in replaced and not at.records for at in known):
            # Of a plan that never opened, in whose place this one was made (openings.py).
            known = []
    if known and (len(known) < len(found) or any(p.plan != plan.sha256 for p in known)):
        raise ProgressError(
            f"Kafka holds the progress of {len(known):,} of {len(found):,} writers of run "
            f"{plan.key}, {sum(p.plan == plan.sha256 for p in known):,} of them of this plan, "
            "expected all of it: it expired, was deleted, or a target topic was made again. "
            f"Nothing more was sent; {_WAY_OUT}"
        )
    if not known and is_opened:
        raise ProgressError(
            f"Kafka holds no progress of run {plan.key}, which has been opened: it expired, was "
            f"deleted, or the target topic was made again. Nothing more was sent; {_WAY_OUT}"
        )
    attempt = (latest.offset if latest else 0) + 1
    entries: dict[ProgressSlot, Progress] = {plan.attempts: Progress(attempt, 0, plan.sha256)}
    if not known:
        entries |= {
            chain[0].progress: Progress(chain[0].first, 0, plan.sha256) for chain in plan.chains
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
                offsets, ledger.group_metadata(group), 60.0
            ),
            f"the progress in group {group}",
        )
    repeat(lambda: producer.commit_transaction(-1), "commit_transaction")
    if claim is not None:
        claim.confirm()
    run.mark_opened({"plan": plan.sha256, "shards": len(plan.shards)})
    return attempt


def _finished(
    plan: RepublishPlan, found: Mapping[ProgressSlot, Progress | None]
) -> dict[ProgressSlot, Progress]:
    """Return the progress of chains that are sent: no attempt will ever commit another one."""
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
    """Abort the open transactions of an attempt that was killed: consumers don't wait for them.

    Counts as an attempt: whatever still runs of older ones stops at its next call. Where a later
    attempt has begun, nothing is left to abort, and that one is left alone.

    Args:
        plan: The run's plan.
        run: Its folder.
        settings: librdkafka's settings of the target cluster.
        attempt: The attempt that was killed.

    Returns:
        How many shards were fenced: those that aren't done.

    Raises:
        SupersededError: When there is a later attempt.
        KafkaDrainError: When Kafka doesn't let it; the transactions then end by their timeout.
    """
    open_run(plan, run, settings, only_after=attempt)
    ledger = Ledger(settings, waits=False)
    try:
        found = ledger.read(plan.slots)
    finally:
        ledger.close()
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
