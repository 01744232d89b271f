"""One archive as an HTML page: what its runs have sealed over time, and what is known of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kafka_drain.archive.history import COLUMNS, Cell, History, SealedRun, Span
from kafka_drain.gaps import is_harmless
from kafka_drain.offsets import TopicPartition
from kafka_drain.pages.html import (
    Bar,
    Html,
    bar_chart,
    is_web_address,
    many,
    page,
    rect,
    size_text,
    swatch,
    table,
    tag,
    time_text,
)
from kafka_drain.pages.overview import (
    ArchiveRow,
    Doing,
    archive_figures,
    frame,
    verdict_class,
    verdict_words,
)
from kafka_drain.pages.placing import NOTHING, Placed
from kafka_drain.pages.standing import ACTIVE, Proof, cell_colour, ended_of, proof_of
from kafka_drain.pages.timeline import Stretch, is_of_calendar, time_axis

__all__ = ["Drained", "archive_page", "coverage_map"]

#: So many partitions are rows of a map.
ROWS = 100
#: While a task runs, the page looks for news so often, in seconds.
BUSY = 3
#: So many receipts are listed.
RECEIPTS = 50
#: So many generations, and so many windows, are on the axis of time.
SPANS = 30


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a map: a run or a day."""

    name: str
    words: str
    cells: Mapping[TopicPartition, Cell]
    proofs: Mapping[TopicPartition, Proof]

    def colour(self, tp: TopicPartition) -> str:
        """Return the colour of a partition's cell."""
        cell = self.cells[tp]
        return cell_colour(cell.gaps, cell.records > 0, self.proofs[tp])

    def is_harmful(self, tp: TopicPartition) -> bool:
        """Whether something is wrong with a partition's cell."""
        if tp not in self.cells:
            return False
        gaps = self.cells[tp].gaps
        return self.proofs[tp] is Proof.DAMAGED or not all(map(is_harmless, gaps))


@dataclass(frozen=True, slots=True)
class Drained:
    """What a drain's task did.

    Attributes:
        at: When it ended, in UTC, as ISO 8601.
        offsets: How many it drained.
        seconds: How long that took, in seconds.
    """

    at: str
    offsets: int
    seconds: float


def archive_page(
    row: ArchiveRow,
    history: History,
    now: datetime,
    receipts: str,
    doing: Sequence[Doing] = (),
    drains: Sequence[Drained] = (),
    placed: Placed = NOTHING,
) -> str:
    """Return the page of an archive.

    Args:
        row: What a list of archives says of it.
        history: What its runs have sealed.
        now: The time.
        receipts: Address of the folder of receipts, `<generation>/<name>` below it.
        doing: How far the newest task of each of its DAGs has got.
        drains: The newest drains, oldest first.
        placed: Where lies what the last validation found.
    """
    proofs = _Proofs(row, placed)
    runs = history.runs[-COLUMNS:]
    body = tag(
        "body",
        tag("p", tag("a", "All archives", href="../archives"), class_="quiet"),
        tag("h1", row.name),
        tag("p", tag("code", row.archive), class_="quiet"),
        tag("p", *verdict_words(row, now), class_=verdict_class(row.standing(now).kind)),
        archive_figures(row, now),
        *_doing(doing),
        *_maps(history, runs, proofs),
        *_spans(history, proofs),
        *_charts(runs, proofs),
        *_throughput(drains),
        *_receipts(history.runs[-RECEIPTS:], receipts),
        *_report(row.report),
        tag(
            "footer", f"As of {time_text(now.isoformat())}. Told from receipts; all times are UTC."
        ),
    )
    is_busy = any(one.state in ACTIVE for one in doing)
    return page(row.name, row.verdict, body, head=frame(BUSY) if is_busy else frame())


@dataclass(frozen=True, slots=True)
class _Proofs:
    """What the last validation says of what was sealed."""

    row: ArchiveRow
    placed: Placed

    def of(self, is_damaged: bool) -> Proof:
        """Return what is proven of some of it."""
        return proof_of(
            is_readable=not self.row.problem,
            verdict=self.row.overview["verdict"] if self.row.overview else None,
            is_damaged=is_damaged,
            is_placed=self.placed.is_complete,
        )

    def of_runs(self, runs: Sequence[SealedRun]) -> Proof:
        """Return what is proven of all that some runs have sealed."""
        sealed = {(run.generation, run.receipt) for run in runs}
        return self.of(any((place[0], place[1]) in sealed for place in self.placed.damaged))

    def of_generation(self, number: int | None) -> Proof:
        """Return what is proven of a generation, or of a window."""
        return self.of(any(place[0] == number for place in self.placed.damaged))

    def cells(
        self, runs: Sequence[SealedRun], tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Proof]:
        """Return what is proven of each partition of some runs."""
        places = {(run.generation, run.receipt) for run in runs}
        damaged = {tp for number, name, tp in self.placed.damaged if (number, name) in places}
        return {tp: self.of(tp in damaged) for tp in tps}


def _doing(doing: Sequence[Doing]) -> list[Html]:
    """Return a bar for each task, those that run first."""
    parts = [tag("h2", "Progress")] if doing else []
    for one in sorted(doing, key=lambda one: one.state not in ACTIVE):
        name = tag("a", f"{one.dag_id}, {one.task_id}", href=one.link, data_outside="")
        if not one.progress:
            words = ", nothing done yet" if one.state in ACTIVE else ""
            parts.append(tag("p", name, f": {one.state}{words}", *_bar(0, one.state)))
            continue
        seen = one.progress
        end = ended_of(one.state, seen["done"], seen["total"], seen["percent"])
        words = f"{end.done:,} of {seen['total']:,} {seen['unit']} ({end.percent} %)"
        if end.has_rate:
            words += "".join(f", {more}" for more in (seen.get("rate"), _left(seen)) if more)
        when = f", {time_text(seen.get('at'))}"
        words = f": {one.state}, {words}{when}"
        parts.append(tag("p", name, words, *_spark_ui(one), *_bar(end.percent, one.state)))
    return parts


def _bar(percent: int, state: str) -> list[Html]:
    bar = tag(
        "svg",
        rect(0, 0, percent, 10, state),
        class_="progress",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{percent} %",
    )
    return [bar]


def _spark_ui(one: Doing) -> list[object]:
    """Return the link to the UI of a Spark application that runs: with it, its UI ends."""
    address = str(one.progress.get("spark_ui", ""))
    if one.state != "running" or not is_web_address(address):
        return []
    return [". ", tag("a", "Spark UI", href=address, data_outside="")]


def _left(seen: Mapping[str, object]) -> str:
    return f"{seen['left']} left" if seen.get("left") else ""


def _maps(history: History, runs: Sequence[SealedRun], proofs: _Proofs) -> list[Html]:
    if not runs:
        return [tag("p", "Nothing has been sealed yet.")]
    by_run = [
        _Column(
            time_text(run.sealed_at)[5:16],
            _run_words(run),
            run.cells,
            proofs.cells([run], run.cells),
        )
        for run in runs
    ]
    by_day = [
        _Column(day[5:], day, cells, proofs.cells(_of_day(runs, day), cells))
        for day, cells in sorted(history.days.items())[-COLUMNS:]
    ]
    parts = [tag("h2", "What each run has sealed"), _figure(by_run, "run")]
    if len(by_day) > 1:
        parts += [tag("h2", "By day"), _figure(by_day, "day")]
    return [*parts, _legend([*by_run, *by_day])]


def _of_day(runs: Sequence[SealedRun], day: str) -> list[SealedRun]:
    return [run for run in runs if run.sealed_at[:10] == day]


def _run_words(run: SealedRun) -> str:
    return f"generation {run.generation}, batch {run.batch}, sealed {time_text(run.sealed_at)}"


def _figure(columns: Sequence[_Column], unit: str) -> Html:
    tps = sorted({tp for column in columns for tp in column.cells})
    # What is wrong isn't cut away.
    by_need = sorted(tps, key=lambda tp: not any(c.is_harmful(tp) for c in columns))
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
            shape = rect(
                left + place * width, y, max(width - 1, 0.8), height - 2, column.colour(tp)
            )
            parts.append(tag("g", tag("title", _cell_words(tp, column, cell)), shape))
    under = top + len(rows) * height + 14
    every = max(1, round(90 / width))
    for place in range(0, len(columns), every):
        x = f"{left + place * width:.1f}"
        parts.append(tag("text", columns[place].name, x=x, y=under))
    box = f"0 0 {left + 810} {under + 8}"
    return tag("svg", *parts, viewBox=box, role="img", aria_label="Coverage over time")


def _cell_words(tp: TopicPartition, column: _Column, cell: Cell) -> str:
    gaps = "".join(f", {number:,} {reason}" for reason, number in cell.gaps.items())
    proof = column.proofs[tp]
    said = "" if proof is Proof.PROVEN else f", {_MEANING[proof]}"
    held = f"{cell.records:,} records of {cell.offsets:,} offsets"
    return f"{tp}, {column.words}: {held}{gaps}{said}"


_MEANING = {
    Proof.DAMAGED: "damaged, the report says how",
    Proof.UNPROVEN: "sealed, and not proven by the last validation",
}
_WORDS = {
    "covered": "sealed",
    **{str(proof.value): meaning for proof, meaning in _MEANING.items()},
}


def _legend(columns: Sequence[_Column]) -> Html:
    colours = {column.colour(tp) for column in columns for tp in column.cells}
    swatches = [
        tag(
            "span",
            swatch(colour),
            _WORDS.get(colour, colour),
            class_="badge quiet",
        )
        for colour in sorted(colours, key=lambda colour: colour != "covered")
    ]
    spaced = [part for swatch in swatches for part in (swatch, " ")]
    return tag("p", *spaced)


def _charts(runs: Sequence[SealedRun], proofs: _Proofs) -> list[Html]:
    if not runs:
        return []
    return [
        *_chart("Offsets of each run", runs, proofs, lambda run: run.offsets),
        *_chart("Bytes of each run", runs, proofs, lambda run: run.bytes, size_text),
    ]


def _chart(
    heading: str,
    runs: Sequence[SealedRun],
    proofs: _Proofs,
    value: Callable[[SealedRun], int],
    write: Callable[[int], str] = "{:,}".format,
) -> list[Html]:
    bars = [
        Bar(
            value(run),
            time_text(run.sealed_at)[11:16],
            f"{_run_words(run)}: {many(run.offsets, 'offset')}, {many(run.records, 'record')}, "
            f"{many(run.files, 'file')}, {size_text(run.bytes)}",
            _generation_colour(run.generation, proofs.of_runs([run])),
        )
        for run in runs
    ]
    return [tag("h2", heading), tag("figure", bar_chart(bars, heading, "sealed", write))]


def _generation_colour(number: int, proof: Proof) -> str:
    """Let one generation be told from the next, while it is proven."""
    if proof is not Proof.PROVEN:
        return str(proof.value)
    return "covered" if number % 2 else "alt"


def _throughput(drains: Sequence[Drained]) -> list[Html]:
    """Return how fast the newest drains were, those with something to drain."""
    bars = [
        Bar(
            round(one.offsets / one.seconds),
            time_text(one.at)[11:16],
            f"{time_text(one.at)}: {many(one.offsets, 'offset')} in {one.seconds:,.1f} s",
            "alt",
        )
        for one in drains[-COLUMNS:]
        if one.offsets and one.seconds > 0
    ]
    if not bars:
        return []
    words = "Offsets a second of each drain, Spark's start included."
    chart = bar_chart(bars, "Offsets a second of each drain", "drained")
    return [tag("h2", "Throughput"), tag("figure", chart, tag("figcaption", words))]


def _spans(history: History, proofs: _Proofs) -> list[Html]:
    """Return generations and windows on an axis of their records' time."""
    known = [
        span
        for span in history.spans.values()
        if is_of_calendar(span.first_timestamp) and is_of_calendar(span.last_timestamp)
    ]
    if not known:
        return []
    generations = sorted((span for span in known if span.generation is not None), key=_number)
    windows = sorted((span for span in known if span.generation is None), key=_sealed_at)
    shown = [*generations[-SPANS:], *windows[-SPANS:]]
    words = "From the first to the last timestamp of the records that each holds"
    if len(shown) < len(known):
        words += f": the newest {len(shown)} of {len(known):,}"
    axis = time_axis(
        [_stretch(span, proofs) for span in shown], "Generations and windows over time"
    )
    return [
        tag("h2", "Generations and windows"),
        tag("figure", axis, tag("figcaption", words, ".")),
    ]


def _number(span: Span) -> int:
    return span.generation or 0


def _sealed_at(span: Span) -> str:
    return span.sealed_at


def _stretch(span: Span, proofs: _Proofs) -> Stretch:
    first, last = span.first_timestamp or 0, span.last_timestamp or 0
    words = (
        f"{span.name}: {time_text(first)} to {time_text(last)}, {many(span.records, 'record')} of "
        f"{many(span.offsets, 'offset')}, {size_text(span.bytes)}, "
        f"{many(span.segments, 'receipt')}, sealed {time_text(span.sealed_at)}"
    )
    proof = proofs.of_generation(span.generation)
    if span.generation is None:
        colour = "window" if proof is Proof.PROVEN else str(proof.value)
    else:
        colour = _generation_colour(span.generation, proof)
    return Stretch(span.name, words, first, last, colour)


def _report(address: str) -> list[Html]:
    if not address:
        return []
    frame = tag("iframe", src=address, title="The newest report", loading="lazy")
    return [tag("h2", "The newest report"), frame]


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
