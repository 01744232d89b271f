"""What somebody should be told of after a validation, in a word and a sentence each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from kafka_drain.findings import Finding, Reason
from kafka_drain.progress import duration_text

__all__ = ["alerts_of"]

#: What Kafka may delete so soon, undrained, is told.
SOON = timedelta(hours=24)

_KINDS = {Reason.OFFSET_MISSING: "LOST", Reason.STALLED: "STALLED"}


def alerts_of(
    findings: Iterable[Finding], overview: Mapping[str, Any], now: datetime
) -> list[dict[str, str]]:
    """Return what somebody should be told of.

    Returns:
        kind and message of each. LOST: an offset is in no file, and no reason is harmless. DAMAGED:
        anything else that makes the archive incomplete. STALLED: a partition stands behind an open
        transaction. EXPIRING: Kafka may delete records that aren't drained within 24 hours.
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
            message = (
                f"{overview['lag']:,} offsets aren't drained, and Kafka may delete the first of "
                f"them {when}; drain more often, or raise the topic's retention"
            )
            alerts.append({"kind": "EXPIRING", "message": message})
    return alerts
