"""Ask Kafka, gap by gap, why no file holds a record for an offset.

Offsets need not be consecutive: each transaction marker takes one, aborted records are skipped, and
compaction removes records. These gaps are harmless; all others are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.gaps import Gap
from kafka_drain.kafka.client_config import for_client
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.records import GROUP, consumer_error
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.gap_classification import classify

POLL_SECONDS = 20.0
#: Within this number of offsets, reading on reaches the next gap sooner than seeking does.
NEAR = 1_000
_END = 1 << 63


def classify_gaps(
    cluster: KafkaCluster, missing: dict[TopicPartition, list[OffsetRange]]
) -> list[Gap]:
    """Ask Kafka for the reason for each gap; one gap can be split into several.

    Args:
        cluster: The cluster that the offsets were drained from.
        missing: The gaps of each partition, sorted and disjoint.

    Raises:
        AuthorizationError: When an ACL is missing.
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
    with (
        _consumer(cluster, "read_committed") as committed,
        _consumer(cluster, "read_uncommitted") as uncommitted,
    ):
        for tp, ranges in missing.items():
            gaps += classify(
                tp,
                ranges,
                KafkaBounds(first[tp], stable[tp], end[tp]),
                is_compacted=compacted[tp.topic],
                committed=partial(_records_in, committed, tp),
                uncommitted=partial(_records_in, uncommitted, tp),
            )
    return gaps


@contextmanager
def _consumer(cluster: KafkaCluster, isolation_level: str) -> Iterator[Consumer]:
    own = {
        "group.id": GROUP,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation_level,
        # Otherwise an offset that Kafka no longer has would look like one without a record.
        "auto.offset.reset": "error",
        # Gaps are small: prefetch little, and don't back off (by default for a second) then.
        "queued.min.messages": 1,
        "fetch.queue.backoff.ms": 0,
        "fetch.message.max.bytes": 1 << 16,
        # At the end of a partition there is nothing to wait for.
        "fetch.wait.max.ms": 10,
        "log_level": 2,
    }
    consumer = Consumer(for_client(cluster.config.for_librdkafka(), own))
    try:
        yield consumer
    finally:
        consumer.close()


def _records_in(
    consumer: Consumer, tp: TopicPartition, ranges: Iterable[OffsetRange]
) -> list[OffsetRange]:
    """Return the offsets within sorted disjoint ranges at which the consumer finds records."""
    found: list[OffsetRange] = []
    reading: Iterator[int] = iter(())
    at = -NEAR
    for wanted in ranges:
        if wanted.start - at >= NEAR:
            reading = _offsets_from(consumer, tp, wanted.start)
            at = next(reading, _END)
        while at < wanted.start:
            at = next(reading, _END)
        while at < wanted.end:
            if found and found[-1].end == at:
                found[-1] = OffsetRange(found[-1].start, at + 1)
            else:
                found.append(OffsetRange(at, at + 1))
            at = next(reading, _END)
    return found


def _offsets_from(consumer: Consumer, tp: TopicPartition, start: int) -> Iterator[int]:
    """Yield the offsets of the records that the consumer finds, up to the end of the partition."""
    consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, start)])
    while True:
        message: Any = consumer.poll(POLL_SECONDS)
        if message is None:
            raise KafkaUnavailableError(
                f"Kafka didn't respond within {POLL_SECONDS:g} s when reading {tp} from "
                f"offset {start}; try again"
            )
        error = message.error()
        if error is None:
            yield message.offset()
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise consumer_error(error, tp, start)
