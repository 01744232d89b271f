"""Read a target partition back, as `read_committed` consumers see it.

A link may be slow, or for minutes only records of aborted transactions may arrive, which consumers
don't get. How far the client has fetched distinguishes these cases from an outage.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from enum import Enum
from operator import methodcaller
from typing import Any

from confluent_kafka import KafkaError

from kafka_drain.data_files.content_hash import UNREADABLE
from kafka_drain.errors import KafkaUnavailableError, SourceRecordError, TransientError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.damaged_batches import damage_heard
from kafka_drain.kafka.fetch_size import MOST_BYTES
from kafka_drain.kafka.reading_client import REPORT_MS, ReadingClient
from kafka_drain.kafka.records import DAMAGED
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.sending.send_errors import explained
from kafka_drain.republish.verifying.records import Records

#: Records taken from the client at a time.
BATCH_RECORDS = 10_000

#: Longest time for a batch to fill; the last one always takes this long.
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
    # At the end of a partition, how long the broker holds a request that the next one waits behind.
    "fetch.wait.max.ms": 10,
    # How long the client pauses when enough records are queued; the default is a second.
    "fetch.queue.backoff.ms": 10,
    # Errors are also returned as messages.
    "log_level": 2,
}


#: On a slow link, a response that takes longer than socket.timeout.ms is dropped and requested
#: again; not less is asked for than this, in bytes.
LEAST_FETCH_BYTES = 64 << 10

#: Largest number of milliseconds between two reports of how far the client has fetched.
MOST_REPORT_MS = 10_000

#: Factor by which the fetch size shrinks.
SHRINK = 8


class Wait(Enum):
    """The reaction when no records arrive."""

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


def target_client(cluster: KafkaCluster, partitions: int = 1) -> ReadingClient:
    """Return a client for readers of a topic; nothing is connected yet.

    Args:
        cluster: The target cluster.
        partitions: Number of partitions of the topic.
    """
    # A report lists all of them, whichever are read: with 10,000, that kept the client busy.
    report_ms = min(MOST_REPORT_MS, max(REPORT_MS, partitions))
    return ReadingClient(cluster.config, _CONSUMER, report_ms)


class TargetReader:
    """Reads one partition as read_committed consumers see it; can be read repeatedly.

    Args:
        cluster: The target cluster.
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
        client: ReadingClient | None = None,
    ) -> None:
        self._client = client or target_client(cluster)
        self._is_shared = client is not None
        self._cluster = cluster
        self._tp = tp
        self._first = first
        self._end = end
        self._with_keys = with_keys
        self._timeout = timeout_seconds
        self._most_bytes = MOST_BYTES
        #: Next offset of the client's fetches, according to its statistics.
        self._fetched = first

    def read(self, is_complete: Callable[[], bool]) -> Iterator[Records]:
        """Yield the records in batches; see `messages`."""
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
        self._read_from(self._first)
        position = self._first
        at_stable_end = False
        moved = asked = time.monotonic()
        while position < self._end:
            if self._client.is_outdated:
                self._read_from(position)
            fetched = self._fetched
            # No more than may come, and the event that nothing does: a last batch that is
            # complete isn't waited for. A transaction's marker takes an offset.
            most = min(BATCH_RECORDS, self._end - position)
            messages = self._client.take(most, WAIT_SECONDS)
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
            elif at_stable_end and is_complete() and self._is_stable_end(position):
                # Another producer has an open transaction after our last record.
                self._end = position
            else:
                asks_for = self._client.fetch_bytes
                wait = what_to_do(now - moved, now - asked, asks_for, self._timeout)
                if wait is Wait.NO_MORE:
                    raise self._stalled(position)
                if wait is Wait.FOR_LESS and not at_stable_end:
                    self._most_bytes = max(LEAST_FETCH_BYTES, asks_for // SHRINK)
                    self._read_from(position)
                    asked = now

    def _read_from(self, position: int) -> None:
        self._client.read_from(self._tp, position, most=self._most_bytes, heard=self._note)
        # Records that another consumer had fetched ahead are fetched again.
        self._fetched = position

    def _note(self, statistics: str) -> None:
        """Record the next offset of the client's fetches (librdkafka's STATISTICS.md)."""
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

    def _is_stable_end(self, position: int) -> bool:
        """Return whether the leader has nothing stable behind a position.

        The replica that is read, a follower or a leader just elected, may have yet to learn of it.
        """
        return self._stable() <= position

    def _stable(self) -> int:
        return self._cluster.latest([self._tp], "read_committed")[self._tp]

    def _stalled(self, position: int) -> TransientError:
        stable = self._stable()
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


def _records(messages: list[Any], with_keys: bool) -> Records:
    """Return messages as records."""
    headers = []
    for message in messages:
        try:
            headers.append(_headers_of(message))
        except (SystemError, UnicodeDecodeError):
            # A header name isn't UTF-8, so the record isn't ours, as names in files are text. Don't
            # call again: confluent-kafka 2.16 would return a null pointer in a tuple.
            headers.append(UNREADABLE)
    return Records(
        [message.key() for message in messages],
        [message.value() for message in messages],
        headers,
        [message.timestamp()[1] for message in messages],
        [message.offset() for message in messages],
        with_keys,
    )
