"""Reasons why offsets are in no file, each harmless or not. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from kafka_drain.offsets import OffsetRange, TopicPartition


class GapReason(str, Enum):
    """Why a gap exists."""

    harmless: bool
    meaning: str

    def __new__(cls, code: str, harmless: bool, meaning: str) -> GapReason:
        """Create a member whose value is its code."""
        member = str.__new__(cls, code)
        member._value_ = code
        member.harmless = harmless
        member.meaning = meaning
        return member

    CONTROL = ("control", True, "transaction markers, which consumers never see")
    ABORTED = ("aborted", True, "records of aborted transactions")
    COMPACTED = ("compacted", True, "records that compaction removed")
    WINDOW = ("window", True, "records that a window of the archive holds instead")
    DELETED = ("deleted", True, "records that the archive's own retention deleted")
    ERASED = ("erased", True, "records that were erased on request")
    OPEN = ("open", False, "records of a transaction that is still open")
    EXPIRED = (
        "expired",
        False,
        "offsets that Kafka no longer has: there is no record of what they held",
    )
    UNEXPLAINED = (
        "unexplained",
        False,
        "offsets within Kafka's log at which it has no record and no transaction marker, of a "
        "topic that it doesn't compact: it may have lost them",
    )
    LOST = ("lost", False, "records that Kafka still has and the archive doesn't")
    UNKNOWN = ("unknown", False, "Kafka wasn't asked")

    def __str__(self) -> str:
        return str(self.value)


#: Reasons of gaps at which a log has no record that a consumer could see.
EMPTY = (GapReason.CONTROL, GapReason.ABORTED, GapReason.COMPACTED)

#: Name in reports and pages for offsets between the segments of a partition: windows were
#: backfilled on one side, and a window or the first generation is on the other. No receipt has
#: them.
NOT_ARCHIVED = "not_archived"


def gaps_text(gaps: Mapping[str, int]) -> str:
    """Return the number of missing offsets by reason: `2 control, 1 lost`; `none` for none."""
    words = {NOT_ARCHIVED: "not archived"}
    return (
        ", ".join(f"{number:,} {words.get(reason, reason)}" for reason, number in gaps.items())
        or "none"
    )


def is_harmless(code: str) -> bool:
    """Return whether gaps with a reason code are harmless; unknown codes aren't."""
    return any(reason == code and reason.harmless for reason in GapReason)


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets of one partition that are in no file, and why.

    Attributes:
        reason: Why they are in no file.
        acknowledged: Whether the operator has accepted that they are gone.
    """

    tp: TopicPartition
    range: OffsetRange
    reason: GapReason
    acknowledged: bool = False

    @property
    def harmless(self) -> bool:
        """Whether the archive is complete despite the gap."""
        return self.reason.harmless or self.acknowledged
