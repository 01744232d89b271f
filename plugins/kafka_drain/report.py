"""The report of a validation: its figures, its words, and its file in the archive."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from kafka_drain.archive import Archive
from kafka_drain.documents import write_document
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Finding, errors, summary
from kafka_drain.gaps import Gap
from kafka_drain.offset_checks import Held, Segment
from kafka_drain.offsets import TopicPartition, count

#: So many findings are told in words; all are in the report.
SHOWN = 20

__all__ = ["Report", "raise_findings", "write_report"]


@dataclass
class Report:
    """What a validation saw.

    Attributes:
        archive: The archive's folder.
        pipeline: The pipeline's name.
        findings: Everything that is wrong or worth a word.
        gaps: Offsets that no file holds, each with its reason.
        segments: What was read, per batch.
        files: How many committed data files.
        bytes: Their size.
        records: Their rows.
        seconds: How long the validation took.
    """

    archive: str
    pipeline: str
    findings: list[Finding] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    held: list[Held] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @property
    def complete(self) -> bool:
        """Whether every drained offset is in exactly one file or has a harmless reason."""
        return not errors(self.findings)

    @property
    def records(self) -> int:
        """Rows in the committed files."""
        return sum(item.records for item in self.held)

    @property
    def offsets(self) -> int:
        """Offsets that were drained, gaps included."""
        return sum(count(part.ranges.values()) for part in self.segments)

    def partitions(self) -> list[dict[str, Any]]:
        """Return a row per topic-partition: topic, partition, start, end, records, gaps."""
        rows: dict[TopicPartition, dict[str, Any]] = {}
        for part in self.segments:
            for tp, r in part.ranges.items():
                row = rows.setdefault(
                    tp,
                    {
                        "topic": tp.topic,
                        "partition": tp.partition,
                        "start": r.start,
                        "end": r.end,
                        "records": 0,
                        "gaps": {},
                    },
                )
                row["end"] = max(row["end"], r.end)
        for item in self.held:
            if item.tp in rows:
                rows[item.tp]["records"] += item.records
        for gap in self.gaps:
            reasons = rows[gap.tp]["gaps"]
            reasons[str(gap.reason)] = reasons.get(str(gap.reason), 0) + len(gap.range)
        return [rows[tp] for tp in sorted(rows)]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as JSON types."""
        return {
            **self.summary(),
            "validated_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "partitions": self.partitions(),
            "batches": [
                {
                    "first": part.first_batch,
                    "last": part.last_batch,
                    "offsets": count(part.ranges.values()),
                }
                for part in self.segments
            ],
            "gaps": [
                {
                    "topic": gap.tp.topic,
                    "partition": gap.tp.partition,
                    "start": gap.range.start,
                    "end": gap.range.end,
                    "reason": str(gap.reason),
                }
                for gap in self.gaps
            ],
            "findings": [finding.to_dict() for finding in self.findings],
        }

    def lines(self) -> list[str]:
        """Return the report as people read it: a line a partition, then what was found."""
        lines = [
            f"validate {self.pipeline}: {self.records:,} records for {self.offsets:,} offsets in "
            f"{self.files:,} files ({self.bytes / 1e6:,.1f} MB), {self.seconds:.1f} s"
        ]
        for row in self.partitions():
            gaps = ", ".join(f"{number:,} {reason}" for reason, number in row["gaps"].items())
            lines.append(
                f"  {row['topic']}-{row['partition']}: offsets [{row['start']:,}, {row['end']:,}), "
                f"{row['records']:,} records, gaps: {gaps or 'none'}"
            )
        lines += [f"{f.reason.severity.upper()} {f}" for f in self.findings[:SHOWN]]
        if len(self.findings) > SHOWN:
            lines.append(f"… and {len(self.findings) - SHOWN} more findings")
        lines.append(f"verdict: {'complete' if self.complete else 'findings'}")
        return lines

    def summary(self) -> dict[str, Any]:
        """Return the small part of the report, for an XCom."""
        return {
            "archive": self.archive,
            "pipeline": self.pipeline,
            "verdict": "complete" if self.complete else "findings",
            "files": self.files,
            "bytes": self.bytes,
            "records": self.records,
            "offsets": self.offsets,
            "reasons": summary(self.findings),
            "seconds": round(self.seconds, 2),
        }


def raise_findings(report: Report, report_path: str) -> None:
    """Raise once for everything that makes an archive invalid.

    Raises:
        ManifestInvalidError: With the count of each reason and the first five findings.
    """
    bad = errors(report.findings)
    if not bad:
        return
    counts = ", ".join(f"{reason} {number}" for reason, number in summary(bad).items())
    first = "\n".join(f"  {finding}" for finding in bad[:5])
    more = f"\n  … and {len(bad) - 5} more" if len(bad) > 5 else ""
    raise ManifestInvalidError(
        f"{report.archive} is not complete: {counts}\n{first}{more}\n"
        f"{bad[0].reason.remedy}. All findings: {report_path}"
    )


def write_report(archive: Archive, report: Report, run: str | None = None) -> str:
    """Write `reports/<run>.json` and return its path.

    Args:
        archive: Where to.
        report: What to write.
        run: Name of the run; the time when it is None.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    name = run or f"validate_{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    # Airflow's run ids hold colons and plus signs.
    path = archive.root / "reports" / (re.sub(r"[^A-Za-z0-9_.-]", "_", name) + ".json")
    write_document(path, report.to_dict())
    return str(path)
