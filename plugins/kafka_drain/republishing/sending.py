"""Exactly once: how one shard is sent. The same function in the worker and on Spark's executors.

    make the producer; init_transactions     # fence: older attempts can no longer commit
    read the shard's progress                # after the fence, each time a producer is made
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
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_drain.errors import (
    DeliveryError,
    KafkaDrainError,
    ManifestInvalidError,
    ProgressError,
    SourceRecordError,
    SupersededError,
)
from kafka_drain.offsets import TopicPartition
from kafka_drain.republishing.garbage import little_garbage_collection
from kafka_drain.republishing.kafka_errors import explained, is_terminal
from kafka_drain.republishing.ledger import Ledger, Progress, entry
from kafka_drain.republishing.producer import (
    TRANSACTION_TIMEOUT_MS,
    ProducerLost,
    fenced_producer,
    repeat,
    shard_transactional_id,
)
from kafka_drain.republishing.rows import provenance, rows_of
from kafka_drain.republishing.shard_reader import read_shard
from kafka_drain.republishing.shards import ProgressSlot, Shard

__all__ = ["SendJob", "send_shard"]

#: A transaction ends after so many records, bytes or seconds, whichever comes first.
TRANSACTION_RECORDS = 250_000
TRANSACTION_BYTES = 256 << 20
TRANSACTION_SECONDS = TRANSACTION_TIMEOUT_MS / 1000 / 3

#: Bounds are looked at after so many records.
STEP = 2_000

#: So long without a commit, with Kafka failing again and again, and the attempt gives up.
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True)
class SendJob:
    """All that sending one shard needs; crosses to other processes.

    Attributes:
        root: The archive's folder, a path or a URL.
        key: The run's key.
        plan: The plan's hash.
        attempt: Number of this attempt of the run, from 1.
        attempts: Where attempts are counted.
        shard: What to send.
        partitions: How many partitions the target has.
        transactions: `strict` or `fast`.
        adds_provenance: Whether headers say where each record came from.
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
    shard: Shard
    partitions: int
    transactions: str
    adds_provenance: bool
    settings: Mapping[str, Any] = field(repr=False)
    largest_batch: int = 1_000_000
    records_per_second: float = 0
    bytes_per_second: float = 0

    def __str__(self) -> str:
        return f"sending {self.shard.source}"

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
            "shard": self.shard.to_dict(),
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> SendJob:
        """Read what `to_dict` wrote."""
        group, topic, partition = document["attempts"]
        attempts = ProgressSlot(group, TopicPartition(topic, partition))
        shard = Shard.from_dict(document["shard"])
        return cls(**(document | {"attempts": attempts, "shard": shard}))


def send_shard(job: SendJob, stopped: Callable[[], bool] = lambda: False) -> int:
    """Send what of a shard wasn't sent yet, exactly once, in order.

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
    """
    with closing(Ledger(job.settings)) as ledger, little_garbage_collection():
        return _send_shard(job, ledger, stopped)


def _send_shard(job: SendJob, ledger: Ledger, stopped: Callable[[], bool]) -> int:
    source = _Source(job)
    committed, alive = 0, time.monotonic()
    while True:
        try:
            for records in _transactions(job, ledger, source, stopped):
                committed += records
                alive = time.monotonic()
            return committed
        except ProducerLost as lost:
            _refuse_if_superseded(job, ledger)
            if time.monotonic() - alive > PATIENCE_SECONDS:
                raise explained(lost.error, f"sending {job.shard.source}") from lost
            time.sleep(0.5)


def _transactions(
    job: SendJob, ledger: Ledger, source: _Source, stopped: Callable[[], bool]
) -> Iterator[int]:
    """Commit transactions until the shard is done, with as many producers as the mode demands.

    Yields:
        How many records each one held.

    Raises:
        ProducerLost: When the producer can't go on; what was in flight counts as not known.
    """
    shard = job.shard
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
        while progress.records < shard.records:
            source.go_to(progress.offset)
            try:
                following = _send_transaction(job, producer, ledger, source, progress, stopped)
            except BaseException as error:
                _abort(producer)
                refused = next((refusal for refusal in refusals if is_terminal(refusal)), None)
                if refused is not None and isinstance(error, ProducerLost | SourceRecordError):
                    raise explained(refused, f"sending {shard.source} to {shard.target}") from None
                raise
            yield following.records - progress.records
            progress = following
            if job.transactions == "strict":
                break
        if progress.records >= shard.records:
            return


def read_progress(job: SendJob, ledger: Ledger) -> Progress:
    """Read how far the shard has got.

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
    progress: Progress,
    stopped: Callable[[], bool],
) -> Progress:
    """Send rows and their progress in one transaction, and return the progress that counts now."""
    slot = job.shard.progress
    repeat(producer.begin_transaction, "begin_transaction")
    sent, offset = _produce(job, producer, source, stopped)
    following = Progress(offset, progress.records + sent, job.plan)
    if following.records > job.shard.records or (not sent):
        raise ManifestInvalidError(
            f"the files hold {following.records:,} records of {job.shard.source} up to offset "
            f"{offset:,}, the plan {job.shard.records:,}; this transaction was aborted"
        )
    repeat(
        lambda: producer.send_offsets_to_transaction(
            [entry(slot, following)], ledger.group_metadata(slot.group), 60.0
        ),
        f"the progress in group {slot.group}",
    )
    # Waits for all acknowledgements, fails if one is missing, and never gives up half way.
    repeat(lambda: producer.commit_transaction(-1), "commit_transaction")
    return following


def _produce(
    job: SendJob, producer: Producer, source: _Source, stopped: Callable[[], bool]
) -> tuple[int, int]:
    """Queue rows until the transaction is full; return how many, and the offset to go on with."""
    began = time.monotonic()
    sent = size = 0
    while sent < TRANSACTION_RECORDS and size < TRANSACTION_BYTES:
        batch = source.take(_step(job, sent, size))
        if batch is None:
            break
        source.at = _queue(job, producer, batch) + 1
        sent += batch.num_rows
        size += _bytes(batch)
        producer.poll(0)
        if stopped():
            raise DeliveryError(f"sending {job.shard.source} was stopped; a retry goes on")
        _pause(job, sent, size, time.monotonic() - began)
        if time.monotonic() - began > TRANSACTION_SECONDS:
            break
    return sent, source.at


def _step(job: SendJob, sent: int, size: int) -> int:
    """Return how many rows to take next.

    With a limit, those of a second at most: a pause mustn't outlast the transaction. How large rows
    are, those that this transaction has sent so far tell; its first row goes alone.
    """
    rows = min(STEP, TRANSACTION_RECORDS - sent, int(job.records_per_second or STEP))
    if job.bytes_per_second:
        rows = min(rows, int(job.bytes_per_second * sent / max(size, 1)))
    return max(1, rows)


def _queue(job: SendJob, producer: Producer, batch: pa.RecordBatch) -> int:
    """Queue some records, each of them; return the last one's offset."""
    shard = job.shard
    topic, partition = shard.target_topic, shard.target_partition
    # Records without a key stay together by where they came from, see placement.py.
    keyless = shard.source.partition % job.partitions
    produce = producer.produce
    offset = -1
    for key, value, headers, timestamp, offset in rows_of(batch):
        if job.adds_provenance:
            headers = [*(headers or ()), *provenance(shard, offset)]
        to = partition if partition is not None else keyless if key is None else -1
        while True:
            try:
                # By position, callbacks before the timestamp: by name takes half as long again.
                produce(topic, value, key, to, None, None, timestamp, headers)
                break
            except BufferError:
                # The queue is full. Reports of success don't come: a short wait, and again.
                producer.poll(0.005)
            except KafkaException as error:
                raise _not_queued(error.args[0], shard, offset) from error
    return offset


def _bytes(batch: pa.RecordBatch) -> int:
    """Return the bytes of keys and values."""
    return sum(pc.sum(pc.binary_length(batch[name])).as_py() or 0 for name in ("key", "value"))


def _not_queued(error: KafkaError, shard: Shard, offset: int) -> Exception:
    if is_terminal(error):
        return explained(error, f"the record at offset {offset} of {shard.source}")
    return ProducerLost(error)


def _pause(job: SendJob, records: int, size: int, seconds: float) -> None:
    """Wait until the limits allow what was sent; never so long that the transaction runs out."""
    due = max(
        records / job.records_per_second if job.records_per_second else 0.0,
        size / job.bytes_per_second if job.bytes_per_second else 0.0,
    )
    if due > seconds:
        time.sleep(min(due - seconds, TRANSACTION_SECONDS))


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
    """A shard's records, from any offset on.

    Attributes:
        at: The source offset that comes next, or one of a gap before it; -1 when not known.
    """

    def __init__(self, job: SendJob) -> None:
        self._job = job
        self.at = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    def go_to(self, offset: int) -> None:
        """Go on from an offset; the files are opened again unless that is where we are."""
        if offset != self.at:
            self.at = offset
            self._batches = read_shard(self._job.root, self._job.shard, offset)
            self._rest = None

    def take(self, most: int) -> pa.RecordBatch | None:
        """Return the next records, at most so many; None at the end.

        Few at a time are faster: Python's objects stay in the processor's cache.
        """
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return None
        taken = self._rest.slice(0, most)
        self._rest = self._rest.slice(most)
        # Until they are queued, all of them, where to go on isn't known.
        self.at = -1
        return taken
