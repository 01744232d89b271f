"""Sending: when it gives up, where records go, and what a limit makes it wait."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import thread as pools
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_drain.data_files.records import SCHEMA
from kafka_drain.errors import (
    DeliveryError,
    KafkaUnavailableError,
    ManifestInvalidError,
    ProgressError,
    SourceRecordError,
    SupersededError,
)
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress
from kafka_drain.republish import run as republishing
from kafka_drain.republish.engines import worker
from kafka_drain.republish.engines.worker import Worker
from kafka_drain.republish.planning.placement import partition_of_key
from kafka_drain.republish.planning.shards import ProgressSlot
from kafka_drain.republish.run import Republish
from kafka_drain.republish.sending import producer as producing
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.sending.pacing import Pacer
from kafka_drain.republish.sending.playback import Playback
from kafka_drain.republish.sending.producer import ProducerLost
from kafka_drain.republish.sending.progress_store import ShardProgress
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.schemas.schema_ids import SchemaIds
from tests.kafka_drain.made_archive import NOW
from tests.kafka_drain.republish.planning.test_plan import PLAN

UNAVAILABLE = KafkaUnavailableError("no answer")
LOST = ProducerLost(KafkaError(KafkaError._TIMED_OUT, "no answer"))


def job(**changes: Any) -> SendJob:
    values: dict[str, Any] = {
        "root": "",
        "key": "k",
        "plan": "p",
        "attempt": 1,
        "attempts": PLAN.attempts,
        "shards": PLAN.shards[1:],
        "partitions": 2,
        "provenance": False,
        "settings": {},
    }
    return SendJob(**(values | changes))


class Clock:
    """Seconds that pass only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(sending, "time", clock)
    return clock


def transactions_that(
    fail: Callable[[], Exception | None], patch: pytest.MonkeyPatch, store: Exception | None
) -> None:
    """Let transactions of five records fail or not, and the store when it is asked after them."""

    def transactions(*_: Any) -> Iterator[tuple[int, float]]:
        error = fail()
        if error is not None:
            raise error
        yield 5, 0.0

    def read(*_: Any) -> None:
        if store is not None:
            raise store

    patch.setattr(sending, "_transactions", transactions)
    patch.setattr(sending, "_refuse_if_superseded", read)


@pytest.mark.parametrize("error", [UNAVAILABLE, LOST])
@pytest.mark.parametrize("store", [None, UNAVAILABLE])
def test_send_shard_waits_for_kafka(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception, store: Exception | None
) -> None:
    """Kafka may be away for as long as a run promises to wait, its store too."""
    fails = lambda: error if clock.now < sending.PATIENCE_SECONDS else None  # noqa: E731
    transactions_that(fails, monkeypatch, store)

    assert sending.send_shard(job()) == 5
    assert clock.now >= sending.PATIENCE_SECONDS


@pytest.mark.parametrize("error", [UNAVAILABLE, LOST])
def test_send_shard_gives_up(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """It isn't waited for ever, not at all by one that was stopped, nor beside a later attempt."""
    transactions_that(lambda: error, monkeypatch, UNAVAILABLE)

    with pytest.raises(KafkaUnavailableError, match="no answer"):
        sending.send_shard(job())
    assert 300 < clock.now < 302
    with pytest.raises(DeliveryError, match="was stopped"):
        sending.send_shard(job(), lambda: True)
    transactions_that(lambda: error, monkeypatch, SupersededError("taken over"))
    with pytest.raises(SupersededError):
        sending.send_shard(job())


@pytest.mark.parametrize("error", [UNAVAILABLE, LOST])
@pytest.mark.parametrize("comes_back", [True, False])
def test_send_shard_patience_from_last_commit(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, error: Exception, comes_back: bool
) -> None:
    """Patience counts from the last commit, after each outage anew, not from the beginning."""
    # c: commits after half of the patience; f: fails.
    steps = iter("ccccffccccffcccc" + ("" if comes_back else "f" * 1_000))
    committed_at = [0.0]

    def transactions(*_: Any) -> Iterator[tuple[int, float]]:
        for step in steps:
            if step == "f":
                raise error
            clock.sleep(sending.PATIENCE_SECONDS / 2)
            committed_at.append(clock.now)
            yield 5, 0.0

    monkeypatch.setattr(sending, "_transactions", transactions)
    monkeypatch.setattr(sending, "_refuse_if_superseded", lambda *_: None)

    if comes_back:
        assert sending.send_shard(job()) == 12 * 5
    else:
        with pytest.raises(KafkaUnavailableError, match="no answer"):
            sending.send_shard(job())
        assert 300 < clock.now - committed_at[-1] < 302


def test_send_shard_reads_after_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an older attempt commits until it is fenced isn't sent again."""
    all_sent = job().records
    progress = [ShardProgress(0, 0, "p")]

    def fenced_producer(*_: Any, **__: Any) -> object:
        progress.append(ShardProgress(0, all_sent, "p"))
        return object()

    monkeypatch.setattr(sending, "fenced_producer", fenced_producer)
    monkeypatch.setattr(sending, "read_progress", lambda *_: progress[-1])

    # Nothing could be sent with such a producer.
    assert sending.send_shard(job()) == 0


def test_worker_ends_with_its_tick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the wait for those who send ends them first."""
    ended = []

    def run_job(_: Any, stopped: Callable[[], bool]) -> dict[str, Any]:
        while not stopped():
            pass
        ended.append(True)
        return {}

    def tick() -> None:
        raise UNAVAILABLE

    monkeypatch.setattr(worker, "run_job", run_job)
    with pytest.raises(KafkaUnavailableError):
        Worker().run([[job()], [job()]], 1, tick)

    assert ended == [True, True]


def test_worker_ends_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are told to end, and waited for."""
    calls: list[str] = []

    class Child:
        def do(self, _: Any) -> dict[str, Any]:
            while "end" not in calls:
                pass
            return {}

        def end(self) -> None:
            calls.append("end")

        def close(self) -> None:
            calls.append("close")

    def tick() -> None:
        raise UNAVAILABLE

    monkeypatch.setattr(worker, "Child", Child)
    with pytest.raises(KafkaUnavailableError):
        Worker().run([[job()], [job()]], 2, tick)

    assert calls == ["end", "end", "close", "close"]


def test_progress_unknown_is_said_once(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    """Progress that can't be read ends nothing; it is said once, and again after it was known."""
    seconds = iter(range(0, 1_000, 3))
    answers: list[Any] = [UNAVAILABLE, UNAVAILABLE, {}, UNAVAILABLE, {}]

    class ProgressStore:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def read(self, *_: Any) -> Any:
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        def close(self) -> None: ...

    def engine(_: Any, __: Any, tick: Callable[[], None]) -> None:
        for _ in range(4):
            tick()

    monkeypatch.setattr(republishing, "ProgressStore", ProgressStore)
    monkeypatch.setattr(
        republishing, "Progress", lambda *a: Progress(*a, clock=lambda: float(next(seconds)))
    )
    monkeypatch.setattr(Republish, "_jobs", lambda *_: [])
    cluster: Any = SimpleNamespace(
        config=SimpleNamespace(for_librdkafka=dict),
        ids_of=lambda _: {"copy": "id", "other": "id2"},
    )
    none: Any = None
    run: Any = SimpleNamespace(is_abandoned=False)
    republish = Republish(none, cluster, run, PLAN, none)

    republish._send(PLAN, engine, 1, 0)  # type: ignore[arg-type]

    unknown = ["the progress is unknown" in line for line in said]
    assert unknown == [True, False, True, False]


class Queue:
    """A producer that keeps what it is given."""

    def __init__(self) -> None:
        self.partitions: dict[bytes | None, int] = {}

    def produce(self, _: str, __: bytes, key: bytes | None, partition: int, *more: Any) -> None:
        self.partitions[key] = partition


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_queue_by_key(monkeypatch: pytest.MonkeyPatch, partitions: int) -> None:
    """Keys go where the plan's count of partitions puts them, however many there are today."""
    keys = [None, b"", *(b"%d" % n for n in range(50))]
    rows = [(key, b"v", None, 1, offset) for offset, key in enumerate(keys)]
    monkeypatch.setattr(sending, "rows_of", lambda _: rows)
    monkeypatch.setattr(sending, "offset_of_nul", lambda _: None)
    queue: Any = Queue()
    batch: Any = None
    shard = PLAN.shards[1]
    assert shard.target_partition is None
    assert shard.source == TopicPartition("t", 1)

    sending._queue(job(partitions=partitions), queue, shard, batch)

    assert queue.partitions == {key: partition_of_key(key, partitions, 1) for key in keys}


@pytest.mark.parametrize(
    ("limits", "seconds"),
    [
        ({"bytes_per_second": 100.0}, 300.0),
        ({"records_per_second": 0.01}, 300.0),
        ({"bytes_per_second": 10_000.0, "records_per_second": 100.0}, 3.0),
        ({}, 0.0),
    ],
)
def test_limits_of_large_records(
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, float],
    seconds: float,
) -> None:
    """What one transaction may not wait for is waited for after it, with nothing left open."""
    sizes = [10_000] * 4
    progress = [ShardProgress(0, 0, "p")]
    open_since: list[float] = []

    class Source:
        shard, next_offset = PLAN.shards[1], 0

        def __init__(self, _: Any) -> None: ...

        def go_to(self, _: Any) -> None: ...

        def take(self, *_: Any) -> Any:
            return (SimpleNamespace(num_rows=1), sizes.pop()) if sizes else None

        def queued(self, *_: Any) -> None: ...

    class Producer:
        def begin_transaction(self) -> None:
            open_since.append(clock.now)

        def send_offsets_to_transaction(self, offsets: Any, *_: Any) -> None:
            metadata = json.loads(offsets[0].metadata)
            progress.append(ShardProgress(0, metadata["records"], "p"))

        def commit_transaction(self, _: float) -> None:
            assert clock.now - open_since[-1] <= sending.TRANSACTION_SECONDS + 1

        def poll(self, _: float) -> None: ...

        def __len__(self) -> int:
            return 0

    monkeypatch.setattr(sending, "_Source", Source)
    monkeypatch.setattr(sending, "Pacer", lambda seconds: Pacer(seconds, clock.monotonic))
    lingers = set()

    def fenced_producer(*_: Any, **settings: Any) -> Producer:
        lingers.add(settings.get("linger.ms"))
        return Producer()

    monkeypatch.setattr(sending, "fenced_producer", fenced_producer)
    monkeypatch.setattr(sending, "read_progress", lambda *_: progress[-1])
    monkeypatch.setattr(sending, "_queue", lambda *_: 0)
    shard = replace(PLAN.shards[1], files=(replace(PLAN.shards[1].files[0], records=4),))

    sent = sending.send_shard(job(shards=(shard,), **limits))

    assert sent == 4
    assert clock.now >= seconds
    # What is limited arrives evenly, not in bursts.
    assert lingers == ({50} if limits else {None})


def test_send_shard_commit_unanswered(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that is gone while it commits isn't waited for ever, as no one else is."""

    class Source:
        shard, next_offset = PLAN.shards[1], 0

        def __init__(self, _: Any) -> None:
            self.left = 1

        def go_to(self, _: Any) -> None:
            self.left = 1

        def take(self, *_: Any) -> Any:
            self.left -= 1
            return (SimpleNamespace(num_rows=1), 1) if self.left >= 0 else None

        def queued(self, *_: Any) -> None: ...

        def forget(self) -> None: ...

    def unanswered(seconds: float) -> None:
        assert seconds > 0, "waits for ever"
        clock.sleep(seconds)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", retriable=True))

    def nothing(*_: Any) -> int:
        return 0

    producer = SimpleNamespace(
        begin_transaction=nothing,
        poll=nothing,
        send_offsets_to_transaction=nothing,
        commit_transaction=unanswered,
        abort_transaction=unanswered,
        purge=nothing,
    )
    monkeypatch.setattr(producing, "time", clock)
    monkeypatch.setattr(sending, "_Source", Source)
    monkeypatch.setattr(sending, "Pacer", lambda seconds: Pacer(seconds, clock.monotonic))
    monkeypatch.setattr(sending, "_wait", nothing)
    monkeypatch.setattr(sending, "len", nothing, raising=False)
    monkeypatch.setattr(sending, "fenced_producer", lambda *_, **__: producer)
    monkeypatch.setattr(sending, "read_progress", lambda *_: ShardProgress(0, 0, "p"))
    monkeypatch.setattr(sending, "_refuse_if_superseded", nothing)
    monkeypatch.setattr(sending, "_queue", nothing)

    with pytest.raises(KafkaUnavailableError, match="a retry resumes"):
        sending.send_shard(job())

    assert sending.PATIENCE_SECONDS < clock.now < sending.PATIENCE_SECONDS + 120


class Acknowledging:
    """A producer of which each call acknowledges a record of 1 MiB."""

    def __init__(self, records: int) -> None:
        self.waiting, self.calls = records, list[str]()

    def __len__(self) -> int:
        return self.waiting

    def _call(self, name: str) -> None:
        self.calls.append(name)
        self.waiting -= 1

    def poll(self, _: float) -> None:
        self._call("poll")

    def flush(self, _: float) -> None:
        self._call("flush")


@pytest.mark.parametrize(("stops_after", "polls"), [(99, 3), (2, 2), (0, 0)])
def test_wait_for_full_batches(stops_after: int, polls: int) -> None:
    """A commit finds less than a full batch, which it flushes, unless the attempt is stopped."""
    producer: Any = Acknowledging(5)
    pacer = Pacer(60.0)
    for _ in range(5):
        pacer.queued(1, 1 << 20)

    sending._wait(producer, pacer, lambda: len(producer.calls) >= stops_after)

    assert producer.calls == ["poll"] * polls


@pytest.mark.parametrize(("records", "call"), [(1, "flush"), (2, "flush"), (3, "poll")])
def test_produce_without_room(monkeypatch: pytest.MonkeyPatch, records: int, call: str) -> None:
    """Until there is room, librdkafka is left alone with a full batch, and told to send a part."""
    producer: Any = Acknowledging(0)
    pacer = Pacer(60.0)
    taken = [(SimpleNamespace(num_rows=1), 1 << 20)] * records

    def queue(*_: Any) -> int:
        producer.waiting += 1
        return 0

    monkeypatch.setattr(sending, "_queue", queue)
    # Room for all of them at first, and for nothing before all are acknowledged.
    monkeypatch.setattr(pacer, "room", lambda waiting: 1 if waiting == 0 or len(taken) else 0)
    source: Any = SimpleNamespace(
        shard=None,
        take=lambda *_: taken.pop() if taken else None,
        queued=lambda *_: None,
    )
    polled = producer.poll
    monkeypatch.setattr(producer, "poll", lambda seconds: polled(seconds) if seconds else None)

    sending._produce(job(), producer, source, pacer, lambda: False)

    assert producer.calls[0] == call


@pytest.mark.parametrize("ids", [None, SchemaIds({5: 105}, {}, frozenset({"t:key"}))])
def test_job_read_again(ids: SchemaIds | None) -> None:
    """A job is the same in the process that it is passed to, with its schema ids."""
    sent = job(schema_ids=ids)

    assert SendJob.from_dict(json.loads(json.dumps(sent.to_dict()))) == sent


def test_source_replaces_schema_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is taken to be sent has the target's ids; an id without one ends the transaction."""
    rows = [{"value": b"\0\0\0\0" + bytes([id_]), "offset": id_} for id_ in (5, 6)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)

    def read_shard(*_: Any) -> Iterator[pa.RecordBatch]:
        yield batch.slice(0, 1)
        yield batch.slice(1)

    monkeypatch.setattr(sending, "read_shard", read_shard)
    of_job = job(schema_ids=SchemaIds({5: 105}))
    source = sending._Source(of_job)
    source.go_to(ShardProgress(0, 0, of_job.plan))

    taken = source.take(5, 1_000)
    assert taken is not None
    assert taken[0]["value"].to_pylist() == [b"\0\0\0\0\x69"]
    with pytest.raises(SourceRecordError, match="schema id 6"):
        source.take(5, 1_000)


@pytest.mark.parametrize("place", range(3))
def test_send_larger_than_queue(monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """A value that a producer's queue can't hold gets a producer with a larger one, once.

    Wherever it is, each record arrives, once and in order.
    """
    queue = 64
    sizes = [10, 20, 30]
    sizes[place] = (queue << 10) + 1
    value = bytes(max(sizes))
    progress = [ShardProgress(0, 0, "p")]
    made: list[int] = []
    aborted: list[bool] = []
    committed: list[int] = []

    def read_shard(_: str, __: Any, offset: int) -> Iterator[pa.RecordBatch]:
        for at, size in enumerate(sizes):
            if at >= offset:
                row = {"value": value[:size], "offset": at, "timestamp": NOW}
                yield pa.RecordBatch.from_pylist([row], schema=SCHEMA)

    class Producer:
        def __init__(self, kbytes: int) -> None:
            self.most, self.polls = kbytes << 10, 0
            self.queued: list[int] = []

        def produce(self, _: str, value: bytes, *more: Any) -> None:
            if len(value) > self.most:
                raise BufferError("Local: Queue full")
            self.queued.append(len(value))

        def poll(self, _: float) -> None:
            self.polls += 1
            assert self.polls < 1_000, "waits for ever"

        def begin_transaction(self) -> None: ...

        def abort_transaction(self, _: float) -> None:
            aborted.append(True)

        def send_offsets_to_transaction(self, offsets: Any, *_: Any) -> None:
            records = json.loads(offsets[0].metadata)["records"]
            self.following = ShardProgress(offsets[0].offset, records, "p")

        def commit_transaction(self, _: float) -> None:
            progress.append(self.following)
            committed.extend(self.queued)

        def __len__(self) -> int:
            return 0

    def fenced_producer(*_: Any, **settings: Any) -> Producer:
        made.append(settings.get(sending.QUEUE, queue))
        assert len(made) < 10, "sends for ever"
        return Producer(made[-1])

    monkeypatch.setitem(producing.SETTINGS, sending.QUEUE, queue)
    monkeypatch.setattr(sending, "read_shard", read_shard)
    monkeypatch.setattr(sending, "fenced_producer", fenced_producer)
    monkeypatch.setattr(sending, "read_progress", lambda *_: progress[-1])
    file = replace(PLAN.shards[1].files[0], first=0, last=2, records=3)
    shard = replace(PLAN.shards[1], files=(file,))

    sent = sending.send_shard(job(shards=(shard,)))

    assert sent == 3
    assert progress[-1] == ShardProgress(3, 3, "p")
    assert committed == sizes
    assert aborted == [True]
    assert [kbytes > 2 * queue for kbytes in made] == [False, True]


@pytest.mark.parametrize("limits", [(0.0, 0.0), (9.0, 0.0), (0.0, 6.0), (9.0, 6.0)])
def test_job_shared_by(limits: tuple[float, float]) -> None:
    """Writers side by side keep within a limit together; what has none gets none."""
    records, size = limits
    whole = job(records_per_second=records, bytes_per_second=size)

    shared = whole.shared_by(3)

    assert (shared.records_per_second, shared.bytes_per_second) == (records / 3, size / 3)
    assert shared.is_limited is whole.is_limited is any(limits)


#: Offsets of a chain's two shards: of a topic, and of the one that was made in its place.
OFFSETS = {0: [10, 11, 13], 1: [7, 8]}
CHAIN = tuple(
    replace(
        PLAN.shards[0],
        number=number,
        topic_id=str(number),
        files=(replace(PLAN.shards[0].files[0], first=first, last=last, records=len(offsets)),),
    )
    for (number, offsets), (first, last) in zip(OFFSETS.items(), [(10, 13), (5, 8)], strict=True)
)
#: What is committed after each of the records; before another shard, where its files begin.
STEPS = [(10, 0), (11, 1), (12, 2), (5, 3), (8, 4), (9, 5)]
LATE = KafkaException(KafkaError(KafkaError._TIMED_OUT, "too late"))
DENIED = KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "no"))
TOO_LARGE = KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large")


class Link:
    """The chain's files, and a cluster that takes its transactions.

    Attributes:
        rows: What the files have besides offsets, by offset.
        progress: What is committed; None where it is lost.
        latest: The attempt that Kafka knows of; None where that is lost.
        failing: Number of calls that succeed before one fails, by name; `committed` fails late.
        error: What a failing call raises.
        refused: What becomes known of a record when a call fails.
        arrived: Records of committed transactions.
        steps: Progress of committed transactions.
        done: What else was done.
    """

    def __init__(self) -> None:
        self.offsets = {number: list(found) for number, found in OFFSETS.items()}
        self.rows: dict[int, dict[str, Any]] = {}
        self.progress: ShardProgress | None = ShardProgress(*STEPS[0], "p")
        self.latest: int | None = 1
        self.failing: dict[str, int] = {}
        self.error: Exception = LATE
        self.refused: KafkaError | None = None
        self.arrived: list[tuple[Any, ...]] = []
        self.steps: list[tuple[int, int]] = []
        self.done: list[str] = []
        self.made: list[tuple[Any, ...]] = []

    def read_shard(self, _: str, shard: Any, offset: int) -> Iterator[pa.RecordBatch]:
        rows = [
            {"key": b"k", "value": b"%d" % at, "offset": at, "timestamp": NOW}
            | self.rows.get(at, {})
            for at in self.offsets[shard.number]
            if at >= offset
        ]
        for at in range(0, len(rows), 2):
            yield pa.RecordBatch.from_pylist(rows[at : at + 2], schema=SCHEMA)

    def store(self, _: object) -> Any:
        def read(slots: Iterable[ProgressSlot]) -> dict[ProgressSlot, Any]:
            latest = None if self.latest is None else ShardProgress(self.latest, 0, "p")
            return {s: latest if s == PLAN.attempts else self.progress for s in slots}

        return SimpleNamespace(
            read=read, group_metadata=lambda group: group, close=lambda: self.done.append("close")
        )

    def producer(
        self,
        settings: Any,
        name: str,
        topic: str,
        _: float,
        *,
        on_delivery: Callable[[Any, Any], None],
        **more: Any,
    ) -> Any:
        self.made.append((name, topic, more))
        assert len(self.made) < 20, "sends for ever"
        open_: list[tuple[Any, ...]] = []
        following: list[ShardProgress] = []

        def call(name: str) -> None:
            left = self.failing.get(name, -1)
            self.failing[name] = left - 1
            if left == 0:
                if self.refused is not None:
                    on_delivery(self.refused, None)
                raise self.error

        def add(*record: Any) -> None:
            call("produce")
            open_.append(record)

        def send_offsets(offsets: Any, group: str, _: float) -> None:
            call("offsets")
            assert (group, offsets[0].topic, offsets[0].partition) == ("g", "copy", 0)
            following.append(ShardProgress(offsets[0].offset, **json.loads(offsets[0].metadata)))

        def commit(_: float) -> None:
            call("commit")
            self.arrived += open_
            self.progress = following[-1]
            self.steps.append((self.progress.offset, self.progress.records))
            call("committed")

        def abort(_: float) -> None:
            self.done.append("abort")
            call("abort")

        class Producer:
            begin_transaction = staticmethod(lambda: None)
            produce = staticmethod(add)
            poll = flush = staticmethod(lambda _: call("poll"))
            send_offsets_to_transaction = staticmethod(send_offsets)
            commit_transaction = staticmethod(commit)
            abort_transaction = staticmethod(abort)
            purge = staticmethod(lambda: self.done.append("purge"))

            def __len__(self) -> int:
                return 0

        return Producer()


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Link:
    link = Link()
    monkeypatch.setattr(sending, "read_shard", link.read_shard)
    monkeypatch.setattr(sending, "ProgressStore", link.store)
    monkeypatch.setattr(sending, "fenced_producer", link.producer)
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 1)
    return link


def chain_job(**changes: Any) -> SendJob:
    return job(**{"shards": CHAIN} | changes)


@pytest.mark.parametrize("fails", [None, "commit", "committed", "offsets", "poll", "produce"])
@pytest.mark.parametrize("most", [1, 2, 4, 99])
def test_send_chain(
    link: Link, monkeypatch: pytest.MonkeyPatch, most: int, fails: str | None
) -> None:
    """Each record of a chain arrives once and in order, wherever and however a call fails.

    Also if nobody knows whether a commit took effect.
    """
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", most)
    if fails is not None:
        link.failing[fails] = 1 if most < 4 else 0

    sending.send_shard(chain_job())

    values = [record[1] for record in link.arrived]
    assert values == [b"%d" % at for offsets in OFFSETS.values() for at in offsets]
    assert link.progress == ShardProgress(*STEPS[-1], "p")
    assert set(link.steps) <= set(STEPS)
    assert link.done[-1] == "close"
    assert link.done.count("abort") == (fails is not None)


def test_send_chain_from_progress(link: Link) -> None:
    """Whatever is sent already, the rest is sent, each with its offset to go on from."""
    sent = []
    for at, step in enumerate(STEPS):
        link.progress, link.steps, link.arrived = ShardProgress(*step, "p"), [], []
        sent.append(sending.send_shard(chain_job()))
        assert link.steps == STEPS[at + 1 :]
        assert len(link.arrived) == 5 - at

    assert sent == [5, 4, 3, 2, 1, 0]


@pytest.mark.parametrize("has_provenance", [True, False])
def test_send_whole_record(link: Link, has_provenance: bool) -> None:
    """A record arrives with all that it has, where the plan says, and its origin if asked for."""
    link.rows[11] = {"key": None, "headers": [{"key": "h", "value": b"1"}]}
    origin = [
        ("kafka-drain.topic", b"t"), ("kafka-drain.partition", b"0"), ("kafka-drain.offset", b"11")
    ]  # fmt: skip

    sending.send_shard(chain_job(provenance=has_provenance, largest_batch=4_096))

    at = int(NOW.timestamp() * 1000)
    headers = [("h", b"1"), *(origin if has_provenance else [])]
    assert link.arrived[1] == ("copy", b"11", None, 0, None, None, at, headers)
    assert bool(link.arrived[0][-1]) is has_provenance
    # All attempts, and all transactions of one, fence each other by this name.
    assert {made[:2] for made in link.made} == {("kafka-drain-republish-k-0", "copy")}
    assert {made[2]["batch.size"] for made in link.made} == {3_096}


@pytest.mark.parametrize(
    ("progress", "says"),
    [
        (None, "the progress of t-0 in group g is missing"),
        (ShardProgress(10, 0, "another"), "belongs to plan another, this is plan p"),
    ],
)
def test_send_no_progress(link: Link, progress: ShardProgress | None, says: str) -> None:
    """Progress that is lost, or of another plan, never means to start again."""
    link.progress = progress

    with pytest.raises(ProgressError, match=says):
        sending.send_shard(chain_job())

    assert link.arrived == []


@pytest.mark.parametrize("latest", [None, 1, 2])
def test_send_superseded(link: Link, latest: int | None) -> None:
    """An attempt that was fenced by a later one leaves the rest to it; by none, it goes on."""
    link.failing["commit"] = 2
    link.latest = latest

    if latest == 2:
        with pytest.raises(SupersededError, match=r"attempt 2 of run k took over .* attempt 1"):
            sending.send_shard(chain_job())
    else:
        sending.send_shard(chain_job())

    assert len(link.arrived) == (2 if latest == 2 else 5)


def test_send_chain_another_writer(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """What another writer commits between two transactions isn't sent again."""

    def fenced_producer(*asked: Any, **more: Any) -> Any:
        if len(link.made) == 2:
            link.progress = ShardProgress(*STEPS[4], "p")
        return link.producer(*asked, **more)

    monkeypatch.setattr(sending, "fenced_producer", fenced_producer)

    sending.send_shard(chain_job())

    assert [record[1] for record in link.arrived] == [b"10", b"11", b"8"]


@pytest.mark.parametrize("fails", [None, LATE, DENIED])
def test_send_stopped(link: Link, fails: Exception | None) -> None:
    """A stop aborts what is open, and takes no more; if that fails, nothing is sent after it."""
    if fails is not None:
        link.failing["abort"], link.error = 0, fails

    with pytest.raises(DeliveryError, match="sending t-0 and 1 more was stopped"):
        sending.send_shard(chain_job(), lambda: len(link.arrived) == 2)

    assert len(link.arrived) == 2
    assert link.done == ["abort", *(["purge"] if fails else []), "close"]


@pytest.mark.parametrize(
    ("number", "offsets", "says"),
    [
        (0, [], "hold 0 records of t-0 before offset 0, the plan has 3;"),
        (0, [10, 11], "hold 2 records of t-0 before offset 12, the plan has 3;"),
        (0, [10, 11, 12, 13], "hold 4 records of t-0 before offset 14, the plan has 3;"),
        (1, [7], "hold 1 records of t-0 before offset 8, the plan has 2;"),
        (1, [7, 8, 9], "hold 3 records of t-0 before offset 10, the plan has 2;"),
    ],
)
def test_send_not_as_planned(
    link: Link, monkeypatch: pytest.MonkeyPatch, number: int, offsets: list[int], says: str
) -> None:
    """Files with more or fewer records than planned: their transaction is aborted."""
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 99)
    link.offsets[number] = offsets

    with pytest.raises(ManifestInvalidError, match=says):
        sending.send_shard(chain_job())

    assert link.arrived == []
    assert link.done == ["abort", "close"]


@pytest.mark.parametrize("is_late", [True, False])
def test_send_refused(link: Link, is_late: bool) -> None:
    """A record that Kafka refuses, at once or later, is said with what helps; no try follows."""
    link.failing["commit" if is_late else "produce"] = 1
    link.error = LATE if is_late else KafkaException(TOO_LARGE)
    link.refused = TOO_LARGE if is_late else None
    at = "sending t-0 to copy-0" if is_late else "the record at offset 11 of t-0"

    with pytest.raises(SourceRecordError, match=rf"{at}: .*too large.*max\.message\.bytes"):
        sending.send_shard(chain_job())

    assert len(link.arrived) == 1
    assert link.done == ["abort", "close"]


def test_send_refused_passing(link: Link) -> None:
    """What Kafka says of a record and that another try helps against isn't the end."""
    link.failing["commit"] = 1
    link.refused = KafkaError(KafkaError._MSG_TIMED_OUT, "too late")

    sending.send_shard(chain_job())

    assert len(link.arrived) == 5


def test_send_nul_in_header_name(link: Link) -> None:
    """A header name that librdkafka would cut off is never sent."""
    link.rows[11] = {"headers": [{"key": "a\0b", "value": b"1"}]}

    with pytest.raises(SourceRecordError, match=r"11"):
        sending.send_shard(chain_job())

    assert len(link.arrived) == 1
    assert link.done == ["abort", "close"]


@pytest.mark.parametrize(
    ("most", "most_bytes", "found"),
    [
        (9, 0, (1, 10)), (9, 9, (1, 10)), (9, 10, (2, 10)), (9, 29, (2, 10)),
        (9, 30, (3, 30)), (9, 34, (3, 30)), (9, 35, (4, 35)), (2, 99, (2, 10)), (3, 10, (2, 10)),
    ],
)  # fmt: skip
def test_source_take(
    monkeypatch: pytest.MonkeyPatch, most: int, most_bytes: int, found: tuple[int, int]
) -> None:
    """As many records as fit are taken, keys and values counted, but never none."""
    contents = [(b"k", b"v" * 9), (None, None), (b"k" * 20, None), (None, b"v" * 5)]
    rows = [{"key": k, "value": v, "offset": at} for at, (k, v) in enumerate(contents)]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    monkeypatch.setattr(sending, "read_shard", lambda *_: iter([batch]))
    file = replace(PLAN.shards[1].files[0], first=0, last=3, records=4)
    source = sending._Source(job(shards=(replace(PLAN.shards[1], files=(file,)),)))
    source.go_to(ShardProgress(0, 0, "p"))

    taken = source.take(most, most_bytes)

    assert taken is not None
    assert (taken[0].num_rows, taken[1]) == found
    rest = source.take(9, 99)
    assert found[0] + (rest[0].num_rows if rest is not None else 0) == 4


def test_send_commits_before_long_read(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    """No transaction waits for records that take long to be read: it would time out."""
    committed, read = threading.Event(), link.read_shard

    class Steps(list[Any]):
        def append(self, step: Any) -> None:
            super().append(step)
            committed.set()

    def read_shard(*asked: Any) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(read(*asked)):
            assert number == 0 or committed.wait(5), "waits with an open transaction"
            yield batch

    link.steps = Steps()
    monkeypatch.setattr(sending, "TRANSACTION_RECORDS", 99)
    monkeypatch.setattr(sending, "READ_SECONDS", 0.01)
    monkeypatch.setattr(sending, "read_shard", read_shard)

    sending.send_shard(chain_job())

    assert link.steps[0] == STEPS[2]
    assert len(link.arrived) == 5


def test_source_reader_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python exits although a file is still being read."""
    go = threading.Event()

    def slow(*_: Any) -> Iterator[pa.RecordBatch]:
        go.wait(10)
        yield from ()

    monkeypatch.setattr(sending, "read_shard", slow)
    source = sending._Source(job())
    source.go_to(ShardProgress(0, 0, "p"))
    try:
        with pytest.raises(sending._NotYetError):
            source.take(9, 99, 0.01)
        readers = [each for each in threading.enumerate() if each.name.startswith("read-shard")]
        assert readers
        assert all(each.daemon and each not in pools._threads_queues for each in readers)
    finally:
        go.set()


def test_due_source(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are taken when they are due; before a long gap, the transaction ends."""
    seconds = [0, 0.5, 0.2, 0.6, 30, 30.5]
    rows = [
        {"value": b"v", "offset": at, "timestamp": NOW + timedelta(seconds=after)}
        for at, after in enumerate(seconds)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    monkeypatch.setattr(sending, "read_shard", lambda *_: iter([batch]))
    file = replace(PLAN.shards[1].files[0], first=0, last=5, records=6)
    playback = Playback(1.0, 1, clock.monotonic)
    of_job = job(shards=(replace(PLAN.shards[1], files=(file,)),), playback=playback)
    source = sending._DueSource(of_job, playback)
    source.go_to(ShardProgress(0, 0, "p"))
    taken: list[tuple[int, float]] = []

    def transaction() -> None:
        source.wait(lambda: False)
        waits = None
        with suppress(sending._NotYetError):
            while found := source.take(9, 99, waits):
                taken.extend((at, clock.now) for at in found[0]["offset"].to_pylist())
                waits = 5.0

    transaction()
    assert taken == [(0, 0), (1, 0.5), (2, 0.5), (3, pytest.approx(0.6))]
    assert clock.now < 1
    transaction()
    assert taken[4:] == [(4, 30), (5, 30.5)]
    assert source.take(9, 99, 5.0) is None


def test_due_source_stopped(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for the next record can be stopped."""
    rows = [{"value": b"v", "offset": 0, "timestamp": NOW}]
    batch = pa.RecordBatch.from_pylist(rows, schema=SCHEMA)
    monkeypatch.setattr(sending, "read_shard", lambda *_: iter([batch]))
    playback = Playback(1.0, 2, clock.monotonic)
    source = sending._DueSource(job(playback=playback), playback)
    source.go_to(ShardProgress(0, 0, "p"))

    with pytest.raises(DeliveryError, match="was stopped; a retry resumes it"):
        source.wait(lambda: clock.now > 10)


@pytest.mark.parametrize("pace", [None, 1.0])
def test_send_paced_gives_up(
    link: Link, clock: Clock, monkeypatch: pytest.MonkeyPatch, pace: float | None
) -> None:
    """A record that is due, whose transactions all fail, is no sign that Kafka is there."""

    def late(*_: Any) -> Iterator[int]:
        assert clock.now < 2 * sending.PATIENCE_SECONDS, "sends for ever"
        link.made.clear()
        clock.sleep(45)
        raise LOST

    monkeypatch.setattr(sending, "_send_transaction", late)
    playback = Playback(pace, 1, clock.monotonic) if pace else None

    with pytest.raises(KafkaUnavailableError, match="no answer"):
        sending.send_shard(chain_job(playback=playback))
    assert clock.now > sending.PATIENCE_SECONDS


def test_send_paced_waits(link: Link, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time in which nothing was due isn't time in which Kafka was away."""
    link.rows[11] = {"timestamp": NOW + timedelta(hours=1)}
    fails, send = [True], sending._send_transaction

    def late(*asked: Any) -> Any:
        if clock.now >= 3_600 and fails:
            fails.clear()
            raise LOST
        return send(*asked)

    monkeypatch.setattr(sending, "_send_transaction", late)

    assert sending.send_shard(chain_job(playback=Playback(1.0, 1, clock.monotonic))) == 5
    assert clock.now >= 3_600
