"""Find the sealed offsets that a validation's findings are about. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.archive.receipts import Receipt
from kafka_drain.findings import Reason
from kafka_drain.gaps import is_harmless
from kafka_drain.offsets import TopicPartition
from kafka_drain.pages.finding_values import values_of

#: A partition in a receipt: generation, the receipt's name, partition.
Place = tuple[int, str, TopicPartition]

_OF_GAPS = {
    str(reason)
    for reason in (Reason.OFFSET_MISSING, Reason.OFFSET_UNEXPLAINED, Reason.OFFSET_EXPIRED)
}


@dataclass(frozen=True, slots=True)
class Placed:
    """The offsets that findings are about.

    Attributes:
        damaged: The places that the findings are known to be about.
        is_complete: Whether all findings could be placed; if not, any place may be affected.
        values: Values for the commands of remedies, by the reason's code; see `values_of`.
    """

    damaged: frozenset[Place] = frozenset()
    is_complete: bool = True
    values: Mapping[str, Sequence[str]] = field(default_factory=dict, compare=False)


NOTHING = Placed()


def place_findings(report: Mapping[str, Any], receipts: Iterable[Receipt]) -> Placed:
    """Find the sealed offsets that findings are about.

    Args:
        report: The result of a validation's `Report.to_dict`.
        receipts: The generations' receipts to consider; findings about others are not placed.
    """
    known = list(receipts)
    files = {
        file.path: {(r.generation or 0, r.name, content.tp) for content in file.contents}
        for r in known
        for file in r.files
    }
    names = {f"generations/{r.generation:04d}/receipts/{r.name}": _all(r) for r in known}
    damaged: set[Place] = set()
    is_complete = True
    for finding in report["findings"]:
        if finding["severity"] != "error":
            continue
        where = finding["where"]
        if where in files or where in names:
            damaged |= files.get(where) or names.get(where) or set()
        elif finding["reason"] in _OF_GAPS and (gaps := _gaps(report, where)):
            damaged |= _overlapping(known, where, gaps)
        else:
            is_complete = False
    return Placed(frozenset(damaged), is_complete, values_of(report))


def _all(receipt: Receipt) -> set[Place]:
    return {(receipt.generation or 0, receipt.name, part.tp) for part in receipt.partitions}


def _gaps(report: Mapping[str, Any], tp: str) -> list[tuple[int, int]]:
    """Return a partition's missing offsets whose reason isn't harmless."""
    return [
        (gap["start"], gap["end"])
        for gap in report.get("gaps", ())
        if f"{gap['topic']}-{gap['partition']}" == tp and not is_harmless(gap["reason"])
    ]


def _overlapping(
    receipts: Iterable[Receipt], tp: str, gaps: Iterable[tuple[int, int]]
) -> set[Place]:
    ranges = list(gaps)
    return {
        (receipt.generation or 0, receipt.name, part.tp)
        for receipt in receipts
        for part in receipt.partitions
        if str(part.tp) == tp
        and any(start < part.range.end and part.range.start < end for start, end in ranges)
    }
