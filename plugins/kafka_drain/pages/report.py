"""The report of a validation as one HTML page that needs nothing beside it.

Opens nothing but its template.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_drain.findings import Reason
from kafka_drain.gaps import GapReason, is_harmless
from kafka_drain.pages.drawings import Bar, Box, Drawing, Figure, bar_chart
from kafka_drain.pages.humanize import many, number_text, size_text, time_text
from kafka_drain.pages.rendering import render

__all__ = ["report_page"]

#: So many rows of a list are shown; all are in the JSON document.
ROWS = 50
PARTITIONS = 100
BARS = 100

_MEASURES = {
    "earliest": "Kafka's earliest",
    "last_stable": "last stable",
    "high_watermark": "high watermark",
}
_TIMES = {"first_timestamp": "first record", "last_timestamp": "last record"}
_SCOPES = {"open": "the open generation", "all": "all generations"}
#: Lists of newer reports: their headings, and the keys of their rows.
_LISTS = {
    "generations": ("Generations", ("generation", "reason", "batches")),
    "windows": ("Windows", ("name", "reason")),
    "acknowledged": ("Acknowledged as gone", ("topic", "partition", "start", "end")),
}
_AMOUNTS = ("records", "offsets", "files", "bytes")
#: The keys of those rows that are no whole numbers to the eye.
_WORDS = {"reason", "name", "topic", "bytes"}


@dataclass(frozen=True, slots=True)
class _Findings:
    """Findings of one reason, and so many of them as are shown."""

    code: str
    severity: str
    meaning: str
    remedy: str
    number: int
    shown: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class _Topic:
    """A topic: so many of its partitions as are shown, and the names of their further columns."""

    name: str
    partitions: int
    records: int
    offsets: int
    measures: Mapping[str, str]
    times: Mapping[str, str]
    shown: Sequence[tuple[Mapping[str, Any], Drawing]]


@dataclass(frozen=True, slots=True)
class _Reason:
    """Why offsets are in no file, and how many."""

    code: str
    is_harmless: bool
    offsets: int
    meaning: str


@dataclass(frozen=True, slots=True)
class _Gap:
    """A row of the list of gaps."""

    partition: str
    start: int
    end: int
    reason: str


@dataclass(frozen=True, slots=True)
class _List:
    """A list of the report: each column's name and whether it has numbers, and so many rows."""

    heading: str
    columns: Sequence[tuple[str, bool]]
    rows: Sequence[Sequence[str]]
    left_out: int


def report_page(report: dict[str, Any], document: str = "the JSON report") -> str:
    """Return a report as an HTML page: no script, nothing loaded, in ASCII.

    Args:
        report: What `Report.to_dict` returned.
        document: Name of the JSON document beside the page, which holds what is cut here.
    """
    missing = _missing(report)
    return render(
        "report.html",
        title=f"Validation of {report['pipeline']}",
        verdict=report["verdict"],
        report=report,
        document=document,
        headline=_headline(report),
        scope=_SCOPES.get(report.get("scope", ""), report.get("scope")),
        missing=missing.total(),
        findings=_findings(report),
        topics=list(_topics(report)),
        reasons=_reasons(missing),
        gaps=_gaps(report),
        has_sealed_gaps=missing.total() > sum(gap["end"] - gap["start"] for gap in report["gaps"]),
        batches=_batches(report["batches"]),
        lists=list(_lists(report)),
    )


def _headline(report: dict[str, Any]) -> str:
    """Return the verdict in words."""
    if report["verdict"] == "complete":
        if not report["offsets"]:
            return "Complete: nothing has been drained yet"
        # In a complete archive what isn't harmless was acknowledged.
        known = sum(n for reason, n in _missing(report).items() if not is_harmless(reason))
        return "Complete: every drained offset is in exactly one file or has a harmless reason" + (
            f", or was acknowledged as gone ({many(known, 'offset')})" if known else ""
        )
    missing: Counter[str] = Counter()
    for gap in report["gaps"]:
        if not is_harmless(gap["reason"]) and not _acknowledged(gap, report):
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
    said += [f"{_reason(code)[0]} ({code}: {number:,})" for code, number in wrong.most_common(2)]
    if len(wrong) > 2:
        said.append(f"and {many(len(wrong) - 2, 'other kind')} of findings")
    return "Not complete: " + "; ".join(said)


def _findings(report: dict[str, Any]) -> list[_Findings]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for finding in sorted(report["findings"], key=lambda f: str(f["severity"]) != "error"):
        groups.setdefault((finding["reason"], finding["severity"]), []).append(finding)
    return [
        _Findings(code, severity, *_reason(code), len(found), found[:ROWS])
        for (code, severity), found in groups.items()
    ]


def _topics(report: dict[str, Any]) -> Iterator[_Topic]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for row in report["partitions"]:
        topics.setdefault(row["topic"], []).append(row)
    # Of many topics, too, only so many partitions are shown.
    left = 3 * PARTITIONS
    for name, rows in topics.items():
        # What is wrong isn't cut away.
        rows_by_need = sorted(rows, key=lambda row: all(map(is_harmless, row["gaps"])))
        shown = sorted(rows_by_need[: min(PARTITIONS, left)], key=lambda row: int(row["partition"]))
        left -= len(shown)
        yield _Topic(
            name=name,
            partitions=len(rows),
            records=sum(row["records"] for row in rows),
            offsets=sum(row["end"] - row["start"] for row in rows),
            measures={k: head for k, head in _MEASURES.items() if any(k in row for row in rows)},
            times={k: head for k, head in _TIMES.items() if any(k in row for row in rows)},
            shown=[(row, _share(row)) for row in shown],
        )


def _share(row: dict[str, Any]) -> Drawing:
    """Return a bar: the share of the offsets that files hold, then the gaps by reason."""
    offsets = row["end"] - row["start"]
    words = [f"{row['records']:,} of {offsets:,} offsets have a record"]
    gaps = dict(row["gaps"]) if offsets else {}
    # A single lost offset of a billion can be seen too.
    widths = {reason: max(100 * number / offsets, 3) for reason, number in gaps.items()}
    covered = max(100 - sum(widths.values()), 0) if row["records"] else 0
    boxes, x = [Box(0, 0, covered, 10, "covered")], covered
    for reason, width in widths.items():
        boxes.append(Box(x, 0, width, 10, reason))
        words.append(f"{gaps[reason]:,} {reason}")
        x += width
    return Drawing("; ".join(words), max(x, 100), 10, boxes=boxes)


def _reasons(missing: Counter[str]) -> list[_Reason]:
    meanings = {str(reason): reason.meaning for reason in GapReason}
    return [
        _Reason(code, is_harmless(code), n, meanings.get(code, "this release doesn't know it"))
        for code, n in sorted(missing.items(), key=lambda item: is_harmless(item[0]))
    ]


def _gaps(report: dict[str, Any]) -> list[_Gap]:
    return [
        _Gap(
            f"{gap['topic']}-{gap['partition']}",
            gap["start"],
            gap["end"],
            gap["reason"] + (", acknowledged" if _acknowledged(gap, report) else ""),
        )
        for gap in sorted(report["gaps"], key=lambda gap: is_harmless(gap["reason"]))[:ROWS]
    ]


def _missing(report: dict[str, Any]) -> Counter[str]:
    """Return how many offsets are in gaps, by reason, those sealed before included."""
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
        words += "; batches that Spark's checkpoint no longer tells apart are one bar"
    sealed = sum(bool(batch.get("sealed") or batch.get("sealed_at")) for batch in batches)
    if any("sealed" in batch or "sealed_at" in batch for batch in batches):
        words += f"; {sealed:,} of {len(batches):,} were sealed before"
    bars = [
        Bar(batch["offsets"], _batch_number(batch), _batch_words(batch), _batch_colour(batch))
        for batch in shown
    ]
    return Figure("Batches", bar_chart(bars, "Offsets per batch", "batch"), f"{words}.")


def _batch_colour(batch: dict[str, Any]) -> str:
    """Let one generation be told from the next."""
    return "covered" if int(batch.get("generation") or 1) % 2 else "alt"


def _batch_words(batch: dict[str, Any]) -> str:
    words = [f"batch {_batch_number(batch)}: {many(batch['offsets'], 'offset')}"]
    if batch.get("generation") is not None:
        words[0] = f"generation {batch['generation']}, {words[0]}"
    words += [many(batch[k], k[:-1]) for k in ("records", "files") if batch.get(k) is not None]
    words += [size_text(batch["bytes"])] if batch.get("bytes") is not None else []
    words += [f"sealed {time_text(batch['sealed_at'])}"] if batch.get("sealed_at") else []
    return ", ".join(words)


def _batch_number(batch: dict[str, Any]) -> str:
    first, last = batch["first"], batch["last"]
    return str(first) if first == last else f"{first} to {last}"


def _lists(report: dict[str, Any]) -> Iterator[_List]:
    for name, (heading, first) in _LISTS.items():
        rows = report.get(name)
        if not rows:
            continue
        keys = [key for key in (*first, *_AMOUNTS) if any(key in row for row in rows)]
        yield _List(
            heading=heading,
            columns=[("size" if key == "bytes" else key, key not in _WORDS) for key in keys],
            rows=[[_cell(key, row.get(key)) for key in keys] for row in rows[-ROWS:]],
            left_out=len(rows) - ROWS,
        )


def _cell(key: str, value: Any) -> str:
    if key == "bytes" and value is not None:
        return size_text(value)
    return str(value or "") if key in _WORDS else number_text(value)


def _reason(code: str) -> tuple[str, str]:
    """Return the meaning and the remedy of a code."""
    known = next((reason for reason in Reason if reason == code), None)
    if known is None:
        return "this release doesn't know the reason", "look it up in the release that wrote it"
    return known.meaning, known.remedy


def _acknowledged(gap: dict[str, Any], report: dict[str, Any]) -> bool:
    return bool(gap.get("acknowledged")) or any(
        (part["topic"], part["partition"]) == (gap["topic"], gap["partition"])
        and part["start"] <= gap["start"]
        and gap["end"] <= part["end"]
        for part in report.get("acknowledged", ())
    )
