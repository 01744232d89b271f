"""Compare what a segment's files hold with what Spark read from Kafka. Plain arithmetic."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.gaps import Gap
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge, subtract

__all__ = [
    "Content",
    "Taken",
    "compare_content",
    "content_of",
    "difference",
    "excused_offsets",
    "fingerprint_to_seal",
    "together",
]


@dataclass(frozen=True, slots=True)
class Taken:
    """A number of records and their fingerprint.

    Attributes:
        records: Number of records.
        fingerprint: XOR of their hashes, in hexadecimal; None when a file's timestamps can't be
            read.
    """

    records: int
    fingerprint: str | None


class Content(str, Enum):
    """How a segment's files compare with what Spark read."""

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
    #: The drain was killed before it recorded what it had read, or some of it has expired since.
    UNKNOWN = ("unknown", True)
    #: A drain is running and will record what it has read when it finishes.
    PENDING = ("pending", False)
    CHANGED = ("changed", False)
    FEWER = ("fewer", False)
    MORE = ("more", False)

    def __str__(self) -> str:
        return str(self.value)


def content_of(files: Iterable[CommittedFile]) -> Taken:
    """Return the number and fingerprint of the records in files."""
    return together(Taken(file.records, file.fingerprint) for file in files)


def together(parts: Iterable[Taken]) -> Taken:
    """Combine several parts into one; one unknown fingerprint makes the combined one unknown."""
    records, value, is_known = 0, 0, True
    for part in parts:
        records += part.records
        is_known = is_known and part.fingerprint is not None
        value ^= int(part.fingerprint or "0", 16)
    return Taken(records, f"{value:016x}" if is_known else None)


def compare_content(
    read: Taken | None, held: Taken, *, excused: int = 0, is_draining: bool = False
) -> Content:
    """Compare what files hold with what Spark read. Spark's count is authoritative.

    Args:
        read: What Spark read; None when there is no record of it.
        held: What the files hold, together with the windows that replace other files.
        excused: Number of offsets that have expired since Spark read them and were acknowledged as
            expired: at most this many records may be missing.
        is_draining: Whether a drain holds the archive's lease: it may still record what Spark read.
    """
    if read is None:
        return Content.PENDING if is_draining else Content.UNKNOWN
    if held.records > read.records:
        return Content.MORE
    if held.records + excused < read.records:
        return Content.FEWER
    if held.records < read.records:
        return Content.UNKNOWN
    if held.fingerprint is None or read.fingerprint is None:
        return Content.COUNTED
    return Content.EQUAL if held.fingerprint == read.fingerprint else Content.CHANGED


def excused_offsets(
    gaps: Iterable[Gap], skipped: Mapping[TopicPartition, Sequence[OffsetRange]]
) -> int:
    """Return the number of offsets acknowledged as expired that Spark may have read.

    Args:
        gaps: A segment's gaps.
        skipped: Offsets that had expired before Spark read: none of their records can be missing.
    """
    accepted: dict[TopicPartition, list[OffsetRange]] = {}
    for gap in gaps:
        if gap.acknowledged:
            accepted.setdefault(gap.tp, []).append(gap.range)
    return sum(
        count(subtract(r, skipped.get(tp, ())))
        for tp, ranges in accepted.items()
        for r in merge(ranges)
    )


def fingerprint_to_seal(
    verdict: Content, read: Taken | None, own: Taken, in_windows: Taken
) -> str | None:
    """Return the fingerprint for a segment's receipt: that of the records in its own files.

    Args:
        verdict: The result of `compare_content` for the files and the windows together.
        read: What Spark read of the segment.
        own: What the segment's own files hold.
        in_windows: What windows hold of the segment.

    Returns:
        None when it is unknown what Spark read of the records in these files.
    """
    if verdict == Content.EQUAL:
        # The windows' own receipts prove what they hold; the rest is in these files.
        return own.fingerprint
    if verdict == Content.COUNTED and read is not None and not in_windows.records:
        return read.fingerprint
    return None


def difference(verdict: Content, read: Taken, held: Taken) -> str:
    """Describe how the files differ from what Spark read."""
    if verdict == Content.CHANGED:
        return f"has records with fingerprint {held.fingerprint}; Spark read {read.fingerprint}"
    return f"has {held.records:,} records; Spark read {read.records:,}"
