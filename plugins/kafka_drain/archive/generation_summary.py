"""Summaries of closed generations: when the records of each receipt were written, in one document.

Who asks for an hour reads the summary of a generation instead of its hundreds of receipts. It is
made of nothing but the receipts, the same bytes each time, and names each with its hash: it counts
only as long as the generation has just these. It proves nothing: what a reader takes is still in
the receipts, and a validation that reads all of them compares it. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kafka_drain.archive.format import SealedDocument
from kafka_drain.archive.receipts import Receipt, unknown_files
from kafka_drain.intervals import TimeRange
from kafka_drain.storage.sealed_json import SealError
from kafka_drain.storage.typed_json import DocumentError


class SummaryError(ValueError):
    """Raised when bytes aren't a summary."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One receipt in a summary.

    Attributes:
        name: File name of the receipt.
        sha256: Its hash.
        sealed_at: Time of sealing, in UTC.
        offsets: Number of offsets that the segment drained, including gaps.
        records: Number of records in its files.
        files: Number of its files.
        bytes: Total size of the files.
        first_timestamp: Lowest timestamp of its files, in milliseconds since 1970; None if it has
            none, or one of its files doesn't say.
        last_timestamp: Highest timestamp; None likewise.
        unknown_content: Whether it isn't known what Spark read of some of its records.
    """

    name: str
    sha256: str
    sealed_at: str
    offsets: int
    records: int
    files: int
    bytes: int
    first_timestamp: int | None
    last_timestamp: int | None
    unknown_content: bool

    @classmethod
    def of(cls, receipt: Receipt) -> SummaryRow:
        """Return the row of a receipt."""
        contents = [content for file in receipt.files for content in file.contents]
        firsts = [content.first_timestamp for content in contents]
        lasts = [content.last_timestamp for content in contents]
        return cls(
            name=receipt.name,
            sha256=receipt.sha256,
            sealed_at=receipt.sealed_at,
            offsets=receipt.offsets,
            records=receipt.records,
            files=len(receipt.files),
            bytes=sum(file.bytes for file in receipt.files),
            first_timestamp=_known(min, firsts),
            last_timestamp=_known(max, lasts),
            unknown_content=bool(unknown_files(receipt)),
        )

    def may_hold(self, times: TimeRange) -> bool:
        """Return whether files of the segment may have records in a time range."""
        return self.files > 0 and times.may_hold(self.first_timestamp, self.last_timestamp)


def _known(choose: Callable[[Iterable[int]], int], times: Sequence[int | None]) -> int | None:
    """Return the lowest or highest time; None if there is none, or one is unknown."""
    known = [time for time in times if time is not None]
    return choose(known) if known and len(known) == len(times) else None


@dataclass(frozen=True, slots=True)
class Summary(SealedDocument):
    """The summary of a generation.

    Attributes:
        generation: Number of the generation.
        receipts: A row for each of its receipts, oldest first.
    """

    generation: int
    receipts: tuple[SummaryRow, ...]

    def is_of(self, names: Sequence[str], newest: str) -> bool:
        """Return whether a generation has just these receipts.

        Args:
            names: Names of its receipts, oldest first.
            newest: Hash of the newest one, which vouches for those before it.
        """
        rows = self.receipts
        return (
            bool(rows) and [row.name for row in rows] == list(names) and rows[-1].sha256 == newest
        )

    def contradicts(self, other: Summary) -> str:
        """Return the name of a receipt of which both say something else; empty if there is none."""
        own = {row.name: row for row in self.receipts}
        return next((row.name for row in other.receipts if own.get(row.name, row) != row), "")


def summarized(generation: int, receipts: Iterable[Receipt]) -> Summary:
    """Return the summary of a generation's receipts, oldest first."""
    return Summary(generation, tuple(map(SummaryRow.of, receipts)))


def parse_summary(content: bytes) -> Summary:
    """Parse a summary and verify its own hash.

    Raises:
        SummaryError: When a byte was changed, or it isn't a summary.
    """
    try:
        return Summary.parse(content)
    except (SealError, DocumentError) as error:
        raise SummaryError(str(error)) from error
