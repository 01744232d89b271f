"""Compare the records in a segment's files with those that Spark read from Kafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, Ranges, TopicPartition, count, merge, subtract

if TYPE_CHECKING:
    from upath import UPath


#: Number of partitions that a description names.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Tally:
    """A number of records and their fingerprint.

    Attributes:
        records: Number of records.
        fingerprint: XOR of their hashes, in hexadecimal; None when a file's timestamps can't be
            read.
        by_partition: Number of records of each partition; None in notes of older releases.
    """

    records: int
    fingerprint: str | None
    by_partition: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True)
class Excuse:
    """Why files may hold fewer records than Spark read.

    Attributes:
        offsets: By partition, the number of offsets that have expired since Spark read them and
            were acknowledged as expired: at most this many records may be missing.
        has_others: Whether offsets are missing from other partitions as well. Only counts by
            partition then tell whether those lost a record that Kafka has compacted since.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    has_others: bool = False


class Content(str, Enum):
    """The comparison of a segment's files with the records that Spark read."""

    may_be_sealed: bool

    def __new__(cls, code: str, may_be_sealed: bool) -> Content:
        """Create a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.may_be_sealed = may_be_sealed
        return member

    EQUAL = ("equal", True)
    #: The same number of records, but not all timestamps can be read: only the counts compare.
    COUNTED = ("counted", True)
    #: The drain was killed before it noted its records, or some of them have expired since.
    UNKNOWN = ("unknown", True)
    #: A drain is running and will note its records when it finishes.
    PENDING = ("pending", False)
    CHANGED = ("changed", False)
    FEWER = ("fewer", False)
    MORE = ("more", False)

    def __str__(self) -> str:
        return str(self.value)


_NO_EXCUSE = Excuse()


def content_of(files: Iterable[CommittedFile]) -> Tally:
    """Return the number and fingerprint of the records in files."""
    return together(
        Tally(
            file.records,
            file.fingerprint,
            {content.tp: content.records for content in file.contents},
        )
        for file in files
    )


def together(parts: Iterable[Tally]) -> Tally:
    """Combine several parts into one; a value unknown of one part is unknown of the whole."""
    records, value, is_known, is_counted = 0, 0, True, True
    counts = Counter[TopicPartition]()
    for part in parts:
        records += part.records
        is_known = is_known and part.fingerprint is not None
        value ^= int(part.fingerprint or "0", 16)
        is_counted = is_counted and part.by_partition is not None
        counts.update(part.by_partition or {})
    return Tally(
        records, f"{value:016x}" if is_known else None, dict(counts) if is_counted else None
    )


def compare_content(
    read: Tally | None, held: Tally, *, excuse: Excuse = _NO_EXCUSE, is_draining: bool = False
) -> Content:
    """Compare files with the records that Spark read. Spark's counts are authoritative.

    Args:
        read: The records that Spark read; None when there is no record of it.
        held: The files' records, together with those of windows that replace other files.
        excuse: Why records may be missing.
        is_draining: Whether a drain holds the archive's lease: it may still record what Spark read.
    """
    if read is None:
        return Content.PENDING if is_draining else Content.UNKNOWN
    lacking = _lacking(read, held)
    if held.records > read.records or any(number < 0 for number in lacking.values()):
        return Content.MORE
    if held.records < read.records:
        return Content.UNKNOWN if _is_excused(lacking, excuse) else Content.FEWER
    if held.fingerprint is None or read.fingerprint is None:
        return Content.COUNTED
    return Content.EQUAL if held.fingerprint == read.fingerprint else Content.CHANGED


def _lacking(read: Tally, held: Tally) -> dict[TopicPartition | None, int]:
    """Return the number of missing records by partition; by None if partitions aren't known."""
    if read.by_partition is None or held.by_partition is None:
        return {None: read.records - held.records}
    return {
        tp: read.by_partition.get(tp, 0) - held.by_partition.get(tp, 0)
        for tp in {*read.by_partition, *held.by_partition}
    }


def _is_excused(lacking: Mapping[TopicPartition | None, int], excuse: Excuse) -> bool:
    if None in lacking:
        return not excuse.has_others and lacking[None] <= sum(excuse.offsets.values())
    return all(number <= excuse.offsets.get(tp, 0) for tp, number in lacking.items() if tp)


def excuse_of(gaps: Sequence[Gap], skipped: Ranges) -> Excuse:
    """Return why a segment's files may hold fewer records than Spark read.

    Args:
        gaps: The segment's gaps. What a window holds isn't missing.
        skipped: Offsets that had expired before Spark read: none of their records can be missing.
    """
    accepted: dict[TopicPartition, list[OffsetRange]] = {}
    for gap in gaps:
        if gap.acknowledged:
            accepted.setdefault(gap.tp, []).append(gap.range)
    numbers = {
        tp: sum(count(subtract(r, skipped.get(tp, ()))) for r in merge(ranges))
        for tp, ranges in accepted.items()
    }
    offsets = {tp: number for tp, number in numbers.items() if number}
    missing = {gap.tp for gap in gaps if not gap.acknowledged and gap.reason != GapReason.WINDOW}
    return Excuse(offsets, not missing <= offsets.keys())


@dataclass(frozen=True)
class SegmentFiles:
    """The files of a segment.

    Attributes:
        files: The files with their contents.
    """

    root: UPath
    file_format: str
    files: Sequence[CommittedFile]


@dataclass(frozen=True, slots=True)
class Reread:
    """A segment's files compared with the records that Kafka still holds at their offsets.

    Attributes:
        changed: By partition, the offsets from the first on at which Kafka holds another record.
        gone: Number of the files' records that Kafka no longer holds.
        fingerprint: That of Kafka's records at these offsets; None if any is gone.
        missing: The offsets of those that are gone, by partition.
    """

    changed: Ranges = field(default_factory=dict)
    gone: int = 0
    fingerprint: str | None = None
    missing: Ranges = field(default_factory=dict, compare=False)


def judge_reread(reread: Reread, gaps: Iterable[Gap]) -> Content:
    """Decide about a segment of which Spark's own word is missing, or doesn't suffice.

    Args:
        reread: The comparison with Kafka.
        gaps: The segment's gaps. Spark may have read a record that Kafka has compacted or that has
            expired since; no consumer ever gets what is in the others.
    """
    if reread.changed:
        return Content.CHANGED
    if reread.gone or any(gap.reason not in _NEVER_READ for gap in gaps):
        return Content.UNKNOWN
    return Content.EQUAL


_NEVER_READ = (GapReason.CONTROL, GapReason.ABORTED, GapReason.WINDOW)


def fingerprint_to_seal(
    verdict: Content, read: Tally | None, own: Tally, in_windows: Tally
) -> str | None:
    """Return the fingerprint for a segment's receipt: that of the records in its own files.

    Args:
        verdict: The result of `compare_content` for the files and the windows together.
        read: The segment's records as Spark read them.
        own: Records in the segment's own files.
        in_windows: Records of the segment in windows.

    Returns:
        None when it is unknown what Spark read of the records in these files.
    """
    if verdict == Content.EQUAL:
        # The windows' own receipts prove their records; the rest is in these files.
        return own.fingerprint
    if verdict == Content.COUNTED and read is not None and not in_windows.records:
        return read.fingerprint
    return None


def difference(verdict: Content, read: Tally, held: Tally) -> str:
    """Describe the difference between the files and the records that Spark read."""
    if verdict == Content.CHANGED:
        return f"has records with fingerprint {held.fingerprint}; Spark read {read.fingerprint}"
    detail = f"has {held.records:,} records; Spark read {read.records:,}"
    by_partition = {tp: number for tp, number in _lacking(read, held).items() if tp and number}
    if by_partition:
        named = (
            f"{abs(number):,} too {'few' if number > 0 else 'many'} of {tp}"
            for tp, number in sorted(by_partition.items())[:NAMED]
        )
        detail += f": {', '.join(named)}{', …' if len(by_partition) > NAMED else ''}"
    return detail
