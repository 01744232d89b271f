"""Verify: the target's new records are read back and compared with the files, record by record.

What `read_committed` readers get of each target partition since the plan was made is matched with
what the shards hold (`matching`). That proves count, order and content, and tells where each
source offset went (`offset_map`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import repeat
from operator import methodcaller
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition
from xxhash import xxh3_64_intdigest

from kafka_drain.errors import KafkaUnavailableError, TopicError, TransientError
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.kafka_config import KafkaConfig
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress, Ticker
from kafka_drain.republishing.content import content_hash
from kafka_drain.republishing.kafka_errors import explained
from kafka_drain.republishing.matching import Expected, PartitionMatch, Record, match_partition
from kafka_drain.republishing.offset_map import OffsetMap, PartitionMap
from kafka_drain.republishing.placement import BY_KEY, partition_of_key
from kafka_drain.republishing.plan import RepublishPlan
from kafka_drain.republishing.rows import provenance, rows_of
from kafka_drain.republishing.shard_reader import read_shard
from kafka_drain.republishing.shards import Shard

__all__ = [
    "Verification",
    "VerifiedPartition",
    "summed_up",
    "target_partitions",
    "verify",
    "verify_partition",
]

#: How long other producers' open transactions, or Kafka itself, may hold the reading up.
END_TIMEOUT_SECONDS = 120.0

#: Records taken from the client at a time.
BATCH_RECORDS = 10_000

#: How long a batch may take to fill; the last one takes as long.
WAIT_SECONDS = 0.1

#: The garbage collector runs after so many objects; more than a batch makes.
GARBAGE_OBJECTS = 200_000

#: Records of a shard that are Python objects at a time; shards of one target are read together.
SLICE_ROWS = 5_000

_CONSUMER = {
    "group.id": "kafka-drain-verify",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # Records that are gone are no reason to begin elsewhere.
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.message.max.bytes": 16 << 20,
    "fetch.max.bytes": 64 << 20,
    "receive.message.max.bytes": (64 << 20) + 512,
    "queued.max.messages.kbytes": 64 << 10,
    # The client pauses for so long when 100,000 records wait; a second is its default.
    "fetch.queue.backoff.ms": 10,
    # What it has to say comes as the error of a message.
    "log_level": 2,
}


@dataclass(frozen=True)
class VerifiedPartition:
    """One target partition and what was found in it."""

    tp: TopicPartition
    match: PartitionMatch

    def to_dict(self) -> dict[str, Any]:
        """Return what was found as JSON types, without the mappings."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "records": self.match.expected,
            "found": self.match.found,
            "lost": self.match.lost,
            "twice": self.match.twice,
            "out_of_order": self.match.out_of_order,
            "foreign": self.match.foreign,
            "compacted": self.match.compacted,
            "fingerprint": self.match.fingerprint,
            "notes": list(self.match.notes),
        }


@dataclass(frozen=True)
class Verification:
    """What was found in all target partitions.

    Attributes:
        partitions: The target partitions.
    """

    partitions: tuple[VerifiedPartition, ...]

    @property
    def records(self) -> int:
        """How many records were planned."""
        return sum(partition.match.expected for partition in self.partitions)

    @property
    def lost(self) -> int:
        """How many of them aren't there."""
        return sum(partition.match.lost for partition in self.partitions)

    @property
    def twice(self) -> int:
        """How many are there beyond the plan."""
        return sum(partition.match.twice for partition in self.partitions)

    @property
    def out_of_order(self) -> int:
        """How many came too early."""
        return sum(partition.match.out_of_order for partition in self.partitions)

    @property
    def foreign(self) -> int:
        """How many are other producers'."""
        return sum(partition.match.foreign for partition in self.partitions)

    @property
    def compacted(self) -> int:
        """How many planned ones Kafka's compaction took."""
        return sum(partition.match.compacted for partition in self.partitions)

    @property
    def is_exact(self) -> bool:
        """Whether each planned record is in Kafka once, in its shard's order."""
        return all(partition.match.is_exact for partition in self.partitions)

    def to_dict(self) -> dict[str, Any]:
        """Return what was found as JSON types, without the offset map."""
        return {
            "is_exact": self.is_exact,
            "records": self.records,
            "lost": self.lost,
            "twice": self.twice,
            "out_of_order": self.out_of_order,
            "foreign": self.foreign,
            "compacted": self.compacted,
            "partitions": [partition.to_dict() for partition in self.partitions],
        }

    def lines(self) -> list[str]:
        """Return what was found as people read it."""
        others = [
            f"{number:,} {what}"
            for number, what in (
                (self.compacted, "were compacted by Kafka since"),
                (self.foreign, "records of other producers lie between"),
            )
            if number
        ]
        if self.is_exact:
            first = f"{self.records:,} records are in Kafka once, in order, as in the files"
        else:
            first = (
                f"NOT EXACT: of {self.records:,} records {self.lost:,} are lost; {self.twice:,} "
                f"are there beyond the plan, {self.out_of_order:,} are out of order"
            )
        return [
            f"verify: {'; '.join([first, *others])}",
            *(
                f"  {partition.tp}: {match.found:,} of {match.expected:,} found, {match.lost:,} "
                f"lost, {match.twice:,} twice, {match.out_of_order:,} out of order"
                for partition in self.partitions
                if not (match := partition.match).is_exact
            ),
            *(
                f"  {partition.tp}: {note}"
                for partition in self.partitions
                for note in partition.match.notes
            ),
        ]


def summed_up(
    plan: RepublishPlan, matches: Mapping[TopicPartition, PartitionMatch]
) -> tuple[Verification, OffsetMap]:
    """Put together what `verify_partition` found in each of `target_partitions`.

    Returns:
        The verification, and where each source offset went; that is whole where all is exact.
    """
    shards = {shard.number: shard for shard in plan.shards}
    mapped = sorted(
        (number, tp, blocks)
        for tp, match in matches.items()
        for number, blocks in match.mappings.items()
    )
    offset_map = OffsetMap(
        run=plan.key,
        pipeline=plan.pipeline,
        cluster_id=plan.cluster_id,
        partitions=tuple(
            PartitionMap(shards[number].source, shards[number].topic_id, tp, blocks)
            for number, tp, blocks in mapped
        ),
    )
    found = tuple(VerifiedPartition(tp, matches[tp]) for tp in sorted(matches))
    return Verification(found), offset_map


def target_partitions(plan: RepublishPlan) -> list[TopicPartition]:
    """Return the target partitions that some shard sends to."""
    return [tp for tp in plan.starts() if _senders(plan, tp)]


def verify(
    root: str, plan: RepublishPlan, settings: Mapping[str, Any], say: Callable[[str], None]
) -> tuple[Verification, OffsetMap]:
    """Verify all target partitions in turn.

    Args:
        root: The archive: a folder, or a URL.
        plan: What was sent.
        settings: librdkafka's settings of the target cluster.
        say: Takes lines on how far it has got.

    Returns:
        As `summed_up`.

    Raises:
        KafkaDrainError: As `verify_partition`.
    """
    progress = Progress("records", plan.records)
    ticker = Ticker("verify", progress, say)
    matches: dict[TopicPartition, PartitionMatch] = {}
    done = 0

    def on_read(records: int) -> None:
        ticker.at(done + records)

    for tp in target_partitions(plan):
        matches[tp] = verify_partition(root, plan, settings, tp, on_read=on_read)
        done += matches[tp].expected
    say(f"verify: {progress.line(done)}")
    return summed_up(plan, matches)


def verify_partition(
    root: str,
    plan: RepublishPlan,
    settings: Mapping[str, Any],
    tp: TopicPartition,
    start: int | None = None,
    end_timeout_seconds: float = END_TIMEOUT_SECONDS,
    on_read: Callable[[int], None] | None = None,
) -> PartitionMatch:
    """Compare what a target partition holds with what the shards should have put there.

    Read are the records up to the high watermark as of now. All but `on_read` can be pickled.

    Args:
        root: The archive: a folder, or a URL.
        plan: What was sent.
        settings: librdkafka's settings of the target cluster.
        tp: The target partition.
        start: Where its new records begin at the earliest; None for what the plan says.
        end_timeout_seconds: How long to wait for a record that read_committed readers don't get
            yet, or for Kafka.
        on_read: Gets how many of the target's records were read so far.

    Raises:
        TopicError: When the target was made again since the plan was made.
        TransientError: When another producer's transaction stays open.
        KafkaUnavailableError: When Kafka doesn't answer.
        ManifestInvalidError: When a file has other bytes than the plan says.
        DataFileError: When a file can't be read.
    """
    target = plan.target(tp.topic)
    cluster = KafkaCluster(KafkaConfig(settings))
    found_id = cluster.topics([tp.topic])[tp.topic].id
    if found_id != target.id:
        raise TopicError(
            f"topic {tp.topic} can't be verified: it has id {found_id}, expected {target.id}; it "
            "was made again since the plan was made, with what had been sent to it gone"
        )
    start = plan.starts()[tp] if start is None else start
    log_start = cluster.earliest([tp])[tp]
    reader = _TargetReader(
        cluster,
        tp,
        first=max(start, log_start),
        end=cluster.latest([tp], "read_uncommitted")[tp],
        with_keys=target.is_compacted,
        timeout_seconds=end_timeout_seconds,
        on_read=on_read or (lambda records: None),
    )
    with _little_garbage_collection():
        match = match_partition(
            {shard.number: _expected(root, plan, shard, tp) for shard in _senders(plan, tp)},
            reader.read,
            compare_timestamps=plan.keeps_timestamps,
            is_compacted=target.is_compacted,
        )
    if log_start > start and match.lost:
        note = (
            f"Kafka has deleted the records below offset {log_start:,}, the run's begin at "
            f"{start:,}: what was deleted counts as lost"
        )
        match = replace(match, notes=(*match.notes, note))
    return match


@contextmanager
def _little_garbage_collection() -> Iterator[None]:
    """Let batches of records come and go: looking through them for cycles costs a sixth."""
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _senders(plan: RepublishPlan, tp: TopicPartition) -> list[Shard]:
    return [
        shard
        for shard in plan.shards
        if shard.target_topic == tp.topic and shard.target_partition in (None, tp.partition)
    ]


def _expected(root: str, plan: RepublishPlan, shard: Shard, tp: TopicPartition) -> Expected:
    """Return what reads what a shard should have put into a target partition."""
    target, source = plan.target(tp.topic), shard.source.partition
    by_key, adds_provenance = plan.placement == BY_KEY, plan.adds_provenance

    def read() -> Iterator[Record]:
        for batch in read_shard(root, shard):
            for at in range(0, batch.num_rows, SLICE_ROWS):
                rows = rows_of(batch.slice(at, SLICE_ROWS))
                for key, value, headers, timestamp, offset in rows:
                    if by_key and partition_of_key(key, target.partitions, source) != tp.partition:
                        continue
                    sent = headers
                    if adds_provenance:
                        sent = (headers or []) + provenance(shard, offset)
                    hashed = _key_hash(key) if target.is_compacted else 0
                    yield content_hash(key, value, sent), timestamp, offset, hashed

    return read


def _key_hash(key: bytes | None) -> int:
    return 0 if key is None else xxh3_64_intdigest(key)


class _TargetReader:
    """Reads one partition as read_committed readers get it, as often as asked."""

    def __init__(
        self,
        cluster: KafkaCluster,
        tp: TopicPartition,
        *,
        first: int,
        end: int,
        with_keys: bool,
        timeout_seconds: float,
        on_read: Callable[[int], None],
    ) -> None:
        self._cluster = cluster
        self._tp = tp
        self._first = first
        self._end = end
        self._with_keys = with_keys
        self._timeout = timeout_seconds
        self._on_read = on_read
        self._read = 0

    def read(self, is_complete: Callable[[], bool]) -> Iterator[Iterable[Record]]:
        """Yield the records in batches.

        Args:
            is_complete: Whether the rest may be left out where it can't be read yet.
        """
        if self._first >= self._end:
            return
        consumer = Consumer({**self._cluster.config.for_librdkafka(), **_CONSUMER})
        try:
            consumer.assign([KafkaTopicPartition(self._tp.topic, self._tp.partition, self._first)])
            yield from self._batches(consumer, is_complete)
        finally:
            consumer.close()

    def _batches(
        self, consumer: Consumer, is_complete: Callable[[], bool]
    ) -> Iterator[Iterable[Record]]:
        position, read = self._first, 0
        at_stable_end = False
        moved = time.monotonic()
        while position < self._end:
            messages: list[Any] = consumer.consume(BATCH_RECORDS, WAIT_SECONDS)
            events = [message for message in messages if message.error() is not None]
            if events:
                ends = [message.offset() for message in events if self._is_end(message)]
                messages = [message for message in messages if message.error() is None]
                if ends:
                    at_stable_end, position = True, max(position, ends[-1])
            if messages:
                at_stable_end = at_stable_end and position > messages[-1].offset()
                position = max(position, messages[-1].offset() + 1)
                if position > self._end:
                    messages = [m for m in messages if m.offset() < self._end]
                yield _records(messages, self._with_keys)
                read += len(messages)
                # A second reading, which damage asks for, starts from 0 again.
                self._read = max(self._read, read)
                self._on_read(self._read)
                moved = time.monotonic()
            elif at_stable_end and is_complete():
                # Another producer's transaction is open behind the last record of ours.
                self._end = position
            elif time.monotonic() - moved > self._timeout:
                raise self._stalled(position)

    def _is_end(self, message: Any) -> bool:
        """Whether there is nothing more to read for now; raise what isn't passing."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise TransientError(
                f"{self._tp} can't be verified: Kafka deleted records while they were read "
                f"({error.str()}); expected them from offset {self._first:,} on; verify again, it "
                "counts what is gone"
            )
        problem = explained(error, f"reading {self._tp} back")
        if not isinstance(problem, KafkaUnavailableError):
            raise problem
        # The client goes on by itself.
        return False

    def _stalled(self, position: int) -> TransientError:
        stable = self._cluster.latest([self._tp], "read_committed")[self._tp]
        if stable < self._end:
            return TransientError(
                f"{self._tp} can't be verified: its last stable offset is {stable:,} since more "
                f"than {self._timeout:g} s, its high watermark is {self._end:,}; a producer has a "
                "transaction open there. It ends at that producer's transaction.timeout.ms at the "
                "latest; verify again then"
            )
        return KafkaUnavailableError(
            f"{self._tp} can't be verified: Kafka sent nothing from offset {position:,} on for "
            f"more than {self._timeout:g} s, expected records up to {self._end:,}; check the "
            "brokers and verify again"
        )


# Python 3.11's own call of a C method doesn't look whether it failed, see `_records`.
_headers_of = methodcaller("headers")


def _records(messages: list[Any], with_keys: bool) -> Iterator[Record]:
    """Return what is compared of messages. This decides how fast verify is."""
    hashes = []
    for message in messages:
        try:
            headers = _headers_of(message)
        except (SystemError, UnicodeDecodeError):
            # A header's name isn't UTF-8: no record of ours, for files hold text there. Never ask
            # again: confluent-kafka 2.16 then answers with a null pointer in a tuple.
            hashes.append(0)
        else:
            hashes.append(content_hash(message.key(), message.value(), headers))
    return zip(
        hashes,
        [message.timestamp()[1] for message in messages],
        [message.offset() for message in messages],
        [_key_hash(message.key()) for message in messages] if with_keys else repeat(0),
        strict=False,
    )
