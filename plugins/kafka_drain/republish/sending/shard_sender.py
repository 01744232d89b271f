"""Exactly once: how a chain of shards is sent, by the worker and on Spark's executors alike.

    make the producer; init_transactions     # fence: older attempts can no longer commit
    read the chain's progress                # after the fence, each time a producer is made
    missing, or of another plan -> refuse    # a lost ledger is never "start again"
    begin; produce the rows from the progress on; send_offsets_to_transaction(progress); commit

The order of the first two lines is what exactness hangs on. Read before the fence, the progress of
an older attempt may still grow, and its records would be sent twice.

`strict` makes a new producer for each transaction: librdkafka speaks version 1 of the transaction
protocol, where a delayed EndTxn of one transaction can meet the next one of the same epoch
(KIP-890). `fast` keeps the producer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

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
from kafka_drain.republish.planning.chains import place
from kafka_drain.republish.planning.placement import partition_of_key
from kafka_drain.republish.planning.shards import ProgressSlot, Shard
from kafka_drain.republish.sending.arrow_records import offset_of_nul, provenance, rows_of
from kafka_drain.republish.sending.errors import explained, is_terminal
from kafka_drain.republish.sending.garbage_collection import little_garbage_collection
from kafka_drain.republish.sending.pacing import LONGEST, Pacer
from kafka_drain.republish.sending.producer import (
    SETTINGS,
    TRANSACTION_TIMEOUT_MS,
    ProducerLost,
    fenced_producer,
    repeat,
    shard_transactional_id,
)
from kafka_drain.republish.sending.progress_store import Ledger, Progress, entry
from kafka_drain.republish.sending.shard_reader import read_shard

__all__ = ["SendJob", "send_shard"]

#: A transaction ends after so many records or bytes, whichever comes first, and within the seconds
#: that pacing.py gives it: these at most.
TRANSACTION_RECORDS = 250_000
TRANSACTION_BYTES = 256 << 20
TRANSACTION_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 * LONGEST

#: Bounds are looked at after so many records.
STEP = 2_000

#: So long without a commit, with Kafka failing again and again, and the attempt gives up.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class SendJob:
    """All that sending one chain needs; crosses to other processes.

    Attributes:
        root: The archive's folder, a path or a URL.
        key: The run's name in Kafka (`RepublishPlan.transactional_name`).
        plan: The plan's hash.
        attempt: Number of this attempt of the run, from 1.
        attempts: Where attempts are counted.
        shards: What to send, in this order; they share one progress.
        partitions: How many partitions the target had when the plan was made.
        transactions: `strict` or `fast`.
        provenance: Whether headers say where each record came from.
        settings: librdkafka's settings of the target cluster, secrets included.
        largest_batch: What the target topic takes in one batch, in bytes (max.message.bytes).
        records_per_second: Limit; 0 for none.
        bytes_per_second: Limit, of keys and values; 0 for none.
    """

    root: str
    key: str
    plan: str
    attempt: int
    attempts: ProgressSlot
    shards: tuple[Shard, ...]
    partitions: int
    transactions: str
    provenance: bool
    settings: Mapping[str, Any] = field(repr=False)
    largest_batch: int = 1_000_000
    records_per_second: float = 0
    bytes_per_second: float = 0

    def __str__(self) -> str:
        return f"sending {self.what}"

    @property
    def shard(self) -> Shard:
        """The first shard, after which the chain is named."""
        return self.shards[0]

    @property
    def what(self) -> str:
        """What is sent, for people."""
        more = len(self.shards) - 1
        return f"{self.shard.source} and {more:,} more" if more else str(self.shard.source)

    @property
    def records(self) -> int:
        """How many records."""
        return sum(shard.records for shard in self.shards)

    def shared_by(self, writers: int) -> SendJob:
        """Return the job with its part of the limits, where so many are sent side by side."""
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
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> SendJob:
        """Read what `to_dict` wrote."""
        group, topic, partition = document["attempts"]
        attempts = ProgressSlot(group, TopicPartition(topic, partition))
        shards = tuple(map(Shard.from_dict, document["shards"]))
        return cls(**(document | {"attempts": attempts, "shards": shards}))


def send_shard(job: SendJob, stopped: Callable[[], bool] = lambda: False) -> int:
    """Send what of a chain wasn't sent yet, exactly once, in order.

    Args:
        job: What to send.
        stopped: Asked now and then; once it says so, the open transaction is aborted.

    Returns:
        How many records this attempt committed.

    Raises:
        ProgressError: When the progress is gone, or of another plan. Nothing more was sent.
        SupersededError: When a later attempt took over.
        ManifestInvalidError: When a file was changed since the plan was made.
        SourceRecordError: When Kafka refuses a record; those of its transaction weren't sent.
        AuthorizationError: When an ACL is missing.
        DeliveryError: When Kafka failed again and again; a retry goes on where this one ended.
        KafkaUnavailableError: When it didn't answer all that time.
    """
    with closing(Ledger(job.settings)) as ledger, little_garbage_collection():
        return _send_shard(job, ledger, stopped)


def _send_shard(job: SendJob, ledger: Ledger, stopped: Callable[[], bool]) -> int:
    source, pacer = _Source(job), Pacer(SETTINGS["transaction.timeout.ms"] / 1000)
    committed, alive = 0, time.monotonic()
    while True:
        try:
            for records in _transactions(job, ledger, source, pacer, stopped):
                committed += records
                alive = time.monotonic()
            return committed
        except (ProducerLost, KafkaUnavailableError) as lost:
            if stopped():
                raise _was_stopped(job) from lost
            # Where not even that can be asked, Kafka failed once more.
            with suppress(KafkaUnavailableError):
                _refuse_if_superseded(job, ledger)
            if time.monotonic() - alive > PATIENCE_SECONDS:
                if isinstance(lost, ProducerLost):
                    raise explained(lost.error, str(job)) from lost
                raise
            time.sleep(0.5)


def _was_stopped(job: SendJob) -> DeliveryError:
    return DeliveryError(f"{job} was stopped; a retry goes on")


def _transactions(
    job: SendJob, ledger: Ledger, source: _Source, pacer: Pacer, stopped: Callable[[], bool]
) -> Iterator[int]:
    """Commit transactions until the chain is done, with as many producers as the mode demands.

    Yields:
        How many records each one held.

    Raises:
        ProducerLost: When the producer can't go on; what was in flight counts as not known.
    """
    shard, wanted = job.shard, job.records
    while True:
        refusals: list[KafkaError] = []
        producer = fenced_producer(
            job.settings,
            shard_transactional_id(job.key, shard.number),
            shard.target_topic,
            30.0,
            on_delivery=lambda error, _, into=refusals: into.append(error),
            # A record that is larger is sent alone, two that fit are not sent as one that doesn't.
            **{"batch.size": max(1, min(1 << 20, job.largest_batch - 1000))},
        )
        progress = read_progress(job, ledger)
        while progress.records < wanted:
            source.go_to(progress)
            try:
                following, free_at = _send_transaction(
                    job, producer, ledger, source, pacer, progress, stopped
                )
            except BaseException as error:
                source.forget()
                pacer.failed()
                _abort(producer)
                refused = next((refusal for refusal in refusals if is_terminal(refusal)), None)
                if refused is not None and isinstance(error, ProducerLost | SourceRecordError):
                    at = source.shard
                    raise explained(refused, f"sending {at.source} to {at.target}") from None
                raise
            sent, progress = following.records - progress.records, following
            if progress.records < wanted:
                _pause(free_at, stopped)
            yield sent
            if job.transactions == "strict":
                break
        if progress.records >= wanted:
            return


def read_progress(job: SendJob, ledger: Ledger) -> Progress:
    """Read how far the chain has got.

    Raises:
        ProgressError: When that isn't known.
    """
    slot = job.shard.progress
    progress = ledger.read([slot])[slot]
    if progress is None:
        raise ProgressError(
            f"the progress of {job.shard.source} in group {slot.group} is gone, expected it at "
            f"{slot.tp}: it expired, was deleted, or the target topic was made again. Nothing more "
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
    ledger: Ledger,
    source: _Source,
    pacer: Pacer,
    progress: Progress,
    stopped: Callable[[], bool],
) -> tuple[Progress, float]:
    """Send rows and their progress in one transaction.

    Returns:
        The progress that counts now, and when the limits allow more, by the monotonic clock.
    """
    slot = job.shard.progress
    repeat(producer.begin_transaction, "begin_transaction")
    sent, free_at = _produce(job, producer, source, pacer, stopped)
    following = Progress(source.next_offset, progress.records + sent, job.plan)
    repeat(
        lambda: producer.send_offsets_to_transaction(
            [entry(slot, following)], ledger.group_metadata(slot.group), 60.0
        ),
        f"the progress in group {slot.group}",
    )
    # Waits for all acknowledgements, fails if one is missing, and never gives up half way.
    repeat(lambda: producer.commit_transaction(-1), "commit_transaction")
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
        How many, and when the limits allow more, by the monotonic clock.
    """
    began = free_at = time.monotonic()
    pacer.begin()
    sent = size = 0
    while sent < TRANSACTION_RECORDS and size < TRANSACTION_BYTES:
        room = pacer.room(len(producer))
        if room > 0 or not sent:
            taken = source.take(_step(job, sent, size), room)
            if taken is None:
                break
            batch, batch_bytes = taken
            source.queued(batch.num_rows, _queue(job, producer, source.shard, batch))
            pacer.queued(batch.num_rows, batch_bytes)
            sent += batch.num_rows
            size += batch_bytes
            _served(lambda: producer.poll(0))
        else:
            # Sends what there is at once, full batch or not.
            _served(lambda: producer.flush(0.02))
        if stopped():
            raise _was_stopped(job)
        free_at = began + _seconds_due(job, sent, size)
        # The rest of it once the transaction is committed, which mustn't run out meanwhile.
        _pause(min(free_at, time.monotonic() + TRANSACTION_SECONDS), stopped)
        if pacer.is_over:
            break
    return sent, free_at


def _step(job: SendJob, sent: int, size: int) -> int:
    """Return how many rows to take next.

    With a limit, those of a second at most: a pause mustn't outlast the transaction. How large rows
    are, those that this transaction has sent so far tell; its first row goes alone.
    """
    rows = min(STEP, TRANSACTION_RECORDS - sent, int(job.records_per_second or STEP))
    if job.bytes_per_second:
        rows = min(rows, int(job.bytes_per_second * sent / max(size, 1)))
    return max(1, rows)


def _queue(job: SendJob, producer: Producer, shard: Shard, batch: pa.RecordBatch) -> int:
    """Queue some records of a shard, each of them; return the last one's offset."""
    topic, partition = shard.target_topic, shard.target_partition
    refused = offset_of_nul(batch)
    if refused is not None:
        raise SourceRecordError(
            f"the record at offset {refused:,} of {shard.source} has a header with a NUL in its "
            "name, where librdkafka would cut the name off; its transaction was aborted. Leave the "
            "record out (offsets), or send it with delivery at_least_once, which Spark's Kafka "
            "sink does"
        )
    came_from = shard.source.partition
    produce = producer.produce
    offset = -1
    for key, value, headers, timestamp, offset in rows_of(batch):
        if job.provenance:
            headers = [*(headers or ()), *provenance(shard, offset)]
        # By the plan's count of partitions, as verify does: the target may have got more since.
        to = partition_of_key(key, job.partitions, came_from) if partition is None else partition
        while True:
            try:
                # By position, callbacks before the timestamp: by name takes half as long again.
                produce(topic, value, key, to, None, None, timestamp, headers)
                break
            except BufferError:
                # The queue is full. Reports of success don't come: a short wait, and again.
                _served(lambda: producer.poll(0.005))
            except KafkaException as error:
                raise _not_queued(error.args[0], shard, offset) from error
    return offset


def _served(serve: Callable[[], object]) -> None:
    """Let the client say what happened; a fatal error, such as a fence, is raised there.

    Raises:
        ProducerLost: When there is one.
    """
    try:
        serve()
    except KafkaException as error:
        raise ProducerLost(error.args[0]) from error


def _bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of keys and values."""
    return sum(pc.sum(pc.binary_length(batch[name])).as_py() or 0 for name in ("key", "value"))


def _rows_within(batch: pa.RecordBatch, most_bytes: int) -> int:
    """Return how many of the first rows have no more bytes together."""
    keys, values = (
        pc.binary_length(batch[name]).fill_null(number(0)).cast(pa.int64())
        for name in ("key", "value")
    )
    up_to = pc.cumulative_sum(pc.add(keys, values))
    return int(pc.sum(pc.less_equal(up_to, number(most_bytes))).as_py() or 0)


def _not_queued(error: KafkaError, shard: Shard, offset: int) -> Exception:
    if is_terminal(error):
        return explained(error, f"the record at offset {offset} of {shard.source}")
    return ProducerLost(error)


def _seconds_due(job: SendJob, records: int, size: int) -> float:
    """Return how long the limits want so much to take."""
    return max(
        records / job.records_per_second if job.records_per_second else 0.0,
        size / job.bytes_per_second if job.bytes_per_second else 0.0,
    )


def _pause(until: float, stopped: Callable[[], bool]) -> None:
    """Wait until a moment of the monotonic clock, unless it is stopped before."""
    while (left := until - time.monotonic()) > 0 and not stopped():
        time.sleep(min(left, 1.0))


def _abort(producer: Producer) -> None:
    """Abort what is open, so that consumers needn't wait for its timeout.

    Where that fails, the next producer of the same transactional id does it.
    """
    try:
        repeat(lambda: producer.abort_transaction(10.0), "abort_transaction", seconds=10.0)
    except (ProducerLost, KafkaDrainError):
        producer.purge()


def _refuse_if_superseded(job: SendJob, ledger: Ledger) -> None:
    """Leave the shard to a later attempt, if there is one: two would fence each other for ever."""
    latest = ledger.read([job.attempts])[job.attempts]
    if latest is not None and latest.offset > job.attempt:
        raise SupersededError(
            f"attempt {latest.offset} of run {job.key} took over from this one, attempt "
            f"{job.attempt}; nothing more was sent from here"
        )


class _Source:
    """A chain's records, from any progress on.

    Attributes:
        shard: The one whose records are taken.
    """

    def __init__(self, job: SendJob) -> None:
        self._job = job
        self.shard = job.shard
        self._place = 0
        #: Of this shard: how many records were taken, and how many are queued.
        self._taken = self._queued = 0
        self._last = -1
        #: Of all shards: how many records are queued; None while that isn't known.
        self._records: int | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    @property
    def next_offset(self) -> int:
        """The source offset to go on with, one of a gap before it, or the next shard's first."""
        if self._queued == self.shard.records and self._place + 1 < len(self._job.shards):
            return self._job.shards[self._place + 1].first
        return self._last + 1

    def go_to(self, progress: Progress) -> None:
        """Go on from a progress; the files are opened again unless that is where we are."""
        if progress.records != self._records:
            place_of, done = place(self._job.shards, progress.records)
            self._open(place_of, done, progress.offset if done else 0)
            self._records = progress.records

    def take(self, most: int, most_bytes: int) -> tuple[pa.RecordBatch, int] | None:
        """Return the next records of a shard, and the bytes of their keys and values.

        Few at a time are faster: Python's objects stay in the processor's cache.

        Args:
            most: So many at most.
            most_bytes: So many bytes at most, unless the first one alone has more.

        Returns:
            None at the chain's end.

        Raises:
            ManifestInvalidError: When a shard's files hold more or fewer than the plan says.
        """
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                if self._taken < self.shard.records:
                    raise self._not_as_planned(self._taken)
                if self._place + 1 == len(self._job.shards):
                    return None
                self._open(self._place + 1, 0, 0)
        taken = self._rest.slice(0, most)
        size = _bytes(taken)
        if size > most_bytes:
            taken = taken.slice(0, max(1, _rows_within(taken, most_bytes)))
            size = _bytes(taken)
        self._rest = self._rest.slice(taken.num_rows)
        self._taken += taken.num_rows
        if self._taken > self.shard.records:
            raise self._not_as_planned(self._taken)
        return taken, size

    def queued(self, records: int, last: int) -> None:
        """Note that the records that were taken are queued, all of them, and the last's offset."""
        self._queued += records
        self._last = last
        if self._records is not None:
            self._records += records

    def forget(self) -> None:
        """Note that nobody knows which of the records that were taken count."""
        self._records = None

    def _open(self, place_of: int, done: int, offset: int) -> None:
        self._place, self.shard = place_of, self._job.shards[place_of]
        self._taken = self._queued = done
        self._last = offset - 1
        self._batches = read_shard(self._job.root, self.shard, offset)
        self._rest = None

    def _not_as_planned(self, found: int) -> ManifestInvalidError:
        return ManifestInvalidError(
            f"the files hold {found:,} records of {self.shard.source} up to offset "
            f"{self._last + 1:,}, the plan {self.shard.records:,}; this transaction was aborted"
        )
