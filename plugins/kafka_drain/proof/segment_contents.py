"""Segments that would be sealed, and whether their files hold what Spark read of Kafka."""

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
    excused_offsets,
    fingerprint_to_seal,
    together,
)
from kafka_drain.proof.fingerprints import note_name, noted_content
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.segment_proof import CheckedSegment, segment_of

__all__ = ["CheckedContents", "ContentOfWindows", "check_contents", "without_whole"]

Ranges = Mapping[TopicPartition, Sequence[OffsetRange]]
#: Offsets of a partition that no file of a segment holds.
Missing = tuple[Segment, TopicPartition, list[OffsetRange]]
#: Returns what the archive's windows hold of some offsets, sorted and disjoint.
ContentOfWindows = Callable[[Ranges], Taken]

_NOTHING = Taken(0, f"{0:016x}")


@dataclass(frozen=True)
class CheckedContents:
    """What was found of segments' files when they were compared with what Spark read.

    Attributes:
        findings: One for each file whose records were changed: of those of a segment, which one
            it is, nobody can tell. One for each segment with another number of records. A warning
            for each of which nobody knows what Spark read.
        files: The files whose records were changed.
        pending: Segments of which a drain that runs may yet say what Spark read.
        agreeing: Last batches of the segments that hold nothing else than Spark read.
        fingerprints: For the receipts, by the segment's last batch; None where it isn't known.
    """

    findings: list[Finding] = field(default_factory=list)
    files: list[CommittedFile] = field(default_factory=list)
    pending: list[CheckedSegment] = field(default_factory=list)
    agreeing: set[int] = field(default_factory=set)
    fingerprints: dict[int, str | None] = field(default_factory=dict)

    @property
    def paths(self) -> set[str]:
        """Paths of the files whose records were changed, relative to the archive."""
        return {file.path for file in self.files}

    @property
    def ranges(self) -> dict[TopicPartition, list[OffsetRange]]:
        """The offsets that the files whose records were changed hold."""
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
    """Compare the records of sound segments with what Spark read, before it wrote a file.

    Args:
        generation: Whose segments.
        checked: The segments; of those with which something is wrong, nothing is compared.
        content_of_windows: What windows hold instead of the files.
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
    """Leave out what is missing of segments whose files hold all that Spark read.

    A killed try of a batch leaves files that nothing lists; before the next try, Kafka may have
    compacted or deleted what they hold. Nothing was taken from a manifest then.
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
    excused = excused_offsets(segment.gaps, note.skipped if note else {})
    verdict = compare_content(read, held, excused=excused, is_draining=is_draining)
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
            f"{name} has {held.records:,} records that nobody can compare: what Spark read was "
            "left by no drain, or of another batch"
        )
    return (
        f"{name} has {held.records:,} records, Spark read {read.records:,}: as some have expired "
        "since, the others can't be compared"
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
        # Nobody can tell which offsets are meant.
        where = files[0].path if files else f"{generation.data_name}/_spark_metadata"
        found.findings.append(Finding(Reason.CONTENT_CHANGED, where, detail))
        return
    if len(files) > 1:
        detail += f"; one of its {len(files):,} files, or several"
    found.findings.extend(Finding(Reason.RECORDS_CHANGED, file.path, detail) for file in files)
    found.files.extend(files)
