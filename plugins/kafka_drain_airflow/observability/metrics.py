"""Gauges for Airflow's metrics (StatsD or OpenTelemetry), with stable names.

Each is sent twice, as Airflow's own are: as `kafka_drain.<name>` with its tags, for backends that
keep them, and as `kafka_drain.<pipeline>.<name>`, for those that don't; docs/airflow-ui.md lists
them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Stats

if TYPE_CHECKING:
    from kafka_drain.archive.drill_status import DrillStatus

_DRAIN = ("offsets", "records", "seconds", "offsets_per_second")
_REPUBLISH = ("records", "seconds", "records_per_second")
_DRILL = ("rto_seconds", "rpo_seconds", "records")
_OVERVIEW = ("records", "offsets", "files", "bytes", "lag", "unsealed_segments")


def tell_drain(pipeline: str, result: Mapping[str, Any]) -> None:
    """Report a drain: drain.offsets, .records, .seconds, .offsets_per_second."""
    _tell(pipeline, {f"drain.{name}": result.get(name) for name in _DRAIN})


def tell_republish(pipeline: str, result: Mapping[str, Any]) -> None:
    """Report a republish: republish.records, .seconds, .records_per_second."""
    _tell(pipeline, {f"republish.{name}": result.get(name) for name in _REPUBLISH})


def tell_overview(
    pipeline: str,
    overview: Mapping[str, Any],
    seconds: float,
    now: datetime | None = None,
    before: Mapping[str, Any] | None = None,
) -> None:
    """Report an archive's state after a validation.

    Sets archive.records, .offsets, .files, .bytes, .lag (offsets), .unsealed_segments, .complete (1
    or 0), .validated_at and .drained_until (seconds since 1970, if known), .hours_to_expiry (if
    known), .gaps.<reason> (offsets), .findings.<reason>, and validate.seconds.

    Args:
        before: The state before: backends keep a gauge's last value, so what is over is 0 once.
    """
    told: dict[str, float | None] = {f"archive.{name}": overview.get(name) for name in _OVERVIEW}
    told["archive.complete"] = int(overview["verdict"] == "complete")
    told["validate.seconds"] = seconds
    if overview.get("expires_at"):
        left = datetime.fromisoformat(overview["expires_at"]) - (now or datetime.now(timezone.utc))
        told["archive.hours_to_expiry"] = round(left.total_seconds() / 3600, 2)
    for name in ("validated_at", "drained_until"):
        if overview.get(name):
            told[f"archive.{name}"] = int(datetime.fromisoformat(overview[name]).timestamp())
    for kind in ("gaps", "findings"):
        told |= {f"archive.{kind}.{name}": 0 for name in (before or {}).get(kind, ())}
        told |= {f"archive.{kind}.{name}": number for name, number in overview[kind].items()}
    _tell(pipeline, told)


def tell_ready(pipeline: str, *, is_ready: bool) -> None:
    """Report whether an archive could be restored: archive.ready, 1 or 0."""
    _tell(pipeline, {"archive.ready": int(is_ready)})


def tell_drills(pipeline: str, status: DrillStatus) -> None:
    """Report an archive's drills.

    Sets drill.ok (1 or 0), and of the last drill that passed .hours_since, .rto_seconds,
    .rpo_seconds and .records.
    """
    told: dict[str, float | None] = {"drill.ok": int(status.state == "ok")}
    if status.passed is not None and status.age is not None:
        told["drill.hours_since"] = round(status.age.total_seconds() / 3600, 2)
        told |= {f"drill.{name}": getattr(status.passed, name) for name in _DRILL}
    _tell(pipeline, told)


def _tell(pipeline: str, gauges: Mapping[str, float | None]) -> None:
    # A dot would add a level to the name.
    level = re.sub(r"[^A-Za-z0-9_-]", "_", pipeline)
    for name, value in gauges.items():
        if value is not None:
            constant, tags = _tagged(name, pipeline)
            Stats.gauge(f"kafka_drain.{constant}", value, tags=tags)
            Stats.gauge(f"kafka_drain.{level}.{name}", value, tags={"pipeline": pipeline})


def _tagged(name: str, pipeline: str) -> tuple[str, dict[str, str]]:
    """Return the name that is the same for all pipelines and reasons, and what tells them apart."""
    kind, _, reason = name.rpartition(".")
    if kind in ("archive.gaps", "archive.findings"):
        return kind, {"pipeline": pipeline, "reason": reason}
    return name, {"pipeline": pipeline}
