"""What a segment's files hold against what Spark read of Kafka. Plain arithmetic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kafka_drain.contents import CommittedFile

__all__ = ["Content", "Taken", "compare_content", "content_of", "difference"]


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
    #: The drain was killed before it left what it had read, or some of it is held elsewhere.
    UNKNOWN = ("unknown", True)
    CHANGED = ("changed", False)
    FEWER = ("fewer", False)
    MORE = ("more", False)

    def __str__(self) -> str:
        return str(self.value)


def content_of(files: Iterable[CommittedFile]) -> Taken:
    """Return what some files hold."""
    records, value, is_known = 0, 0, True
    for file in files:
        records += file.records
        is_known = is_known and file.fingerprint is not None
        value ^= int(file.fingerprint or "0", 16)
    return Taken(records, f"{value:016x}" if is_known else None)


def compare_content(read: Taken | None, held: Taken, *, elsewhere: int) -> Content:
    """Say whether files hold what Spark read. Its count decides.

    Args:
        read: What Spark read; None when it isn't known.
        held: What the files hold.
        elsewhere: How many of the segment's offsets a window holds instead, or have expired and
            were accepted as such: so many records may be missing, and no more.
    """
    if read is None:
        return Content.UNKNOWN
    if held.records > read.records:
        return Content.MORE
    if held.records + elsewhere < read.records:
        return Content.FEWER
    if held.records < read.records:
        return Content.UNKNOWN
    if held.fingerprint is None or read.fingerprint is None:
        return Content.COUNTED
    return Content.EQUAL if held.fingerprint == read.fingerprint else Content.CHANGED


def difference(verdict: Content, read: Taken, held: Taken) -> str:
    """Say in words what files hold instead of what Spark read."""
    if verdict == Content.CHANGED:
        return f"has records with fingerprint {held.fingerprint}, Spark read {read.fingerprint}"
    return f"has {held.records:,} records, Spark read {read.records:,}"
