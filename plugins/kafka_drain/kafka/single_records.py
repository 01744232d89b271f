"""Read one record, or the times of a few, from an offset of each of many partitions.

Partitions are asked for in groups, and a response has the next batches of some of them: few bytes,
because a client unpacks all that it gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.data_files.record_hash import record_hash
from kafka_drain.errors import KafkaUnavailableError, SourceRecordError
from kafka_drain.kafka.client_config import KafkaConfig, for_client
from kafka_drain.kafka.fetch_size import BOUNDED, FIRST_BYTES
from kafka_drain.kafka.fetch_watch import FetchWatch
from kafka_drain.kafka.identity import SeenRecord
from kafka_drain.kafka.message_headers import header_bytes, headers_of
from kafka_drain.kafka.records import GROUP, consumer_error, microseconds
from kafka_drain.offsets import Offsets, TopicPartition

_UNTOLD: Offsets = MappingProxyType({})

#: Partitions that are read at a time.
TOGETHER = 100
#: Maximum sizes of a response for one partition, and for all, in bytes, unless a batch is larger.
PARTITION_BYTES, RESPONSE_BYTES = FIRST_BYTES, 4 * FIRST_BYTES

_SETTINGS = {
    "group.id": GROUP,
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # If the offset is gone, don't silently start elsewhere.
    "auto.offset.reset": "error",
    # A damaged batch isn't to count as another record than the archived one.
    "check.crcs": True,
    **BOUNDED,
    "queued.min.messages": 1,
    "fetch.queue.backoff.ms": 0,
    "fetch.message.max.bytes": PARTITION_BYTES,
    "fetch.max.bytes": RESPONSE_BYTES,
    "message.max.bytes": RESPONSE_BYTES,
    "fetch.wait.max.ms": 10,
    "log_level": 2,
}


def read_single_records(
    config: KafkaConfig,
    offsets: Offsets,
    isolation_level: str = "read_uncommitted",
    ends: Offsets = _UNTOLD,
) -> dict[TopicPartition, SeenRecord]:
    """Return the first record that Kafka has of each partition at or after an offset.

    Args:
        config: Connection settings.
        offsets: For committed records, below the last stable ones, where a consumer would wait.
        ends: Where partitions end, as their leaders have told: a replica that ends before, as a
            follower or a leader just elected may, has yet to learn of the rest.

    Returns:
        Nothing for a partition that has no record there, or no longer has the offset.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        SourceRecordError: When a batch is damaged in Kafka's log.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    found = messages(config, [offsets], 1, isolation_level, ends)
    return {tp: _seen(message) for tp, message in found}


def read_times(
    config: KafkaConfig, offsets: Offsets, count: int, ends: Offsets
) -> dict[TopicPartition, list[tuple[int, int]]]:
    """Return offset and timestamp of the next records that Kafka has of each partition.

    Args:
        config: Connection settings.
        offsets: First offset of each partition.
        count: Number of records of each; fewer if its log ends before.
        ends: As `read_single_records` has them.

    Returns:
        Timestamps in milliseconds since 1970; -1 for a record without one.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
        SourceRecordError: When a batch is damaged in Kafka's log.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    found: dict[TopicPartition, list[tuple[int, int]]] = {tp: [] for tp in offsets}
    for tp, message in messages(config, [offsets], count, ends=ends):
        found[tp].append((message.offset(), message.timestamp()[1]))
    return found


def messages(
    config: KafkaConfig,
    places: Iterable[Offsets],
    count: int,
    isolation_level: str = "read_uncommitted",
    ends: Offsets = _UNTOLD,
) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield so many messages of each partition from an offset on, or as many as it has.

    Args:
        config: Connection settings.
        places: Offsets, of each partition one at a time.
        count: Number of messages from each place.
        ends: As `read_single_records` has them.
    """
    consumer: Consumer | None = None
    watch = FetchWatch()
    try:
        for offsets in places:
            left = iter(sorted(offsets.items()))
            while together := dict(islice(left, TOGETHER)):
                if consumer is None:
                    settings = {**_SETTINGS, **watch.settings, "isolation.level": isolation_level}
                    consumer = Consumer(for_client(config.for_librdkafka(), settings))
                yield from _first_of_each(consumer, watch, together, count, ends)
    finally:
        if consumer is not None:
            consumer.close()


def _first_of_each(
    consumer: Consumer, watch: FetchWatch, offsets: Offsets, count: int, ends: Offsets
) -> Iterator[tuple[TopicPartition, Any]]:
    consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, at) for tp, at in offsets.items()])
    left = dict.fromkeys(offsets, count)
    watch.begin()
    while left:
        tp = next(iter(left))
        message = watch.poll(consumer, tp, offsets[tp])
        error = message.error()
        if error is not None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            # Nothing of a group is needed to read at given offsets.
            continue
        if message.topic() is None:
            continue
        tp = TopicPartition(message.topic(), message.partition())
        if error is not None and error.code() not in _NOTHING_THERE:
            raise consumer_error(error, tp, offsets[tp])
        is_end = error is not None and error.code() == KafkaError._PARTITION_EOF
        if tp not in left or (is_end and message.offset() < ends.get(tp, 0)):
            continue
        if error is None:
            left[tp] -= 1
            yield tp, message
        if error is not None or not left[tp]:
            del left[tp]
            # Not paused: whoever resumes it once it is assigned again may wait for ever, because
            # librdkafka then fetches from where it was before, and drops what comes.
            consumer.incremental_unassign([KafkaTopicPartition(tp.topic, tp.partition)])


#: The end of the partition, or an offset that was deleted since its bounds were asked for.
_NOTHING_THERE = (
    KafkaError._PARTITION_EOF,
    KafkaError._AUTO_OFFSET_RESET,
    KafkaError.OFFSET_OUT_OF_RANGE,
)


def _seen(message: Any) -> SeenRecord:
    kind, milliseconds = message.timestamp()
    plain = partial(
        record_hash,
        message.topic(),
        message.partition(),
        message.offset(),
        microseconds(milliseconds),
        # librdkafka counts from 1, Kafka and Spark from 0.
        kind - 1,
        message.key(),
        message.value(),
    )
    headers = [(str(each["key"]), each["value"]) for each in headers_of(message) or ()]
    epoch = message.leader_epoch()
    return SeenRecord(
        message.offset(),
        frozenset(f"{value:016x}" for value in (plain(), plain(headers))),
        epoch if epoch is not None and epoch >= 0 else None,
    )


@dataclass(frozen=True, slots=True)
class RecordSample:
    """A record from one place of a partition.

    Attributes:
        unpacked: Number of bytes of its key, value and headers.
    """

    tp: TopicPartition
    unpacked: int


def sample_records(config: KafkaConfig, places: Iterable[Offsets]) -> list[RecordSample]:
    """Return the size of a record from each of some places, where Kafka has any.

    What can't be read ends the search: whoever reads it all comes to it, and says what to do.

    Args:
        config: Connection settings.
        places: Offsets, of each partition one at a time.

    Raises:
        AuthorizationError: When an ACL on a topic is missing.
    """
    found: list[RecordSample] = []
    with suppress(KafkaUnavailableError, SourceRecordError):
        for tp, message in messages(config, places, 1):
            size = len(message.key() or b"") + len(message.value() or b"")
            found.append(RecordSample(tp, size + header_bytes(message)))
    return found
