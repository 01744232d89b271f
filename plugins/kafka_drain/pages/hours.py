"""The newest hours of an archive: sealed, late, or lost. Opens nothing.

Receipts don't have the time at which Kafka got each record. A drain takes all that is there, so
what a run has sealed came after the seal of the run before it, and before its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from kafka_drain.archive.drill_status import SKEW
from kafka_drain.pages.archive_status import ProofStatus
from kafka_drain.pages.humanize import many

#: Maximum number of hours shown.
SHOWN = 48

_HOUR = timedelta(hours=1)


class HourState(str, Enum):
    """What is known of the records of an hour, the best first; also the CSS class."""

    SEALED = "covered"
    UNPROVEN = "unproven"
    LATE = "late"
    LOST = "lost"

    @property
    def words(self) -> str:
        """The state on the page."""
        return _WORDS[self]


_WORDS = {
    HourState.SEALED: "sealed",
    HourState.UNPROVEN: "sealed, but not proven",
    HourState.LATE: "missing or late",
    HourState.LOST: "lost or damaged",
}


@dataclass(frozen=True, slots=True)
class Stint:
    """What one run has sealed.

    Attributes:
        began: Time of the seal before it; that of its own at most.
        ended: Time of its own.
        is_lost: Whether an offset of it is in no file, for no harmless reason.
        proof: What the last validation has proven of it.
    """

    began: datetime
    ended: datetime
    is_lost: bool
    proof: ProofStatus


@dataclass(frozen=True, slots=True)
class Hour:
    """An hour, in UTC."""

    start: datetime
    state: HourState

    @property
    def words(self) -> str:
        """What a tooltip says."""
        return f"{self.start:%Y-%m-%d %H:%M} to {self.start + _HOUR:%H:%M}: {self.state.words}"


def judge_hour(
    start: datetime, stints: Sequence[Stint], drained_until: datetime, *, is_proven: bool
) -> HourState:
    """Judge an hour by the worst that is known.

    Args:
        start: Its start.
        stints: What runs have sealed.
        drained_until: The time from which on Kafka's undrained records are.
        is_proven: Whether the last validation has proven the archive as a whole.
    """
    end = start + _HOUR
    own = [one for one in stints if one.began < end and one.ended >= start]
    if any(one.is_lost or one.proof is ProofStatus.DAMAGED for one in own):
        return HourState.LOST
    if end > drained_until:
        return HourState.LATE
    is_proven = is_proven and all(one.proof is ProofStatus.PROVEN for one in own)
    return HourState.SEALED if is_proven else HourState.UNPROVEN


@dataclass(frozen=True, slots=True)
class Strip:
    """The newest hours, oldest first."""

    hours: Sequence[Hour]

    @property
    def counts(self) -> dict[HourState, int]:
        """The number of hours in each state that there is, the best first."""
        found = Counter(one.state for one in self.hours)
        return {state: found[state] for state in HourState if found[state]}

    @property
    def words(self) -> str:
        """The same in words."""
        said = (f"{number:,} {state.words}" for state, number in self.counts.items())
        return f"The last {many(len(self.hours), 'hour')}: {', '.join(said)}"

    @property
    def until(self) -> datetime:
        """The end of the newest one."""
        return self.hours[-1].start + _HOUR


def strip_of(
    stints: Sequence[Stint], overview: Mapping[str, Any], now: datetime, *, is_proven: bool
) -> Strip | None:
    """Return the newest hours that are over, from the first seal that is known; None without any.

    Args:
        stints: What the newest runs have sealed, oldest first.
        overview: Result of the last validation; empty without one.
        now: The present time.
        is_proven: Whether that has proven the archive as a whole.
    """
    if not stints:
        return None
    until = drained_until(stints, overview)
    # By a clock ahead, nobody can tell which hours that is about.
    is_proven = is_proven and until <= now + SKEW
    last = now.replace(minute=0, second=0, microsecond=0)
    first = max(stints[0].ended, last - SHOWN * _HOUR)
    starts = [last - number * _HOUR for number in range(SHOWN, 0, -1)]
    hours = [
        Hour(start, judge_hour(start, stints, until, is_proven=is_proven))
        for start in starts
        if start + _HOUR > first
    ]
    return Strip(hours) if hours else None


def drained_until(stints: Sequence[Stint], overview: Mapping[str, Any]) -> datetime:
    """Return the time up to which the archive has what Kafka got.

    If the last validation can't tell, that is the seal before the newest one: what came until then
    was there when the next drain began.
    """
    said = overview.get("drained_until")
    if said and not overview["unsealed_segments"]:
        return datetime.fromisoformat(said)
    return stints[-1].began
