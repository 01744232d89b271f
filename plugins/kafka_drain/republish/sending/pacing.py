"""Limit a transaction's records in flight to Kafka, by the throughput measured so far.

A transaction must be complete within transaction.timeout.ms, and each record must be acknowledged
within message.timeout.ms after it was queued. On a slow link, a full queue would exceed both
timeouts, and everything would be sent again, forever. Therefore, records are queued only if they
can be acknowledged soon at the rate measured so far, and the first transactions are short. Opens
nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

#: Maximum bytes in flight before anything was acknowledged.
FIRST_BYTES = 256 << 10

#: Fractions of transaction.timeout.ms: the longest time for which a transaction accepts records;
#: that time for the first transaction (each one after it may take twice as long); and the time in
#: which everything in flight must be acknowledged. More than half is left in case the link slows.
LONGEST, FIRST, ON_THE_WAY = 1 / 3, 1 / 20, 1 / 12

#: Bytes in flight are at most this multiple of the bytes acknowledged: a link's first burst isn't
#: its rate. Also the factor by which `first` shrinks after a failure and grows after a commit.
GROWTH = 4

#: What is on its way has a full batch from so many bytes on: of 1 MiB, or of 10,000 records (the
#: default of batch.num.messages).
FULL_BYTES = 2 << 20

#: Approximate overhead of a record, besides its key and value, in bytes.
RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class Pace:
    """The estimate of a link before a transaction starts.

    Attributes:
        timeout: The transaction's timeout, in seconds.
        seconds: Time for which the transaction accepts records.
        first: Maximum bytes in flight before anything is acknowledged.
        rate: Bytes per second of the previous transaction; 0 if there was none.
        proven: Number of bytes that were acknowledged in the previous transaction.
    """

    timeout: float
    seconds: float
    first: int = FIRST_BYTES
    rate: float = 0.0
    proven: int = 0

    @classmethod
    def unknown(cls, timeout: float) -> Pace:
        """Return the initial pace for a timeout in seconds, with nothing known about the link."""
        return cls(timeout, FIRST * timeout)

    def is_over(self, seconds: float) -> bool:
        """Return whether a transaction that started so many seconds ago accepts no more records."""
        return seconds > self.seconds

    def most_on_the_way(self, acknowledged: int, seconds: float) -> int:
        """Return the maximum number of bytes that may be queued and unacknowledged.

        Args:
            acknowledged: Acknowledged bytes of this transaction.
            seconds: Time since the transaction started.
        """
        rate = max(self.rate, acknowledged / seconds if seconds > 0 else 0.0)
        proven = max(self.proven, GROWTH * acknowledged)
        return max(self.first, int(min(ON_THE_WAY * self.timeout * rate, proven)))

    def after_commit(self, size: int, seconds: float) -> Pace:
        """Return the pace after a transaction was committed.

        Args:
            size: Size of the transaction in bytes.
            seconds: Its duration, including its commit.
        """
        return Pace(
            self.timeout,
            min(LONGEST * self.timeout, 2 * self.seconds),
            first=min(FIRST_BYTES, GROWTH * self.first),
            rate=size / max(seconds, 1e-3),
            proven=size,
        )

    def after_failure(self) -> Pace:
        """Return the pace after a transaction that reached Kafka too late or not at all."""
        first = max(1, self.first // GROWTH)
        return Pace(self.timeout, min(self.seconds, FIRST * self.timeout), first)


class Pacer:
    """Track the pace from one transaction to the next.

    Attributes:
        pace: The estimate of the link.
    """

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Start with nothing known.

        Args:
            timeout: The transactions' timeout, in seconds.
            clock: Returns seconds; replaced in tests.
        """
        self.pace = Pace.unknown(timeout)
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Start a transaction."""
        self._began = self._clock()
        self._records = self._bytes = self._acknowledged = 0
        #: Unacknowledged batches: cumulative records and bytes at the end of each.
        self._on_the_way: deque[tuple[int, int]] = deque()

    @property
    def is_over(self) -> bool:
        """Return whether the transaction accepts no more records."""
        return self.pace.is_over(self._clock() - self._began)

    def queued(self, records: int, size: int) -> None:
        """Record that `records` records with `size` bytes were queued."""
        self._records += records
        self._bytes += size + RECORD_BYTES * records
        self._on_the_way.append((self._records, self._bytes))

    def room(self, waiting: int) -> int:
        """Return the number of bytes that may be queued now; 0 or less for none.

        Args:
            waiting: Number of records that aren't acknowledged.
        """
        self._arrived(waiting)
        most = self.pace.most_on_the_way(self._acknowledged, self._clock() - self._began)
        return most - (self._bytes - self._acknowledged)

    def has_full_batch(self, waiting: int) -> bool:
        """Return whether a full batch is certainly on its way, so that none waits for linger.ms.

        Of what was queued together, a part may have been acknowledged: that counts as nothing.

        Args:
            waiting: Number of records that aren't acknowledged.
        """
        self._arrived(waiting)
        return bool(self._on_the_way) and self._bytes - self._on_the_way[0][1] >= FULL_BYTES

    def _arrived(self, waiting: int) -> None:
        arrived = self._records - waiting
        while self._on_the_way and self._on_the_way[0][0] <= arrived:
            self._acknowledged = self._on_the_way.popleft()[1]

    def committed(self) -> None:
        """Record that the transaction was committed."""
        self.pace = self.pace.after_commit(self._bytes, self._clock() - self._began)

    def failed(self) -> None:
        """Record that the transaction failed."""
        self.pace = self.pace.after_failure()
