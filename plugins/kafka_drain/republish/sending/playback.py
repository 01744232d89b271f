"""Send records in their own time: the clock that all writers of an attempt share. Opens nothing.

A record with timestamp T is due at start + (T - T0) / pace, where T0 is the earliest of the
timestamps at which the writers begin. After a record with a higher timestamp, it is due with that
one: offsets keep their order.

Time in which all writers stood still for more than a few seconds, as in a process that is stopped,
doesn't count; and if a single one is late by more than that, the clock is set back for all. So a
stall shifts what follows, and isn't caught up with in a burst.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from math import inf

#: Longest time that is caught up with, in seconds: more than a commit and a new producer take.
CATCH_UP_SECONDS = 5.0

#: Time for which a transaction takes records, in seconds, for few writers. With many, it is longer,
#: so that no more than a number of transactions begin per second: each has a new producer.
COMMIT_SECONDS, BEGUN_PER_SECOND = 1.0, 20

#: Time after which a writer looks again whether all others are ready, in seconds.
READY_SECONDS = 0.05


def due(timestamp: float, first: float, start: float, pace: float) -> float:
    """Return the time, in seconds, at which a record is due.

    Args:
        timestamp: Highest timestamp of the partition so far, in milliseconds.
        first: The timestamp at which the clock started, in milliseconds.
        start: The time at which it started, in seconds.
    """
    return start + (timestamp - first) / 1000 / pace


class Playback:
    """The clock of an attempt's writers, which are threads of one process.

    Attributes:
        commit_seconds: Time for which a transaction takes records.
    """

    def __init__(
        self, pace: float, writers: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Start nothing yet.

        Args:
            pace: How many times faster than the records' own time; 1 for as fast.
            writers: Number of writers that begin at once.
            clock: Returns seconds; replaced in tests.
        """
        self.commit_seconds = max(COMMIT_SECONDS, writers / BEGUN_PER_SECOND)
        self._pace = pace
        self._writers = writers
        self._clock = clock
        self._lock = threading.Lock()
        self._ready: dict[Hashable, int | None] = {}
        self._first = 0
        self._start: float | None = None
        self._asked_at = 0.0

    def join(self, writer: Hashable, first: int | None) -> None:
        """Say where a writer begins; the clock starts once all have said so.

        Args:
            first: Timestamp of its first unsent record, in milliseconds; None if it has none.
        """
        with self._lock:
            if self._start is not None:
                return
            self._ready[writer] = first
            begin = [ms for ms in self._ready.values() if ms is not None]
            if begin and len(self._ready) >= self._writers:
                self._first, self._start = min(begin), self._clock()
                self._asked_at = self._start

    def now(self) -> float:
        """Return the timestamp, in milliseconds, that is due now; -inf before the start."""
        with self._lock:
            if self._start is None:
                return -inf
            return self._first + (self._moment() - self._start) * 1000 * self._pace

    def left(self, timestamp: float) -> float:
        """Return the seconds until a writer's next record is due; 0 or less if it is.

        If that is too late, the clock is set back for all.

        Args:
            timestamp: The writer's highest timestamp so far, including that of this record.
        """
        with self._lock:
            if self._start is None:
                return READY_SECONDS
            moment = self._moment()
            left = due(timestamp, self._first, self._start, self._pace) - moment
            if left < -CATCH_UP_SECONDS:
                self._start -= left
                return 0.0
            return left

    def _moment(self) -> float:
        """Return the time. Writers ask each second or so: when none has, all stood still."""
        moment = self._clock()
        stood_still = moment - self._asked_at
        if self._start is not None and stood_still > CATCH_UP_SECONDS:
            self._start += stood_still
        self._asked_at = moment
        return moment
