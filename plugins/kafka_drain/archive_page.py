"""One archive as an HTML page: what its runs have sealed over time, and what is known of it.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kafka_drain.gap_reasons import is_harmless
from kafka_drain.history import Cell, History, SealedRun
from kafka_drain.html_parts import (
    Bar,
    Html,
    bar_chart,
    many,
    page,
    rect,
    size_text,
    table,
    tag,
    time_text,
)
from kafka_drain.offsets import TopicPartition
from kafka_drain.overview_page import ArchiveRow, Doing, archive_figures, frame, verdict_words

__all__ = ["archive_page", "coverage_map"]

#: So many runs and days are columns of a map, so many partitions its rows.
COLUMNS = 96
ROWS = 100
#: While a task runs, the page looks for news so often, in seconds.
BUSY = 3
#: So many receipts are listed.
RECEIPTS = 50


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a map: a run or a day."""

    name: str
    words: str
    cells: Mapping[TopicPartition, Cell]


def archive_page(
    row: ArchiveRow,
    history: History,
    now: datetime,
    receipts: str,
    doing: Sequence[Doing] = (),
) -> str:
    """Return the page of an archive.

    Args:
        row: What a list of archives says of it.
        history: What its runs have sealed.
        now: The time.
        receipts: Address of the folder of receipts, `<generation>/<name>` below it.
        doing: How far the newest task of each of its DAGs has got.
    """
    runs = history.runs[-COLUMNS:]
    body = tag(
        "body",
        tag("p", tag("a", "All archives", href="../archives"), class_="quiet"),
        tag("h1", row.name),
        tag("p", tag("code", row.archive), class_="quiet"),
        tag("p", *verdict_words(row), class_=_kind(row)),
        archive_figures(row, now),
        *_doing(doing),
        *_maps(history, runs),
        *_chart(runs),
        *_receipts(history.runs[-RECEIPTS:], receipts),
        tag(
            "footer", f"As of {time_text(now.isoformat())}. Told from receipts; all times are UTC."
        ),
    )
    is_busy = any(one.state == "running" for one in doing)
    return page(row.name, row.verdict, body, head=frame(BUSY) if is_busy else frame())


def _kind(row: ArchiveRow) -> str:
    return "verdict" if row.verdict in ("complete", "not validated") else "verdict findings"


def _doing(doing: Sequence[Doing]) -> list[Html]:
    """Return a bar for each task, those that run first."""
    parts = [tag("h2", "Progress")] if doing else []
    for one in sorted(doing, key=lambda one: one.state != "running"):
        seen = one.progress
        words = f"{seen['done']:,} of {seen['total']:,} {seen['unit']} ({seen['percent']} %)"
        for more in (seen.get("rate"), one.state == "running" and _left(seen)):
            words += f", {more}" if more else ""
        bar = tag(
            "svg",
            rect(0, 0, seen["percent"], 10, one.state),
            class_="progress",
            viewBox="0 0 100 10",
            preserveAspectRatio="none",
            role="img",
            aria_label=f"{seen['percent']} %",
        )
        name = tag("a", f"{one.dag_id}, {one.task_id}", href=one.link, data_outside="")
        when = f", {time_text(seen.get('at'))}"
        parts.append(tag("p", name, f": {one.state}, {words}{when}", bar))
    return parts


def _left(seen: Mapping[str, object]) -> str:
    return f"{seen['left']} left" if seen.get("left") else ""


def _maps(history: History, runs: Sequence[SealedRun]) -> list[Html]:
    if not runs:
        return [tag("p", "Nothing has been sealed yet.")]
    by_run = [_Column(time_text(run.sealed_at)[5:16], _run_words(run), run.cells) for run in runs]
    days = sorted(history.days.items())[-COLUMNS:]
    by_day = [_Column(day[5:], day, cells) for day, cells in days]
    parts = [tag("h2", "What each run has sealed"), _figure(by_run, "run")]
    if len(by_day) > 1:
        parts += [tag("h2", "By day"), _figure(by_day, "day")]
    return [*parts, _legend([*by_run, *by_day])]


def _run_words(run: SealedRun) -> str:
    return f"generation {run.generation}, batch {run.batch}, sealed {time_text(run.sealed_at)}"


def _figure(columns: Sequence[_Column], unit: str) -> Html:
    tps = sorted({tp for column in columns for tp in column.cells})
    # What is wrong isn't cut away.
    by_need = sorted(tps, key=lambda tp: not any(_is_harmful(c.cells.get(tp)) for c in columns))
    shown = sorted(by_need[:ROWS])
    words = f"{many(len(columns), unit)}, oldest first; a row is a partition"
    if len(shown) < len(tps):
        words += f": {len(shown)} of {len(tps):,}, those with gaps among them"
    return tag("figure", coverage_map(columns, shown), tag("figcaption", words, "."))


def coverage_map(columns: Sequence[_Column], rows: Sequence[TopicPartition]) -> Html:
    """Return a map: a rectangle for each partition and column, coloured by what it lacks."""
    left, top, height = 150, 4, 14
    width = min(800 / len(columns), 60)
    parts = []
    for number, tp in enumerate(rows):
        y = top + number * height
        name = str(tp) if len(str(tp)) < 22 else f"…{str(tp)[-20:]}"
        text = tag("text", tag("title", tp), name, x=left - 8, y=y + 11, text_anchor="end")
        parts.append(text)
        for place, column in enumerate(columns):
            cell = column.cells.get(tp)
            if cell is None or not cell.offsets:
                continue
            shape = rect(left + place * width, y, max(width - 1, 0.8), height - 2, _colour(cell))
            parts.append(tag("g", tag("title", _cell_words(tp, column, cell)), shape))
    under = top + len(rows) * height + 14
    every = max(1, round(90 / width))
    for place in range(0, len(columns), every):
        x = f"{left + place * width:.1f}"
        parts.append(tag("text", columns[place].name, x=x, y=under))
    box = f"0 0 {left + 810} {under + 8}"
    return tag("svg", *parts, viewBox=box, role="img", aria_label="Coverage over time")


def _is_harmful(cell: Cell | None) -> bool:
    return cell is not None and not all(map(is_harmless, cell.gaps))


def _colour(cell: Cell) -> str:
    """Return the reason that matters most, or that all is covered."""
    harmful = [reason for reason in cell.gaps if not is_harmless(reason)]
    if harmful:
        return max(harmful, key=lambda reason: cell.gaps[reason])
    if cell.records or not cell.gaps:
        return "covered"
    return max(cell.gaps, key=lambda reason: cell.gaps[reason])


def _cell_words(tp: TopicPartition, column: _Column, cell: Cell) -> str:
    gaps = "".join(f", {number:,} {reason}" for reason, number in cell.gaps.items())
    return f"{tp}, {column.words}: {cell.records:,} records of {cell.offsets:,} offsets{gaps}"


def _legend(columns: Sequence[_Column]) -> Html:
    colours = {_colour(cell) for column in columns for cell in column.cells.values()}
    swatches = [
        tag(
            "span",
            tag("svg", rect(0, 0, 10, 10, colour), class_="swatch", viewBox="0 0 10 10"),
            "sealed" if colour == "covered" else colour,
            class_="badge quiet",
        )
        for colour in sorted(colours, key=lambda colour: colour != "covered")
    ]
    spaced = [part for swatch in swatches for part in (swatch, " ")]
    return tag("p", *spaced)


def _chart(runs: Sequence[SealedRun]) -> list[Html]:
    if not runs:
        return []
    bars = [
        Bar(
            run.offsets,
            time_text(run.sealed_at)[11:16],
            f"{_run_words(run)}: {many(run.offsets, 'offset')}, {many(run.records, 'record')}, "
            f"{many(run.files, 'file')}, {size_text(run.bytes)}",
            # Let one generation be told from the next.
            "covered" if run.generation % 2 else "alt",
        )
        for run in runs
    ]
    return [
        tag("h2", "Offsets of each run"),
        tag("figure", bar_chart(bars, "Offsets of each run", "sealed")),
    ]


def _receipts(runs: Sequence[SealedRun], address: str) -> list[Html]:
    if not runs:
        return []
    rows = [
        [
            tag("a", run.receipt, href=f"{address}/{run.generation}/{run.receipt}"),
            run.generation,
            run.batch,
            time_text(run.sealed_at),
            run.records,
            run.offsets,
            run.files,
            size_text(run.bytes),
        ]
        for run in reversed(runs)
    ]
    heads = ["receipt", "generation", "batch", "sealed", "records", "offsets", "files", "size"]
    return [tag("h2", "Receipts"), table(heads, rows)]
