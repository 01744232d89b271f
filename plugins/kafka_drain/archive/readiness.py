"""Whether an archive could be restored, in a word and a sentence, by the worst that is known.

Opens nothing. Never greener than the proof: what is too old or can't be told is `unknown`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

from kafka_drain.archive.drill_status import SKEW, DrillState, DrillStatus
from kafka_drain.findings import Reason
from kafka_drain.progress import duration_text

if TYPE_CHECKING:
    from kafka_drain.archive.scrubs import OldestRead

#: Number of reasons that the sentence gives.
NAMED = 3


class Readiness(str, Enum):
    """Whether an archive could be restored, the best first."""

    READY = "ready"
    UNKNOWN = "unknown"
    NOT_READY = "not_ready"

    @property
    def words(self) -> str:
        """The state in the sentence."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of an archive without reading its data files.

    Attributes:
        pipeline: Its name, by `archive.json`.
        refused: Why readers are refused now: a damaged document, a missing file; empty if they
            aren't.
        overview: Result of the last validation, as `read_overview` returns it; None without one.
        is_sealed: Whether readers get any sealed file.
        unsealed: Number of the files that readers get and that no receipt seals yet.
        drills: The newest drills.
        now: The present time.
        max_age: Age from which a validation is too old.
        read_again: How long ago the sealed files were read that weren't read for longest; None if
            nobody says.
    """

    pipeline: str
    refused: str
    overview: Mapping[str, Any] | None
    is_sealed: bool
    unsealed: int
    drills: DrillStatus
    now: datetime
    max_age: timedelta
    read_again: OldestRead | None = None


def judge_readiness(evidence: Evidence) -> list[tuple[Readiness, str]]:
    """Return what keeps an archive from being ready, the worst first; empty if it is ready."""
    bad = [(Readiness.NOT_READY, evidence.refused)] if evidence.refused else []
    overview, drills = evidence.overview, evidence.drills
    if overview is None:
        return [*bad, *_of_drills(drills), (Readiness.UNKNOWN, "it was never validated")]
    if overview["pipeline"] != evidence.pipeline:
        other = f"its overview.json is of {overview['pipeline']!r}: validate again"
        return [*bad, *_of_drills(drills), (Readiness.UNKNOWN, other)]
    if overview["verdict"] != "complete":
        bad += [(Readiness.NOT_READY, text) for text in _found(overview["findings"])]
    bad += _of_drills(drills)
    return bad + [(Readiness.UNKNOWN, text) for text in _doubts(evidence, overview)]


def _of_drills(drills: DrillStatus) -> list[tuple[Readiness, str]]:
    state = {DrillState.FAILED: Readiness.NOT_READY, DrillState.TOO_OLD: Readiness.UNKNOWN}
    return [(state[drills.state], drills.words)] if drills.state in state else []


def _found(findings: Mapping[str, int]) -> list[str]:
    """Describe the last validation's errors; also of a reason that only another release knows."""
    known = {reason.value: reason for reason in Reason}
    texts = [
        f"{known[code].meaning if code in known else code} ({code}, {number:,})"
        for code, number in sorted(findings.items())
        if code not in known or known[code].severity == "error"
    ]
    return texts or ["the last validation didn't find it complete"]


def _doubts(evidence: Evidence, overview: Mapping[str, Any]) -> list[str]:
    """Describe what the last validation leaves open."""
    validated = datetime.fromisoformat(overview["validated_at"])
    age = evidence.now - validated
    doubts = []
    if age < -SKEW:
        doubts.append(f"the last validation is {duration_text(-age.total_seconds())} ahead of now")
    elif age > evidence.max_age:
        limit = duration_text(evidence.max_age.total_seconds())
        doubts.append(f"the last validation is {_ago(age)}, more than {limit}")
    if not (evidence.is_sealed or evidence.refused):
        doubts.append("nothing is sealed")
    if overview["unsealed_segments"]:
        doubts.append(f"{overview['unsealed_segments']:,} batches aren't sealed yet")
    elif evidence.unsealed:
        doubts.append(f"{evidence.unsealed:,} files, drained since, aren't sealed yet")
    if Reason.CONTENT_UNKNOWN.value in overview["findings"]:
        doubts.append("of some records only the offsets are proven, not the contents")
    if overview["lag"] is None:
        doubts.append("the last validation couldn't tell how far it is behind Kafka")
    if evidence.read_again is not None and evidence.read_again.doubt:
        doubts.append(evidence.read_again.doubt)
    return doubts


def readiness_text(
    evidence: Evidence, found: Sequence[tuple[Readiness, str]], restore: float | None
) -> str:
    """Return the sentence.

    Args:
        evidence: What is known.
        found: What `judge_readiness` has returned for it.
        restore: Likely duration of a restore of everything, in seconds; None if unknown.
    """
    parts = [text for _, text in found[:NAMED]]
    if len(found) > NAMED:
        parts.append(f"and {len(found) - NAMED:,} more")
    overview = evidence.overview
    if overview is not None:
        age = evidence.now - datetime.fromisoformat(overview["validated_at"])
        newest = overview["newest_record"]
        of = (
            f", the newest of {datetime.fromisoformat(newest):%Y-%m-%d %H:%M:%S %Z}"
            if newest
            else ""
        )
        parts.append(f"{overview['records']:,} records{of}, validated {_ago(age)}")
        if overview["lag"] is not None:
            parts.append(f"{overview['lag']:,} offsets behind Kafka then")
    if evidence.drills.state in (DrillState.OK, DrillState.NEVER):
        parts.append(evidence.drills.words)
    read_again = evidence.read_again
    if read_again is not None and read_again.words and not read_again.doubt:
        parts.append(read_again.words)
    if restore is not None:
        parts.append(f"a restore of everything takes about {duration_text(restore)}")
    return f"{evidence.pipeline}: {state_of(found).words}: {'; '.join(parts)}"


def state_of(found: Sequence[tuple[Readiness, str]]) -> Readiness:
    """Return the worst state; ready without any."""
    states = {state for state, _ in found}
    return next((s for s in reversed(Readiness) if s in states), Readiness.READY)


def _ago(age: timedelta) -> str:
    return f"{duration_text(max(0.0, age.total_seconds()))} ago"
