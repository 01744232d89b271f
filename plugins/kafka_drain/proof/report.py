"""The report of a validation: its figures, its text, and its file in the archive."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ReportDocument
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.index import Index
from kafka_drain.archive.receipts import FileSet, Receipt, SealedFile
from kafka_drain.archive.standing_findings import Look, Standing, StandingFinding
from kafka_drain.archive.status import make_overview, read_overview, write_overview
from kafka_drain.archive.topic_settings import noted_topic_settings
from kafka_drain.archive.watermarks import read_observations
from kafka_drain.clock import utc_now
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.errors import ArchiveError, ManifestInvalidError
from kafka_drain.findings import OF_BYTES, OF_SEALED, Finding, Reason, errors, summary
from kafka_drain.gaps import NOT_ARCHIVED, Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge, subtract
from kafka_drain.pages.commands import Reach
from kafka_drain.pages.finding_values import values_of
from kafka_drain.pages.remedies import what_to_do
from kafka_drain.pages.report import report_page
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.window_checks import CheckedWindows
from kafka_drain.storage.json_files import write_text

if TYPE_CHECKING:
    from kafka_drain.evidence.signing import Signer

#: Number of batches in the report.
BATCHES = 100
#: Longest name of a run in the name of its report; Airflow's run ids have up to 250 characters.
_LONGEST = 150


@dataclass
class PartitionReport:
    """The report's row for one topic-partition.

    Attributes:
        start: The first drained offset.
        end: The end of the drained offsets, exclusive.
        records: Number of rows in files.
        gaps: Number of missing offsets by reason.
        missing: The gaps that no earlier receipt explains.
    """

    start: int
    end: int
    records: int = 0
    gaps: Counter[str] = field(default_factory=Counter)
    missing: list[Gap] = field(default_factory=list)
    segments: list[OffsetRange] = field(default_factory=list)

    @property
    def not_archived(self) -> list[OffsetRange]:
        """The offsets that lie between its segments."""
        return subtract(OffsetRange(self.start, self.end), merge(self.segments))


@dataclass
class Report:
    """The result of a validation.

    Attributes:
        archive: The archive's folder.
        pipeline: The pipeline's name.
        scope: `all`, or `open` for the generation that drains append to.
        deep: Whether all bytes of sealed files were read.
        findings: Errors and warnings.
        gaps: Offsets that no file holds and no earlier receipt explains, each with its reason.
        damaged: Sealed files that are missing or changed, each with its receipt.
        replaced: Files that sealed windows, intact or not, have replaced.
        segments: Drained segments that weren't sealed before.
        batches: The newest hundred batches: generation, first, last, offsets, records, files,
            bytes, sealed_at (None when it wasn't sealed before).
        generations: generation, files, bytes, records of each.
        windows: name, records, files, replaces of each.
        erasures: erasure, request, by and records of each that was carried out.
        files: Number of committed data files, including those of windows.
        bytes: Their size.
        receipts: Number of receipts before this validation.
        receipts_written: Number of receipts that this validation added.
        sealed: The added receipts, oldest first.
        seconds: Duration of the validation.
        cursor: Start of the open generation's next batch.
        newest: The open generation's newest receipt; None when nothing is sealed.
        validated_at: When the validation began.
        kafka: Addresses of the cluster that was asked, and its id; None if there was none.
        last: The newest receipt of any generation, of the topics that the open one counts; None if
            there is none.
        standing: What earlier validations had left.
        look: How closely this one looked; None if it hasn't ended.
        made_again: Topics that Kafka has with another id than they were drained with.
    """

    archive: str
    pipeline: str
    scope: str = "all"
    deep: bool = False
    findings: list[Finding] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    damaged: list[tuple[SealedFile, Receipt]] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)
    segments: list[Segment] = field(default_factory=list)
    batches: list[dict[str, Any]] = field(default_factory=list)
    generations: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    erasures: list[dict[str, Any]] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    receipts: int = 0
    receipts_written: int = 0
    sealed: list[Receipt] = field(default_factory=list)
    seconds: float = 0.0
    cursor: Mapping[TopicPartition, int] = field(default_factory=dict)
    newest: Receipt | None = None
    validated_at: datetime = field(default_factory=utc_now)
    kafka: Mapping[str, str] | None = None
    last: Receipt | None = None
    standing: Standing = field(default_factory=Standing)
    look: Look | None = None
    made_again: Collection[str] = ()
    rows: dict[tuple[TopicPartition, str], PartitionReport] = field(default_factory=dict)

    @property
    def all_findings(self) -> list[Finding]:
        """The findings, and those of earlier validations that this one couldn't look at."""
        look = self.look
        unseen = self.standing.unseen_by(look, self.findings) if look is not None else ()
        return [*self.findings, *(one.finding() for one in unseen)]

    @property
    def complete(self) -> bool:
        """Whether every drained offset is in exactly one file or has a harmless reason."""
        return not errors(self.all_findings)

    @property
    def records(self) -> int:
        """Number of rows in the committed files."""
        return sum(row.records for row in self.rows.values())

    @property
    def offsets(self) -> int:
        """Number of drained offsets, including gaps, but not those between segments."""
        return sum(row.end - row.start - count(row.not_archived) for row in self.rows.values())

    def add_sealed(self, generation: Generation, receipt: Receipt | None, receipts: int) -> None:
        """Add the sealed segments of a generation, from its newest receipt."""
        self.receipts += receipts
        so_far = receipt.files_so_far if receipt else FileSet()
        self.files += so_far.files
        self.bytes += so_far.bytes
        records = 0
        for part in receipt.partitions if receipt else ():
            records += part.records_so_far
            row = self._row(part.tp, receipt.topics if receipt else {}, part.start_so_far)
            row.end = part.range.end
            row.segments.append(OffsetRange(part.start_so_far, row.end))
            row.records += part.records_so_far
            row.gaps.update({str(reason): n for reason, n in part.gaps_so_far.items()})
        self.generations.append(
            {
                "generation": generation.number,
                "files": so_far.files,
                "bytes": so_far.bytes,
                "records": records,
            }
        )

    def add_batches(self, receipts: Iterable[Receipt]) -> None:
        """Add the newest receipts, oldest first, for the chart of batches."""
        self.batches += [
            {
                "generation": receipt.generation,
                "first": receipt.first_batch,
                "last": receipt.last_batch,
                "offsets": receipt.offsets,
                "records": receipt.records,
                "files": len(receipt.files),
                "bytes": sum(file.bytes for file in receipt.files),
                "sealed_at": receipt.sealed_at,
            }
            for receipt in receipts
        ]

    def add_new(
        self,
        generation: Generation,
        topic_ids: Mapping[str, str],
        parts: Sequence[Segment],
        files: Sequence[CommittedFile],
        gaps: Sequence[Gap],
        listed: tuple[int, int],
    ) -> None:
        """Add a generation's drained batches that weren't sealed before.

        Args:
            topic_ids: Topic ids by topic.
            files: The contents of their readable files.
            gaps: Missing offsets, including those of damaged sealed files.
            listed: Number and bytes of their files, including unreadable ones.
        """
        self.segments += parts
        self.files += listed[0]
        self.bytes += listed[1]
        for part in parts:
            for tp, r in part.ranges.items():
                row = self._row(tp, topic_ids, r.start)
                row.end = max(row.end, r.end)
                row.segments.append(r)
        records = 0
        for content in (content for file in files for content in file.contents):
            records += content.records
            row = self._row(content.tp, topic_ids, content.first)
            row.records += content.records
            if not parts:
                # The drained offsets are unknown; use those in the files.
                row.end = max(row.end, content.last + 1)
                row.segments.append(OffsetRange(content.first, content.last + 1))
        self.add_gaps(gaps, topic_ids)
        self.generations[-1]["files"] += listed[0]
        self.generations[-1]["bytes"] += listed[1]
        self.generations[-1]["records"] += records
        self.batches += [
            {
                "generation": generation.number,
                "first": part.first_batch,
                "last": part.last_batch,
                "offsets": count(part.ranges.values()),
                "records": None,
                "files": None,
                "bytes": None,
                "sealed_at": None,
            }
            for part in parts
        ]

    def add_gaps(self, gaps: Sequence[Gap], topic_ids: Mapping[str, str]) -> None:
        """Add missing offsets."""
        self.gaps += gaps
        for gap in gaps:
            row = self._row(gap.tp, topic_ids, gap.range.start)
            row.gaps[str(gap.reason)] += len(gap.range)
            row.missing.append(gap)

    def add_damaged(self, damaged: Iterable[tuple[SealedFile, Receipt]]) -> None:
        """Subtract the records of damaged sealed files."""
        for file, receipt in damaged:
            self.damaged.append((file, receipt))
            for content in file.contents:
                row = self._row(content.tp, receipt.topics, content.first)
                row.records -= content.records

    def add_index(self, index: Index) -> None:
        """Add the closed generations and sealed windows that an index names."""
        self.receipts += index.receipts
        self.files += index.files
        self.bytes += index.file_bytes
        for partition in index.partitions:
            tp, topic_id = partition.key
            row = self._row(tp, {tp.topic: topic_id}, partition.start)
            row.end = row.end if partition.end is None else partition.end
            row.segments += index.covered[partition.key]
            row.records += partition.records
            row.gaps.update(partition.gaps)
        self.generations += [
            {
                "generation": row.generation,
                "files": row.files,
                "bytes": row.bytes,
                "records": row.records,
            }
            for row in index.generations
        ]
        # Those that it replaces were intact: they aren't named one by one.
        self.windows += [
            _window_row(row.window, row.records, row.offsets, row.files, row.bytes, ())
            for row in index.windows
        ]

    def add_windows(self, checked: CheckedWindows, index: Index | None = None) -> None:
        """Add the sealed windows, and the findings about their files.

        Args:
            checked: The windows that were looked at.
            index: Its windows were added already; None for none.
        """
        counted = {row.window for row in index.windows} if index is not None else frozenset()
        for window in checked.figures:
            if window.key not in counted:
                self.add_window(window.key, window.receipt, window.replaced)
            self.add_damaged((file, window.receipt) for file in window.damaged)
        # Once each: a window that rewrites another one keeps its gaps.
        for (tp, topic_id), ranges in checked.held.sealed.erased.items():
            row = self._row(tp, {tp.topic: topic_id}, ranges[0].start)
            row.gaps[str(GapReason.ERASED)] += count(ranges)
        self.windows.sort(key=lambda row: row["name"])
        self.erasures = checked.held.erasures()
        self.findings += checked.findings

    def add_window(
        self, key: str, receipt: Receipt, replaced: Mapping[str, Any] | None = None
    ) -> None:
        """Add a window: only its records count, as its offsets are those of the gaps that it fills.

        Args:
            key: The window's name.
            replaced: Files, bytes and records of the intact files that it replaces; these are
                counted elsewhere.
        """
        size = sum(file.bytes for file in receipt.files)
        self.files += len(receipt.files)
        self.bytes += size
        self.replaced.update(receipt.replaces)
        for part in receipt.partitions:
            row = self._row(part.tp, receipt.topics, part.range.start)
            row.segments.append(part.range)
            row.records += part.records
            deleted = part.gaps_so_far.get(GapReason.DELETED, 0)
            if deleted and not receipt.files:
                row.gaps[str(GapReason.DELETED)] += deleted
        if replaced:
            self.files -= replaced["files"]
            self.bytes -= replaced["bytes"]
            for gone in replaced["records"]:
                tp = TopicPartition(gone["topic"], gone["partition"])
                # Another window's plan, which is a finding, may have other partitions.
                start = receipt.starts.get(tp, 0)
                self._row(tp, receipt.topics, start).records -= gone["records"]
        # It may replace thousands of intact files, which have been removed.
        replaces = () if replaced else receipt.replaces
        counts = receipt.records, receipt.offsets, len(receipt.files), size
        self.windows.append(_window_row(key, *counts, replaces))

    def _row(self, tp: TopicPartition, topic_ids: Mapping[str, str], start: int) -> PartitionReport:
        key = (tp, topic_ids.get(tp.topic, ""))
        row = self.rows.setdefault(key, PartitionReport(start, start))
        row.start = min(row.start, start)
        return row

    def partitions(self) -> list[dict[str, Any]]:
        """Return a row per topic-partition: topic, partition, start, end, records, gaps."""
        return [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "start": row.start,
                "end": row.end,
                "records": row.records,
                "gaps": dict(row.gaps)
                | ({NOT_ARCHIVED: between} if (between := count(row.not_archived)) else {}),
            }
            for (tp, _), row in sorted(self.rows.items(), key=lambda item: item[0])
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the whole report as JSON types."""
        return {
            **self.summary(),
            **({"kafka": dict(self.kafka)} if self.kafka else {}),
            "validated_at": self.validated_at.isoformat(timespec="seconds"),
            "partitions": self.partitions(),
            "generations": self.generations,
            "windows": self.windows,
            **({"erasures": self.erasures} if self.erasures else {}),
            "batches": self.batches[-BATCHES:],
            "gaps": [
                {
                    "topic": gap.tp.topic,
                    "partition": gap.tp.partition,
                    "start": gap.range.start,
                    "end": gap.range.end,
                    "reason": str(gap.reason),
                    "acknowledged": gap.acknowledged,
                }
                for gap in self.gaps
            ],
            "findings": [finding.to_dict() for finding in self.all_findings],
        }

    def summary(self) -> dict[str, Any]:
        """Return a short form of the report, for an XCom."""
        return {
            "archive": self.archive,
            "pipeline": self.pipeline,
            "verdict": "complete" if self.complete else "findings",
            "files": self.files,
            "bytes": self.bytes,
            "records": self.records,
            "offsets": self.offsets,
            "reasons": summary(self.all_findings),
            "scope": self.scope,
            "deep": self.deep,
            "receipts": {
                "total": self.receipts + self.receipts_written,
                "written": self.receipts_written,
                "unsealed": max(len(self.segments) - self.receipts_written, 0),
            },
            "seconds": round(self.seconds, 2),
        }


def raise_findings(report: Report, report_path: str, reach: Reach | None = None) -> None:
    """Raise one error for everything that makes an archive invalid.

    Args:
        report_path: The path that `write_report` returned.
        reach: Addresses for the message's commands; None if only the archive's place is known.

    Raises:
        ManifestInvalidError: With the count of each reason and the first five findings.
    """
    bad = errors(report.all_findings)
    if not bad:
        return
    counts = ", ".join(f"{reason} {number}" for reason, number in summary(bad).items())
    first = "\n".join(f"  {finding}" for finding in bad[:5])
    more = f"\n  … and {len(bad) - 5} more" if len(bad) > 5 else ""
    remedy = what_to_do(bad[0].reason, reach or Reach(report.archive), values_of(report.to_dict()))
    raise ManifestInvalidError(
        f"{report.archive} is not complete: {counts}\n{first}{more}\n"
        f"{remedy}. All findings: {report_path}"
    )


def write_report(
    archive: Archive, report: Report, run: str | None = None, reach: Reach | None = None
) -> str:
    """Write `reports/<run>.json` and the same report as an HTML page; return the JSON file's path.

    Args:
        archive: The archive to write to.
        run: Name of the run; None to use the current time.
        reach: Addresses for the page's commands; None if only the archive's place is known.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    run = run or f"validate_{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", run)
    # Airflow's own run ids contain colons and plus signs. Of others, two may look the same now; and
    # a file's name has 255 bytes at most, and while it is written, it has a suffix.
    if len(name) > _LONGEST or re.search(r"[^A-Za-z0-9_.:+-]", run):
        name = f"{name[:_LONGEST]}-{hashlib.sha256(run.encode()).hexdigest()[:12]}"
    path = archive.root / "reports" / f"{name}.json"
    document = report.to_dict()
    ReportDocument.model_validate(document).write(path)
    write_text(path.with_suffix(".html"), report_page(document, path.name, reach))
    return str(path)


def sign_report(
    archive: Archive, report: Report, report_path: str, signer: Signer, now: datetime
) -> str:
    """Sign a report that was written, and tell the witness unless something is wrong.

    Args:
        report_path: The path that `write_report` returned.
        signer: The key and the witness.

    Returns:
        The path of the signed statement.

    Raises:
        ArchiveError: When the archive can't be written.
        EvidenceError: When the witness can't be.
    """
    # Not at the top: most validations sign nothing.
    from kafka_drain.evidence.signing import sign, tell_witness

    name = report_path.rpartition("/")[2]
    files = [f"reports/{name}"]
    document = report.to_dict()
    key = name.removesuffix(".json")
    path = sign(archive, signer, "validation", key, document, files, now)
    if report.complete:
        tell_witness(archive, signer, now)
    return path


def note_overview(archive: Archive, report: Report, report_path: str) -> dict[str, Any]:
    """Write an overview of the archive's state to the archive, for lists of archives; return it.

    Args:
        report: The validation's report.
        report_path: The path that `write_report` returned.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    observed, settings = read_observations(archive), noted_topic_settings(archive.root)
    name = report_path.rpartition("/")[2]
    overview = make_overview(
        report.to_dict(), report.newest, observed, settings, name, report.cursor, report.last
    )
    if (report.look is not None and not report.look.kafka) or report.made_again:
        # What an earlier one has seen says what expires, but not how much has come since; nor does
        # what was drained say how much of a topic that was made again wasn't.
        overview["lag"] = overview["drained_until"] = None
    standing = _standing_after(archive, report)
    overview["standing"] = [one.to_dict() for one in standing]
    told = {(finding.reason, finding.where) for finding in errors(report.all_findings)}
    # Another validation has found it while this one ran.
    _count(overview, (one for one in standing if (one.reason, one.where) not in told))
    write_overview(archive.root, overview)
    return overview


def note_damage(archive: Archive, report: Report) -> None:
    """Let stand what a validation has found that Kafka wouldn't answer: that of the files.

    Nothing else of the last overview changes, and without one nothing is noted. What needs Kafka's
    answers, such as a gap's reason, isn't noted either.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    overview = read_overview(archive.root)
    found = [each for each in errors(report.findings) if each.reason in _OF_FILES]
    if overview is None or report.look is None or not found:
        return
    before = Standing.of(overview, report.pipeline)
    known = {(one.reason, one.where) for one in before.findings}
    new = [
        one
        for one in Standing().following(found, report.look, report.validated_at)
        if (one.reason, one.where) not in known
    ]
    if not before.is_known or not new:
        return
    overview["standing"] = [one.to_dict() for one in (*before.findings, *new)]
    _count(overview, new)
    write_overview(archive.root, overview)


#: Findings that need nobody's answers.
_OF_FILES = OF_SEALED | OF_BYTES | {Reason.FILE_MISSING, Reason.FILE_SIZE}


def _count(overview: dict[str, Any], found: Iterable[StandingFinding]) -> None:
    """Add what stands to the verdict and the counts of an overview."""
    for one in found:
        overview["verdict"] = "findings"
        counts = overview["findings"]
        counts[one.reason.value] = counts.get(one.reason.value, 0) + 1 + one.more


def _standing_after(archive: Archive, report: Report) -> list[StandingFinding]:
    """Return what stands after a validation, and what others have found while it ran."""
    try:
        now = Standing.of(read_overview(archive.root), report.pipeline)
    except ArchiveError:
        now = Standing()
    before = report.standing.findings
    meanwhile = [one for one in now.findings if one not in before]
    if report.look is None:
        return [*before, *meanwhile]
    after = report.standing.following(report.findings, report.look, report.validated_at)
    return [*after, *(one for one in meanwhile if one not in after)]


def _window_row(
    key: str, records: int, offsets: int, files: int, size: int, replaces: Sequence[str]
) -> dict[str, Any]:
    """Return the report's row for a window."""
    return {
        "name": key,
        "records": records,
        "offsets": offsets,
        "files": files,
        "bytes": size,
        "replaces": list(replaces),
    }
