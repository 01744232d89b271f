"""Faults within a transaction, injected into real producers and brokers."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from demo.broker import KafkaCluster as LocalKafka
from kafka_drain.errors import VerifyError
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.sending import producer
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.sending.producer import TRANSACTION_TIMEOUT_MS, fenced_producer
from kafka_drain.republish.sending.progress_store import ProgressStore, ShardProgress
from kafka_drain.republish.sending.shard_sender import SendJob
from tests.faults.injection import wait_for
from tests.faults.republish_case import Case, Stopped, Tapped, halted_sender, tap

pytestmark = pytest.mark.integration

#: Records per transaction here; each shard takes several transactions.
SMALL = 400


@pytest.fixture(autouse=True)
def small_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard takes several transactions."""
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", SMALL)
    monkeypatch.setattr(sending, "STEP", 100)


def lost_answer() -> KafkaException:
    """Return the error of a producer that can't know how its transaction ended."""
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, "the answer was lost"))


def late(case: Case, partition: int = 0) -> int:
    """Return the number of offsets in a target partition beyond the reach of read_committed."""
    tp = TopicPartition(case.target, partition)
    ends = (
        case.cluster.latest([tp], level)[tp] for level in ("read_uncommitted", "read_committed")
    )
    return next(ends) - next(ends)


# 42, 43


@pytest.mark.parametrize(
    ("call", "committed"),
    [("offsets", SMALL), ("commit", 2 * SMALL)],
    ids=["between-offsets-and-commit", "after-commit"],
)
def test_republish_killed_around_commit(case: Case, call: str, committed: int) -> None:
    """If killed before a commit, it is aborted and sent again; after the commit, it isn't."""

    def engine(_: RepublishPlan, groups: list[list[SendJob]], tick: Any) -> None:
        sender = halted_sender(groups[0][0], case.folder / "sender", call, True, nth=2)
        try:
            sender.wait_until_halted()
        finally:
            sender.kill()
        raise Stopped

    with pytest.raises(Stopped):
        case.run(engine)
    assert case.visible("read_committed") == committed
    assert (late(case) > 0) == (call == "offsets")
    result = case.run()

    assert result["records_sent"] == case.records - committed
    assert result["attempts"] == 2
    # Not delayed until Kafka would have aborted the transaction itself.
    assert result["seconds"] < TRANSACTION_TIMEOUT_MS / 1000 / 2
    assert case.audit().is_exact
    assert case.run()["records_sent"] == 0


# 44


def test_republish_paused_until_successor_finished(case: Case) -> None:
    """An attempt that wakes up in an open transaction after its successor finished is fenced."""
    senders = []

    def engine(_: RepublishPlan, groups: list[list[SendJob]], tick: Any) -> None:
        sender = halted_sender(groups[0][0], case.folder / "sender", "commit", False, nth=2)
        senders.append(sender)
        sender.wait_until_halted()
        os.kill(sender.process.pid, signal.SIGSTOP)
        raise Stopped

    try:
        with pytest.raises(Stopped):
            case.run(engine)
        result = case.run()
        assert case.audit().is_exact
        before = case.visible("read_uncommitted")
        [sender] = senders
        sender.go_on()
        os.kill(sender.process.pid, signal.SIGCONT)
        answer = sender.answer()
    finally:
        for sender in senders:
            sender.kill()

    assert result["verification"]["is_exact"]
    assert answer["error"] == "SupersededError"
    assert "attempt 2 of run" in answer["message"]
    assert case.visible("read_uncommitted") == before
    assert case.audit().is_exact


# 45, 47


def losing_answers(transactions: int) -> Callable[[Tapped, str, bool], None]:
    """Return a hook that lets commits succeed in Kafka, but loses the answers to some of them."""
    left = itertools.count(transactions, -1)

    def hook(_: Tapped, call: str, has_ended: bool) -> None:
        if call == "commit" and has_ended and next(left) > 0:
            raise lost_answer()

    return hook


def test_republish_answer_to_commit_lost(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit whose answer was lost is looked up, not repeated."""
    made = tap(monkeypatch, losing_answers(3))

    result = case.run()

    assert len(made.made) >= 3
    assert result["verification"]["is_exact"]
    assert case.audit().is_exact


def test_republish_mutated_not_reading_progress(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender that resumes from memory after the fence sends twice, and verify fails."""
    real_send, real_read = sending._send_transaction, sending.read_progress
    memory: dict[int, ShardProgress] = {}

    def send(job: SendJob, *arguments: Any) -> tuple[ShardProgress, float]:
        memory[job.shard.number], free_at = real_send(job, *arguments)
        return memory[job.shard.number], free_at

    def remember(job: SendJob, store: ProgressStore) -> ShardProgress:
        return memory.setdefault(job.shard.number, real_read(job, store))

    tap(monkeypatch, losing_answers(2))
    monkeypatch.setattr(sending, "_send_transaction", send)
    monkeypatch.setattr(sending, "read_progress", remember)

    with pytest.raises(VerifyError, match=rf"lost 0, duplicated {2 * SMALL}, out of order \d"):
        case.run()

    assert case.audit().twice == 2 * SMALL
    assert case.planned().run.receipt() is None


def test_republish_broker_killed_in_commit(
    case: Case, own_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit waits for a coordinator that is restarted meanwhile, and is exact."""
    commits = itertools.count(1)
    with ThreadPoolExecutor(1) as pool:
        restarted: list[Any] = []

        def hook(_: Tapped, call: str, has_ended: bool) -> None:
            if call == "commit" and not has_ended and next(commits) == 2:
                own_kafka.kill_node(1)
                restarted.append(pool.submit(own_kafka.start_node, 1))

        tap(monkeypatch, hook)
        result = case.run()
        restarted[0].result(60)

    assert result["verification"]["is_exact"]
    assert case.audit().is_exact


# 46


def test_republish_paused_beyond_transaction_timeout(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that Kafka aborted while its sender was paused is sent again, once."""
    monkeypatch.setitem(producer.SETTINGS, "transaction.timeout.ms", 2_000)
    monkeypatch.setitem(producer.SETTINGS, "message.timeout.ms", 1_900)
    monkeypatch.setitem(producer.SETTINGS, "linger.ms", 200)
    offsets = itertools.count(1)
    paused: list[int] = []

    def hook(tapped: Tapped, call: str, has_ended: bool) -> None:
        if call == "offsets" and not has_ended and next(offsets) == 2:
            tapped.flush(10)
            paused.append(late(case))
            wait_for(lambda: not late(case), "Kafka's abort")

    tap(monkeypatch, hook)
    result = case.run()

    assert paused == [SMALL]
    assert result["verification"]["is_exact"]
    assert case.audit().is_exact
    assert case.visible("read_uncommitted") == case.records + SMALL


# 48


def identity(local: LocalKafka, tp: TopicPartition) -> tuple[int, int]:
    """Return id and epoch of the producer that wrote the last batch in a partition's log."""
    folder = local.folder / "node-1" / "data" / str(tp)
    content = max(folder.glob("*.log")).read_bytes()
    at, found = 0, (-1, -1)
    while at + 61 <= len(content):
        # A batch's header: offset, length, leader epoch, magic, …, producer id at 43 and epoch.
        [size] = struct.unpack_from(">i", content, at + 8)
        found = struct.unpack_from(">qh", content, at + 43)
        at += 12 + size
    return found


def end_transaction(bootstrap: str, transactional_id: str, producer: tuple[int, int]) -> int:
    """Send a late EndTxn with a commit, as a network may; return Kafka's error code."""
    name = transactional_id.encode()
    body = struct.pack(">hhih", 26, 1, 1, -1)  # EndTxn, version 1, correlation id, no client id
    body += struct.pack(f">h{len(name)}sqh?", len(name), name, *producer, True)
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.makefile("rb").read(14)
    code: int = struct.unpack(">iiih", answer)[3]
    return code


@pytest.fixture
def late_end(
    case: Case, own_kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[int], list[tuple[int, int]]]:
    """Let the EndTxn of the first transaction arrive again in the second, which then fails.

    At that time, the second transaction's records are in Kafka, but its progress isn't. Returns
    Kafka's answer, and the last writer to the first partition at each transaction's end.
    """
    answers: list[int] = []
    producers: list[tuple[int, int]] = []
    tp = TopicPartition(case.target, 0)

    def hook(tapped: Tapped, call: str, has_ended: bool) -> None:
        if call != "offsets" or has_ended:
            return
        tapped.flush(20)
        producers.append(identity(own_kafka, tp))
        if len(producers) == 2:
            plan = case.planned().plan
            number = next(s.number for s in plan.shards if s.target_partition == 0)
            name = producer.shard_transactional_id(plan.transactional_name, number)
            answers.append(end_transaction(case.bootstrap, name, producers[0]))
            raise lost_answer()

    tap(monkeypatch, hook)
    return answers, producers


INVALID_PRODUCER_EPOCH = 47
PRODUCER_FENCED = 90


def test_republish_end_of_transaction_late(
    case: Case, late_end: tuple[list[int], list[tuple[int, int]]]
) -> None:
    """Each transaction has an epoch of its own: a late EndTxn is refused, and nothing is torn."""
    answers, producers = late_end

    result = case.run()

    [answer] = answers
    assert answer in (INVALID_PRODUCER_EPOCH, PRODUCER_FENCED)
    assert len(set(producers)) > len(case.content[0]) // SMALL
    assert result["verification"]["is_exact"]
    assert case.audit().is_exact


def test_republish_mutated_keeping_producer(
    case: Case,
    late_end: tuple[list[int], list[tuple[int, int]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sender that keeps its producer shares its epoch: a late EndTxn tears, and verify fails."""
    answers, producers = late_end
    real, abort = sending.fenced_producer, sending._abort
    kept: dict[str, Any] = {}

    def keep(settings: Any, name: str, *arguments: Any, **more: Any) -> Any:
        if name not in kept:
            kept[name] = real(settings, name, *arguments, **more)
        return kept[name]

    def drop(failed: Any) -> None:
        kept.clear()
        abort(failed)

    monkeypatch.setattr(sending, "fenced_producer", keep)
    monkeypatch.setattr(sending, "_abort", drop)

    with pytest.raises(VerifyError, match=f"lost 0, duplicated {SMALL}"):
        case.run()

    assert answers == [0]
    assert producers[0] == producers[1]
    assert case.audit().twice == SMALL


def test_republish_producers_of_a_shard(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is a producer for each transaction."""
    made = tap(monkeypatch, lambda tapped, call, has_ended: None)

    case.run()

    needed = sum(-(-len(records) // SMALL) for records in case.content.values())
    assert len(made.made) == needed


def test_commit_of_zombie_late(case: Case) -> None:
    """A replaced producer can't commit, even while its successor's transaction is open."""
    settings = {"bootstrap.servers": case.bootstrap}
    name = f"kafka-drain-republish-{case.target}"
    zombie = fenced_producer(settings, name, case.target, 30.0)
    zombie.begin_transaction()
    zombie.produce(case.target, b"zombie", partition=0)
    zombie.flush(20)
    successor = fenced_producer(settings, name, case.target, 30.0)
    successor.begin_transaction()
    successor.produce(case.target, b"successor", partition=0)
    successor.flush(20)

    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(30.0)
    successor.commit_transaction(30.0)

    assert raised.value.args[0].code() == KafkaError._FENCED
    assert raised.value.args[0].fatal()
    assert case.visible("read_uncommitted") == 2
    assert case.visible("read_committed") == 1


# 51


def test_republish_metadata_small(case: Case, own_kafka: LocalKafka) -> None:
    """Progress fits into a KiB of metadata, and a broker with that limit accepts it."""
    largest = ShardProgress(2**63 - 1, 2**63 - 1, "f" * 64).metadata()

    case.run()
    slots = case.planned().plan.slots
    group = slots[0].group
    asked = [KafkaTopicPartition(slot.tp.topic, slot.tp.partition) for slot in slots]
    reader = Consumer({"bootstrap.servers": case.bootstrap, "group.id": group})
    found = [len(at.metadata) for at in reader.committed(asked, timeout=30)]
    reader.close()
    consumer = Consumer({"bootstrap.servers": case.bootstrap, "group.id": "metadata"})
    with pytest.raises(KafkaException) as raised:
        consumer.commit(
            offsets=[KafkaTopicPartition(case.target, 0, 1, "x" * 1025)], asynchronous=False
        )
    consumer.close()

    assert own_kafka.properties["offset.metadata.max.bytes"] == "1024"
    assert raised.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE
    assert len(largest) < 1024
    assert len(found) == 2
    assert max(found) <= len(largest)


# 55


class _Small(Tapped):
    """A producer that counts how often its queue was full."""

    full = 0

    def produce(self, *arguments: Any, **more: Any) -> None:
        try:
            super().produce(*arguments, **more)
        except BufferError:
            _Small.full += 1
            raise


def test_republish_queue_full(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the queue is full, each record waits for its place, and no commit leaves one out."""
    monkeypatch.setitem(producer.SETTINGS, "queue.buffering.max.messages", 10)
    # The ten wait this long: the eleventh finds them there, however slow the machine is.
    monkeypatch.setitem(producer.SETTINGS, "linger.ms", 5)
    monkeypatch.setattr(_Small, "full", 0)
    tap(monkeypatch, lambda tapped, call, has_ended: None, base=_Small)

    result = case.run()

    assert _Small.full > 10
    assert result["verification"]["is_exact"]
    assert case.audit().is_exact


class _Refusing(Tapped):
    """A producer that refuses the 1,000th queued record."""

    queued = itertools.count(1)

    def produce(self, *arguments: Any, **more: Any) -> None:
        if next(_Refusing.queued) == 1_000:
            raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, "no place"))
        super().produce(*arguments, **more)


def test_republish_record_not_queued(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that couldn't be queued aborts its transaction, and is sent with the next."""
    monkeypatch.setattr(_Refusing, "queued", itertools.count(1))
    tap(monkeypatch, lambda tapped, call, has_ended: None, base=_Refusing)

    result = case.run()

    assert next(_Refusing.queued) > case.records + 1
    assert result["verification"]["is_exact"]
    assert case.audit().is_exact


class _Fenced(Tapped):
    """A producer that reports once, while it is polled, that it is fenced."""

    served = itertools.count(1)

    def poll(self, *arguments: Any) -> int:
        if next(_Fenced.served) == 3:
            raise KafkaException(KafkaError(KafkaError._FENCED, "a newer producer", fatal=True))
        return int(super().poll(*arguments))


def test_republish_fenced_while_queueing(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fatal error between two records creates a new producer, like an error in a call."""
    monkeypatch.setattr(_Fenced, "served", itertools.count(1))
    tap(monkeypatch, lambda tapped, call, has_ended: None, base=_Fenced)

    result = case.run()

    assert next(_Fenced.served) > 3
    assert result["verification"]["is_exact"]
    assert case.audit().is_exact


# 58


def test_read_uncommitted_sees_aborted_copies(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers with read_uncommitted see aborted copies; those with read_committed don't."""
    offsets = itertools.count(1)

    def hook(tapped: Tapped, call: str, has_ended: bool) -> None:
        if call == "offsets" and has_ended and next(offsets) == 2:
            tapped.flush(20)
            raise lost_answer()

    tap(monkeypatch, hook)
    case.run()

    assert case.audit().is_exact
    assert case.visible("read_committed") == case.records
    assert case.visible("read_uncommitted") == case.records + SMALL
