"""Tests of pacing: how much of a transaction may be on its way."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.republish.sending.pacing import (
    FIRST_BYTES,
    FULL_BYTES,
    GROWTH,
    LONGEST,
    ON_THE_WAY,
    RECORD_BYTES,
    Pace,
    Pacer,
)
from tests.tables import each_of

TIMEOUT = 60.0
MESSAGE_TIMEOUT = 45.0

#: Of a process that makes records, at most.
MEGABYTES = 100 << 20


@dataclass
class Link:
    """A link of a steady rate, with the time that passes on it.

    Attributes:
        rate: Bytes a second.
        latency: Seconds until an acknowledgement is back.
        now: The time.
    """

    rate: float
    latency: float
    now: float = 0.0
    free_at: float = 0.0
    arrivals: list[float] = field(default_factory=list)

    def send(self, size: int) -> None:
        """Put a record on the link, behind those before it."""
        self.now += size / MEGABYTES
        self.free_at = max(self.free_at, self.now) + size / self.rate
        self.arrivals.append(self.free_at + self.latency)

    def waiting(self) -> int:
        """Return how many records aren't acknowledged."""
        return sum(at > self.now for at in reversed(self.arrivals[-3_000:]))


def transaction(link: Link, pacer: Pacer, record: int, most: int) -> tuple[int, float]:
    """Send a transaction as `sending` does; return its records and how long it took."""
    began, sent = link.now, 0
    link.arrivals.clear()
    link.free_at = link.now
    pacer.begin()
    while sent < most and not pacer.is_over:
        room = pacer.room(link.waiting())
        if room > 0 or not sent:
            # As a step does, what fits and one at least.
            step = max(1, min(most - sent, room // record, 100))
            queued = link.now
            for _ in range(step):
                link.send(record + RECORD_BYTES)
            pacer.queued(step, record * step)
            assert link.arrivals[-1] - queued <= MESSAGE_TIMEOUT
            sent += step
        else:
            link.now += 0.02
    link.now = max(link.now, link.arrivals[-1])
    return sent, link.now - began


@settings(max_examples=60, deadline=None)
@given(
    rate=st.floats(20_000, 200_000_000),
    latency=st.floats(0.0005, 0.3),
    record=st.integers(1_000, 200_000),
)
def test_pacer_property(rate: float, latency: float, record: int) -> None:
    """On any steady link each transaction ends in time, and they grow to what the link carries."""
    link = Link(rate, latency)
    pacer = Pacer(TIMEOUT, lambda: link.now)
    shares = []
    for _ in range(4):
        sent, seconds = transaction(link, pacer, record, 2_000)
        first = (FIRST_BYTES + record + RECORD_BYTES) / rate
        assert seconds < (LONGEST + ON_THE_WAY) * TIMEOUT + 2 * first + 2 * latency + 1
        assert seconds < TIMEOUT
        shares.append(sent / seconds)
        pacer.committed()

    # Once the link is known it is kept busy: but for the wait for the last acknowledgement.
    busy = min(rate, MEGABYTES) / (record + RECORD_BYTES)
    least = 2_000 / (2_000 / busy + 0.1 + 2 * latency)
    assert shares[-1] > 0.5 * min(busy, least)


def test_pacer_link_slower_than_first() -> None:
    """Where even the first bytes take too long, each failure makes them fewer, down to a record."""
    pace = Pace.unknown(TIMEOUT)
    seen = []
    for _ in range(10):
        seen.append(pace.most_on_the_way(0, 1.0))
        pace = pace.after_failure()

    assert seen == [max(1, FIRST_BYTES // GROWTH**failures) for failures in range(10)]
    assert seen[-1] == 1


def test_pacer_recovers() -> None:
    """After a failure, commits bring the first bytes back to what they were, and no further."""
    pace = Pace.unknown(TIMEOUT).after_failure().after_failure()
    for _ in range(5):
        pace = pace.after_commit(10, 1.0)

    assert pace.first == FIRST_BYTES
    assert pace.seconds == LONGEST * TIMEOUT


@pytest.mark.parametrize(
    ("rate", "proven", "acknowledged", "seconds", "most"),
    [
        # Nothing known, nothing acknowledged: the first bytes.
        (0, 0, 0, 0, FIRST_BYTES),
        (0, 0, 0, 10, FIRST_BYTES),
        # This transaction tells: a burst lets as much more go as GROWTH says.
        (0, 0, 1 << 20, 0.01, GROWTH << 20),
        # A slow link: what it carries in a part of the timeout.
        (0, 0, 10 << 20, 10, 5 << 20),
        # The one before tells.
        (1 << 20, 100 << 20, 0, 0, 5 << 20),
        (100 << 20, 100 << 20, 0, 0, 100 << 20),
        (100 << 20, 1 << 20, 0, 0, 1 << 20),
        # The faster one of both counts, within what either has proven.
        (1 << 20, 100 << 20, 20 << 20, 10, 10 << 20),
        (2 << 20, 1 << 20, 10 << 20, 10, 10 << 20),
        # Never less than the first bytes.
        (1, 1, 1, 1_000, FIRST_BYTES),
    ],
)
def test_most_on_the_way(
    rate: float, proven: int, acknowledged: int, seconds: float, most: int
) -> None:
    """What may be on the way: what comes through in a twelfth of the timeout, if that is proven."""
    pace = Pace(TIMEOUT, 3.0, rate=rate, proven=proven)

    assert pace.most_on_the_way(acknowledged, seconds) == most


MB = 1 << 20

#: What the transaction before has shown: bytes per second, and bytes that were acknowledged.
BEFORE = {
    "nothing": (0, 0),
    "slow": (1 * MB, 100 * MB),
    "fast and short": (100 * MB, 1 * MB),
    "fast": (100 * MB, 100 * MB),
}

#: What this one has shown: bytes that were acknowledged, and seconds.
NOW = {
    "nothing": (0, 0.0),
    "silence": (0, 10.0),
    "burst": (1 * MB, 0.0),
    "slow": (10 * MB, 10.0),
    "fast": (100 * MB, 1.0),
}

#: Megabytes that may be on the way, by what both have shown: what the faster of both rates carries
#: in 5 seconds, a twelfth of the timeout, but at most what the one before has proven, or four times
#: what this one has. A burst that takes no time shows no rate.
MOST = {
    "nothing": {"nothing": 0, "silence": 0, "burst": 0, "slow": 5, "fast": 400},
    "slow": {"nothing": 5, "silence": 5, "burst": 5, "slow": 5, "fast": 400},
    "fast and short": {"nothing": 1, "silence": 1, "burst": 4, "slow": 40, "fast": 400},
    "fast": {"nothing": 100, "silence": 100, "burst": 100, "slow": 100, "fast": 400},
}


@each_of("before, now", list(product(BEFORE, NOW)))
@each_of("first", [1, 3 * MB, 64 * MB])
def test_most_on_the_way_table(before: str, now: str, first: int) -> None:
    """What both transactions have shown, in all combinations; never less than the first bytes."""
    rate, proven = BEFORE[before]

    most = Pace(TIMEOUT, 3.0, first, rate, proven).most_on_the_way(*NOW[now])

    assert most == max(first, MOST[before][now] * MB)


@each_of("size, took, rate", [(500, 2.0, 250), (0, 2.0, 0), (7, 0.0, 7000)])
@each_of("seconds, doubled", [(3.0, 6.0), (10.0, 20.0), (15.0, 20.0)])
@each_of("first, grown", [(1, 4), (FIRST_BYTES // 2, FIRST_BYTES), (FIRST_BYTES, FIRST_BYTES)])
@each_of("before", BEFORE)
def test_after_commit_table(
    size: int, took: float, rate: float, seconds: float, doubled: float,
    first: int, grown: int, before: str,
) -> None:  # fmt: skip
    """A commit alone says what is proven; time and first bytes grow up to their limits."""
    pace = Pace(TIMEOUT, seconds, first, *BEFORE[before])

    assert pace.after_commit(size, took) == Pace(TIMEOUT, doubled, grown, rate, size)


@each_of("seconds, kept", [(1.0, 1.0), (3.0, 3.0), (6.0, 3.0), (20.0, 3.0)])
@each_of("first, left", [(1, 1), (4, 1), (7, 1), (8, 2), (FIRST_BYTES, FIRST_BYTES // 4)])
@each_of("before", BEFORE)
def test_after_failure_table(
    seconds: float, kept: float, first: int, left: int, before: str
) -> None:
    """A failure forgets the rate; it starts like the first transaction, with fewer first bytes."""
    pace = Pace(TIMEOUT, seconds, first, *BEFORE[before])

    assert pace.after_failure() == Pace(TIMEOUT, kept, left)


@pytest.mark.parametrize("seconds", [3.0, 20.0])
@pytest.mark.parametrize(("more", "is_over"), [(-3.0, False), (0.0, False), (0.01, True)])
def test_is_over(seconds: float, more: float, is_over: bool) -> None:
    """A transaction accepts records as long as its time isn't exceeded."""
    assert Pace(TIMEOUT, seconds).is_over(seconds + more) is is_over


@given(
    first=st.integers(1, FIRST_BYTES),
    rate=st.floats(0, 1e9),
    proven=st.integers(0, 1 << 30),
    acknowledged=st.integers(0, 1 << 30),
    seconds=st.floats(0, 60),
)
def test_most_on_the_way_property(
    first: int, rate: float, proven: int, acknowledged: int, seconds: float
) -> None:
    """It is never less than the first bytes, and beyond them never more than what was proven."""
    most = Pace(TIMEOUT, 3.0, first, rate, proven).most_on_the_way(acknowledged, seconds)

    assert most >= first
    assert most <= max(first, proven, GROWTH * acknowledged)


def test_after_failure_knows_nothing() -> None:
    """After a failure the rate of before counts no more: the link isn't what it was."""
    pace = Pace(TIMEOUT, 20.0, rate=1e9, proven=1 << 30).after_failure()

    assert (pace.rate, pace.proven) == (0, 0)
    assert pace.seconds < 20.0


@pytest.mark.parametrize(
    ("pace", "size", "took", "expected"),
    [
        (Pace(TIMEOUT, 3.0), 500, 2.0, Pace(TIMEOUT, 6.0, FIRST_BYTES, 250.0, 500)),
        (Pace(TIMEOUT, 15.0, 10), 500, 0.5, Pace(TIMEOUT, 20.0, 40, 1000.0, 500)),
        (Pace(TIMEOUT, 3.0, 1, 9.0, 9), 7, 0.0, Pace(TIMEOUT, 6.0, 4, 7000.0, 7)),
    ],
)
def test_after_commit(pace: Pace, size: int, took: float, expected: Pace) -> None:
    """A commit doubles the time up to its limit, and sets what was proven and at which rate."""
    assert pace.after_commit(size, took) == expected


def test_after_failure_is_whole() -> None:
    """The first bytes stay a whole number."""
    assert repr(Pace(TIMEOUT, 3.0, 7).after_failure().first) == "1"


def test_most_on_the_way_no_time() -> None:
    """Without time passed, no rate is known."""
    assert Pace(TIMEOUT, 3.0, first=1).most_on_the_way(100, 0.0) == 1


def test_pacer_counts() -> None:
    """What is queued takes room until it is acknowledged; both ends change the pace."""
    now = 10.0
    pacer = Pacer(TIMEOUT, lambda: now)
    pacer.pace = Pace(TIMEOUT, 3.0, first=1)
    now = 12.0
    assert pacer.room(0) == 1
    pacer.queued(2, 1000)
    assert pacer.room(2) == 1 - 1000 - 2 * RECORD_BYTES
    assert pacer.room(1) == 1 - 1000 - 2 * RECORD_BYTES
    # 1,200 bytes in two seconds; a twelfth of the timeout is five.
    assert pacer.room(0) == 3000
    assert not pacer.is_over
    now = 13.5
    assert pacer.is_over

    now = 14.0
    pacer.committed()
    assert pacer.pace == Pace(TIMEOUT, 6.0, 4, 300.0, 1200)
    pacer.failed()
    assert pacer.pace == Pace(TIMEOUT, 3.0, 1)


@pytest.mark.parametrize(
    ("size", "waiting", "is_full"),
    [
        (FULL_BYTES - RECORD_BYTES, 3, True),
        (FULL_BYTES - RECORD_BYTES - 1, 3, False),
        # Of what was queued together, a part may have arrived.
        (FULL_BYTES, 2, True),
        (FULL_BYTES, 1, False),
        (FULL_BYTES, 0, False),
    ],
)
def test_has_full_batch(size: int, waiting: int, is_full: bool) -> None:
    """From so many bytes on of which nothing has arrived, librdkafka has a batch to send."""
    pacer = Pacer(TIMEOUT)
    pacer.queued(2, FULL_BYTES)
    pacer.queued(1, size)

    assert pacer.has_full_batch(waiting) is is_full


def test_has_full_batch_nothing_queued() -> None:
    """Before anything is queued, there is none."""
    assert not Pacer(TIMEOUT).has_full_batch(0)


def test_full_batch_by_size_or_number() -> None:
    """Fewer records than a batch may have are large enough to fill one of 1 MiB by their size."""
    assert FULL_BYTES - 10_000 * RECORD_BYTES >= 1 << 20
