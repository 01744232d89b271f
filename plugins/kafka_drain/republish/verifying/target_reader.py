"""Read a target partition back, as `read_committed` consumers see it.

A link may be slow, or for minutes only records of aborted transactions may arrive, which consumers
don't get. How far the client has fetched distinguishes these cases from an outage.
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

from kafka_drain.data_files.content_hash import content_hash
from kafka_drain.errors import KafkaUnavailableError, SourceRecordError, TransientError
from kafka_drain.kafka.client_config import for_client
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.damaged_batches import damage_heard
from kafka_drain.kafka.records import DAMAGED
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.sending.errors import explained
from kafka_drain.republish.verifying.match_types import Record

#: Records taken from the client at a time.
BATCH_RECORDS = 10_000

#: How long a batch may take to fill; the last one always takes this long.
WAIT_SECONDS = 0.1

_CONSUMER = {
    # Commits nothing; with this prefix it needs no ACL besides the one for the progress.
    "group.id": "kafka-drain-republish-verify",
    "enable.auto.commit": False,
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    # If records are gone, don't silently start elsewhere.
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.max.bytes": 64 << 20,
    "receive.message.max.bytes": (64 << 20) + 512,
    "queued.max.messages.kbytes": 16 << 10,
    # At the end of a partition, how long the broker holds a request that the next one waits behind.
    "fetch.wait.max.ms": 10,
    # How long the client pauses when 100,000 records are queued; the default is a second.
    "fetch.queue.backoff.ms": 10,
    # Errors are also returned as messages.
    "log_level": 2,
}


#: Initial and minimum size of a fetch response in bytes. On a slow link, a response that takes
#: longer than socket.timeout.ms is dropped and requested again.
FETCH_BYTES, LEAST_FETCH_BYTES = 4 << 20, 64 << 10

#: Least and largest number of milliseconds between two reports of how far the client has fetched.
LEAST_REPORT_MS, MOST_REPORT_MS = 1_000, 10_000

#: Factor by which the fetch size shrinks.
SHRINK = 8


class Wait(Enum):
    """What to do when no records arrive."""

    ON = "wait on"
    FOR_LESS = "ask for less at a time"
    NO_MORE = "nothing comes any more"


def what_to_do(quiet: float, asked: float, fetch_bytes: int, timeout: float) -> Wait:
    """Distinguish a slow link from an outage.

    Args:
        quiet: Seconds since the client received anything, including records of aborted
            transactions.
        asked: Seconds since the current fetch size was set.
        fetch_bytes: The current fetch size.
        timeout: Number of quiet seconds that count as an outage.
    """
    if quiet > timeout:
        return Wait.NO_MORE
    if fetch_bytes > LEAST_FETCH_BYTES and min(quiet, asked) > timeout / 4:
        return Wait.FOR_LESS
    return Wait.ON


def key_hash(key: bytes | None) -> int:
    """Return a hash of a key; 0 if there is no key."""
    return 0 if key is None else xxh3_64_intdigest(key)


class TargetClient:
    """A connection with which readers read one partition after another.

    A client of each partition's own takes a tenth of a second, and thousands of partitions as long
    as thousands of clients.
    """

    def __init__(self, cluster: KafkaCluster, partitions: int = 1) -> None:
        """Describe a client; nothing is connected yet.

        Args:
            cluster: The target cluster.
            partitions: Number of partitions of the topic that it reads.
        """
        self._cluster = cluster
        # A report lists all of them, whichever are read: with 10,000, that kept the client busy.
        self._report_ms = min(MOST_REPORT_MS, max(LEAST_REPORT_MS, partitions))
        self._consumer: Consumer | None = None
        self._fetch_bytes = 0
        self._heard: Callable[[str], None] = lambda statistics: None

    def consumer(
        self, tp: TopicPartition, first: int, fetch_bytes: int, heard: Callable[[str], None]
    ) -> Consumer:
        """Return the consumer, reading a partition from an offset on.

        Args:
            tp: The partition.
            first: The offset.
            fetch_bytes: Size of a fetch response; another one than before takes a new consumer.
            heard: Gets the client's statistics.
        """
        if self._consumer is None or self._fetch_bytes != fetch_bytes:
            self.close()
            own = {
                **_CONSUMER,
                "fetch.message.max.bytes": fetch_bytes,
                "statistics.interval.ms": self._report_ms,
                "stats_cb": self._hear,
            }
            self._consumer = Consumer(for_client(self._cluster.config.for_librdkafka(), own))
            self._fetch_bytes = fetch_bytes
        self._heard = heard
        # What was fetched of another partition is discarded.
        self._consumer.assign([KafkaTopicPartition(tp.topic, tp.partition, first)])
        return self._consumer

    def _hear(self, statistics: str) -> None:
        self._heard(statistics)

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()


class TargetReader:
    """Reads one partition as read_committed consumers see it; can be read repeatedly.

    Args:
        cluster: The target cluster.
        tp: The partition.
        first: The first offset that is read.
        end: The offset at which reading ends.
        with_keys: Whether keys are hashed.
        timeout_seconds: Number of quiet seconds that count as an outage.
        client: The connection to read with; None for one of its own.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        tp: TopicPartition,
        *,
        first: int,
        end: int,
        with_keys: bool,
        timeout_seconds: float,
        client: TargetClient | None = None,
    ) -> None:
        self._client = client or TargetClient(cluster)
        self._is_shared = client is not None
        self._cluster = cluster
        self._tp = tp
        self._first = first
        self._end = end
        self._with_keys = with_keys
        self._timeout = timeout_seconds
        self._fetch_bytes = FETCH_BYTES
        #: How far the client has fetched, according to its statistics.
        self._fetched = first

    def read(self, is_complete: Callable[[], bool]) -> Iterator[Iterable[Record]]:
        """Yield the compared parts of the records in batches; see `messages`."""
        for messages in self.messages(is_complete):
            yield _records(messages, self._with_keys)

    def messages(self, is_complete: Callable[[], bool]) -> Iterator[list[Any]]:
        """Yield the records in batches, as the client's messages.

        Args:
            is_complete: Whether everything was found, so that a rest that can't be read yet may be
                left out.
        """
        if self._first >= self._end:
            return
        try:
            yield from self._messages(is_complete)
        except BaseException:
            self._client.close()
            raise
        if not self._is_shared:
            self._client.close()

    def _messages(self, is_complete: Callable[[], bool]) -> Iterator[list[Any]]:
        self._fetched = self._first
        consumer = self._consumer(self._first)
        position = self._first
        at_stable_end = False
        moved = asked = time.monotonic()
        while position < self._end:
            fetched = self._fetched
            # No more than may come, and the event that nothing does: a last batch that is
            # complete isn't waited for. A transaction's marker takes an offset.
            most = min(BATCH_RECORDS, self._end - position)
            messages: list[Any] = consumer.consume(most, WAIT_SECONDS)
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
                yield messages
                # Comparing takes time, too.
                moved = time.monotonic()
            elif at_stable_end and is_complete():
                # Another producer has an open transaction after our last record.
                self._end = position
            else:
                wait = what_to_do(now - moved, now - asked, self._fetch_bytes, self._timeout)
                if wait is Wait.NO_MORE:
                    raise self._stalled(position)
                if wait is Wait.FOR_LESS and not at_stable_end:
                    self._fetch_bytes = max(LEAST_FETCH_BYTES, self._fetch_bytes // SHRINK)
                    consumer = self._consumer(position)
                    # Records that the closed consumer had fetched ahead are fetched again.
                    self._fetched = position
                    asked = now

    def _consumer(self, first: int) -> Consumer:
        return self._client.consumer(self._tp, first, self._fetch_bytes, self._note)

    def _note(self, statistics: str) -> None:
        """Record how far the client has fetched (librdkafka's STATISTICS.md)."""
        topic = json.loads(statistics)["topics"].get(self._tp.topic, {})
        partition = topic.get("partitions", {}).get(str(self._tp.partition), {})
        self._fetched = max(self._fetched, partition.get("next_offset", -1))

    def _is_end(self, message: Any) -> bool:
        """Return whether there is nothing more to read for now; raise errors that don't pass."""
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise TransientError(
                f"{self._tp} can't be verified: Kafka deleted records while they were being read "
                f"({error.str()}), expected all records from offset {self._first:,}; verify again "
                "to count what is gone"
            )
        if error.code() in DAMAGED:
            raise SourceRecordError(damage_heard(self._tp, error.str(), self._first))
        problem = explained(error, f"reading {self._tp} back")
        if not isinstance(problem, KafkaUnavailableError):
            raise problem
        # The client recovers by itself.
        return False

    def _stalled(self, position: int) -> TransientError:
        stable = self._cluster.latest([self._tp], "read_committed")[self._tp]
        if stable < self._end:
            return TransientError(
                f"{self._tp} can't be verified: its last stable offset has been {stable:,} for "
                f"more than {self._timeout:g} s, its high watermark is {self._end:,}; a producer "
                "has an open transaction there, which ends at that producer's "
                "transaction.timeout.ms at the latest; verify again then"
            )
        return KafkaUnavailableError(
            f"{self._tp} can't be verified: Kafka sent nothing from offset {position:,} for more "
            f"than {self._timeout:g} s, expected records up to {self._end:,}; check the brokers "
            "and verify again"
        )


# Python 3.11's direct call of a C method doesn't check whether it failed; see `_records`.
_headers_of = methodcaller("headers")


def _records(messages: list[Any], with_keys: bool) -> Iterator[Record]:
    """Return the compared parts of messages. The speed of verify depends on this function."""
    hashes = []
    for message in messages:
        try:
            headers = _headers_of(message)
        except (SystemError, UnicodeDecodeError):
            # A header name isn't UTF-8, so the record isn't ours, as names in files are text. Don't
            # call again: confluent-kafka 2.16 would return a null pointer in a tuple.
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
