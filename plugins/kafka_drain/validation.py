"""Validation of an archive: manifest, checkpoint, files and offsets against each other.

Reads everything first and collects what is wrong; whether that is an error is the caller's to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

from kafka_drain.archive import Archive, Generation
from kafka_drain.checkpoint import compare_with_manifest
from kafka_drain.committed_files import read_committed_files
from kafka_drain.data_files import DataFileError, read_offsets, topic_of
from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Finding, Reason, errors, summary
from kafka_drain.gaps import Gap, GapReason, classify_gaps
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.manifest import Manifest
from kafka_drain.offset_checks import Held, Segment, check_offsets, missing_offsets, segments
from kafka_drain.offsets import OffsetRange, TopicPartition, count

#: So many findings are told in words; all are in the report.
SHOWN = 20

__all__ = ["Report", "raise_findings", "validate_archive"]


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


def validate_archive(
    archive: Archive,
    cluster: KafkaCluster | None,
    say: Callable[[str], None] = lambda line: None,
) -> Report:
    """Validate all generations of an archive.

    Args:
        archive: The archive.
        cluster: Where the reasons of gaps are asked; without it, each gap is a finding.
        say: Takes a line of progress every two seconds.

    Raises:
        ArchiveError: When the folder is no archive.
        KafkaUnavailableError: When a gap has to be explained and Kafka doesn't answer.
    """
    began = time.monotonic()
    report = Report(archive=str(archive.root), pipeline=archive.document()["pipeline"])
    for generation in archive.generations():
        _validate_generation(generation, cluster, report, say)
    report.seconds = time.monotonic() - began
    return report


def _validate_generation(
    generation: Generation,
    cluster: KafkaCluster | None,
    report: Report,
    say: Callable[[str], None],
) -> None:
    manifest, findings = generation.read_manifest()
    checkpoint, found = generation.read_checkpoint()
    findings += found
    checkpoint_name = f"{generation.name}/checkpoint"
    findings += compare_with_manifest(checkpoint, manifest.last_batch, checkpoint_name)
    file_format = generation.document()["format"]
    held, found = read_committed_files(generation, manifest, file_format, say)
    findings += found
    known = [b for b in (manifest.last_batch, checkpoint.last_commit) if b is not None]
    parts = segments(generation.starting_offsets(), checkpoint, max(known)) if known else []
    orphans = _orphans(generation, manifest)
    findings += _truncated(generation, manifest, parts, orphans, file_format)
    findings += [
        Finding(Reason.FILE_ORPHAN, path, "not in the manifest, ignored by readers")
        for path in orphans
    ]
    findings += check_offsets(parts, held)
    gaps = _explain(missing_offsets(parts, held), cluster)
    findings += _harmful(gaps)
    report.findings += findings
    report.gaps += gaps
    report.segments += parts
    report.held += held
    report.files += len(manifest.files)
    report.bytes += sum(sink_file.size for sink_file in manifest.files.values())


def _orphans(generation: Generation, manifest: Manifest) -> list[str]:
    """Return data files that the manifest doesn't list, relative to the archive."""
    if not generation.data.is_dir():
        return []
    found = []
    for path in generation.data.rglob("part-*"):
        relative = path.relative_to(generation.data).as_posix()
        if relative not in manifest.files and not relative.startswith("_spark_metadata/"):
            found.append(f"{generation.data_name}/{relative}")
    return sorted(found)


def _truncated(
    generation: Generation,
    manifest: Manifest,
    parts: Iterable[Segment],
    orphans: Iterable[str],
    file_format: str,
) -> list[Finding]:
    """Tell a manifest file cut down to its header from a batch that really wrote no file.

    Both list nothing. A file that was cut leaves its batch's data files behind as orphans.
    """
    with_files = {sink_file.batch for sink_file in manifest.files.values()}
    empty = {batch for batch in manifest.batches if batch not in with_files}
    suspects = [part for part in parts if part.first_batch == part.last_batch in empty]
    if not suspects:
        return []
    seen: dict[TopicPartition, list[OffsetRange]] = {}
    for orphan in orphans:
        try:
            for offsets in read_offsets(generation.root / orphan, file_format, topic_of(orphan)):
                tp = TopicPartition(offsets.topic, offsets.partition)
                seen.setdefault(tp, []).extend(offsets.ranges)
        except DataFileError:
            # A killed task's torn file; nothing lists it, so nothing depends on it.
            continue
    return [
        Finding(
            Reason.MANIFEST_TRUNCATED,
            f"{generation.data_name}/_spark_metadata/{part.last_batch}",
            f"lists no file, and files with offsets of {part.name} lie in the sink",
        )
        for part in suspects
        if any(
            found.start in wanted
            for tp, wanted in part.ranges.items()
            for found in seen.get(tp, [])
        )
    ]


def _explain(
    missing: list[tuple[Segment, TopicPartition, list[OffsetRange]]], cluster: KafkaCluster | None
) -> list[Gap]:
    by_partition: dict[TopicPartition, list[OffsetRange]] = {}
    for _, tp, ranges in missing:
        by_partition.setdefault(tp, []).extend(ranges)
    if cluster is None:
        return [Gap(tp, r, GapReason.UNKNOWN) for tp, rs in by_partition.items() for r in rs]
    return classify_gaps(cluster, by_partition)


def _harmful(gaps: Iterable[Gap]) -> list[Finding]:
    return [
        Finding(
            Reason.OFFSET_MISSING,
            str(gap.tp),
            f"{gap.range} is in no file; {gap.reason}: {gap.reason.meaning}",
        )
        for gap in gaps
        if not gap.reason.harmless
    ]
