"""The report of a validation as one HTML page that needs nothing beside it. Opens nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from kafka_drain.findings import Reason
from kafka_drain.gaps import GapReason, is_harmless
from kafka_drain.pages.html import (
    Bar,
    Html,
    bar_chart,
    many,
    page,
    rect,
    size_text,
    swatch,
    table,
    tag,
    time_text,
)
from kafka_drain.progress import duration_text

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
_AMOUNTS = ("records", "offsets", "files", "bytes")
_TIMES = {"first_timestamp": "first record", "last_timestamp": "last record"}


def report_page(report: dict[str, Any], document: str = "the JSON report") -> str:
    """Return a report as an HTML page: no script, nothing loaded, in ASCII.

    Args:
        report: What `Report.to_dict` returned.
        document: Name of the JSON document beside the page, which holds what is cut here.
    """
    title = f"Validation of {report['pipeline']}"
    body = tag(
        "body",
        tag("h1", title),
        tag("p", tag("code", report["archive"]), *_when(report), class_="quiet"),
        tag("p", _headline(report), class_=f"verdict {report['verdict']}"),
        _figures(report),
        *_findings(report, document),
        *_topics(report, document),
        *_gaps(report, document),
        *_batches(report),
        *_keyed(report, "generations", ("generation", "reason", "batches"), document),
        *_keyed(report, "windows", ("name", "reason"), document),
        *_keyed(report, "acknowledged", ("topic", "partition", "start", "end"), document),
        *_receipts(report),
        tag("footer", "Written by kafka-drain. All of it as JSON: ", tag("code", document), "."),
    )
    return page(title, report["verdict"], body)


# --- parts of the page ---


def _when(report: dict[str, Any]) -> list[object]:
    words: list[object] = [Html("<br>"), "Validated ", time_text(report["validated_at"])]
    words.append(f", took {duration_text(report['seconds'])}")
    if "scope" in report:
        scope = {"open": "the open generation", "all": "all generations"}
        words.append(f". Read: {scope.get(report['scope'], report['scope'])}")
    if report.get("deep"):
        words.append(", every record's content too")
    return [*words, "."]


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


def _figures(report: dict[str, Any]) -> Html:
    figures = {
        "records": f"{report['records']:,}",
        "offsets drained": f"{report['offsets']:,}",
        "offsets in gaps": f"{_missing(report).total():,}",
        "files": f"{report['files']:,}",
        "size of the files": size_text(report["bytes"]),
        "partitions": f"{len(report['partitions']):,}",
        "findings": f"{len(report['findings']):,}",
    }
    boxes = [tag("div", tag("dt", name), tag("dd", text)) for name, text in figures.items()]
    return tag("dl", *boxes)


def _findings(report: dict[str, Any], document: str) -> list[Html]:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for finding in sorted(report["findings"], key=lambda f: str(f["severity"]) != "error"):
        groups.setdefault((finding["reason"], finding["severity"]), []).append(finding)
    parts = [tag("h2", "Findings")] if groups else []
    for (code, severity), found in groups.items():
        meaning, remedy = _reason(code)
        where = [[item["where"], item["detail"]] for item in found[:ROWS]]
        heading = (tag("code", code), ", ", tag("span", severity, class_=severity))
        parts += [
            tag("h3", *heading, f", {len(found):,}"),
            tag("p", *_words(meaning[:1].upper() + meaning[1:]), "."),
            tag("p", tag("b", "What to do: "), *_words(remedy), "."),
            table(["where", "seen and expected"], where, "prose"),
            *_more(len(found) - ROWS, document),
        ]
    return parts


def _topics(report: dict[str, Any], document: str) -> list[Html]:
    topics: dict[str, list[dict[str, Any]]] = {}
    for row in report["partitions"]:
        topics.setdefault(row["topic"], []).append(row)
    parts = [tag("h2", "Topics")] if topics else []
    parts += [tag("p", "An end is the first offset that wasn't drained.")] if topics else []
    # Of many topics, too, only so many partitions are shown.
    left = 3 * PARTITIONS
    for topic, rows in topics.items():
        # What is wrong isn't cut away.
        rows_by_need = sorted(rows, key=lambda row: all(map(is_harmless, row["gaps"])))
        shown = sorted(rows_by_need[: min(PARTITIONS, left)], key=lambda row: int(row["partition"]))
        left -= len(shown)
        extra = {k: v for k, v in (_MEASURES | _TIMES).items() if any(k in row for row in rows)}
        heads = ["partition", "start", "end", "records", "gaps", "covered", *extra.values()]
        cells = [
            [
                *(row[key] for key in ("partition", "start", "end", "records")),
                ", ".join(f"{number:,} {reason}" for reason, number in row["gaps"].items())
                or "none",
                _share(row),
                *(row.get(k) if k in _MEASURES else time_text(row.get(k)) for k in extra),
            ]
            for row in shown
        ]
        records = many(sum(row["records"] for row in rows), "record")
        of = many(sum(row["end"] - row["start"] for row in rows), "offset")
        parts += [
            tag("h3", tag("code", topic), f": {many(len(rows), 'partition')}"),
            tag("p", f"{records} for {of}", class_="quiet"),
            table(heads, cells) if shown else Html(),
            *_more(len(rows) - len(shown), document),
        ]
    return parts


def _share(row: dict[str, Any]) -> Html:
    """Return a bar: the share of the offsets that files hold, then the gaps by reason."""
    offsets = row["end"] - row["start"]
    words = [f"{row['records']:,} of {offsets:,} offsets have a record"]
    gaps = dict(row["gaps"]) if offsets else {}
    # A single lost offset of a billion can be seen too.
    widths = {reason: max(100 * number / offsets, 3) for reason, number in gaps.items()}
    covered = max(100 - sum(widths.values()), 0) if row["records"] else 0
    bars, x = [rect(0, 0, covered, 10, "covered")], covered
    for reason, width in widths.items():
        bars.append(rect(x, 0, width, 10, reason))
        words.append(f"{gaps[reason]:,} {reason}")
        x += width
    title = tag("title", "; ".join(words))
    box = f"0 0 {max(x, 100):.2f} 10"
    return tag("svg", title, *bars, class_="share", viewBox=box, preserveAspectRatio="none")


def _gaps(report: dict[str, Any], document: str) -> list[Html]:
    missing = _missing(report)
    listed = sorted(report["gaps"], key=lambda gap: is_harmless(gap["reason"]))
    harmless = tag("span", "harmless", class_="good")
    harmful = tag("b", "not harmless", class_="bad")
    reasons = [
        [
            Html(swatch(code) + tag("code", code)),
            harmless if is_harmless(code) else harmful,
            number,
            next((r.meaning for r in GapReason if r == code), "this release doesn't know it"),
        ]
        for code, number in sorted(missing.items(), key=lambda item: is_harmless(item[0]))
    ]
    rows = [
        [
            f"{gap['topic']}-{gap['partition']}",
            gap["start"],
            gap["end"],
            gap["end"] - gap["start"],
            gap["reason"] + (", acknowledged" if _acknowledged(gap, report) else ""),
        ]
        for gap in listed[:ROWS]
    ]
    parts = []
    if missing:
        parts.append(tag("h2", "Gaps"))
        parts.append(table(["reason", "", "offsets", "what is there"], reasons))
    if listed:
        parts.append(tag("h3", "Where they are"))
        parts.append(table(["partition", "start", "end", "offsets", "reason"], rows))
        parts += _more(len(listed) - ROWS, document)
    if missing.total() > sum(gap["end"] - gap["start"] for gap in listed):
        parts.append(tag("p", "Receipts hold the places of those sealed before.", class_="quiet"))
    return parts


def _missing(report: dict[str, Any]) -> Counter[str]:
    """Return how many offsets are in gaps, by reason, those sealed before included."""
    found: Counter[str] = Counter()
    for row in report["partitions"]:
        found.update(row["gaps"])
    return found


def _batches(report: dict[str, Any]) -> list[Html]:
    batches = report["batches"]
    if not batches:
        return [tag("h2", "Batches"), tag("p", "No batch has been drained.")]
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
    figure = tag(
        "figure", bar_chart(bars, "Offsets per batch", "batch"), tag("figcaption", words, ".")
    )
    return [tag("h2", "Batches"), figure]


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


def _keyed(report: dict[str, Any], name: str, keys: Sequence[str], document: str) -> Iterable[Html]:
    """Return a table of rows that newer reports have."""
    rows = report.get(name)
    if not rows:
        return []
    keys = [key for key in (*keys, *_AMOUNTS) if any(key in row for row in rows)]
    cells = [
        [
            size_text(row["bytes"]) if key == "bytes" and row.get(key) else row.get(key)
            for key in keys
        ]
        for row in rows[-ROWS:]
    ]
    heads = ["size" if key == "bytes" else key for key in keys]
    title = {"acknowledged": "Acknowledged as gone"}.get(name, name.capitalize())
    return [tag("h2", title), table(heads, cells), *_more(len(rows) - ROWS, document)]


def _receipts(report: dict[str, Any]) -> list[Html]:
    receipts = report.get("receipts")
    if not receipts:
        return []
    words = f"{many(receipts['total'], 'receipt')}, {receipts.get('written', 0):,} of them new."
    last = receipts.get("last_sha256")
    more = (" SHA-256 of the last: ", tag("code", last)) if last else ()
    return [tag("h2", "Receipts"), tag("p", words, *more)]


# --- reasons ---


def _reason(code: str) -> tuple[str, str]:
    """Return the meaning and the remedy of a code."""
    known = next((reason for reason in Reason if reason == code), None)
    if known is None:
        return "this release doesn't know the reason", "look it up in the release that wrote it"
    return known.meaning, known.remedy


def _words(text: str) -> list[object]:
    """Return a text with what stands between backticks as code."""
    return [tag("code", part) if i % 2 else part for i, part in enumerate(text.split("`"))]


def _acknowledged(gap: dict[str, Any], report: dict[str, Any]) -> bool:
    return bool(gap.get("acknowledged")) or any(
        (part["topic"], part["partition"]) == (gap["topic"], gap["partition"])
        and part["start"] <= gap["start"]
        and gap["end"] <= part["end"]
        for part in report.get("acknowledged", ())
    )


def _more(number: int, document: str) -> list[Html]:
    words = (f"… and {number:,} more, all in ", tag("code", document), ".")
    return [tag("p", *words, class_="quiet")] if number > 0 else []
