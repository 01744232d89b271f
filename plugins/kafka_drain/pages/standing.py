"""What pages show of an archive: never greener than what was proven. Opens nothing.

Each decision is a function of plain values, so that a table can hold all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from kafka_drain.gaps import is_harmless

__all__ = [
    "ACTIVE",
    "Ended",
    "LastRun",
    "Proof",
    "Standing",
    "cell_colour",
    "ended_of",
    "headline_kind",
    "is_older",
    "last_run",
    "proof_of",
    "standing_of",
]

#: Airflow's words for a run or a task that has yet to end.
ACTIVE = frozenset(
    {"running", "queued", "scheduled", "restarting", "deferred", "up_for_reschedule"}
)


class LastRun(str, Enum):
    """How the newest run that has ended did."""

    NONE = "none"
    RUNNING = "running"  # it is the only one
    SUCCESS = "success"
    FAILED = "failed"


def last_run(states: Iterable[str]) -> LastRun:
    """Return how the newest run did that has ended; that one runs when none has.

    Args:
        states: Airflow's words, oldest first.
    """
    known = list(states)
    for state in reversed(known):
        if state in ("success", "failed"):
            return LastRun(state)
    return LastRun.RUNNING if known else LastRun.NONE


def is_older(
    validated_at: datetime, *, began: datetime | None, ended: datetime | None, was_validated: bool
) -> bool:
    """Whether a validation is too old to prove what a run left that has ended.

    A run that failed may have drained until its end, also when somebody validated meanwhile.

    Args:
        validated_at: When the validation was.
        began: When the run did; None where nobody knows.
        ended: When it did; None where nobody knows.
        was_validated: Whether the run's own validation of this archive has succeeded: it comes
            after all that the run drains.
    """
    since = began if was_validated else ended
    return since is None or validated_at < since


@dataclass(frozen=True, slots=True)
class Standing:
    """How an archive is shown in a list.

    Attributes:
        words: What it is called.
        kind: Its colour: `good`, `warning`, `bad`, or `quiet` for what nobody can say yet.
        rank: How urgent it is; 0 is the most.
    """

    words: str
    kind: str
    rank: int

    @property
    def is_urgent(self) -> bool:
        """Whether somebody has to look."""
        return self.rank < _WAITS


_WAITS = 3


def standing_of(
    *, is_readable: bool, verdict: str | None, last: LastRun, is_older: bool, expires_soon: bool
) -> Standing:
    """Return how an archive is shown.

    Args:
        is_readable: Whether what validation left can be read here.
        verdict: The last validation's; None without one.
        last: How the newest run that has ended did.
        is_older: Whether the last validation is too old to prove what that run left.
        expires_soon: Whether Kafka may soon delete what isn't drained.
    """
    if not is_readable:
        return Standing("unreadable", "bad", 1)
    if verdict is None:
        if last is LastRun.FAILED:
            return Standing("not validated, last run failed", "bad", 1)
        if last is LastRun.SUCCESS:
            return Standing("not validated", "warning", 2)
        return Standing("not validated", "quiet", _WAITS)
    if verdict != "complete":
        return Standing(verdict, "bad", 0)
    if is_older and last is LastRun.FAILED:
        return Standing("complete before, last run failed", "warning", 2)
    if is_older and last is LastRun.SUCCESS:
        return Standing("complete before, not validated since", "warning", 2)
    return Standing("complete", "good", 2 if expires_soon else 4)


def headline_kind(standings: Iterable[Standing]) -> str:
    """Return the colour of what is said of all archives: green only when all are proven."""
    known = list(standings)
    if any(one.is_urgent for one in known):
        return "bad"
    return "good" if known and all(one.kind == "good" for one in known) else "quiet"


class Proof(str, Enum):
    """What the last validation says of some sealed offsets."""

    PROVEN = "proven"
    UNPROVEN = "unproven"
    DAMAGED = "damaged"


def proof_of(*, is_readable: bool, verdict: str | None, is_damaged: bool, is_placed: bool) -> Proof:
    """Return what is proven of some sealed offsets.

    Args:
        is_readable: Whether what validation left can be read here.
        verdict: The last validation's; None without one.
        is_damaged: Whether it found something wrong with their files or their receipt.
        is_placed: Whether all that it found is known to belong to certain offsets.
    """
    if not is_readable or verdict is None:
        return Proof.UNPROVEN
    if is_damaged:
        return Proof.DAMAGED
    return Proof.PROVEN if verdict == "complete" or is_placed else Proof.UNPROVEN


def cell_colour(gaps: Mapping[str, int], has_records: bool, proof: Proof) -> str:
    """Return the colour of some sealed offsets: what matters most of them.

    Args:
        gaps: Offsets that are in no file, by reason.
        has_records: Whether any of the others is in a file.
        proof: What is proven of them.
    """
    if proof is Proof.DAMAGED:
        return str(proof.value)
    harmful = [reason for reason in gaps if not is_harmless(reason)]
    if harmful:
        return max(harmful, key=lambda reason: gaps[reason])
    if proof is Proof.UNPROVEN:
        return str(proof.value)
    return "covered" if has_records or not gaps else max(gaps, key=lambda reason: gaps[reason])


@dataclass(frozen=True, slots=True)
class Ended:
    """How far a task is shown to have got.

    Attributes:
        done: How many of the total.
        percent: In whole percents, as a bar shows them.
        has_rate: Whether its rate is of now.
    """

    done: int
    percent: int
    has_rate: bool


def ended_of(state: str, done: int, total: int, percent: int) -> Ended:
    """Return how far a task has got, from what it said last: it needn't have said its end.

    Args:
        state: Airflow's word. A task that succeeded has done all of it, whatever it said last.
        done: How many it said were done.
        total: How many there were to do.
        percent: The share that it said, in whole percents.
    """
    if state == "success":
        return Ended(max(done, total), 100, has_rate=False)
    return Ended(done, percent, has_rate=state in ACTIVE)
