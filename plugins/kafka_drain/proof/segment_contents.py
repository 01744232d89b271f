"""Compare the files of segments about to be sealed with the records that Spark read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kafka_drain.archive.generation import Generation
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.errors import KEY_ERRORS, ArchiveError, DataFileError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, Ranges, TopicPartition, merge, overlapping
from kafka_drain.proof.content_checks import (
    Content,
    Reread,
    Tally,
    compare_content,
    content_of,
    difference,
    excuse_of,
    fingerprint_to_seal,
    judge_reread,
    together,
)
from kafka_drain.proof.fingerprints import note_name, noted_content
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.segment_proof import CheckedSegment, segment_of

#: Offsets of a partition that no file of a segment holds.
Missing = tuple[Segment, TopicPartition, list[OffsetRange]]
#: Returns what the archive's windows hold of the given offsets, which are sorted and disjoint.
ContentOfWindows = Callable[[Ranges], Tally]
#: Compares the records in files with those that Kafka still holds; None if Kafka isn't asked.
ReadAgain = Callable[[Sequence[CommittedFile]], Reread | None]

_NOTHING = Tally(0, f"{0:016x}", {})


@dataclass(frozen=True)
class CheckedContents:
    """The result of comparing segments' files with the records that Spark read.

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
    read_again: ReadAgain,
    *,
    is_draining: bool,
) -> CheckedContents:
    """Compare the records of intact segments with those that Spark read before writing any file.

    Args:
        generation: The generation of the segments.
        checked: The segments; those with a problem aren't compared.
        content_of_windows: Returns what windows hold instead of the files.
        read_again: Compares files with Kafka, where no note says what Spark read, or some of what
            it read has expired since.
        is_draining: Whether a drain held the lease after the batches were listed.
    """
    found = CheckedContents()
    for segment in checked:
        if segment.is_sound:
            checks = _Checks(generation, content_of_windows, read_again, is_draining)
            checks.check(segment, found)
    return found


def without_whole(
    generation: Generation,
    missing: Sequence[Missing],
    parts: Sequence[Segment],
    files: Iterable[CommittedFile],
) -> list[Missing]:
    """Leave out gaps of segments whose files hold everything that Spark read.

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


@dataclass(frozen=True)
class _Checks:
    """State shared by the checks of all segments; see `check_contents`."""

    generation: Generation
    content_of_windows: ContentOfWindows
    read_again: ReadAgain
    is_draining: bool

    def check(self, segment: CheckedSegment, found: CheckedContents) -> None:
        """Compare one segment's records with those that Spark read."""
        locked = [file for file in segment.files if file.locked]
        if locked:
            found.findings.append(_unavailable(segment.part.name, len(locked), locked[0].locked))
            return
        part, own = segment.part, content_of(segment.files)
        elsewhere = _in_windows(segment)
        reread, affected = None, segment.files
        try:
            in_windows = self.content_of_windows(elsewhere) if elsewhere else _NOTHING
            note, held = noted_content(self.generation, part), together([own, in_windows])
            read = note.taken if note else None
            excuse = excuse_of(segment.gaps, note.skipped if note else {})
            verdict = compare_content(read, held, excuse=excuse, is_draining=self.is_draining)
            if verdict == Content.UNKNOWN and own.records and own.fingerprint is not None:
                reread = self.read_again(segment.files)
            if verdict == Content.CHANGED and read is not None and len(segment.files) > 1:
                affected = self._affected(segment.files, read, in_windows)
        except KEY_ERRORS as error:
            found.findings.append(_unavailable(part.name, 1, str(error)))
            return
        except (ArchiveError, DataFileError, OSError) as error:
            detail = f"{part.name} can't be compared with what Spark read: {error}"
            where = "windows" if elsewhere else self.generation.data_name
            found.findings.append(Finding(Reason.CONTENT_CHANGED, where, detail))
            return
        if reread is not None:
            verdict = judge_reread(reread, segment.gaps)
        if verdict.may_be_sealed:
            found.agreeing.add(part.last_batch)
        found.fingerprints[part.last_batch] = fingerprint_to_seal(verdict, read, own, in_windows)
        if verdict == Content.PENDING:
            found.pending.append(segment)
        elif verdict == Content.UNKNOWN and held.records:
            where = note_name(self.generation, part.last_batch)
            detail = _unknown(part.name, read, held, reread)
            found.findings.append(Finding(Reason.CONTENT_UNKNOWN, where, detail))
        elif reread is not None and verdict == Content.CHANGED:
            _add_differing(segment, reread, found)
        elif read is not None and not verdict.may_be_sealed:
            detail = f"{part.name} {difference(verdict, read, held)}"
            _add_changed(self.generation, segment, affected, verdict, detail, found)

    def _affected(
        self, files: Sequence[CommittedFile], read: Tally, in_windows: Tally
    ) -> Sequence[CommittedFile]:
        """Return the files that differ from Kafka, if they alone do from what Spark read; or all.

        With Kafka's records instead of theirs, the fingerprint is then that of what Spark read,
        which proves the other files' records, also those that Kafka no longer has.
        """
        again = [(file, self.read_again([file])) for file in files]
        differing = {file.path: reread for file, reread in again if reread and reread.changed}
        whole = together(
            [
                content_of(file for file in files if file.path not in differing),
                in_windows,
                *(Tally(0, reread.fingerprint) for reread in differing.values()),
            ]
        )
        if whole.fingerprint != read.fingerprint:
            return files
        return [file for file in files if file.path in differing]


def _unavailable(name: str, files: int, why: str) -> Finding:
    detail = (
        f"{name} isn't sealed: the records of {files:,} files couldn't be compared with what Spark "
        f"read. {why}"
    )
    return Finding(Reason.KEY_UNAVAILABLE, name, detail)


def _in_windows(segment: CheckedSegment) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets of a segment that windows hold."""
    ranges: dict[TopicPartition, list[OffsetRange]] = {}
    for gap in segment.gaps:
        if gap.reason == GapReason.WINDOW:
            ranges.setdefault(gap.tp, []).append(gap.range)
    return {tp: merge(parts) for tp, parts in ranges.items()}


def _unknown(name: str, read: Tally | None, held: Tally, reread: Reread | None) -> str:
    if read is None:
        detail = (
            f"{name} has {held.records:,} records that can't be verified: no drain recorded what "
            "Spark read, or the record is of another batch"
        )
        if reread is not None:
            rest = f"{reread.gone:,} of them" if reread.gone else "records at its missing offsets"
            detail += f". Read again, Kafka no longer holds {rest}; the others are equal"
        return detail
    return (
        f"{name} has {held.records:,} records; Spark read {read.records:,}. Some have expired "
        "since, so the rest can't be verified"
    )


def _add_differing(segment: CheckedSegment, reread: Reread, found: CheckedContents) -> None:
    """Add the files that hold offsets at which Kafka has another record."""
    for file in segment.files:
        for content in file.contents:
            ranges = reread.changed.get(content.tp, ())
            if any(overlapping(content.ranges, r) for r in ranges):
                detail = (
                    f"{segment.part.name} differs from what Kafka holds of {content.tp} from "
                    f"offset {ranges[0].start:,} on"
                )
                found.findings.append(Finding(Reason.RECORDS_CHANGED, file.path, detail))
                if file not in found.files:
                    found.files.append(file)


def _add_changed(
    generation: Generation,
    segment: CheckedSegment,
    files: Sequence[CommittedFile],
    verdict: Content,
    detail: str,
    found: CheckedContents,
) -> None:
    if verdict != Content.CHANGED or not files:
        # It is unknown which offsets are affected.
        where = files[0].path if files else f"{generation.data_name}/_spark_metadata"
        found.findings.append(Finding(Reason.CONTENT_CHANGED, where, detail))
        return
    if len(files) == len(segment.files) > 1:
        detail += f"; one or more of its {len(files):,} files are affected"
    found.findings.extend(Finding(Reason.RECORDS_CHANGED, file.path, detail) for file in files)
    found.files.extend(files)
