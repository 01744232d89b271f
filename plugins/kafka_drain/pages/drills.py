"""Drills as part of an archive's page: the last one that passed, and the trend of the newest.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from kafka_drain.archive.drill_status import DrillState, DrillStatus
from kafka_drain.pages.drawings import Bar, Figure, bar_chart
from kafka_drain.pages.humanize import many, time_text
from kafka_drain.progress import duration_text

if TYPE_CHECKING:
    from kafka_drain.archive.documents import DrillDocument

_KINDS = {
    DrillState.OK: "good",
    DrillState.NEVER: "warning",
    DrillState.FAILED: "bad",
    DrillState.TOO_OLD: "bad",
}


@dataclass(frozen=True, slots=True)
class DrillsShown:
    """An archive's drills, as shown on its page.

    Attributes:
        kind: CSS class of their status.
        words: Their status in a sentence.
        passed: When the last one that passed started; empty if none did.
        rto: Duration of that one.
        rpo: Age of the newest record at its start.
        trend: Chart of the newest drills; None without any.
    """

    kind: str
    words: str
    passed: str
    rto: str
    rpo: str
    trend: Figure | None


def show_drills(drills: Sequence[DrillDocument], now: datetime) -> DrillsShown | None:
    """Return an archive's drills as shown on its page; None if there are none.

    Args:
        drills: The newest drills, oldest first.
    """
    if not drills:
        return None
    status = DrillStatus.of_their_own(drills, now)
    passed = status.passed
    return DrillsShown(
        kind=_KINDS[status.state],
        words=status.words,
        passed=time_text(passed.started_at) if passed else "",
        rto=_duration(passed.rto_seconds if passed else None),
        rpo=_duration(passed.rpo_seconds if passed else None),
        trend=_trend(drills),
    )


def _trend(drills: Sequence[DrillDocument]) -> Figure:
    bars = [_bar(drill) for drill in drills]
    chart = bar_chart(bars, "Seconds until each drill was verified", "drill")
    words = f"RTO of {many(len(drills), 'drill')}, oldest first, in seconds; red ones failed."
    return Figure("Drills", chart, words)


def _bar(drill: DrillDocument) -> Bar:
    sample = drill.sample.kind.replace("_", " ") if drill.sample else "no sample"
    records = "" if drill.records is None else f", {many(drill.records, 'record')}"
    took = "" if drill.rto_seconds is None else f" in {_duration(drill.rto_seconds)}"
    why = "".join(f": {problem.detail}" for problem in drill.problems[:1])
    return Bar(
        round(drill.rto_seconds or 0),
        time_text(drill.started_at)[5:10],
        f"{time_text(drill.started_at)}, {sample}{records}: {drill.verdict}{took}{why}",
        "covered" if drill.verdict == "passed" else "damaged",
    )


def _duration(seconds: float | None) -> str:
    return "unknown" if seconds is None else duration_text(max(seconds, 0))
