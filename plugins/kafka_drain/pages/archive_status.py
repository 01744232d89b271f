"""Choose an archive's status for pages: never greener than its proof. Opens nothing.

Each decision is a function of plain values, so that a table test can cover all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum

from kafka_drain.gaps import is_harmless

#: Airflow's states of a run or task that hasn't finished.
ACTIVE = frozenset(
    {"running", "queued", "scheduled", "restarting", "deferred", "up_for_reschedule"}
)


class LastRun(str, Enum):
    """The outcome of the newest finished run."""

    NONE = "none"
    RUNNING = "running"  # no run has finished yet
    SUCCESS = "success"
    FAILED = "failed"


def last_run(states: Iterable[str]) -> LastRun:
    """Return the outcome of the newest finished run; running if none has finished.

    Args:
        states: Airflow's states of the runs, oldest first.
    """
    known = list(states)
    for state in reversed(known):
        if state in ("success", "failed"):
            return LastRun(state)
    return LastRun.RUNNING if known else LastRun.NONE


def is_older(
    validated_at: datetime, *, began: datetime | None, ended: datetime | None, was_validated: bool
) -> bool:
    """Return whether a validation is too old to cover everything that a finished run drained.

    A failed run may have drained until its end, even if a validation took place in the meantime.

    Args:
        validated_at: When the validation took place.
        began: When the run started; None if unknown.
        ended: When the run finished; None if unknown.
        was_validated: Whether the run's own validation of this archive succeeded: it comes after
            everything that the run drains.
    """
    since = began if was_validated else ended
    return since is None or validated_at < since


@dataclass(frozen=True, slots=True)
class ArchiveStatus:
    """The status of an archive in a list.

    Attributes:
        words: The displayed status.
        kind: Its colour: `good`, `warning`, `bad`, or `quiet` if nothing can be said yet.
        rank: Its urgency; 0 is the most urgent.
    """

    words: str
    kind: str
    rank: int

    @property
    def is_urgent(self) -> bool:
        """Whether it needs attention."""
        return self.rank < _WAITS


_WAITS = 3


def archive_status(
    *,
    is_readable: bool,
    is_damaged: bool = False,
    verdict: str | None,
    last: LastRun,
    is_older: bool,
    expires_soon: bool,
    has_unknown: bool,
    is_ahead: bool = False,
) -> ArchiveStatus:
    """Return the status of an archive.

    Args:
        is_readable: Whether the results of its validation can be read here.
        is_damaged: Whether they can't because a document of the archive is damaged.
        verdict: The last validation's verdict; None without one.
        last: The outcome of the newest finished run.
        is_older: Whether the last validation is too old to cover everything that this run drained.
        expires_soon: Whether Kafka may soon delete records that aren't drained.
        has_unknown: Whether of some records only the offsets are proven.
        is_ahead: Whether the last validation is dated ahead of now, so that it can't be said which
            runs it covers.
    """
    if not is_readable:
        return ArchiveStatus("damaged" if is_damaged else "unreadable", "bad", 1)
    if verdict is None:
        if last is LastRun.FAILED:
            return ArchiveStatus("not validated, last run failed", "bad", 1)
        if last is LastRun.SUCCESS:
            return ArchiveStatus("not validated", "warning", 2)
        return ArchiveStatus("not validated", "quiet", _WAITS)
    if verdict != "complete":
        return ArchiveStatus(verdict, "bad", 0)
    if (is_older or is_ahead) and last is LastRun.FAILED:
        return ArchiveStatus("was complete, last run failed", "warning", 2)
    if is_ahead:
        return ArchiveStatus("complete, by a clock ahead", "warning", 2)
    if is_older and last is LastRun.SUCCESS:
        return ArchiveStatus("was complete, not validated since", "warning", 2)
    if has_unknown:
        return ArchiveStatus("complete, some contents unknown", "warning", 2)
    return ArchiveStatus("complete", "good", 2 if expires_soon else 4)


def headline_kind(statuses: Iterable[ArchiveStatus]) -> str:
    """Return the headline's colour for all archives: green only if all are proven."""
    known = list(statuses)
    if any(one.is_urgent for one in known):
        return "bad"
    return "good" if known and all(one.kind == "good" for one in known) else "quiet"


class ProofStatus(str, Enum):
    """The last validation's result about a set of sealed offsets."""

    PROVEN = "proven"
    UNPROVEN = "unproven"
    DAMAGED = "damaged"
    #: Only the offsets are proven: of some records, it isn't known what Spark read.
    CONTENT_UNKNOWN = "content_unknown"


def proof_of(
    *,
    is_readable: bool,
    verdict: str | None,
    is_damaged: bool,
    is_placed: bool,
    has_unknown: bool,
) -> ProofStatus:
    """Return the proof of a set of sealed offsets.

    Args:
        is_readable: Whether the results of the archive's validation can be read here.
        verdict: The last validation's verdict; None without one.
        is_damaged: Whether it found something wrong with their files or their receipt.
        is_placed: Whether all of its findings are known to belong to certain offsets.
        has_unknown: Whether of some records only the offsets are proven.
    """
    if not is_readable or verdict is None:
        return ProofStatus.UNPROVEN
    if is_damaged:
        return ProofStatus.DAMAGED
    if verdict != "complete" and not is_placed:
        return ProofStatus.UNPROVEN
    return ProofStatus.CONTENT_UNKNOWN if has_unknown else ProofStatus.PROVEN


def cell_colour(gaps: Mapping[str, int], has_records: bool, proof: ProofStatus) -> str:
    """Return the colour of a set of sealed offsets: that of their most important property.

    Args:
        gaps: Offsets that are in no file, by reason.
        has_records: Whether any of the other offsets are in a file.
        proof: The proof of the offsets.
    """
    if proof is ProofStatus.DAMAGED:
        return str(proof.value)
    harmful = [reason for reason in gaps if not is_harmless(reason)]
    if harmful:
        return max(harmful, key=lambda reason: gaps[reason])
    if proof is not ProofStatus.PROVEN:
        return str(proof.value)
    return "covered" if has_records or not gaps else max(gaps, key=lambda reason: gaps[reason])


@dataclass(frozen=True, slots=True)
class Ended:
    """The progress of a task as it is shown.

    Attributes:
        done: Number of units done.
        percent: Whole percent, as shown by a bar.
        has_rate: Whether its rate is current.
    """

    done: int
    percent: int
    has_rate: bool


def ended_of(state: str, done: int, total: int, percent: int) -> Ended:
    """Return a task's progress from its last report: it may not have reported its end.

    Args:
        state: Airflow's state. A task that succeeded has done everything, whatever it reported.
        done: Number of units that it reported as done.
        total: Total number of units.
        percent: The reported share in whole percent.
    """
    if state == "success":
        return Ended(max(done, total), 100, has_rate=False)
    return Ended(done, percent, has_rate=state in ACTIVE)
