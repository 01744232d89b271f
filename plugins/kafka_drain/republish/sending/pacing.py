"""How much of a transaction may be on its way to Kafka: what the link has shown that it carries.

A transaction has to be whole within transaction.timeout.ms, each record of it acknowledged within
message.timeout.ms of being queued. On a slow link both run out behind a full queue, and all of it
is sent again, for ever. So nothing is queued that isn't acknowledged soon at the rate seen so far,
and the first transactions are short. Opens nothing.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FIRST_BYTES", "LONGEST", "Pace", "Pacer"]

#: So many bytes may be on the way before anything was acknowledged.
FIRST_BYTES = 256 << 10

#: Parts of transaction.timeout.ms: how long a transaction takes records at most, how long the first
#: one does (each one after it may take twice as long), and in what time all that is on the way is
#: to be acknowledged. More than half is left for a link that gets slower meanwhile.
LONGEST, FIRST, ON_THE_WAY = 1 / 3, 1 / 20, 1 / 12

#: What is on the way is at most so many times what was acknowledged: a link's first burst isn't
#: its rate. Also by how much the first bytes shrink after a failure, and grow after a commit.
GROWTH = 4

#: What a record takes beside its key and value, about: bytes.
RECORD_BYTES = 100


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known of a link before a transaction begins.

    Attributes:
        timeout: The transaction's timeout, in seconds.
        seconds: So long the transaction takes records.
        first: So many bytes may be on the way before anything is acknowledged.
        rate: Bytes a second of the transaction before; 0 when there was none.
        proven: Bytes that the transaction before had acknowledged.
    """

    timeout: float
    seconds: float
    first: int = FIRST_BYTES
    rate: float = 0.0
    proven: int = 0

    @classmethod
    def unknown(cls, timeout: float) -> Pace:
        """Return the pace where nothing is known but the timeout, in seconds."""
        return cls(timeout, FIRST * timeout)

    def most_on_the_way(self, acknowledged: int, seconds: float) -> int:
        """Return how many bytes may be queued without being acknowledged.

        Args:
            acknowledged: Bytes of this transaction that were.
            seconds: Since it began.
        """
        rate = max(self.rate, acknowledged / seconds if seconds > 0 else 0.0)
        proven = max(self.proven, GROWTH * acknowledged)
        return max(self.first, int(min(ON_THE_WAY * self.timeout * rate, proven)))

    def after_commit(self, size: int, seconds: float) -> Pace:
        """Return the pace after a transaction was committed.

        Args:
            size: Its bytes.
            seconds: How long it took, its commit included.
        """
        return Pace(
            self.timeout,
            min(LONGEST * self.timeout, 2 * self.seconds),
            first=min(FIRST_BYTES, GROWTH * self.first),
            rate=size / max(seconds, 1e-3),
            proven=size,
        )

    def after_failure(self) -> Pace:
        """Return the pace after a transaction that Kafka didn't get in time, or not at all."""
        first = max(1, self.first // GROWTH)
        return Pace(self.timeout, min(self.seconds, FIRST * self.timeout), first)


class Pacer:
    """Follows one transaction after the other.

    Attributes:
        pace: What is known of the link.
    """

    def __init__(self, timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin with nothing known.

        Args:
            timeout: The transactions' timeout, in seconds.
            clock: Seconds; replaced in tests.
        """
        self.pace = Pace.unknown(timeout)
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begin a transaction."""
        self._began = self._clock()
        self._records = self._bytes = self._acknowledged = 0
        #: Of what isn't acknowledged: records and bytes up to there.
        self._on_the_way: deque[tuple[int, int]] = deque()

    @property
    def is_over(self) -> bool:
        """Whether the transaction takes no more records."""
        return self._clock() - self._began > self.pace.seconds

    def queued(self, records: int, size: int) -> None:
        """Note that records of so many bytes were queued."""
        self._records += records
        self._bytes += size + RECORD_BYTES * records
        self._on_the_way.append((self._records, self._bytes))

    def room(self, waiting: int) -> int:
        """Return how many bytes may be queued now; 0 or less for none.

        Args:
            waiting: How many of the records aren't acknowledged.
        """
        arrived = self._records - waiting
        while self._on_the_way and self._on_the_way[0][0] <= arrived:
            self._acknowledged = self._on_the_way.popleft()[1]
        most = self.pace.most_on_the_way(self._acknowledged, self._clock() - self._began)
        return most - (self._bytes - self._acknowledged)

    def committed(self) -> None:
        """Note that the transaction was committed."""
        self.pace = self.pace.after_commit(self._bytes, self._clock() - self._began)

    def failed(self) -> None:
        """Note that it wasn't."""
        self.pace = self.pace.after_failure()
