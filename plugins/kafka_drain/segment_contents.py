"""Segments that would be sealed, and whether their files hold what Spark read of Kafka."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kafka_drain.content_checks import Content, compare_content, content_of, difference
from kafka_drain.contents import CommittedFile
from kafka_drain.findings import Finding, Reason
from kafka_drain.fingerprints import read_by_spark
from kafka_drain.gap_reasons import Gap, GapReason
from kafka_drain.generation import Generation
from kafka_drain.offset_checks import Segment
from kafka_drain.offsets import OffsetRange, TopicPartition, merge

__all__ = ["ChangedContent", "check_contents", "fingerprint_to_seal"]


@dataclass(frozen=True)
class ChangedContent:
    """What was found of files that don't hold what Spark read.

    Attributes:
        findings: One for each file whose records were changed: of those of a segment, which one
            it is, nobody can tell. One for each segment with another number of records.
        files: The files whose records were changed.
    """

    findings: list[Finding] = field(default_factory=list)
    files: list[CommittedFile] = field(default_factory=list)

    @property
    def paths(self) -> set[str]:
        """Paths of the files, relative to the archive."""
        return {file.path for file in self.files}

    @property
    def ranges(self) -> dict[TopicPartition, list[OffsetRange]]:
        """The offsets that the files hold."""
        held: dict[TopicPartition, list[OffsetRange]] = {}
        for content in (content for file in self.files for content in file.contents):
            held.setdefault(content.tp, []).extend(content.ranges)
        return {tp: merge(ranges) for tp, ranges in held.items()}


def check_contents(
    generation: Generation,
    sound: Iterable[tuple[Segment, Sequence[CommittedFile], Sequence[Gap]]],
) -> ChangedContent:
    """Compare the records of segments with what Spark read, before anything is written to a file.

    Args:
        generation: Whose segments.
        sound: Those with which nothing else is wrong, each with its files and its gaps.
    """
    changed = ChangedContent()
    for part, files, gaps in sound:
        read, held = read_by_spark(generation, part), content_of(files)
        verdict = compare_content(read, held, elsewhere=_elsewhere(gaps))
        if read is None or verdict.may_be_sealed:
            continue
        detail = f"{part.name} {difference(verdict, read, held)}"
        if verdict != Content.CHANGED:
            # Nobody can tell which offsets are meant.
            where = files[0].path if files else f"{generation.data_name}/_spark_metadata"
            changed.findings.append(Finding(Reason.CONTENT_CHANGED, where, detail))
            continue
        if len(files) > 1:
            detail += f"; one of its {len(files):,} files, or several"
        changed.findings.extend(
            Finding(Reason.RECORDS_CHANGED, file.path, detail) for file in files
        )
        changed.files.extend(files)
    return changed


def fingerprint_to_seal(
    generation: Generation, part: Segment, files: Sequence[CommittedFile], gaps: Sequence[Gap]
) -> str | None:
    """Return the fingerprint for a segment's receipt; None when what Spark read isn't known."""
    read = read_by_spark(generation, part)
    verdict = compare_content(read, content_of(files), elsewhere=_elsewhere(gaps))
    return read.fingerprint if read and verdict in (Content.EQUAL, Content.COUNTED) else None


def _elsewhere(gaps: Iterable[Gap]) -> int:
    """Return how many offsets a window holds, or somebody has accepted as expired."""
    return sum(len(gap.range) for gap in gaps if gap.reason == GapReason.WINDOW or gap.acknowledged)
