"""Repair: drain again what is lost and Kafka still holds, and write a damaged manifest anew.

Only adds: a window with the lost records, a manifest beside the damaged one. Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from kafka_drain.archive import Archive
from kafka_drain.errors import CheckpointError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gap_reasons import GapReason
from kafka_drain.generation import Generation
from kafka_drain.manifest_rebuilding import rebuild_manifest
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge
from kafka_drain.report import Report
from kafka_drain.window import range_rows

__all__ = ["RepairPlan", "plan_repair", "repair_manifest"]

_FILES = (Reason.FILE_MISSING, Reason.FILE_SIZE, Reason.FILE_CORRUPT, Reason.FILE_CHANGED)
_MANIFEST = (
    Reason.MANIFEST_MISSING,
    Reason.MANIFEST_EMPTY,
    Reason.MANIFEST_TRUNCATED,
    Reason.MANIFEST_CORRUPT,
    Reason.MANIFEST_HOLE,
    Reason.MANIFEST_DUPLICATE,
    Reason.MANIFEST_CHANGED,
)


@dataclass(frozen=True)
class RepairPlan:
    """What a repair will do.

    Attributes:
        archive: The archive.
        ranges: Lost offsets that Kafka still holds; a window drains them.
        replaces: Damaged files, relative to the archive, that the window stands for.
        manifest: The generation whose manifest is written anew; None for none.
        left: Findings that a repair can't help.
    """

    archive: Archive
    ranges: dict[TopicPartition, list[OffsetRange]]
    replaces: list[str]
    manifest: Generation | None = None
    left: list[Finding] = field(default_factory=list)

    @property
    def nothing_to_do(self) -> bool:
        """Whether there is nothing that a repair can do."""
        return not self.ranges and self.manifest is None

    @property
    def window_key(self) -> str:
        """Name of a new window."""
        return f"repair_{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"

    def lines(self) -> list[str]:
        """Return the plan as people read it."""
        name = self.archive.root
        lines = []
        if self.manifest is not None:
            lines.append(
                f"repair {name}: writes the manifest of generation {self.manifest.number} anew "
                "from its receipts; the damaged one stays beside it"
            )
        for tp, ranges in sorted(self.ranges.items()):
            shown = ", ".join(map(str, ranges[:5])) + (" …" if len(ranges) > 5 else "")
            lines.append(f"repair {name}: drains {count(ranges):,} lost offsets of {tp}: {shown}")
        lines += [f"repair {name}: can't help: {finding}" for finding in self.left[:5]]
        return lines or [f"repair {name}: nothing to repair"]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {
            "archive": str(self.archive.root),
            "manifest_of_generation": self.manifest.number if self.manifest else None,
            "ranges": range_rows(self.ranges),
            "replaces": self.replaces,
            "cannot_help": [finding.to_dict() for finding in self.left],
        }


def plan_repair(archive: Archive, report: Report) -> RepairPlan:
    """Say what of a validation's findings can be repaired; changes nothing."""
    lost: dict[TopicPartition, list[OffsetRange]] = {}
    for gap in report.gaps:
        if gap.reason == GapReason.LOST:
            lost.setdefault(gap.tp, []).append(gap.range)
    expired = {gap.tp for gap in report.gaps if not gap.harmless and gap.reason != GapReason.LOST}
    files = [f for f in report.findings if f.reason in _FILES]
    manifest = _manifest_to_rebuild(archive, report.findings)
    handled = {*_FILES, *(_MANIFEST if manifest else ()), Reason.OFFSET_MISSING}
    left = [
        finding
        for finding in report.findings
        if finding.reason.severity == "error"
        and (
            finding.reason not in handled
            or (finding.reason == Reason.OFFSET_MISSING and finding.where in map(str, expired))
        )
    ]
    return RepairPlan(
        archive=archive,
        ranges={tp: merge(ranges) for tp, ranges in lost.items()},
        replaces=sorted({finding.where for finding in files}) if lost else [],
        manifest=manifest,
        left=left,
    )


def _manifest_to_rebuild(archive: Archive, findings: Sequence[Finding]) -> Generation | None:
    generation = archive.open_generation()
    if generation is None or not generation.receipt_names():
        return None
    folder = f"{generation.name}/"
    damaged = any(f.reason in _MANIFEST and f.where.startswith(folder) for f in findings)
    return generation if damaged else None


def repair_manifest(plan: RepairPlan) -> int:
    """Write the damaged manifest anew; the caller holds the archive's lease.

    Returns:
        How many files it lists.

    Raises:
        CheckpointError: When a receipt is damaged as well.
    """
    assert plan.manifest is not None
    try:
        return rebuild_manifest(plan.manifest)
    except ValueError as error:
        raise CheckpointError(
            f"{plan.manifest.folder}: a receipt is damaged as well ({error}); restore it from a "
            "copy"
        ) from error
