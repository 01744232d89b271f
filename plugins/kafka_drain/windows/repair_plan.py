"""Plan a repair: drain lost offsets that Kafka still holds, and rebuild a damaged manifest.

A repair only adds: a window with the lost records, a manifest beside the damaged one. It deletes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import PurePosixPath
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.receipts import Receipt, SealedFile
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.window import range_rows
from kafka_drain.config.offset_ranges import ACKNOWLEDGE_FLAG, range_name
from kafka_drain.findings import OF_SEALED, Finding, Reason, errors
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.identity import earlier_incarnations
from kafka_drain.offsets import (
    OffsetRange,
    TopicPartition,
    count,
    merge,
    overlapping,
    within,
    without,
)
from kafka_drain.output import Level, Line
from kafka_drain.proof.report import PartitionReport, Report
from kafka_drain.storage.paths import quoted

Ranges = dict[TopicPartition, list[OffsetRange]]

_FILES = (
    Reason.FILE_MISSING,
    Reason.FILE_SIZE,
    Reason.FILE_CORRUPT,
    Reason.FILE_CHANGED,
    Reason.RECORDS_CHANGED,
)
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
    """The plan of a repair.

    Attributes:
        ranges: Lost offsets that Kafka still holds; a window drains them.
        replaces: Damaged files, relative to the archive, that the window replaces.
        later: Lost offsets that windows of their own drain next: of each batch without a receipt,
            because a roll removes its window, and of later incarnations of the topics.
        topics: Ids of the incarnations whose offsets the window has, or says are accepted as lost.
        given_up: Accepted offsets of sealed files of which nothing is left to drain: a window that
            replaces the files says that these are gone.
        manifest: The generation whose manifest is rebuilt; None if no manifest is.
        left: Findings that a repair can't fix.
        acknowledged: Expired ranges of these topics that the user has accepted; the window's
            receipt keeps them.
    """

    archive: Archive
    ranges: dict[TopicPartition, list[OffsetRange]]
    replaces: list[str]
    later: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    given_up: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)
    manifest: Generation | None = None
    left: list[Finding] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)

    @property
    def nothing_to_do(self) -> bool:
        """Whether there is nothing that a repair can fix."""
        return not self.ranges and not self.given_up and self.manifest is None

    @property
    def window_key(self) -> str:
        """The name for a new window."""
        return f"repair_{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}"

    def lines(self) -> list[str]:
        """Return the plan as lines of text for the user."""
        name = self.archive.root
        lines: list[str] = []
        if self.manifest is not None:
            lines.append(
                f"repair {name}: rebuilds the manifest of generation {self.manifest.number} from "
                "its receipts; the damaged one is kept beside it"
            )
        for tp, ranges in (*sorted(self.ranges.items()), *sorted(self.later.items())):
            lines.append(
                f"repair {name}: drains {count(ranges):,} lost offsets of {tp}: {_shown(ranges)}"
            )
        for tp, ranges in sorted(self.given_up.items()):
            lines.append(
                f"repair {name}: gives up {count(ranges):,} accepted offsets of {tp} that nothing "
                f"holds: {_shown(ranges)}"
            )
        lines += [
            Line(f"repair {name}: can't fix: {finding}", Level.ERROR) for finding in self.left[:5]
        ]
        return lines or [f"repair {name}: nothing to repair"]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {
            "archive": str(self.archive.root),
            "manifest_of_generation": self.manifest.number if self.manifest else None,
            "ranges": range_rows(self.ranges),
            "replaces": self.replaces,
            "ranges_of_unsealed": range_rows(self.later),
            "given_up": range_rows(self.given_up),
            "cannot_help": [finding.to_dict() for finding in self.left],
        }


def _shown(ranges: Sequence[OffsetRange]) -> str:
    return ", ".join(map(str, ranges[:5])) + (" …" if len(ranges) > 5 else "")


def plan_repair(archive: Archive, report: Report) -> RepairPlan:
    """Plan the repair of a validation's findings, without changing anything.

    A damaged file is replaced as a whole or not at all: readers skip a replaced file, even after it
    was restored from a copy. For the same reason, if a damaged file can't be replaced, its offsets
    that Kafka still holds aren't drained: once the file is restored, readers would get them twice.
    If the window that replaces a file is damaged itself, the window's own files are replaced: each
    file is replaced by exactly one window. Nothing is drained of a log that was rewritten: what it
    has now isn't what was lost, and the generation after a roll archives it.
    """
    files = [
        finding
        for finding in report.findings
        if finding.reason in _FILES and finding.subject not in report.replaced
    ]
    if any(finding.reason in OF_SEALED for finding in report.findings):
        # Offsets that look lost may be in a window whose receipt is gone.
        return RepairPlan(archive, {}, [], left=errors(report.findings))
    ranges, staying = _split(report, {str(finding.subject) for finding in files})
    sealed = {file.path for file, _ in report.damaged}
    # An unexplained gap is a finding of its own.
    others = (GapReason.LOST, GapReason.UNEXPLAINED)
    beyond = {gap.tp for gap in report.gaps if not gap.harmless and gap.reason not in others}
    beyond |= _rewritten(report)
    manifest = _manifest_to_rebuild(archive.snapshot(), report.findings)
    handled = {*_FILES, *(_MANIFEST if manifest else ()), Reason.OFFSET_MISSING}
    left = [
        replace(finding, detail=f"{finding.detail}; {staying[str(finding.subject)]}")
        for finding in files
        if finding.subject in staying
    ]
    left += [
        finding
        for finding in report.findings
        if finding.reason.severity == "error"
        and (
            finding.reason not in handled
            or (finding.reason == Reason.OFFSET_MISSING and finding.subject in beyond)
        )
    ]
    replaced = {str(finding.subject) for finding in files} - staying.keys()
    if not ranges:
        given_up, topics, replaced = _given_up(report, replaced)
        left += [
            replace(finding, detail=f"{finding.detail}; {_without(archive)}")
            for finding in files
            if finding.subject not in {*staying, *replaced, *sealed}
        ]
        return RepairPlan(
            archive,
            {},
            sorted(replaced),
            topics=topics,
            given_up=given_up,
            manifest=manifest,
            left=left,
            acknowledged=_accepted(report, topics),
        )
    of_sealed, *batches = _by_seal(report, ranges)
    first = next(each for each in (of_sealed, *batches) if each)
    if of_sealed and any(batches):
        replaced &= sealed
    first, topics = _of_one_incarnation(report, first)
    # Of a topic of which nothing is left to drain, the window says whose offsets are accepted.
    for file, receipt in report.damaged:
        for each in file.contents if file.path in replaced else ():
            topics.setdefault(each.topic, receipt.topics.get(each.topic, ""))
    waiting = [
        (file, receipt)
        for file, receipt in report.damaged
        if any(
            topics.get(each.tp.topic, known) != known
            for each in file.contents
            if (known := receipt.topics.get(each.tp.topic))
        )
    ]
    replaced -= {file.path for file, _ in waiting}
    # Nor are their offsets of other topics drained yet: both segments would hold them.
    held = _lost(
        gap
        for file, receipt in waiting
        for gap in _missing_of(report, file, receipt)
        if receipt.topics.get(gap.tp.topic) == topics.get(gap.tp.topic)
    )
    first = {tp: rest for tp, own in first.items() if (rest := without(own, held.get(tp, ())))}
    later = {tp: without(own, first.get(tp, ())) for tp, own in ranges.items()}
    return RepairPlan(
        archive=archive,
        ranges=first,
        replaces=sorted(replaced),
        later={tp: rest for tp, rest in later.items() if rest},
        topics=topics,
        manifest=manifest,
        left=left,
        acknowledged=_accepted(report, topics),
    )


def _accepted(report: Report, topics: Mapping[str, str]) -> list[str]:
    """Return the accepted offsets of the given incarnations of topics.

    A window's receipt says of no other one that somebody has accepted that its records are lost.
    """
    return [
        range_name(gap.tp, gap.range)
        for (tp, topic_id), row in report.rows.items()
        if topics.get(tp.topic) == topic_id
        for gap in row.missing
        if gap.acknowledged
    ]


def _given_up(report: Report, paths: set[str]) -> tuple[Ranges, dict[str, str], set[str]]:
    """Return the accepted offsets of damaged sealed files, their topics' ids, and these files.

    Files of other incarnations of the same topics are left to another repair.
    """
    found: Ranges = {}
    topics: dict[str, str] = {}
    replaced = set()
    for file, receipt in report.damaged:
        ids = {each.topic: receipt.topics.get(each.topic, "") for each in file.contents}
        gaps = _missing_of(report, file, receipt)
        is_accepted = bool(gaps) and all(gap.acknowledged for gap in gaps)
        is_other = any(topics.get(name, topic_id) != topic_id for name, topic_id in ids.items())
        if file.path in paths and is_accepted and not is_other:
            topics |= ids
            replaced.add(file.path)
            for gap in gaps:
                found.setdefault(gap.tp, []).append(gap.range)
    return {tp: merge(ranges) for tp, ranges in found.items()}, topics, replaced


def _split(report: Report, paths: set[str]) -> tuple[Ranges, dict[str, str]]:
    """Return the offsets to drain, and why certain damaged files can't be replaced by a window."""
    missing = {path: list[Gap]() for path in paths}
    for file, receipt in report.damaged:
        if file.path in paths:
            missing[file.path] += _missing_of(report, file, receipt)
    sealed = {file.path for file, _ in report.damaged}
    unsealed = [gap for gap in report.gaps if _is_unsealed(report, gap)]
    for path in paths - sealed:
        # There is no record of the offsets it held: any missing offsets may be its own.
        missing[path] = [gap for gap in unsealed if not gap.reason.harmless]
    staying: dict[str, str] = {}
    rewritten = _rewritten(report)
    kept = {tp: ranges for tp, ranges in _lost(report.gaps).items() if tp in rewritten}
    while True:
        # Offsets left to a file that stays are also missing for files whose range includes them.
        more = {
            path: [gap for gap in gaps if not _can_be_covered(gap, kept)]
            for path, gaps in missing.items()
            if path not in staying
        }
        more = {path: gaps for path, gaps in more.items() if gaps}
        if not more:
            break
        staying |= {path: _why(gaps) for path, gaps in more.items()}
        for tp, ranges in _lost(gap for path in more for gap in missing[path]).items():
            kept[tp] = merge([*kept.get(tp, []), *ranges])
    lost = {tp: without(ranges, kept.get(tp, ())) for tp, ranges in _lost(report.gaps).items()}
    return {tp: ranges for tp, ranges in lost.items() if ranges}, staying


def _without(archive: Archive) -> str:
    return (
        "nothing is left to drain of it: restore it from a copy, or let the next generation do "
        f"without it with `kafka-drain roll {quoted(archive.root)} --leave-unsealed`"
    )


def _rewritten(report: Report) -> set[Any]:
    return {each.subject for each in report.findings if each.reason == Reason.LOG_REWRITTEN}


def _by_seal(report: Report, ranges: Ranges) -> list[Ranges]:
    """Return the offsets that were sealed, and those of each batch that has no receipt yet."""
    batches: list[Ranges] = []
    for part in report.segments:
        read = {tp: [span] for tp, span in part.ranges.items()}
        left = {tp: without(own, read.get(tp, ())) for tp, own in ranges.items()}
        own = {tp: without(ranges[tp], rest) for tp, rest in left.items()}
        batches.append({tp: found for tp, found in own.items() if found})
        ranges = {tp: rest for tp, rest in left.items() if rest}
    return [ranges, *batches]


def _of_one_incarnation(report: Report, ranges: Ranges) -> tuple[Ranges, dict[str, str]]:
    """Return the offsets that were lost of the first incarnation of each topic, and its id."""
    found: Ranges = {}
    topics: dict[str, str] = {}
    # Windows, whose rows come first, may be of a later one.
    for (tp, topic_id), row in sorted(report.rows.items(), key=_age):
        lost, wanted = _lost(row.missing).get(tp, ()), ranges.get(tp, ())
        own = without(wanted, without(wanted, lost))
        if own and topics.setdefault(tp.topic, topic_id) == topic_id:
            found[tp] = own
    return found, topics


def _age(row: tuple[tuple[TopicPartition, str], PartitionReport]) -> int:
    return len(earlier_incarnations(row[0][1]))


def _lost(gaps: Iterable[Gap]) -> Ranges:
    lost: Ranges = {}
    for gap in gaps:
        if gap.reason == GapReason.LOST:
            lost.setdefault(gap.tp, []).append(gap.range)
    return {tp: merge(ranges) for tp, ranges in lost.items()}


def _missing_of(report: Report, file: SealedFile, receipt: Receipt) -> list[Gap]:
    """Return the gaps between the first and the last offset of a sealed file.

    Gaps that its receipt explains and offsets in other files are not included.
    """
    found = []
    for content in file.contents:
        row = report.rows.get((content.tp, receipt.topics.get(content.tp.topic, "")))
        span = OffsetRange(content.first, content.last + 1)
        for gap in row.missing if row else ():
            found += [replace(gap, range=piece) for piece in within([gap.range], span)]
    return found


def _is_unsealed(report: Report, gap: Gap) -> bool:
    spans = (part.ranges.get(gap.tp) for part in report.segments)
    return any(span is not None and overlapping([gap.range], span) for span in spans)


def _can_be_covered(gap: Gap, kept: Ranges) -> bool:
    """Whether a window holds the gap's offsets or will, or the user has accepted their loss."""
    if gap.reason == GapReason.LOST:
        return not overlapping(kept.get(gap.tp, []), gap.range)
    return gap.reason == GapReason.WINDOW or gap.acknowledged


def _why(gaps: Sequence[Gap]) -> str:
    shown = ", ".join(f"{gap.tp} {gap.range} ({gap.reason})" for gap in gaps[:3])
    return (
        f"no window can replace it, because Kafka no longer holds {shown}"
        f"{' …' if len(gaps) > 3 else ''}: restore it from a copy, or accept expired offsets with "
        f"{ACKNOWLEDGE_FLAG}; until then, offsets of it that Kafka still holds aren't drained, "
        "because readers of a restored file would get them twice"
    )


def _manifest_to_rebuild(snapshot: Snapshot, findings: Sequence[Finding]) -> Generation | None:
    generation = snapshot.open_generation
    if generation is None or not generation.receipt_names():
        return None
    damaged = any(
        finding.reason in _MANIFEST
        and isinstance(finding.subject, str)
        and PurePosixPath(finding.subject).is_relative_to(generation.name)
        for finding in findings
    )
    return generation if damaged else None
