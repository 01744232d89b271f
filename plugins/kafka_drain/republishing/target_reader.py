"""Reading a target partition back, as `read_committed` readers get it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from operator import methodcaller
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition
from xxhash import xxh3_64_intdigest

from kafka_drain.errors import KafkaUnavailableError, TransientError
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republishing.content import content_hash
from kafka_drain.republishing.kafka_errors import explained
from kafka_drain.republishing.match_types import Record

__all__ = ["TargetReader", "key_hash"]

#: Records taken from the client at a time.
BATCH_RECORDS = 10_000

#: How long a batch may take to fill; the last one takes as long.
WAIT_SECONDS = 0.1

_CONSUMER = {
    # It commits nothing; this prefix needs no ACL beside that of the progress.
    "group.id": "kafka-drain-republish-verify",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # Records that are gone are no reason to begin elsewhere.
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.message.max.bytes": 4 << 20,
    "fetch.max.bytes": 64 << 20,
    "receive.message.max.bytes": (64 << 20) + 512,
    "queued.max.messages.kbytes": 16 << 10,
    # The client pauses for so long when 100,000 records wait; a second is its default.
    "fetch.queue.backoff.ms": 10,
    # What it has to say comes as the error of a message.
    "log_level": 2,
}


def key_hash(key: bytes | None) -> int:
    """Return a hash of a key; 0 for none."""
    return 0 if key is None else xxh3_64_intdigest(key)


class TargetReader:
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
    ) -> None:
        self._cluster = cluster
        self._tp = tp
        self._first = first
        self._end = end
        self._with_keys = with_keys
        self._timeout = timeout_seconds

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
        position = self._first
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
        [key_hash(message.key()) for message in messages] if with_keys else repeat(0),
        strict=False,
    )
