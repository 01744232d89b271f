"""Ask Kafka, gap by gap, why no file holds a record for an offset.

Offsets need not be consecutive: each transaction marker takes one, aborted records are skipped, and
compaction removes records. These gaps are harmless; all others are not. Consumers skip markers and
holes alike; the client's account of the responses tells which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial

from confluent_kafka import Consumer, KafkaError, libversion
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.errors import MachineError, SourceRecordError
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.client_config import for_client
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.fetch_account import SETTINGS, FetchAccount, markers_of
from kafka_drain.kafka.fetch_size import BOUNDED
from kafka_drain.kafka.fetch_watch import FetchWatch
from kafka_drain.kafka.records import GROUP, consumer_error
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping, subtract, without

#: Within this number of offsets, reading on reaches the next gap sooner than seeking does.
NEAR = 1_000
#: The same where each response is one batch.
NEAR_BY_BATCH = 20
#: Size of a response in bytes. Gaps are small.
FETCH_BYTES = 1 << 16
#: In a compacted topic, markers lie among offsets that were compacted. This many gaps of a
#: partition are read again batch by batch to tell the two; the others count as compacted.
TOLD_APART = 1_000
_END = 1 << 63

#: A consumer, and the wait for it.
_Client = tuple[Consumer, FetchWatch]
Find = Callable[[Sequence[OffsetRange]], Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class LogContents:
    """The records and markers that a `read_uncommitted` consumer comes across.

    Attributes:
        records: The offsets at which it finds records.
        markers: The offsets at which it is seen to skip a transaction marker.
    """

    records: Sequence[OffsetRange] = ()
    markers: Sequence[OffsetRange] = ()


Look = Callable[[Sequence[OffsetRange]], LogContents]


def classify(
    tp: TopicPartition,
    missing: Iterable[OffsetRange],
    bounds: KafkaBounds,
    *,
    is_compacted: bool,
    committed: Find,
    uncommitted: Look,
) -> list[Gap]:
    """Determine why offsets are in no file; one gap can be split into several.

    A reason is given only where there is evidence of it. That no consumer finds a record is none: a
    log that has lost a segment looks the same.

    Args:
        missing: The offsets, sorted and disjoint.
        bounds: The offsets that Kafka holds of the partition.
        is_compacted: Whether Kafka compacts the topic.
        committed: Returns the offsets among those given at which a `read_committed` consumer finds
            records.
        uncommitted: Returns what a `read_uncommitted` consumer comes across at those given.
    """
    missing = list(missing)
    # Offsets beyond the end count as well: Kafka held them before the log was truncated.
    expired = without(missing, [OffsetRange(bounds.earliest, bounds.high_watermark)])
    held = without(missing, expired)
    # A read_committed consumer would wait forever at the last stable offset.
    above = [OffsetRange(bounds.last_stable, max(bounds.last_stable, bounds.high_watermark))]
    lost = committed(without(held, above))
    rest = without(held, lost)
    seen = uncommitted(rest)
    aborted = without(seen.records, above)
    quiet = without(rest, seen.records)
    nothing = without(quiet, seen.markers)
    absent = GapReason.COMPACTED if is_compacted else GapReason.UNEXPLAINED
    return [
        *(Gap(tp, r, GapReason.EXPIRED) for r in expired),
        *(Gap(tp, r, GapReason.LOST) for r in lost),
        *(Gap(tp, r, GapReason.ABORTED) for r in aborted),
        *(Gap(tp, r, GapReason.OPEN) for r in without(seen.records, aborted)),
        *(Gap(tp, r, GapReason.CONTROL) for r in without(quiet, nothing)),
        *(Gap(tp, r, absent) for r in nothing),
    ]


def classify_gaps(
    cluster: KafkaCluster, missing: dict[TopicPartition, list[OffsetRange]]
) -> list[Gap]:
    """Ask Kafka for the reason for each gap; one gap can be split into several.

    Args:
        cluster: The cluster that the offsets were drained from.
        missing: The gaps of each partition, sorted and disjoint.

    Raises:
        AuthorizationError: When an ACL is missing.
        SourceRecordError: When a batch is damaged in Kafka's log.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    if not missing:
        return []
    first = cluster.earliest(missing)
    end = cluster.latest(missing, "read_uncommitted")
    stable = cluster.latest(missing, "read_committed")
    compacted = {
        topic: "compact" in cluster.topic_config(topic).get("cleanup.policy", "")
        for topic in {tp.topic for tp in missing}
    }
    gaps: list[Gap] = []
    with _consumer(cluster, "read_committed") as committed, _Looker(cluster) as looker:
        for tp, ranges in missing.items():
            gaps += classify(
                tp,
                ranges,
                KafkaBounds(first[tp], stable[tp], end[tp]),
                is_compacted=compacted[tp.topic],
                committed=partial(_records_in, committed, tp),
                uncommitted=partial(
                    looker.look, tp, most=TOLD_APART if compacted[tp.topic] else None
                ),
            )
    return gaps


class _Looker:
    """Looks for records and markers, as a `read_uncommitted` consumer gets them."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._account, self._account_by_batch = FetchAccount(), FetchAccount()
        self._open = ExitStack()
        self._by_batch: _Client | None = None

    def __enter__(self) -> _Looker:
        self._client = self._enter(FETCH_BYTES, self._account)
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def _enter(self, fetch_bytes: int, account: FetchAccount) -> _Client:
        there = _consumer(self._cluster, "read_uncommitted", fetch_bytes, account)
        return self._open.enter_context(there)

    def look(
        self, tp: TopicPartition, ranges: Iterable[OffsetRange], *, most: int | None
    ) -> LogContents:
        """Return the records and markers at offsets within sorted disjoint ranges.

        Args:
            most: Maximum number of gaps to read batch by batch, if that is necessary; None for all.

        Raises:
            MachineError: When this release of confluent-kafka doesn't say what it received.
        """
        ranges = list(ranges)
        records = _records_in(self._client, tp, ranges)
        # Its log is of no use from now on.
        self._client[0].unassign()
        quiet = [part for r in ranges for part in subtract(r, overlapping(records, r))]
        markers, unclear = markers_of(self._account.take(tp), quiet)
        if quiet and not self._account.is_understood():
            raise MachineError(
                f"librdkafka {libversion()[0]} doesn't say what it received of {tp}, which tells "
                "transaction markers from lost records; install the confluent-kafka that the lock "
                "file names"
            )
        if unclear:
            # The broker answers with one batch at least, and no more than that.
            self._by_batch = self._by_batch or self._enter(1, self._account_by_batch)
            _records_in(self._by_batch, tp, unclear[:most], NEAR_BY_BATCH)
            self._by_batch[0].unassign()
            told, _ = markers_of(self._account_by_batch.take(tp), unclear)
            markers = merge([*markers, *told])
        return LogContents(records, markers)


@contextmanager
def _consumer(
    cluster: KafkaCluster,
    isolation_level: str,
    fetch_bytes: int = FETCH_BYTES,
    account: FetchAccount | None = None,
) -> Iterator[_Client]:
    watch = FetchWatch()
    own = {
        **watch.settings,
        "group.id": GROUP,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation_level,
        # Otherwise an offset that Kafka no longer has would look like one without a record.
        "auto.offset.reset": "error",
        **BOUNDED,
        # Gaps are small: prefetch little, and don't back off (by default for a second) then.
        "queued.min.messages": 1,
        "fetch.queue.backoff.ms": 0,
        "fetch.message.max.bytes": fetch_bytes,
        # At the end of a partition there is nothing to wait for.
        "fetch.wait.max.ms": 10,
        "check.crcs": True,
        "log_level": 2,
    }
    if account is not None:
        own |= {**SETTINGS, "logger": account.logger}
    consumer = Consumer(for_client(cluster.config.for_librdkafka(), own))
    try:
        yield consumer, watch
    finally:
        consumer.close()


def _records_in(
    client: _Client, tp: TopicPartition, ranges: Iterable[OffsetRange], near: int = NEAR
) -> list[OffsetRange]:
    """Return the offsets within sorted disjoint ranges at which the consumer finds records.

    Args:
        ranges: The offsets, all before the end that the partition's leader has told.

    Raises:
        SourceRecordError: When a batch with some of them is damaged in Kafka's log.
    """
    found: list[OffsetRange] = []
    ranges = list(ranges)
    end = max((wanted.end for wanted in ranges), default=0)
    reading: Iterator[int] | None = None
    at = _END

    def following(wanted: OffsetRange) -> int:
        """Return the next record's offset; that of none if what follows can't be read."""
        nonlocal reading
        for is_again in (False, True):
            try:
                return next(reading, _END) if reading is not None else _END
            except _DamagedBatchError as damage:
                if damage.offset >= wanted.end:
                    reading = None
                    return _END
                if is_again or damage.offset >= wanted.start:
                    raise damage.error from None
                # It lies before what is wanted.
                reading = _offsets_from(client, tp, wanted.start, end)
        return _END

    for wanted in ranges:
        if reading is None or wanted.start - at >= near:
            reading = _offsets_from(client, tp, wanted.start, end)
            at = following(wanted)
        while at < wanted.start:
            at = following(wanted)
        while at < wanted.end:
            if found and found[-1].end == at:
                found[-1] = OffsetRange(found[-1].start, at + 1)
            else:
                found.append(OffsetRange(at, at + 1))
            if at + 1 == wanted.end:
                # What follows may be unreadable without being asked for.
                break
            at = following(wanted)
    return found


class _DamagedBatchError(Exception):
    """Raised at a batch that is damaged in Kafka's log.

    Attributes:
        offset: Where it starts; negative if the client doesn't say.
        error: What to tell the user.
    """

    def __init__(self, offset: int, error: SourceRecordError) -> None:
        super().__init__(offset)
        self.offset = offset
        self.error = error


def _offsets_from(client: _Client, tp: TopicPartition, start: int, end: int) -> Iterator[int]:
    """Yield the offsets of the records that the consumer finds, up to the end of the partition.

    A replica that ends before what was asked for, as a follower or a leader just elected may, has
    yet to learn of the rest: what it doesn't have isn't missing.

    Raises:
        _DamagedBatchError: When it comes to a batch that is damaged in Kafka's log.
    """
    consumer, watch = client
    consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, start)])
    watch.begin()
    while True:
        message = watch.poll(consumer, tp, start)
        error = message.error()
        if error is None:
            yield message.offset()
        elif error.code() == KafkaError._PARTITION_EOF:
            if message.offset() >= end:
                return
        else:
            failed = consumer_error(error, tp, start)
            if isinstance(failed, SourceRecordError):
                raise _DamagedBatchError(message.offset(), failed)
            raise failed
