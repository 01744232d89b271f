"""Check whether the files of segments about to be sealed hold what Spark read from Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kafka_drain.archive.generation import Generation
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import DataFileError
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.proof.content_checks import (
    Content,
    Taken,
    compare_content,
    content_of,
    difference,
    excuse_of,
    fingerprint_to_seal,
    together,
)
from kafka_drain.proof.note_files import note_name, noted_content
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.segment_proof import CheckedSegment, segment_of

__all__ = ["CheckedContents", "ContentOfWindows", "check_contents", "without_whole"]

Ranges = Mapping[TopicPartition, Sequence[OffsetRange]]
#: Offsets of a partition that no file of a segment holds.
Missing = tuple[Segment, TopicPartition, list[OffsetRange]]
#: Returns what the archive's windows hold of the given offsets, which are sorted and disjoint.
ContentOfWindows = Callable[[Ranges], Taken]

_NOTHING = Taken(0, f"{0:016x}", {})


@dataclass(frozen=True)
class CheckedContents:
    """The result of comparing segments' files with what Spark read.

    Attributes:
        findings: One for each file of a segment with changed records, because it is unknown which
            of its files changed. One for each segment with a different number of records. A warning
            for each segment for which it is unknown what Spark read.
        files: The files whose records may have changed.
        pending: Segments for which a running drain may still record what Spark read.
        agreeing: Last batches of the segments that hold exactly what Spark read, or that can't be
            compared.
        fingerprints: Fingerprints for the receipts, by the segment's last batch; None if unknown.
    """

    findings: list[Finding] = field(default_factory=list)
    files: list[CommittedFile] = field(default_factory=list)
    pending: list[CheckedSegment] = field(default_factory=list)
    agreeing: set[int] = field(default_factory=set)
    fingerprints: dict[int, str | None] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """Paths of the files whose records may have changed, relative to the archive."""
        return {file.path for file in self.files}

    @property
    def ranges(self) -> dict[TopicPartition, list[OffsetRange]]:
        """The offsets held by the files whose records may have changed."""
        held: dict[TopicPartition, list[OffsetRange]] = {}
        for content in (content for file in self.files for content in file.contents):
            held.setdefault(content.tp, []).extend(content.ranges)
        return {tp: merge(ranges) for tp, ranges in held.items()}


def check_contents(
    generation: Generation,
    checked: Iterable[CheckedSegment],
    content_of_windows: ContentOfWindows,
    *,
    is_draining: bool,
) -> CheckedContents:
    """Compare the records of intact segments with what Spark read before it wrote any file.

    Args:
        generation: The generation of the segments.
        checked: The segments; those with a problem aren't compared.
        content_of_windows: Returns what windows hold instead of the files.
        is_draining: Whether a drain held the lease after the batches were listed.
    """
    found = CheckedContents()
    for segment in checked:
        if segment.is_sound:
            _check_segment(generation, segment, content_of_windows, is_draining, found)
    return found


def without_whole(
    generation: Generation,
    missing: Sequence[Missing],
    parts: Sequence[Segment],
    files: Iterable[CommittedFile],
) -> list[Missing]:
    """Leave out what is missing from segments whose files hold everything that Spark read.

    A killed attempt at a batch leaves unlisted files; Kafka may have compacted or deleted their
    records before the next attempt. In that case the manifest lost nothing.
    """
    own: dict[int, list[CommittedFile]] = {}
    for file in files:
        own.setdefault(segment_of(file, parts), []).append(file)
    suspected = {part.last_batch for part, _, _ in missing}
    whole = set()
    for number, part in enumerate(parts):
        if part.last_batch in suspected:
            note = noted_content(generation, part)
            verdict = compare_content(note.taken if note else None, content_of(own.get(number, [])))
            if verdict in (Content.EQUAL, Content.COUNTED):
                whole.add(part.last_batch)
    return [row for row in missing if row[0].last_batch not in whole]


def _check_segment(
    generation: Generation,
    segment: CheckedSegment,
    content_of_windows: ContentOfWindows,
    is_draining: bool,
    found: CheckedContents,
) -> None:
    part, own = segment.part, content_of(segment.files)
    elsewhere = _in_windows(segment)
    try:
        in_windows = content_of_windows(elsewhere) if elsewhere else _NOTHING
    except (ArchiveError, DataFileError, OSError) as error:
        detail = f"{part.name} can't be compared with what Spark read: {error}"
        found.findings.append(Finding(Reason.CONTENT_CHANGED, "windows", detail))
        return
    note, held = noted_content(generation, part), together([own, in_windows])
    read = note.taken if note else None
    excuse = excuse_of(segment.gaps, note.skipped if note else {})
    verdict = compare_content(read, held, excuse=excuse, is_draining=is_draining)
    if verdict.may_be_sealed:
        found.agreeing.add(part.last_batch)
    found.fingerprints[part.last_batch] = fingerprint_to_seal(verdict, read, own, in_windows)
    if verdict == Content.PENDING:
        found.pending.append(segment)
    elif verdict == Content.UNKNOWN and held.records:
        where = note_name(generation, part.last_batch)
        found.findings.append(
            Finding(Reason.CONTENT_UNKNOWN, where, _unknown(part.name, read, held))
        )
    elif read is not None and not verdict.may_be_sealed:
        detail = f"{part.name} {difference(verdict, read, held)}"
        _add_changed(generation, segment, verdict, detail, found)


def _in_windows(segment: CheckedSegment) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets of a segment that windows hold."""
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for gap in segment.gaps:
        if gap.reason == GapReason.WINDOW:
            ranges.setdefault(gap.tp, []).append(gap.range)
    return {tp: merge(parts) for tp, parts in ranges.items()}


def _unknown(name: str, read: Taken | None, held: Taken) -> str:
    if read is None:
        return (
            f"{name} has {held.records:,} records that can't be verified: no drain recorded what "
            "Spark read, or the record is of another batch"
        )
    return (
        f"{name} has {held.records:,} records; Spark read {read.records:,}. Some have expired "
        "since, so the rest can't be verified"
    )


def _add_changed(
    generation: Generation,
    segment: CheckedSegment,
    verdict: Content,
    detail: str,
    found: CheckedContents,
) -> None:
    files = segment.files
    if verdict != Content.CHANGED or not files:
        # It is unknown which offsets are affected.
        where = files[0].path if files else f"{generation.data_name}/_spark_metadata"
        found.findings.append(Finding(Reason.CONTENT_CHANGED, where, detail))
        return
    if len(files) > 1:
        detail += f"; one or more of its {len(files):,} files are affected"
    found.findings.extend(Finding(Reason.RECORDS_CHANGED, file.path, detail) for file in files)
    found.files.extend(files)
