"""Render one archive as an HTML page: what its runs have sealed over time, and its status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kafka_drain.archive.documents import DrillDocument
from kafka_drain.archive.history import COLUMNS, Cell, History, SealedRun, Span, UnknownFile
from kafka_drain.gaps import is_harmless
from kafka_drain.offsets import TopicPartition
from kafka_drain.pages.archive_status import ACTIVE, Proof, cell_colour, ended_of, proof_of
from kafka_drain.pages.drawings import Bar, Box, Drawing, Figure, Label, bar_chart
from kafka_drain.pages.drills import show_drills
from kafka_drain.pages.humanize import is_web_address, many, size_text, time_text
from kafka_drain.pages.overview import (
    REFRESH,
    ArchiveRow,
    Doing,
    Seen,
    verdict_class,
    verdict_text,
)
from kafka_drain.pages.placing import NOTHING, Placed
from kafka_drain.pages.rendering import render
from kafka_drain.pages.timeline import Stretch, is_of_calendar, time_axis

#: Maximum number of partitions in a coverage map.
ROWS = 100
#: Seconds between refreshes of the page while a task is running.
BUSY = 3
#: Maximum number of receipts listed.
RECEIPTS = 50
#: Maximum number of generations, and of windows, on the time axis.
SPANS = 30


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a coverage map: a run or a day."""

    name: str
    words: str
    cells: Mapping[TopicPartition, Cell]
    proofs: Mapping[TopicPartition, Proof]

    def colour(self, tp: TopicPartition) -> str:
        """Return the colour of a partition's cell."""
        cell = self.cells[tp]
        return cell_colour(cell.gaps, cell.records > 0, self.proofs[tp])

    def is_harmful(self, tp: TopicPartition) -> bool:
        """Return whether something is wrong with a partition's cell."""
        if tp not in self.cells:
            return False
        gaps = self.cells[tp].gaps
        return self.proofs[tp] is Proof.DAMAGED or not all(map(is_harmless, gaps))


@dataclass(frozen=True, slots=True)
class Drained:
    """The result of a drain task.

    Attributes:
        at: When it finished, in UTC, as ISO 8601.
        offsets: Number of offsets drained.
        seconds: Duration in seconds.
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
    drills: Sequence[DrillDocument] = (),
) -> str:
    """Return the page of an archive.

    Args:
        row: The archive's row in the list of archives.
        history: What its runs have sealed.
        now: The current time.
        receipts: Address of the folder of receipts, `<generation>/<name>` below it.
        doing: Progress of the newest task of each of its DAGs.
        drains: The newest drains, oldest first.
        placed: Where the last validation's findings are.
        drills: The newest drills, oldest first.
    """
    proofs = _Proofs(row, placed, history.still_unknown)
    runs = history.runs[-COLUMNS:]
    by_run, by_day = _by_run(runs, proofs), _by_day(history, runs, proofs)
    return render(
        "archive.html",
        title=row.name,
        verdict=row.verdict,
        refresh=BUSY if any(one.state in ACTIVE for one in doing) else REFRESH,
        row=row,
        verdict_class=verdict_class(row.status(now).kind),
        verdict_text=verdict_text(row, now),
        seen=Seen.of(row.overview, now) if row.overview else None,
        tasks=[_Task.of(one) for one in sorted(doing, key=lambda one: one.state not in ACTIVE)],
        maps=_maps(by_run, by_day),
        legend=_legend([*by_run, *by_day]),
        figures=[*_spans(history, proofs), *_charts(runs, proofs), *_throughput(drains)],
        receipts=list(reversed(history.runs[-RECEIPTS:])),
        receipts_address=receipts,
        drills=show_drills(drills, now),
        now=now.isoformat(),
    )


@dataclass(frozen=True, slots=True)
class _Proofs:
    """What the last validation says about sealed offsets."""

    row: ArchiveRow
    placed: Placed
    unknown: Sequence[UnknownFile]

    def of(self, is_damaged: bool, has_unknown: bool) -> Proof:
        """Return what is proven, given whether there is damage, or unknown content."""
        return proof_of(
            is_readable=not self.row.problem,
            verdict=self.row.overview["verdict"] if self.row.overview else None,
            is_damaged=is_damaged,
            is_placed=self.placed.is_complete,
            has_unknown=has_unknown,
        )

    def of_run(self, run: SealedRun) -> Proof:
        """Return what is proven about everything that a run has sealed."""
        sealed = run.generation, run.receipt
        return self.of(
            any(place[:2] == sealed for place in self.placed.damaged),
            any((file.generation, file.receipt) == sealed for file in self.unknown),
        )

    def of_generation(self, number: int | None) -> Proof:
        """Return what is proven about a generation, or a window."""
        return self.of(
            any(place[0] == number for place in self.placed.damaged),
            any(file.generation == number for file in self.unknown),
        )

    def cells_of_run(self, run: SealedRun) -> dict[TopicPartition, Proof]:
        """Return what is proven about each partition of a run."""
        sealed = run.generation, run.receipt
        files = [file for file in self.unknown if (file.generation, file.receipt) == sealed]
        return self._cells([run], files, run.cells)

    def cells_of_day(
        self, day: str, runs: Iterable[SealedRun], tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Proof]:
        """Return what is proven about each partition of a day, of which some runs are given."""
        own = [run for run in runs if run.sealed_at[:10] == day]
        return self._cells(own, [file for file in self.unknown if file.day == day], tps)

    def _cells(
        self,
        runs: Iterable[SealedRun],
        files: Iterable[UnknownFile],
        tps: Iterable[TopicPartition],
    ) -> dict[TopicPartition, Proof]:
        places = {(run.generation, run.receipt) for run in runs}
        damaged = {tp for number, name, tp in self.placed.damaged if (number, name) in places}
        unknown = {tp for file in files for tp in file.tps}
        return {tp: self.of(tp in damaged, tp in unknown) for tp in tps}


@dataclass(frozen=True, slots=True)
class _Task:
    """The progress of a task, as shown on the page.

    Attributes:
        name: The DAG and the task.
        link: The run's page in Airflow.
        state: Airflow's state, which is also the CSS class of its colour.
        words: State and progress.
        percent: Whole percent.
        spark_ui: Address of a running Spark application's UI; the UI ends with the application.
    """

    name: str
    link: str
    state: str
    words: str
    percent: int = 0
    spark_ui: str = ""

    @classmethod
    def of(cls, one: Doing) -> _Task:
        """Return how a task is shown."""
        name, seen = f"{one.dag_id}, {one.task_id}", one.progress
        if not seen:
            words = f"{one.state}, no progress yet" if one.state in ACTIVE else one.state
            return cls(name, one.link, one.state, words)
        end = ended_of(one.state, seen["done"], seen["total"], seen["percent"])
        words = f"{end.done:,} of {seen['total']:,} {seen['unit']} ({end.percent} %)"
        if end.has_rate:
            left = f"{seen['left']} left" if seen.get("left") else ""
            words += "".join(f", {more}" for more in (seen.get("rate"), left) if more)
        words = f"{one.state}, {words}, {time_text(seen.get('at'))}"
        address = str(seen.get("spark_ui", ""))
        is_there = one.state == "running" and is_web_address(address)
        return cls(name, one.link, one.state, words, end.percent, address if is_there else "")


def _maps(by_run: Sequence[_Column], by_day: Sequence[_Column]) -> list[Figure]:
    maps = [_map("Sealed by each run", by_run, "run")] if by_run else []
    return maps + ([_map("By day", by_day, "day")] if len(by_day) > 1 else [])


def _by_run(runs: Sequence[SealedRun], proofs: _Proofs) -> list[_Column]:
    return [
        _Column(
            time_text(run.sealed_at)[5:16],
            _run_words(run),
            run.cells,
            proofs.cells_of_run(run),
        )
        for run in runs
    ]


def _by_day(history: History, runs: Sequence[SealedRun], proofs: _Proofs) -> list[_Column]:
    return [
        _Column(day[5:], day, cells, proofs.cells_of_day(day, runs, cells))
        for day, cells in sorted(history.days.items())[-COLUMNS:]
    ]


def _run_words(run: SealedRun) -> str:
    return f"generation {run.generation}, batch {run.batch}, sealed {time_text(run.sealed_at)}"


def _map(heading: str, columns: Sequence[_Column], unit: str) -> Figure:
    tps = sorted({tp for column in columns for tp in column.cells})
    # Partitions with problems are always shown.
    by_need = sorted(tps, key=lambda tp: not any(c.is_harmful(tp) for c in columns))
    shown = sorted(by_need[:ROWS])
    words = f"{many(len(columns), unit)}, oldest first; one row per partition"
    if len(shown) < len(tps):
        words += f": {len(shown)} of {len(tps):,}, including those with gaps"
    return Figure(heading, coverage_map(columns, shown), f"{words}.")


def coverage_map(columns: Sequence[_Column], rows: Sequence[TopicPartition]) -> Drawing:
    """Return a map: a rectangle for each partition and column, coloured by what is missing."""
    left, top, height = 150, 4, 14
    width = min(800 / len(columns), 60)
    boxes, labels = [], []
    for number, tp in enumerate(rows):
        y = top + number * height
        name = str(tp) if len(str(tp)) < 22 else f"…{str(tp)[-20:]}"
        labels.append(Label(name, left - 8, y + 11, "end", str(tp)))
        for place, column in enumerate(columns):
            cell = column.cells.get(tp)
            if cell is None or not cell.offsets:
                continue
            x, words = left + place * width, _cell_words(tp, column, cell)
            boxes.append(Box(x, y, max(width - 1, 0.8), height - 2, column.colour(tp), words))
    under = top + len(rows) * height + 14
    every = max(1, round(90 / width))
    for place in range(0, len(columns), every):
        labels.append(Label(columns[place].name, left + place * width, under))
    return Drawing("Coverage over time", left + 810, under + 8, boxes=boxes, labels=labels)


def _cell_words(tp: TopicPartition, column: _Column, cell: Cell) -> str:
    gaps = "".join(f", {number:,} {reason}" for reason, number in cell.gaps.items())
    proof = column.proofs[tp]
    said = "" if proof is Proof.PROVEN else f", {_MEANING[proof]}"
    held = f"{cell.records:,} records of {cell.offsets:,} offsets"
    return f"{tp}, {column.words}: {held}{gaps}{said}"


_MEANING = {
    Proof.DAMAGED: "damaged, see the report",
    Proof.UNPROVEN: "sealed, but not proven by the last validation",
    Proof.CONTENT_UNKNOWN: "offsets proven, some contents unknown",
}
_WORDS = {
    "covered": "sealed",
    **{str(proof.value): meaning for proof, meaning in _MEANING.items()},
}


def _legend(columns: Sequence[_Column]) -> list[tuple[str, str]]:
    """Return the colours in use and their meanings."""
    colours = {column.colour(tp) for column in columns for tp in column.cells}
    by_need = sorted(colours, key=lambda colour: (colour != "covered", colour))
    return [(colour, _WORDS.get(colour, colour)) for colour in by_need]


def _charts(runs: Sequence[SealedRun], proofs: _Proofs) -> list[Figure]:
    if not runs:
        return []
    return [
        _chart("Offsets of each run", runs, proofs, lambda run: run.offsets),
        _chart("Bytes of each run", runs, proofs, lambda run: run.bytes, size_text),
    ]


def _chart(
    heading: str,
    runs: Sequence[SealedRun],
    proofs: _Proofs,
    value: Callable[[SealedRun], int],
    write: Callable[[int], str] = "{:,}".format,
) -> Figure:
    bars = [
        Bar(
            value(run),
            time_text(run.sealed_at)[11:16],
            f"{_run_words(run)}: {many(run.offsets, 'offset')}, {many(run.records, 'record')}, "
            f"{many(run.files, 'file')}, {size_text(run.bytes)}",
            _generation_colour(run.generation, proofs.of_run(run)),
        )
        for run in runs
    ]
    return Figure(heading, bar_chart(bars, heading, "sealed", write))


def _generation_colour(number: int, proof: Proof) -> str:
    """Return a colour that distinguishes consecutive generations, if the offsets are proven."""
    if proof is not Proof.PROVEN:
        return str(proof.value)
    return "covered" if number % 2 else "alt"


def _throughput(drains: Sequence[Drained]) -> list[Figure]:
    """Return the throughput of the newest drains that had something to drain."""
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
    words = "Offsets per second of each drain, including Spark's startup."
    chart = bar_chart(bars, "Offsets per second of each drain", "drained")
    return [Figure("Throughput", chart, words)]


def _spans(history: History, proofs: _Proofs) -> list[Figure]:
    """Return generations and windows on an axis of their records' timestamps."""
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
    words = "From the first to the last record timestamp in each"
    if len(shown) < len(known):
        words += f": the newest {len(shown)} of {len(known):,}"
    stretches = [_stretch(span, proofs) for span in shown]
    axis = time_axis(stretches, "Generations and windows over time")
    return [Figure("Generations and windows", axis, f"{words}.")]


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
