"""Why a file holds no record for an offset: asked of Kafka, gap by gap.

Offsets need not be consecutive: transaction markers take one each, aborted records are skipped,
compaction removes records. Those gaps are harmless; the others are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition

from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, subtract

__all__ = ["Gap", "GapReason", "classify_gaps"]

POLL_SECONDS = 20.0


class GapReason(str, Enum):
    """Why a gap is there."""

    harmless: bool
    meaning: str

    def __new__(cls, code: str, harmless: bool, meaning: str) -> GapReason:
        """Make a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.harmless = harmless
        member.meaning = meaning
        return member

    CONTROL = ("control", True, "transaction markers, which no consumer sees")
    ABORTED = ("aborted", True, "records of aborted transactions")
    COMPACTED = ("compacted", True, "records that compaction removed")
    OPEN = ("open", False, "records of a transaction that is still open")
    EXPIRED = (
        "expired",
        False,
        "offsets that Kafka no longer holds: nobody can tell what was there",
    )
    LOST = ("lost", False, "records that Kafka still holds and the archive doesn't")
    UNKNOWN = ("unknown", False, "Kafka wasn't asked")

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of one partition that no file holds, and why."""

    tp: TopicPartition
    range: OffsetRange
    reason: GapReason


def classify_gaps(
    cluster: KafkaCluster, missing: dict[TopicPartition, list[OffsetRange]]
) -> list[Gap]:
    """Ask Kafka for the reason of each gap; one gap can fall into several.

    Raises:
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    if not missing:
        return []
    first = cluster.earliest(missing)
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
            for whole in ranges:
                if whole.start < first[tp]:
                    expired = OffsetRange(whole.start, min(whole.end, first[tp]))
                    gaps.append(Gap(tp, expired, GapReason.EXPIRED))
                held = OffsetRange(min(max(whole.start, first[tp]), whole.end), whole.end)
                lost = _records_in(committed, tp, [held])
                hidden = _records_in(uncommitted, tp, subtract(held, lost))
                gaps += [Gap(tp, r, GapReason.LOST) for r in lost]
                for r in hidden:
                    is_open = r.start >= stable[tp]
                    gaps.append(Gap(tp, r, GapReason.OPEN if is_open else GapReason.ABORTED))
                empty = GapReason.COMPACTED if compacted[tp.topic] else GapReason.CONTROL
                gaps += [Gap(tp, r, empty) for r in subtract(held, [*lost, *hidden])]
    return gaps


@contextmanager
def _consumer(cluster: KafkaCluster, isolation_level: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            **cluster.config.for_librdkafka(),
            "group.id": "kafka-drain-validate",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            # A gap is small: fetch little ahead of it.
            "queued.min.messages": 1,
            "fetch.message.max.bytes": 1 << 16,
            "log_level": 2,
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _records_in(
    consumer: Consumer, tp: TopicPartition, ranges: Iterable[OffsetRange]
) -> list[OffsetRange]:
    """Return the offsets within ranges at which the consumer finds records."""
    found: list[int] = []
    for wanted in ranges:
        if not len(wanted):
            continue
        consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, wanted.start)])
        while True:
            message: Any = consumer.poll(POLL_SECONDS)
            if message is None:
                raise KafkaUnavailableError(
                    f"Kafka didn't answer within {POLL_SECONDS:g} s when asked for {tp} from "
                    f"offset {wanted.start}; try again"
                )
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                break
            if error is not None:
                raise KafkaException(error)
            if message.offset() >= wanted.end:
                break
            found.append(message.offset())
    return merge(OffsetRange(offset, offset + 1) for offset in found)
