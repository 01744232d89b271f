"""Alerts raised by a validation: a kind and a one-sentence message each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.drill_status import DrillState, DrillStatus
from kafka_drain.archive.status import read_overview
from kafka_drain.errors import KafkaDrainError
from kafka_drain.findings import Finding, Reason
from kafka_drain.progress import duration_text

#: An alert is raised when Kafka may delete undrained records within this time.
SOON = timedelta(hours=24)

_KINDS = {
    Reason.OFFSET_MISSING: "LOST",
    Reason.OFFSET_UNEXPLAINED: "LOST",
    Reason.STALLED: "STALLED",
}


def alerts_of(
    findings: Iterable[Finding],
    overview: Mapping[str, Any],
    now: datetime,
    drills: DrillStatus | None = None,
) -> list[dict[str, str]]:
    """Return the alerts of a validation.

    Returns:
        The kind and message of each. LOST: an offset is in no file, without a harmless reason.
        DAMAGED: anything else that makes the archive incomplete. STALLED: a partition is stuck
        behind an open transaction. EXPIRING: Kafka may delete undrained records within 24 hours.
        DRILL: the newest drill failed, or none has passed for too long.
    """
    alerts = [
        {"kind": _KINDS.get(finding.reason, "DAMAGED"), "message": str(finding)}
        for finding in findings
        if finding.reason in _KINDS or finding.reason.severity == "error"
    ]
    if overview.get("expires_at"):
        left = datetime.fromisoformat(overview["expires_at"]) - now
        if left < SOON:
            when = f"in {duration_text(left.total_seconds())}" if left > timedelta() else "now"
            lag = overview["lag"]
            waiting = "some offsets" if lag is None else f"{lag:,} offsets"
            message = (
                f"{waiting} aren't drained yet, and Kafka may delete the first "
                f"of them {when}; drain more often, or raise the topic's retention"
            )
            alerts.append({"kind": "EXPIRING", "message": message})
    if drills is not None and drills.state is not DrillState.OK:
        alerts.append({"kind": "DRILL", "message": drills.words})
    return alerts


def unread_drills(error: Exception | None) -> list[dict[str, str]]:
    """Return the alert that an archive's drills can't be read; none without an error."""
    if error is None:
        return []
    return [{"kind": "DRILL", "message": f"its drills can't be read: {error}"}]


def last_overview(archive: Archive) -> Mapping[str, Any]:
    """Return what the last validation knew; empty if that can't be told."""
    try:
        overview = read_overview(archive.root)
        is_own = (
            overview is not None and overview["pipeline"] == archive.snapshot().document.pipeline
        )
    except (KafkaDrainError, OSError):
        return {}
    return overview if overview is not None and is_own else {}
