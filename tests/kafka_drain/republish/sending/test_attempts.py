"""Opening a run: what another attempt has written counts, also while Kafka is taking it in."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from upath import UPath

from kafka_drain.errors import KafkaUnavailableError, ProgressError, SupersededError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.openings import (
    Claim,
    ClaimState,
    claim_opening,
    has_opened,
)
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.planning.shards import PREFIX, ProgressSlot
from kafka_drain.republish.sending import attempts as module
from kafka_drain.republish.sending.attempts import abort_shards, open_run
from kafka_drain.republish.sending.producer import ProducerLost
from kafka_drain.republish.sending.progress_store import ShardProgress
from tests.kafka_drain.republish.planning.test_plan import PLAN

Written = dict[ProgressSlot, ShardProgress]

FENCED = KafkaException(KafkaError(KafkaError._FENCED, "a newer producer", fatal=True))
BEGUN = {PLAN.attempts: ShardProgress(1, 0, PLAN.sha256)} | {
    chain[0].progress: ShardProgress(chain[0].first, 0, PLAN.sha256) for chain in PLAN.chains
}


@dataclass
class Group:
    """The group with the progress, in place of `ProgressStore` and of the producer.

    Attributes:
        offsets: What is committed.
        pending: What a transaction has committed, but the coordinator hasn't taken in.
        at_read: Happens after the next read of the shards' progress.
        reads_before: Number of reads before that one; the first doesn't wait, the second does.
        at_commit: What the next commit raises.
    """

    offsets: Written = field(default_factory=dict)
    pending: Written = field(default_factory=dict)
    at_read: Callable[[], object] | None = None
    reads_before: int = 0
    at_commit: BaseException | None = None
    sent: list[Any] = field(default_factory=list)
    in_transaction: Written = field(default_factory=dict)

    def store(self, _: object, *, waits: bool = True) -> Any:
        group = self

        class Store:
            def read(self, slots: Iterable[ProgressSlot]) -> dict[ProgressSlot, Any]:
                if waits:
                    group.offsets |= group.pending
                    group.pending = {}
                found = {slot: group.offsets.get(slot) for slot in slots}
                group.reads_before -= 1
                if group.reads_before < 0 and group.at_read is not None:
                    act, group.at_read = group.at_read, None
                    act()
                return found

            def group_metadata(self, name: str) -> str:
                return name

            def close(self) -> None: ...

        return Store()

    def begin_transaction(self) -> None:
        self.sent, self.in_transaction = [], {}

    def send_offsets_to_transaction(self, offsets: list[Any], group: str, _: float) -> None:
        self.sent += [(group, at.topic, at.partition, at.offset) for at in offsets]
        for at in offsets:
            slot = ProgressSlot(group, TopicPartition(at.topic, at.partition))
            self.in_transaction[slot] = ShardProgress(at.offset, **json.loads(at.metadata))

    def commit_transaction(self, _: float) -> None:
        if self.at_commit is not None:
            error, self.at_commit = self.at_commit, None
            raise error
        self.offsets |= self.in_transaction


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    group = Group()
    monkeypatch.setattr(module, "ProgressStore", group.store)
    monkeypatch.setattr(module, "fenced_producer", lambda *_: group)
    return group


@pytest.fixture
def run(tmp_path: Path) -> RepublishRun:
    return RepublishRun(UPath(tmp_path), PLAN.key)


def shards_sent(group: Group) -> list[Any]:
    return [each for each in group.sent if each[0] != PLAN.attempts.group]


def test_open_run_first(group: Group, run: RepublishRun) -> None:
    """The first attempt writes the progress of all chains, from their first offsets."""
    assert open_run(PLAN, run, {}) == 1

    assert run.is_opened
    assert group.offsets == BEGUN


@pytest.mark.parametrize("is_opened", [False, True])
def test_open_run_progress_pending(group: Group, run: RepublishRun, is_opened: bool) -> None:
    """Progress that is decided, but not visible yet, isn't missing: it isn't written again."""
    group.pending = dict(BEGUN)
    if is_opened:
        run.mark_opened(PLAN)

    assert open_run(PLAN, run, {}) == 2

    assert shards_sent(group) == []


def test_open_run_finished_chain(group: Group, run: RepublishRun) -> None:
    """The progress of a chain that is done is committed again: Kafka expires what isn't."""
    done, (unfinished,) = PLAN.chains
    records = sum(shard.records for shard in done)
    group.offsets = BEGUN | {
        done[0].progress: ShardProgress(done[-1].end, records, PLAN.sha256),
        unfinished.progress: ShardProgress(unfinished.end - 1, unfinished.records - 1, PLAN.sha256),
    }
    run.mark_opened(PLAN)

    assert open_run(PLAN, run, {}) == 2

    slot = done[0].progress
    assert group.sent[1:] == [(slot.group, slot.tp.topic, slot.tp.partition, done[-1].end)]


def test_open_run_between_partitions(group: Group, run: RepublishRun) -> None:
    """A chain that has sent only some of its shards isn't done: its progress is left as it is."""
    slot = PLAN.shards[0].progress
    chained = replace(PLAN, shards=tuple(replace(each, progress=slot) for each in PLAN.shards))
    first, *others = chained.shards
    assert others
    group.offsets = {
        PLAN.attempts: ShardProgress(1, 0, chained.sha256),
        slot: ShardProgress(first.end, first.records, chained.sha256),
    }
    run.mark_opened(chained)

    assert open_run(chained, run, {}) == 2

    assert shards_sent(group) == []


@pytest.mark.parametrize("reads_before", [0, 1])
def test_open_run_while_another_opens(group: Group, run: RepublishRun, reads_before: int) -> None:
    """An attempt that finds no progress, and then another's `opened.json`, isn't told of a loss."""

    def other_opens() -> None:
        group.offsets = dict(BEGUN)
        run.mark_opened(PLAN)
        group.at_commit = FENCED

    group.at_read, group.reads_before = other_opens, reads_before

    assert open_run(PLAN, run, {}) == 2

    assert shards_sent(group) == []


#: Whether progress is in Kafka, and what the claim says, where the first attempt is killed.
KILLED = {
    "commit": (False, ClaimState.UNDECIDED),
    "confirm": (True, ClaimState.UNDECIDED),
    "mark_opened": (True, ClaimState.OPENED),
}


@pytest.mark.parametrize("step", KILLED)
def test_open_run_killed(
    group: Group, run: RepublishRun, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The claim opens after the progress is in Kafka, and the folder says so last.

    Wherever the first attempt is killed, the next one opens or resumes.
    """

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    has_progress, state = KILLED[step]
    run.write_plan(PLAN)
    claim: Claim | None = claim_opening(run.root, PLAN, repeat=False)
    assert claim is not None
    with monkeypatch.context() as patch:
        at = {"commit": Group, "confirm": Claim, "mark_opened": RepublishRun}[step]
        patch.setattr(at, "commit_transaction" if step == "commit" else step, die)
        with pytest.raises(KeyboardInterrupt):
            open_run(PLAN, run, {}, claim)

    assert (bool(group.offsets), claim.state(), run.is_opened) == (has_progress, state, False)
    if has_opened(run):
        run.mark_opened(PLAN)
    claim = None if run.is_opened else claim_opening(run.root, PLAN, repeat=False)
    assert open_run(PLAN, run, {}, claim) == 1 + has_progress
    assert run.is_opened
    assert bool(shards_sent(group)) is not has_progress


def test_open_run_reads_after_fence(
    group: Group, run: RepublishRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older attempt commits until it is fenced counts, and isn't written again."""

    def fenced_producer(*_: object) -> Group:
        group.offsets = dict(BEGUN)
        return group

    monkeypatch.setattr(module, "fenced_producer", fenced_producer)

    assert open_run(PLAN, run, {}) == 2

    assert shards_sent(group) == []


@pytest.mark.parametrize("latest", [1, 2])
def test_abort_shards_counts_first(
    group: Group, run: RepublishRun, monkeypatch: pytest.MonkeyPatch, latest: int
) -> None:
    """A writer is fenced only once the abort counts as an attempt; a later one's are left alone."""
    fenced: list[tuple[str, int]] = []

    def fenced_producer(_: object, name: str, *more: object) -> Group:
        fenced.append((name.rpartition("-")[2], group.offsets[PLAN.attempts].offset))
        return group

    monkeypatch.setattr(module, "fenced_producer", fenced_producer)
    group.offsets = BEGUN | {PLAN.attempts: ShardProgress(latest, 0, PLAN.sha256)}
    run.mark_opened(PLAN)

    if latest > 1:
        with pytest.raises(SupersededError, match="attempt 2 of run"):
            abort_shards(PLAN, run, {}, 1)
        assert fenced == [("open", 2)]
    else:
        assert abort_shards(PLAN, run, {}, 1) == len(PLAN.shards)
        writers = [(str(chain[0].number), 2) for chain in PLAN.chains]
        assert fenced == [("open", 1), *writers]


def test_abort_shards_transactional_ids(
    group: Group, run: RepublishRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transactional ids have the plan's own name: with a copy of the archive, others send."""
    fenced: list[str] = []
    plan = replace(PLAN, archive_id="a").sealed().value
    assert plan.transactional_name != plan.kafka_name != plan.key

    def fenced_producer(_: object, name: str, *more: object) -> Group:
        fenced.append(name)
        return group

    monkeypatch.setattr(module, "fenced_producer", fenced_producer)
    assert open_run(plan, run, {}) == 1

    assert abort_shards(plan, run, {}, 1) == len(plan.shards)

    writers = ["open", "open", *(chain[0].number for chain in plan.chains)]
    assert fenced == [f"{PREFIX}{plan.transactional_name}-{writer}" for writer in writers]


@pytest.mark.parametrize("missing", [0, 1])
def test_abort_shards_within_chain(
    group: Group, run: RepublishRun, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    """A writer with several shards is fenced unless it has sent all of them."""
    fenced: list[str] = []

    def fenced_producer(_: object, name: str, *more: object) -> Group:
        fenced.append(name.rpartition("-")[2])
        return group

    first, second = PLAN.shards
    plan = replace(PLAN, shards=(first, replace(second, progress=first.progress))).sealed().value
    [chain] = plan.chains
    sent = first.records + second.records - missing
    group.offsets = {
        plan.attempts: ShardProgress(1, 0, plan.sha256),
        first.progress: ShardProgress(second.end, sent, plan.sha256),
    }
    monkeypatch.setattr(module, "fenced_producer", fenced_producer)
    run.mark_opened(plan)

    assert abort_shards(plan, run, {}, 1) == len(chain) * missing

    assert fenced == ["open", *["0"] * missing]


def test_open_run_progress_lost(group: Group, run: RepublishRun) -> None:
    """An opened run without progress is refused."""
    run.mark_opened(PLAN)

    with pytest.raises(ProgressError, match="holds no progress"):
        open_run(PLAN, run, {})


def test_open_run_count_expired(group: Group, run: RepublishRun) -> None:
    """Without the count, an attempt's number is above all counts, also of one that still runs."""
    run.mark_opened(PLAN)
    group.offsets = {slot: at for slot, at in BEGUN.items() if slot != PLAN.attempts}
    began = int(time.time())

    attempt = open_run(PLAN, run, {})

    assert began <= attempt
    assert open_run(PLAN, run, {}) == attempt + 1


LOST = ProducerLost(KafkaError(KafkaError._TIMED_OUT, "no answer"))


@pytest.mark.parametrize("is_opened", [False, True])
@pytest.mark.parametrize("which", ["missing", "other plan", "all of another plan"])
def test_open_run_progress_mixed(
    group: Group, run: RepublishRun, is_opened: bool, which: str
) -> None:
    """With the progress of some writers lost, or of another plan, nothing is sent again."""
    group.offsets = dict(BEGUN)
    slots = PLAN.slots if which.startswith("all") else PLAN.slots[:1]
    for slot in slots:
        if which == "missing":
            del group.offsets[slot]
        else:
            group.offsets[slot] = ShardProgress(10, 0, "another")
    if is_opened:
        run.mark_opened(PLAN)
    has = {"missing": (1, 1), "other plan": (2, 1), "all of another plan": (2, 0)}[which]

    with pytest.raises(ProgressError, match=rf"of {has[0]} of 2 writers .* {has[1]} of them for"):
        open_run(PLAN, run, {})

    assert group.sent == []


@pytest.mark.parametrize(
    ("records", "is_opened", "goes_on"),
    [(0, False, True), (1, False, False), (0, True, False)],
)
def test_open_run_progress_of_replaced(
    group: Group,
    run: RepublishRun,
    monkeypatch: pytest.MonkeyPatch,
    records: int,
    is_opened: bool,
    goes_on: bool,
) -> None:
    """Progress of a plan that was replaced counts for nothing, unless something was sent by it."""
    monkeypatch.setattr(RepublishRun, "replaced", lambda _: {"old"})
    first, second = PLAN.slots
    group.offsets = {
        PLAN.attempts: ShardProgress(4, 0, "old"),
        first: ShardProgress(10, 0, "old"),
        second: ShardProgress(10, records, "old"),
    }
    if is_opened:
        run.mark_opened(PLAN)

    if goes_on:
        assert open_run(PLAN, run, {}) == 5
        assert {group.offsets[slot].plan for slot in PLAN.slots} == {PLAN.sha256}
        assert len(shards_sent(group)) == 2
    else:
        with pytest.raises(ProgressError, match="0 of them for this plan"):
            open_run(PLAN, run, {})
        assert group.sent == []


@pytest.mark.parametrize("fails", [4, 5])
def test_open_run_producer_lost(
    group: Group, run: RepublishRun, monkeypatch: pytest.MonkeyPatch, fails: int
) -> None:
    """A producer that is lost is replaced a few times; then Kafka counts as away."""
    tries: list[object] = []

    def fenced_producer(*_: object) -> Group:
        tries.append(None)
        if len(tries) <= fails:
            raise LOST
        return group

    monkeypatch.setattr(module, "fenced_producer", fenced_producer)

    if fails < 5:
        assert open_run(PLAN, run, {}) == 1
    else:
        with pytest.raises(KafkaUnavailableError, match=r"my-run-0.*-open: .*no answer"):
            open_run(PLAN, run, {})
        assert (len(tries), run.is_opened) == (5, False)


@pytest.mark.parametrize("is_lost", [False, True])
def test_abort_shards_unfinished(
    group: Group, run: RepublishRun, monkeypatch: pytest.MonkeyPatch, is_lost: bool
) -> None:
    """What is finished has nothing to abort; what can't be aborted is said, not passed over."""
    done, (unfinished,) = PLAN.chains
    records = sum(shard.records for shard in done)
    group.offsets = BEGUN | {done[0].progress: ShardProgress(done[-1].end, records, PLAN.sha256)}
    run.mark_opened(PLAN)
    fenced: list[str] = []

    def fenced_producer(_: object, name: str, topic: str, *__: object) -> Group:
        if not name.endswith("-open"):
            fenced.append(f"{name.rpartition('-')[2]} {topic}")
            if is_lost:
                raise LOST
        return group

    monkeypatch.setattr(module, "fenced_producer", fenced_producer)

    if is_lost:
        with pytest.raises(KafkaUnavailableError, match=f"aborting {unfinished.source}: "):
            abort_shards(PLAN, run, {}, 1)
    else:
        assert abort_shards(PLAN, run, {}, 1) == 1
    assert fenced == [f"{unfinished.number} {unfinished.target_topic}"]
