"""Reading a target partition back, as `read_committed` readers get it.

A link may be slow, or all that comes for minutes may be records of aborted transactions, which no
reader is given: how far the client has fetched tells that from silence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import repeat
from operator import methodcaller
from typing import Any

from confluent_kafka import Consumer, KafkaError
from confluent_kafka import TopicPartition as KafkaTopicPartition
from xxhash import xxh3_64_intdigest

from kafka_drain.errors import KafkaUnavailableError, TransientError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.sending.errors import explained
from kafka_drain.republish.verifying.content_hash import content_hash
from kafka_drain.republish.verifying.match_types import Record

__all__ = ["TargetReader", "Wait", "key_hash", "what_to_do"]

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
    "fetch.max.bytes": 64 << 20,
    "receive.message.max.bytes": (64 << 20) + 512,
    "queued.max.messages.kbytes": 16 << 10,
    # The client pauses for so long when 100,000 records wait; a second is its default.
    "fetch.queue.backoff.ms": 10,
    # How far it has fetched, each second.
    "statistics.interval.ms": 1_000,
    # What it has to say comes as the error of a message.
    "log_level": 2,
}


#: Bytes that one answer may have at first, and at least. On a slow link an answer that takes longer
#: than socket.timeout.ms is dropped, and asked for again.
FETCH_BYTES, LEAST_FETCH_BYTES = 4 << 20, 64 << 10

#: By how much a fetch shrinks.
SHRINK = 8


class Wait(Enum):
    """What to do where nothing comes."""

    ON = "wait on"
    FOR_LESS = "ask for less at a time"
    NO_MORE = "nothing comes any more"


def what_to_do(quiet: float, asked: float, fetch_bytes: int, timeout: float) -> Wait:
    """Tell silence from slowness.

    Args:
        quiet: Seconds since the client got anything, records that it gives to nobody included.
        asked: Seconds since it asks for so much.
        fetch_bytes: How much it asks for at a time.
        timeout: After how many quiet seconds it counts as silence.
    """
    if quiet > timeout:
        return Wait.NO_MORE
    if fetch_bytes > LEAST_FETCH_BYTES and min(quiet, asked) > timeout / 4:
        return Wait.FOR_LESS
    return Wait.ON


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
        self._fetch_bytes = FETCH_BYTES
        #: Up to where the client has fetched, as far as it told.
        self._fetched = first

    def read(self, is_complete: Callable[[], bool]) -> Iterator[Iterable[Record]]:
        """Yield the records in batches.

        Args:
            is_complete: Whether the rest may be left out where it can't be read yet.
        """
        if self._first >= self._end:
            return
        self._fetched = self._first
        consumer = self._consumer(self._first)
        position = self._first
        at_stable_end = False
        moved = asked = time.monotonic()
        try:
            while position < self._end:
                fetched = self._fetched
                messages: list[Any] = consumer.consume(BATCH_RECORDS, WAIT_SECONDS)
                now = time.monotonic()
                if self._fetched > fetched:
                    moved = now
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
                    # Comparing takes its time, too.
                    moved = time.monotonic()
                elif at_stable_end and is_complete():
                    # Another producer's transaction is open behind the last record of ours.
                    self._end = position
                else:
                    wait = what_to_do(now - moved, now - asked, self._fetch_bytes, self._timeout)
                    if wait is Wait.NO_MORE:
                        raise self._stalled(position)
                    if wait is Wait.FOR_LESS and not at_stable_end:
                        self._fetch_bytes = max(LEAST_FETCH_BYTES, self._fetch_bytes // SHRINK)
                        consumer.close()
                        consumer = self._consumer(position)
                        # What the one before fetched and didn't hand out comes once more.
                        self._fetched = position
                        asked = now
        finally:
            consumer.close()

    def _consumer(self, first: int) -> Consumer:
        settings = {
            **self._cluster.config.for_librdkafka(),
            **_CONSUMER,
            "fetch.message.max.bytes": self._fetch_bytes,
            "stats_cb": self._note,
        }
        consumer = Consumer(settings)
        consumer.assign([KafkaTopicPartition(self._tp.topic, self._tp.partition, first)])
        return consumer

    def _note(self, statistics: str) -> None:
        """Note how far the client has fetched (librdkafka's STATISTICS.md)."""
        topic = json.loads(statistics)["topics"].get(self._tp.topic, {})
        partition = topic.get("partitions", {}).get(str(self._tp.partition), {})
        self._fetched = max(self._fetched, partition.get("next_offset", -1))

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
