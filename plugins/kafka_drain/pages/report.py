"""Render the report of a validation as one self-contained HTML page.

Opens nothing but its template.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_drain.findings import Reason
from kafka_drain.gaps import NOT_ARCHIVED, GapReason, is_harmless
from kafka_drain.kafka.identity import cluster_text
from kafka_drain.pages.commands import Reach, pasteable
from kafka_drain.pages.drawings import Bar, Box, Drawing, Figure, bar_chart
from kafka_drain.pages.finding_values import values_of
from kafka_drain.pages.humanize import many, size_text, time_text
from kafka_drain.pages.remedies import what_to_do
from kafka_drain.pages.rendering import render

#: Maximum number of rows shown of a list; the JSON document has all of them.
ROWS = 50
PARTITIONS = 100
BARS = 100

_SCOPES = {"open": "the open generation", "all": "all generations"}
_REASONS = {reason.value: reason for reason in Reason}


@dataclass(frozen=True, slots=True)
class _Findings:
    """The findings of one reason, with their remedy, and those of them that are shown."""

    reason: Reason
    meaning: str
    remedy: str
    number: int
    shown: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic, with the partitions that are shown, each with its coverage as a bar."""

    name: str
    partitions: int
    records: int
    offsets: int
    shown: Sequence[tuple[Mapping[str, Any], Drawing]]


@dataclass(frozen=True, slots=True)
class _Missing:
    """The number of offsets that are in no file for one reason."""

    code: str
    is_harmless: bool
    offsets: int
    meaning: str


def report_page(
    report: dict[str, Any], document: str = "the JSON report", reach: Reach | None = None
) -> str:
    """Return a report as an HTML page: ASCII, without scripts or external resources.

    Args:
        report: The result of `Report.to_dict`.
        document: Name of the JSON document beside the page, which has what is cut off here.
        reach: Addresses for commands; None if only the archive's place is known.
    """
    reach = reach or Reach(report["archive"])
    missing = _missing(report)
    return render(
        "report.html",
        title=f"Validation of {report['pipeline']}",
        verdict=report["verdict"],
        report=report,
        document=document,
        headline=_headline(report),
        scope=_SCOPES[report["scope"]],
        kafka=cluster_text(report["kafka"]) if "kafka" in report else "",
        findings=_findings(report, reach),
        notes=reach.notes,
        topics=list(_topics(report)),
        missing=_reasons(missing),
        offsets_missing=missing.total(),
        gaps=sorted(report["gaps"], key=lambda gap: is_harmless(gap["reason"])),
        has_sealed_gaps=missing.total() > sum(gap["end"] - gap["start"] for gap in report["gaps"]),
        batches=_batches(report["batches"]),
        rows=ROWS,
    )


def _headline(report: dict[str, Any]) -> str:
    """Return the verdict as a sentence."""
    if report["verdict"] == "complete":
        if not report["offsets"]:
            return "Complete: nothing has been drained yet"
        # In a complete archive, gaps that aren't harmless were acknowledged.
        gaps = _missing(report)
        between = gaps.pop(NOT_ARCHIVED, 0)
        known = sum(n for reason, n in gaps.items() if not is_harmless(reason))
        return (
            "Complete: every drained offset is in exactly one file or has a harmless reason"
            + (f", or was acknowledged as gone ({many(known, 'offset')})" if known else "")
            + (f"; {many(between, 'offset')} between them were never archived" if between else "")
        )
    missing: Counter[str] = Counter()
    for gap in report["gaps"]:
        if not is_harmless(gap["reason"]) and not gap["acknowledged"]:
            missing[f"{gap['topic']}-{gap['partition']}"] += gap["end"] - gap["start"]
    said = []
    if missing:
        (first, number), *others = missing.most_common()
        more = many(sum(rest for _, rest in others), "offset")
        more = f" (and {more} of {many(len(others), 'other partition')})" if others else ""
        verb = "is" if number == 1 and not others else "are"
        said.append(f"{many(number, 'offset')} of {first}{more} {verb} in no file")
    wrong = Counter(f["reason"] for f in report["findings"] if f["severity"] == "error")
    if missing:
        wrong.pop(str(Reason.OFFSET_MISSING), None)
        wrong.pop(str(Reason.OFFSET_UNEXPLAINED), None)
    said += [f"{_REASONS[code].meaning} ({code}: {n:,})" for code, n in wrong.most_common(2)]
    if len(wrong) > 2:
        said.append(f"and {many(len(wrong) - 2, 'other kind')} of finding")
    return "Not complete: " + "; ".join(said)


def _findings(report: dict[str, Any], reach: Reach) -> list[_Findings]:
    groups: dict[Reason, list[dict[str, Any]]] = {}
    for finding in sorted(report["findings"], key=lambda finding: finding["severity"] != "error"):
        groups.setdefault(_REASONS[finding["reason"]], []).append(finding)
    values = values_of(report)
    return [
        _Findings(
            reason,
            pasteable(reason.meaning, reach),
            what_to_do(reason, reach, values),
            len(found),
            found[:ROWS],
        )
        for reason, found in groups.items()
    ]


def _topics(report: dict[str, Any]) -> Iterator[_Topic]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for row in report["partitions"]:
        topics.setdefault(row["topic"], []).append(row)
    # The total number of partitions is limited too, in case there are many topics.
    left = 3 * PARTITIONS
    for name, rows in topics.items():
        # Partitions with problems are always shown.
        rows_by_need = sorted(rows, key=lambda row: all(map(is_harmless, row["gaps"])))
        shown = sorted(rows_by_need[: min(PARTITIONS, left)], key=lambda row: int(row["partition"]))
        left -= len(shown)
        yield _Topic(
            name=name,
            partitions=len(rows),
            records=sum(row["records"] for row in rows),
            offsets=sum(row["end"] - row["start"] for row in rows),
            shown=[(row, _share(row)) for row in shown],
        )


def _share(row: dict[str, Any]) -> Drawing:
    """Return a bar: the share of the offsets that are in files, then the gaps by reason."""
    offsets = row["end"] - row["start"]
    words = [f"{row['records']:,} of {offsets:,} offsets have a record"]
    gaps = dict(row["gaps"]) if offsets else {}
    # Give each gap a minimum width, so that one lost offset in a billion is visible.
    widths = {reason: max(100 * number / offsets, 3) for reason, number in gaps.items()}
    covered = max(100 - sum(widths.values()), 0) if row["records"] else 0
    boxes, x = [Box(0, 0, covered, 10, "covered")], covered
    for reason, width in widths.items():
        boxes.append(Box(x, 0, width, 10, reason))
        words.append(f"{gaps[reason]:,} {reason}")
        x += width
    return Drawing("; ".join(words), max(x, 100), 10, boxes=boxes)


def _reasons(missing: Counter[str]) -> list[_Missing]:
    # A receipt may be from a newer release, with reasons unknown to this one.
    meanings = {str(reason): reason.meaning for reason in GapReason}
    meanings[NOT_ARCHIVED] = "offsets between what was drained and what was backfilled"
    return [
        _Missing(code, is_harmless(code), n, meanings.get(code, "unknown to this release"))
        for code, n in sorted(missing.items(), key=lambda item: is_harmless(item[0]))
    ]


def _missing(report: dict[str, Any]) -> Counter[str]:
    """Return the number of offsets in gaps, by reason, including gaps that were sealed before."""
    found: Counter[str] = Counter()
    for row in report["partitions"]:
        found.update(row["gaps"])
    return found


def _batches(batches: Sequence[dict[str, Any]]) -> Figure | None:
    if not batches:
        return None
    shown = batches[-BARS:]
    words = "Offsets per batch"
    if len(shown) < len(batches):
        words = f"Offsets per batch: the last {len(shown)} of {len(batches):,} bars"
    if any(batch["first"] != batch["last"] for batch in batches):
        words += "; batches that Spark's checkpoint no longer distinguishes share a bar"
    sealed = sum(batch["sealed_at"] is not None for batch in batches)
    words += f"; {sealed:,} of {len(batches):,} were already sealed"
    bars = [
        Bar(batch["offsets"], _batch_number(batch), _batch_words(batch), _batch_colour(batch))
        for batch in shown
    ]
    return Figure("Batches", bar_chart(bars, "Offsets per batch", "batch"), f"{words}.")


def _batch_colour(batch: dict[str, Any]) -> str:
    """Return a colour that distinguishes consecutive generations."""
    return "covered" if batch["generation"] % 2 else "alt"


def _batch_words(batch: dict[str, Any]) -> str:
    words = f"generation {batch['generation']}, batch {_batch_number(batch)}: "
    words += many(batch["offsets"], "offset")
    if batch["sealed_at"] is None:
        return words
    held = f"{many(batch['records'], 'record')}, {many(batch['files'], 'file')}"
    return f"{words}, {held}, {size_text(batch['bytes'])}, sealed {time_text(batch['sealed_at'])}"


def _batch_number(batch: dict[str, Any]) -> str:
    first, last = batch["first"], batch["last"]
    return str(first) if first == last else f"{first} to {last}"
