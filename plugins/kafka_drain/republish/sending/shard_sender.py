"""The exactly-once protocol: how the worker and Spark's executors send a chain of shards.

    create the producer; init_transactions   # fence: older attempts can no longer commit
    read the chain's progress                # after the fence, for each new producer
    missing, or of another plan -> refuse    # missing progress never means "start again"
    begin; produce the rows after the progress; send_offsets_to_transaction(progress); commit

Exactness depends on the order of the first two lines: if the progress were read before the fence,
an older attempt could still advance it, and its records would be sent twice.

Each transaction has a new producer, and so an epoch of its own: librdkafka implements version 1 of
the transaction protocol, in which a delayed EndTxn of one transaction can hit the next one of the
same epoch (KIP-890).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import closing, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import Any
from weakref import finalize

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_drain.data_files.reader import offset_of_nul
from kafka_drain.data_files.rows import rows_of, timestamps_of
from kafka_drain.data_files.scalars import number
from kafka_drain.errors import (
    DeliveryError,
    KafkaDrainError,
    KafkaUnavailableError,
    ManifestInvalidError,
    ProgressError,
    SourceRecordError,
    SupersededError,
)
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.changing.change import Change
from kafka_drain.republish.planning.chains import place
from kafka_drain.republish.planning.header_names import nul_error
from kafka_drain.republish.planning.placement import BY_KEY, partition_of_key
from kafka_drain.republish.planning.shards import ProgressSlot, Shard
from kafka_drain.republish.sending.arrow_records import as_sent, provenance
from kafka_drain.republish.sending.memory import little_garbage_collection
from kafka_drain.republish.sending.pacing import LONGEST, Pacer
from kafka_drain.republish.sending.playback import Playback
from kafka_drain.republish.sending.producer import (
    SETTINGS,
    TRANSACTION_TIMEOUT_MS,
    ProducerLost,
    commit,
    fenced_producer,
    repeat,
    shard_transactional_id,
)
from kafka_drain.republish.sending.progress_store import ProgressStore, ShardProgress, entry
from kafka_drain.republish.sending.send_errors import explained, is_terminal
from kafka_drain.republish.sending.shard_reader import read_shard
from kafka_drain.schemas.schema_ids import SchemaIds

#: A transaction ends after this number of records or bytes, whichever comes first, and within the
#: time limit that pacing.py sets, which is at most this number of seconds.
TRANSACTION_RECORDS = 250_000
TRANSACTION_BYTES = 256 << 20
TRANSACTION_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 * LONGEST

#: Longest wait for the next records while a transaction has some, in seconds: it is committed then,
#: as it would time out if a filter leaves out a whole file, or a file takes long to be compared.
READ_SECONDS = 5.0

#: Number of records after which the limits are checked.
STEP = 2_000

#: Shortest wait for a record that isn't due, in seconds: those due meanwhile are taken together.
TICK_SECONDS = 0.01

#: Size of a producer's queue, in KiB; librdkafka takes no value that is larger.
QUEUE = "queue.buffering.max.kbytes"

#: Time without a commit, while Kafka keeps failing, after which the attempt gives up.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class SendJob:
    """Everything needed to send one chain; without a clock, it can be passed to other processes.

    Attributes:
        root: The archive's folder, a path or a URL.
        key: The run's name in Kafka (`RepublishPlan.transactional_name`).
        plan: The plan's hash.
        attempt: Number of this attempt of the run, from 1.
        attempts: Slot that counts attempts.
        shards: The shards to send, in this order; they share one progress.
        partitions: Number of partitions of the target when the plan was made.
        provenance: Whether to add headers that say where each record came from.
        settings: librdkafka settings for the target cluster, secrets included.
        schema_ids: The schema ids that are replaced; None to send records as they are.
        change: The drops and changes on the way, secrets included; None for none.
        placement: Placement of keys, if they choose partitions.
        largest_batch: Largest batch that the target topic accepts, in bytes (max.message.bytes).
        records_per_second: Limit; 0 for none.
        bytes_per_second: Limit for keys and values; 0 for none.
        playback: The clock by which records are due; None to send them at once.
    """

    root: str
    key: str
    plan: str
    attempt: int
    attempts: ProgressSlot
    shards: tuple[Shard, ...]
    partitions: int
    provenance: bool
    settings: Mapping[str, Any] = field(repr=False)
    schema_ids: SchemaIds | None = None
    change: Change | None = None
    placement: str | int = BY_KEY
    largest_batch: int = 1_000_000
    records_per_second: float = 0
    bytes_per_second: float = 0
    playback: Playback | None = None

    def __str__(self) -> str:
        return f"sending {self.what}"

    @property
    def shard(self) -> Shard:
        """The first shard, which names the chain."""
        return self.shards[0]

    @property
    def what(self) -> str:
        """The shard and its target, as text for messages."""
        more = len(self.shards) - 1
        return f"{self.shard.source} and {more:,} more" if more else str(self.shard.source)

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(shard.records for shard in self.shards)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit to its rate."""
        return bool(self.records_per_second or self.bytes_per_second or self.playback)

    def shared_by(self, writers: int) -> SendJob:
        """Return the job with its share of the limits, for a number of concurrent writers."""
        return replace(
            self,
            records_per_second=self.records_per_second / writers,
            bytes_per_second=self.bytes_per_second / writers,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the job as JSON types."""
        return {
            **vars(self),
            "settings": dict(self.settings),
            "attempts": [self.attempts.group, self.attempts.tp.topic, self.attempts.tp.partition],
            "shards": [shard.to_dict() for shard in self.shards],
            "schema_ids": None if self.schema_ids is None else self.schema_ids.to_dict(),
            "change": None if self.change is None else self.change.to_dict(),
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> SendJob:
        """Parse a document from `to_dict`."""
        group, topic, partition = document["attempts"]
        attempts = ProgressSlot(group, TopicPartition(topic, partition))
        shards = tuple(map(Shard.from_dict, document["shards"]))
        ids = document.get("schema_ids")
        schema_ids = None if ids is None else SchemaIds.from_dict(ids)
        changed = document.get("change")
        change = None if changed is None else Change.from_dict(changed)
        read = {"attempts": attempts, "shards": shards, "schema_ids": schema_ids, "change": change}
        return cls(**(document | read))


def send_shard(job: SendJob, stopped: Callable[[], bool] = lambda: False) -> int:
    """Send the part of a chain that hasn't been sent yet, exactly once and in order.

    Args:
        stopped: Polled while sending; once it returns true, the open transaction is aborted.

    Returns:
        Number of records that this attempt committed.

    Raises:
        ProgressError: When the progress is missing, or belongs to another plan. Nothing more was
            sent.
        SupersededError: When a later attempt took over.
        ManifestInvalidError: When a file was changed since the plan was made.
        SourceRecordError: When Kafka refuses a record, or it can't be changed as planned; its
            transaction was aborted.
        ConfigError: When the function that changes records isn't the planned one.
        AuthorizationError: When an ACL is missing.
        DeliveryError: When Kafka kept failing; a retry resumes where this attempt stopped.
        KafkaUnavailableError: When Kafka didn't answer during all that time.
    """
    with closing(ProgressStore(job.settings)) as store, little_garbage_collection():
        return _send_shard(job, store, stopped)


def _send_shard(job: SendJob, store: ProgressStore, stopped: Callable[[], bool]) -> int:
    source = _Source(job) if job.playback is None else _DueSource(job, job.playback)
    pacer = Pacer(SETTINGS["transaction.timeout.ms"] / 1000)
    committed, alive = 0, time.monotonic()
    while True:
        try:
            for records, waited in _transactions(job, store, source, pacer, stopped):
                committed += records
                alive = time.monotonic() if records else alive + waited
            return committed
        except (ProducerLost, KafkaUnavailableError) as lost:
            if stopped():
                raise _was_stopped(job) from lost
            # If even this query fails, that is just one more failure of Kafka.
            with suppress(KafkaUnavailableError):
                _refuse_if_superseded(job, store)
            if time.monotonic() - alive > PATIENCE_SECONDS:
                if isinstance(lost, ProducerLost):
                    raise explained(lost.error, str(job)) from lost
                raise
            time.sleep(0.5)


def _was_stopped(job: SendJob) -> DeliveryError:
    return DeliveryError(f"{job} was stopped; a retry resumes it")


class _NotYetError(Exception):
    """Raised when the next records take longer to be read than an open transaction may wait."""


class _QueueTooSmall(Exception):
    """Raised when a producer's queue can't take a value, even if nothing else is in it.

    Attributes:
        needed: Size of the value in bytes.
    """

    def __init__(self, needed: int) -> None:
        super().__init__(needed)
        self.needed = needed


def _transactions(
    job: SendJob, store: ProgressStore, source: _Source, pacer: Pacer, stopped: Callable[[], bool]
) -> Iterator[tuple[int, float]]:
    """Commit transactions until the chain is finished, each with a new producer.

    Yields:
        Number of records in each transaction, and 0; or 0, and the seconds that it waited for the
        next record to be due.

    Raises:
        ProducerLost: When the producer can't continue; whether the transaction in flight was
            committed is unknown.
    """
    shard, wanted = job.shard, job.records
    queue = SETTINGS[QUEUE]
    while True:
        refusals: list[KafkaError] = []
        producer = fenced_producer(
            job.settings,
            shard_transactional_id(job.key, shard.number),
            shard.target_topic,
            30.0,
            on_delivery=lambda error, _, into=refusals: into.append(error),
            # A larger record is sent alone; two that fit are never combined into one that doesn't.
            **{"batch.size": max(1, min(1 << 20, job.largest_batch - 1000))},
            # What is limited is to arrive evenly, and never fills a queue.
            **({"linger.ms": 50} if job.is_limited else {}),
            **({QUEUE: queue} if queue > SETTINGS[QUEUE] else {}),
        )
        progress = read_progress(job, store)
        if progress.records >= wanted:
            if isinstance(source, _DueSource):
                source.end()
            return
        source.go_to(progress)
        if isinstance(source, _DueSource):
            # While no transaction is open; however long it took, Kafka wasn't away meanwhile.
            began = time.monotonic()
            source.wait(stopped)
            yield 0, time.monotonic() - began
        try:
            following, free_at = _send_transaction(
                job, producer, store, source, pacer, progress, stopped
            )
        except _QueueTooSmall as error:
            source.forget()
            _abort(producer)
            queue = SETTINGS[QUEUE] + 1 + error.needed // 1024
            continue
        except BaseException as error:
            source.forget()
            pacer.failed()
            _abort(producer)
            refused = next((refusal for refusal in refusals if is_terminal(refusal)), None)
            if refused is not None and isinstance(error, ProducerLost | SourceRecordError):
                at = source.shard
                raise explained(refused, f"sending {at.source} to {at.target}") from None
            raise
        if following.records < wanted:
            _pause(free_at, stopped)
        yield following.records - progress.records, 0.0
        if following.records >= wanted:
            return


def read_progress(job: SendJob, store: ProgressStore) -> ShardProgress:
    """Read the progress of the chain.

    Raises:
        ProgressError: When the progress is missing, or belongs to another plan.
    """
    slot = job.shard.progress
    progress = store.read([slot])[slot]
    if progress is None:
        raise ProgressError(
            f"the progress of {job.shard.source} in group {slot.group} is missing, expected it at "
            f"{slot.tp}; it expired, was deleted, or the target topic was recreated. Nothing more "
            "was sent; start a new run into an empty topic"
        )
    if progress.plan != job.plan:
        raise ProgressError(
            f"the progress of {job.shard.source} in group {slot.group} belongs to plan "
            f"{progress.plan[:12]}, this is plan {job.plan[:12]}; the plan was changed. Nothing "
            "more was sent; start a new run into an empty topic"
        )
    return progress


def _send_transaction(
    job: SendJob,
    producer: Producer,
    store: ProgressStore,
    source: _Source,
    pacer: Pacer,
    progress: ShardProgress,
    stopped: Callable[[], bool],
) -> tuple[ShardProgress, float]:
    """Send rows and their progress in one transaction.

    Returns:
        The new progress, and the monotonic time at which the limits allow more.
    """
    slot = job.shard.progress
    repeat(producer.begin_transaction, "begin_transaction")
    sent, free_at = _produce(job, producer, source, pacer, stopped)
    following = ShardProgress(source.next_offset, progress.records + sent, job.plan)
    repeat(
        lambda: producer.send_offsets_to_transaction(
            [entry(slot, following)], store.group_metadata(slot.group), 60.0
        ),
        f"the progress in group {slot.group}",
    )
    commit(producer)
    pacer.committed()
    return following, free_at


def _produce(
    job: SendJob,
    producer: Producer,
    source: _Source,
    pacer: Pacer,
    stopped: Callable[[], bool],
) -> tuple[int, float]:
    """Queue rows until the transaction is full.

    Returns:
        Number of rows, and the monotonic time at which the limits allow more.
    """
    began = free_at = time.monotonic()
    pacer.begin()
    sent = size = 0
    while sent < TRANSACTION_RECORDS and size < TRANSACTION_BYTES:
        room = pacer.room(len(producer))
        if room > 0 or not sent:
            try:
                taken = source.take(_step(job, sent, size), room, READ_SECONDS if sent else None)
            except _NotYetError:
                break
            if taken is None:
                break
            batch, batch_bytes = taken
            source.queued(batch.num_rows, _queue(job, producer, source.shard, batch))
            pacer.queued(batch.num_rows, batch_bytes)
            sent += batch.num_rows
            size += batch_bytes
            _served(lambda: producer.poll(0))
        elif pacer.has_full_batch(len(producer)):
            _served(lambda: producer.poll(0.005))
        else:
            # Send queued records immediately, without waiting for a full batch.
            _served(lambda: producer.flush(0.02))
        if stopped():
            raise _was_stopped(job)
        free_at = began + _seconds_due(job, sent, size)
        # A longer pause follows after the commit, so that the transaction doesn't time out now.
        _pause(min(free_at, time.monotonic() + TRANSACTION_SECONDS), stopped)
        if pacer.is_over:
            break
    _wait(producer, pacer, stopped)
    return sent, free_at


def _wait(producer: Producer, pacer: Pacer, stopped: Callable[[], bool]) -> None:
    """Wait until no full batch is on its way; a commit flushes the rest.

    While librdkafka flushes, its thread spins.
    """
    while pacer.has_full_batch(len(producer)) and not stopped():
        _served(lambda: producer.poll(0.005))


def _step(job: SendJob, sent: int, size: int) -> int:
    """Return the number of rows to take next.

    With a limit, take at most the rows of one second: a pause mustn't outlast the transaction. The
    row size is estimated from what this transaction has sent so far; its first row goes alone.
    """
    rows = min(STEP, TRANSACTION_RECORDS - sent, int(job.records_per_second or STEP))
    if job.bytes_per_second:
        rows = min(rows, int(job.bytes_per_second * sent / max(size, 1)))
    return max(1, rows)


def _queue(job: SendJob, producer: Producer, shard: Shard, batch: pa.RecordBatch) -> int:
    """Queue all records of a batch; return the offset of the last one."""
    topic, partition = shard.target_topic, shard.target_partition
    refused = offset_of_nul(batch)
    if refused is not None:
        # Only with the plan of a release that didn't check header names before sending.
        raise nul_error(shard.source, refused, "its transaction was aborted")
    came_from = shard.source.partition
    produce = producer.produce
    offset = -1
    for key, value, headers, timestamp, offset in rows_of(batch):
        if job.provenance:
            headers = [*(headers or ()), *provenance(shard, offset)]
        # Use the plan's partition count, as verify does: the target may have more by now.
        to = partition
        if to is None:
            to = partition_of_key(key, job.partitions, came_from, job.placement)
        while True:
            try:
                # Positional, with callbacks before the timestamp: by name takes 1.5 times as long.
                produce(topic, value, key, to, None, None, timestamp, headers)
                break
            except BufferError:
                if not len(producer) and value and len(value) > SETTINGS[QUEUE] << 10:
                    raise _QueueTooSmall(len(value)) from None
                # The queue is full. Successes aren't reported, so wait briefly and try again.
                _served(lambda: producer.poll(0.005))
            except KafkaException as error:
                raise _not_queued(error.args[0], shard, offset) from error
    return offset


def _served(serve: Callable[[], object]) -> None:
    """Serve the client's callbacks; a fatal error, such as a fence, is raised from here.

    Raises:
        ProducerLost: When there is a fatal error.
    """
    try:
        serve()
    except KafkaException as error:
        raise ProducerLost(error.args[0]) from error


def _bytes(batch: pa.RecordBatch) -> int:
    """Return the size of all keys and values in bytes."""
    return sum(pc.sum(pc.binary_length(batch[name])).as_py() or 0 for name in ("key", "value"))


def _rows_within(batch: pa.RecordBatch, most_bytes: int) -> int:
    """Return the number of leading rows whose total size is at most `most_bytes`."""
    keys, values = (
        pc.binary_length(batch[name]).fill_null(number(0)).cast(pa.int64())
        for name in ("key", "value")
    )
    up_to = pc.cumulative_sum(pc.add(keys, values))
    return int(pc.sum(pc.less_equal(up_to, number(most_bytes))).as_py() or 0)


def _rows_due(timestamps: pa.Int64Array, now: float) -> int:
    """Return the number of leading rows that are due: those before the first later timestamp.

    Args:
        timestamps: In milliseconds, like `now`.
    """
    at: int = pc.index(pc.less_equal(timestamps, number(int(now))), False).as_py()
    return len(timestamps) if at < 0 else at


def _not_queued(error: KafkaError, shard: Shard, offset: int) -> Exception:
    if is_terminal(error):
        return explained(error, f"the record at offset {offset} of {shard.source}")
    return ProducerLost(error)


def _seconds_due(job: SendJob, records: int, size: int) -> float:
    """Return the seconds that sending this much must take to stay within the limits."""
    return max(
        records / job.records_per_second if job.records_per_second else 0.0,
        size / job.bytes_per_second if job.bytes_per_second else 0.0,
    )


def _pause(until: float, stopped: Callable[[], bool]) -> None:
    """Wait until a monotonic time, or until stopped."""
    while (left := until - time.monotonic()) > 0 and not stopped():
        time.sleep(min(left, 1.0))


def _abort(producer: Producer) -> None:
    """Abort the open transaction, so that consumers needn't wait for its timeout.

    If that fails, the next producer of the same transactional id aborts it.
    """
    try:
        repeat(lambda: producer.abort_transaction(10.0), "abort_transaction", seconds=10.0)
    except (ProducerLost, KafkaDrainError):
        producer.purge()


def _refuse_if_superseded(job: SendJob, store: ProgressStore) -> None:
    """Leave the shard to a later attempt, if there is one: two would fence each other forever."""
    latest = store.read([job.attempts])[job.attempts]
    if latest is not None and latest.offset > job.attempt:
        raise SupersededError(
            f"attempt {latest.offset} of run {job.key} took over from this one, attempt "
            f"{job.attempt}; nothing more was sent from here"
        )


def _following(batches: Iterator[pa.RecordBatch]) -> pa.RecordBatch | None:
    """Return the next batch that has records; None at the end."""
    return next((batch for batch in batches if batch.num_rows), None)


def _serve(asked: SimpleQueue[Any]) -> None:
    """Read what is asked for, in this order: the change isn't to be used by two threads."""
    while (one := asked.get()) is not None:
        reading, read = one
        try:
            reading.set_result(read())
        except BaseException as error:  # raised again where the records are taken
            reading.set_exception(error)
        del one, reading, read


class _Source:
    """A chain's records, readable from any progress.

    Attributes:
        shard: The shard that is being read.
    """

    def __init__(self, job: SendJob) -> None:
        self._job = job
        self._changer = None if job.change is None else job.change.open()
        self.shard = job.shard
        self._place = 0
        #: Number of this shard's records that were taken, and that were queued.
        self._taken = self._queued = 0
        self._last = -1
        #: Number of queued records of all shards; None while unknown.
        self._records: int | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None
        #: A daemon's: Python waits at its exit for an executor's threads, however long they read.
        self._asked: SimpleQueue[Any] | None = None
        self._reading: Future[pa.RecordBatch | None] | None = None

    @property
    def next_offset(self) -> int:
        """The source offset to continue from: after the last record, or the next shard's first."""
        if not self._queued:
            # It was opened, and nothing of it is there yet.
            return self.shard.first
        if self._queued == self.shard.records and self._place + 1 < len(self._job.shards):
            return self._job.shards[self._place + 1].first
        return self._last + 1

    def go_to(self, progress: ShardProgress) -> None:
        """Move to a progress; files are reopened only if that isn't the current position."""
        if progress.records != self._records:
            place_of, done = place(self._job.shards, progress.records)
            self._open(place_of, done, progress.offset if done else 0)
            self._records = progress.records

    def take(
        self, most: int, most_bytes: int, seconds: float | None = None
    ) -> tuple[pa.RecordBatch, int] | None:
        """Return the next records of a shard, and the size of their keys and values.

        Small batches are faster: Python's objects stay in the processor's cache.

        Args:
            most: Maximum number of records.
            most_bytes: Maximum size in bytes, unless the first record alone is larger.
            seconds: Longest wait for them to be read; None for any.

        Returns:
            None at the end of the chain.

        Raises:
            _NotYetError: When they weren't read in that time; they are the next ones all the same.
            ManifestInvalidError: When a shard's files hold more or fewer records than planned.
        """
        rest = self._next(seconds)
        if rest is None:
            return None
        taken = rest.slice(0, most)
        size = _bytes(taken)
        if size > most_bytes:
            taken = taken.slice(0, max(1, _rows_within(taken, most_bytes)))
            size = _bytes(taken)
        self._rest = rest.slice(taken.num_rows)
        self._taken += taken.num_rows
        if self._taken > self.shard.records:
            raise self._not_as_planned(taken["offset"][-1].as_py() + 1)
        return taken, size

    def _next(self, seconds: float | None) -> pa.RecordBatch | None:
        """Return records of which none is taken yet; None at the end of the chain."""
        while self._rest is None or not self._rest.num_rows:
            self._rest = self._read(seconds)
            if self._rest is None:
                if self._taken < self.shard.records:
                    raise self._not_as_planned(self._last + 1)
                if self._place + 1 == len(self._job.shards):
                    return None
                self._open(self._place + 1, 0, 0)
        return self._rest

    def _read(self, seconds: float | None) -> pa.RecordBatch | None:
        if self._reading is None:
            if self._asked is None:
                self._asked = SimpleQueue()
                finalize(self, self._asked.put, None)
                Thread(target=_serve, args=(self._asked,), name="read-shard", daemon=True).start()
            self._reading = Future()
            self._asked.put((self._reading, partial(copy_context().run, _following, self._batches)))
        if not wait([self._reading], seconds).done:
            raise _NotYetError
        reading, self._reading = self._reading, None
        return reading.result()

    def queued(self, records: int, last: int) -> None:
        """Record that all taken records are queued, and the offset of the last one."""
        self._queued += records
        self._last = last
        if self._records is not None:
            self._records += records

    def forget(self) -> None:
        """Record that it is unknown which of the taken records were committed."""
        self._records = None

    def _open(self, place_of: int, done: int, offset: int) -> None:
        self._place, self.shard = place_of, self._job.shards[place_of]
        self._taken = self._queued = done
        self._last = offset - 1
        batches = read_shard(self._job.root, self.shard, offset)
        self._batches = as_sent(batches, self.shard, self._changer, self._job.schema_ids)
        self._rest = self._reading = None

    def _not_as_planned(self, end: int) -> ManifestInvalidError:
        """Return the error for files of which all records before an offset were taken."""
        return ManifestInvalidError(
            f"the files hold {self._taken:,} records of {self.shard.source} before offset "
            f"{end:,}, the plan has {self.shard.records:,}"
            + (" after the change: is it a function of each record alone?" if self._changer else "")
            + "; this transaction was aborted"
        )


class _DueSource(_Source):
    """A chain's records, each of which may be taken once it is due.

    A transaction is open only for a second or so: it is committed before longer waits.
    """

    def __init__(self, job: SendJob, playback: Playback) -> None:
        super().__init__(job)
        self._playback = playback
        #: Highest timestamp of what was taken. What follows another shard begins where that ended.
        self._reached = playback.now()
        self._ends_at = 0.0

    def wait(self, stopped: Callable[[], bool]) -> None:
        """Wait until the next record is due, before its transaction.

        Raises:
            DeliveryError: When stopped.
        """
        rest = self._next(None)
        if rest is None:
            return
        self._playback.join(self.shard.source, timestamps_of(rest.slice(0, 1))[0].as_py())
        while (left := self._left(rest)) > 0:
            if stopped():
                raise _was_stopped(self._job)
            time.sleep(min(left, 1.0))
        self._ends_at = time.monotonic() + self._playback.commit_seconds

    def end(self) -> None:
        """Tell the others that there is nothing left to send."""
        self._playback.join(self.shard.source, None)

    def take(
        self, most: int, most_bytes: int, seconds: float | None = None
    ) -> tuple[pa.RecordBatch, int] | None:
        """Return the next records that are due; see `_Source.take`.

        Raises:
            _NotYetError: When the transaction has to be committed before the next one is due.
        """
        rest = self._next(seconds)
        if rest is None:
            return None
        if seconds is not None:
            left = self._left(rest)
            if time.monotonic() + max(left, 0.0) >= self._ends_at:
                raise _NotYetError
            if left > 0:
                time.sleep(max(left, TICK_SECONDS))
        timestamps = timestamps_of(rest.slice(0, most))
        ready = max(1, _rows_due(timestamps, self._playback.now()))
        taken = super().take(min(most, ready), most_bytes)
        if taken is not None:
            highest = pc.max(timestamps.slice(0, taken[0].num_rows)).as_py()
            self._reached = max(self._reached, highest)
        return taken

    def _left(self, rest: pa.RecordBatch) -> float:
        """Return the seconds until the next record is due; 0 or less if it is."""
        return self._playback.left(max(self._reached, timestamps_of(rest.slice(0, 1))[0].as_py()))
