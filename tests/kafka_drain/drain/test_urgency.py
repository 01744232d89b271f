"""When a drain starts beside its schedule: each limit, alone and together."""

from __future__ import annotations

from itertools import product

from kafka_drain.config.watch import Watch
from kafka_drain.drain.urgency import Backlog, DrainDecision, decide
from kafka_drain.offsets import TopicPartition
from tests.tables import each_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
HOUR = 3600.0

# What each state of the backlog says; None for nothing.
EXPIRED = {0: None, 7: "7 offsets of a-0 expired before they were drained"}
LAG = {99: None, 100: "a lag of 100 offsets reached the limit of 100"}
EXPIRING = {0: None, 5: "5 offsets of a-1 expire within 2 h, by retention.ms"}
REACHED = {
    None: None,
    2 * HOUR: None,
    2 * HOUR - 1: "at the rate of its deletions, Kafka reaches undrained offsets of b-0 in "
    "1 h 59 min, which is less than 2 h",
}
BUSY = ("", "a drain is running")


@each_of(
    "has_lag, has_hours, expired, lag, expiring, reached, busy",
    [
        row
        for row in product((True, False), (True, False), EXPIRED, LAG, EXPIRING, REACHED, BUSY)
        if row[0] or row[1]
    ],
)
def test_decide(
    has_lag: bool,
    has_hours: bool,
    expired: int,
    lag: int,
    expiring: int,
    reached: float | None,
    busy: str,
) -> None:
    """A drain is due if a limit that is set is reached, and starts unless something forbids it."""
    watch = Watch(lag=100 if has_lag else None, hours_to_expiry=2 if has_hours else None)
    backlog = Backlog(
        lag=lag,
        expired={A0: expired} if expired else {},
        expiring={A1: expiring} if expiring else {},
        reached_in={} if reached is None else {B0: reached},
    )
    said = [
        EXPIRED[expired],
        LAG[lag] if has_lag else None,
        EXPIRING[expiring] if has_hours else None,
        REACHED[reached] if has_hours else None,
    ]
    reasons = "; ".join(reason for reason in said if reason)
    quiet = f"a lag of {lag} offsets" if not has_lag else f"a lag of {lag} of 100 offsets"
    quiet += "; nothing expires within 2 h" if has_hours else ""
    held = f"{reasons}; no drain is started: {busy}" if busy else reasons

    assert decide(backlog, watch, busy) == DrainDecision(
        is_due=bool(reasons), starts=bool(reasons) and not busy, reason=held if reasons else quiet
    )


def test_decide_names_the_worst() -> None:
    """Of several partitions, the one with most offsets is named, or the first to be reached."""
    backlog = Backlog(
        lag=3_000,
        expired={A0: 5, A1: 1_000, B0: 1_000},
        reached_in={A0: 90.0, A1: 30.0, B0: 30.0},
    )

    assert decide(backlog, Watch(hours_to_expiry=0.5)).reason == (
        "2,005 offsets of a-1 and 2 more expired before they were drained; at the rate of its "
        "deletions, Kafka reaches undrained offsets of a-1 in 30 s, which is less than 0.5 h"
    )


def test_decide_names_one_more() -> None:
    """Of two partitions, the second is counted."""
    backlog = Backlog(lag=9, expired={A0: 5, A1: 4}, expiring={}, reached_in={})

    assert "9 offsets of a-0 and 1 more expired" in decide(backlog, Watch(lag=10)).reason


def test_decide_log_cut() -> None:
    """A log that has lost what was drained is a reason for a drain: it refuses, and says why."""
    decision = decide(Backlog(lag=0, cut={A0: 5, A1: 4}), Watch(lag=100))

    assert decision.starts
    assert decision.reason == (
        f"9 offsets of {A0} and 1 more that were drained are gone from the end of its log"
    )
