"""What a segment's files hold against what Spark read of Kafka. Plain arithmetic."""

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
    """A number of records, and what they say.

    Attributes:
        records: How many.
        fingerprint: XOR of their hashes, in hexadecimal; None when a file's times can't be read.
    """

    records: int
    fingerprint: str | None


class Content(str, Enum):
    """How a segment's files compare with what Spark read."""

    may_be_sealed: bool

    def __new__(cls, code: str, may_be_sealed: bool) -> Content:
        """Make a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.may_be_sealed = may_be_sealed
        return member

    EQUAL = ("equal", True)
    #: As many records, of which not all times can be read: only their number can be compared.
    COUNTED = ("counted", True)
    #: The drain was killed before it left what it had read, or some of it has expired since.
    UNKNOWN = ("unknown", True)
    #: A drain runs, which leaves what it has read when it ends.
    PENDING = ("pending", False)
    CHANGED = ("changed", False)
    FEWER = ("fewer", False)
    MORE = ("more", False)

    def __str__(self) -> str:
        return str(self.value)


def content_of(files: Iterable[CommittedFile]) -> Taken:
    """Return what some files hold."""
    return together(Taken(file.records, file.fingerprint) for file in files)


def together(parts: Iterable[Taken]) -> Taken:
    """Return what several numbers of records say as one; a part that isn't known leaves all so."""
    records, value, is_known = 0, 0, True
    for part in parts:
        records += part.records
        is_known = is_known and part.fingerprint is not None
        value ^= int(part.fingerprint or "0", 16)
    return Taken(records, f"{value:016x}" if is_known else None)


def compare_content(
    read: Taken | None, held: Taken, *, excused: int = 0, is_draining: bool = False
) -> Content:
    """Say whether files hold what Spark read. Its count decides.

    Args:
        read: What Spark read; None when it isn't known.
        held: What the files hold, and the windows that stand for others.
        excused: How many offsets have expired since Spark read them, and were accepted as such: so
            many records may be missing, and no more.
        is_draining: Whether a drain holds the archive's lease: it may yet say what Spark read.
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
    """Return how many offsets somebody has accepted as expired that Spark may have read.

    Args:
        gaps: A segment's gaps.
        skipped: What had expired before Spark read: no record of it can be missing.
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
    """Return the fingerprint for a segment's receipt: of the records in its own files.

    Args:
        verdict: What `compare_content` said of the files and the windows together.
        read: What Spark read of the segment.
        own: What the segment's own files hold.
        in_windows: What windows hold of it.

    Returns:
        None when nobody knows what Spark read of what these files hold.
    """
    if verdict == Content.EQUAL:
        # What the windows hold is proven by their own receipts; the rest is in these files.
        return own.fingerprint
    if verdict == Content.COUNTED and read is not None and not in_windows.records:
        return read.fingerprint
    return None


def difference(verdict: Content, read: Taken, held: Taken) -> str:
    """Say in words what files hold instead of what Spark read."""
    if verdict == Content.CHANGED:
        return f"has records with fingerprint {held.fingerprint}, Spark read {read.fingerprint}"
    return f"has {held.records:,} records, Spark read {read.records:,}"
