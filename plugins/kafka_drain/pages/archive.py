"""Render one archive as an HTML page: the segments its runs have sealed, and its status."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from kafka_drain.archive.documents import DrillDocument
from kafka_drain.archive.history import (
    COLUMNS,
    Cell,
    History,
    Point,
    SealedRun,
    Span,
    UnknownFile,
)
from kafka_drain.gaps import is_harmless
from kafka_drain.offsets import TopicPartition
from kafka_drain.pages.archive_status import ACTIVE, ProofStatus, cell_colour, proof_of
from kafka_drain.pages.drawings import (
    Bar,
    Box,
    Chart,
    ChartPoint,
    Drawing,
    Figure,
    Label,
    Table,
    bar_chart,
)
from kafka_drain.pages.drills import show_drills
from kafka_drain.pages.hours import Stint, Strip, strip_of
from kafka_drain.pages.humanize import many, size_text, time_text
from kafka_drain.pages.next_step import next_step
from kafka_drain.pages.overview import (
    REFRESH,
    STATE_KINDS,
    ArchiveRow,
    Doing,
    LastValidation,
    verdict_class,
    verdict_text,
    worst_kind,
)
from kafka_drain.pages.placing import NOTHING, Placed
from kafka_drain.pages.remedies import remedies, standing_remedy
from kafka_drain.pages.rendering import render
from kafka_drain.pages.tasks import BUSY, ShownTask
from kafka_drain.pages.timeline import Stretch, is_of_calendar, time_axis

#: Before the first run.
_BEGINNING = datetime.min.replace(tzinfo=timezone.utc)
#: Maximum number of partitions in a coverage map.
ROWS = 100
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
    proofs: Mapping[TopicPartition, ProofStatus]

    def colour(self, tp: TopicPartition) -> str:
        """Return the colour of a partition's cell."""
        cell = self.cells[tp]
        return cell_colour(cell.gaps, cell.records > 0, self.proofs[tp])

    def is_harmful(self, tp: TopicPartition) -> bool:
        """Return whether something is wrong with a partition's cell."""
        if tp not in self.cells:
            return False
        gaps = self.cells[tp].gaps
        return self.proofs[tp] is ProofStatus.DAMAGED or not all(map(is_harmless, gaps))


@dataclass(frozen=True, slots=True)
class DrainResult:
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
    drains: Sequence[DrainResult] = (),
    placed: Placed = NOTHING,
    drills: Sequence[DrillDocument] = (),
    records: str = "",
) -> str:
    """Return the page of an archive.

    Args:
        row: The archive's row in the list of archives.
        history: The records that its runs have sealed.
        receipts: Address of the folder of receipts, `<generation>/<name>` below it.
        doing: Progress of the newest task of each of its DAGs.
        drains: The newest drains, oldest first.
        placed: Offsets of the last validation's findings.
        drills: The newest drills, oldest first.
        records: Address of the page on which its records are looked for; empty for none.
    """
    proofs = _Proofs(row, placed, history.still_unknown)
    runs = history.runs[-COLUMNS:]
    by_run, by_day = _by_run(runs, proofs), _by_day(history, runs, proofs)
    status, judged = row.status(now), row.judge(now)
    # Of an archive with a damaged document, the last validation may have said which.
    overview = row.overview if row.overview and (row.is_damaged or not row.problem) else {}
    found = remedies(overview, row.reach, placed.values)
    standing = standing_remedy(status.words, row.reach, row.last)
    return render(
        "archive.html",
        script_file="charts.js",
        title=row.name,
        verdict=judged.state.words,
        refresh=BUSY if any(one.state in ACTIVE for one in doing) else REFRESH,
        row=row,
        judged=judged,
        verdict_class=verdict_class(worst_kind([STATE_KINDS[judged.state], status.kind])),
        strip=_strip(history, proofs, now, is_refused=bool(judged.refused)),
        remedies=found,
        what_to_do=next_step(judged, found, standing, row.reach),
        verdict_text=verdict_text(row, now),
        seen=LastValidation.of(row.overview, now) if row.overview else None,
        tasks=[ShownTask.of(one) for one in sorted(doing, key=lambda one: one.state not in ACTIVE)],
        maps=_maps(by_run, by_day),
        legend=_legend([*by_run, *by_day]),
        figures=[*_spans(history, proofs), *_charts(history, proofs), *_throughput(drains)],
        receipts=list(reversed(history.runs[-RECEIPTS:])),
        receipts_address=receipts,
        records=records,
        drills=show_drills(drills, now),
        now=now.isoformat(),
    )


@dataclass(frozen=True, slots=True)
class _Proofs:
    """The last validation's results about sealed offsets."""

    row: ArchiveRow
    placed: Placed
    unknown: Sequence[UnknownFile]

    def of(self, is_damaged: bool, has_unknown: bool) -> ProofStatus:
        """Return the proof, given whether there is damage, or unknown content."""
        return proof_of(
            is_readable=not self.row.problem,
            verdict=self.row.overview["verdict"] if self.row.overview else None,
            is_damaged=is_damaged,
            is_placed=self.placed.is_complete,
            has_unknown=has_unknown,
        )

    def of_run(self, run: SealedRun) -> ProofStatus:
        """Return the proof of everything that a run has sealed."""
        sealed = run.generation, run.receipt
        return self.of(
            any(place[:2] == sealed for place in self.placed.damaged),
            any((file.generation, file.receipt) == sealed for file in self.unknown),
        )

    def of_generation(self, number: int | None) -> ProofStatus:
        """Return the proof of a generation, or a window."""
        return self.of(
            any(place[0] == number for place in self.placed.damaged),
            any(file.generation == number for file in self.unknown),
        )

    def cells_of_run(self, run: SealedRun) -> dict[TopicPartition, ProofStatus]:
        """Return the proof of each partition of a run."""
        sealed = run.generation, run.receipt
        files = [file for file in self.unknown if (file.generation, file.receipt) == sealed]
        return self._cells([run], files, run.cells)

    def cells_of_day(
        self, day: str, runs: Iterable[SealedRun], tps: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ProofStatus]:
        """Return the proof of each partition of a day, of which some runs are given."""
        own = [run for run in runs if run.sealed_at[:10] == day]
        return self._cells(own, [file for file in self.unknown if file.day == day], tps)

    def _cells(
        self,
        runs: Iterable[SealedRun],
        files: Iterable[UnknownFile],
        tps: Iterable[TopicPartition],
    ) -> dict[TopicPartition, ProofStatus]:
        places = {(run.generation, run.receipt) for run in runs}
        damaged = {tp for number, name, tp in self.placed.damaged if (number, name) in places}
        unknown = {tp for file in files for tp in file.tps}
        return {tp: self.of(tp in damaged, tp in unknown) for tp in tps}


def _strip(history: History, proofs: _Proofs, now: datetime, *, is_refused: bool) -> Strip | None:
    """Return the newest hours; of an archive that readers are refused, none is proven."""
    stints, before = list[Stint](), _BEGINNING
    for run in history.runs:
        ended = datetime.fromisoformat(run.sealed_at)
        is_lost = not all(is_harmless(gap) for cell in run.cells.values() for gap in cell.gaps)
        stints.append(Stint(min(before, ended), ended, is_lost, proofs.of_run(run)))
        before = ended
    is_proven = not is_refused and proofs.of(False, False) is ProofStatus.PROVEN
    return strip_of(stints, proofs.row.overview or {}, now, is_proven=is_proven)


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
    """Return a map: a rectangle for each partition and column, coloured by its gaps."""
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
    said = "" if proof is ProofStatus.PROVEN else f", {_MEANING[proof]}"
    held = f"{cell.records:,} records of {cell.offsets:,} offsets"
    return f"{tp}, {column.words}: {held}{gaps}{said}"


_MEANING = {
    ProofStatus.DAMAGED: "damaged, see the report",
    ProofStatus.UNPROVEN: "sealed, but not proven by the last validation",
    ProofStatus.CONTENT_UNKNOWN: "offsets proven, some contents unknown",
}
_CHART_WORDS = {
    "covered": "sealed, odd generations",
    "alt": "sealed, even generations",
    **{str(proof.value): meaning for proof, meaning in _MEANING.items()},
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


def _charts(history: History, proofs: _Proofs) -> list[Figure]:
    runs = history.runs[-COLUMNS:]
    if not runs or not history.points:
        return []
    colours = _point_colours(history, proofs)
    by_day = _by_day_table(history.points)
    return [
        replace(
            _chart(heading, runs, proofs, value, write),
            caption=f"{many(len(colours), 'run')}, by the time of sealing.",
            chart=Chart.of(
                heading,
                (
                    ChartPoint(point.sealed_at, number(point), colour)
                    for point, colour in zip(history.points, colours, strict=True)
                ),
                _CHART_WORDS,
                unit,
            ),
            table=by_day if unit else None,
        )
        for heading, value, number, write, unit in (
            ("Offsets of each run", _run_offsets, _point_offsets, "{:,}".format, ""),
            ("Bytes of each run", _run_bytes, _point_bytes, size_text, "bytes"),
        )
    ]


def _run_offsets(run: SealedRun) -> int:
    return run.offsets


def _run_bytes(run: SealedRun) -> int:
    return run.bytes


def _point_offsets(point: Point) -> int:
    return point.offsets


def _point_bytes(point: Point) -> int:
    return point.bytes


def _point_colours(history: History, proofs: _Proofs) -> list[str]:
    """Return the colours of the runs in a chart, of older ones by their generation's proof."""
    generations: dict[int, str] = {}
    for point in history.points:
        if point.generation not in generations:
            proof = proofs.of_generation(point.generation)
            generations[point.generation] = _generation_colour(point.generation, proof)
    colours = [generations[point.generation] for point in history.points]
    newest = history.runs[-len(colours) :] if colours else []
    for place, run in enumerate(newest, start=len(colours) - len(newest)):
        colours[place] = _generation_colour(run.generation, proofs.of_run(run))
    return colours


def _by_day_table(points: Iterable[Point]) -> Table:
    """Return the totals of each day, newest first: the numbers of both charts."""
    days: dict[str, list[int]] = {}
    for point in points:
        day = f"{datetime.fromtimestamp(point.sealed_at, tz=timezone.utc):%Y-%m-%d}"
        totals = days.setdefault(day, [0, 0, 0, 0])
        for place, value in enumerate((1, point.offsets, point.records, point.bytes)):
            totals[place] += value
    return Table(
        ("day", "runs", "offsets", "records", "size"),
        [
            (day, *(f"{number:,}" for number in totals[:3]), size_text(totals[3]))
            for day, totals in sorted(days.items(), reverse=True)
        ],
    )


def _chart(
    heading: str,
    runs: Sequence[SealedRun],
    proofs: _Proofs,
    value: Callable[[SealedRun], int],
    write: Callable[[int], str],
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


def _generation_colour(number: int, proof: ProofStatus) -> str:
    """Return a colour that distinguishes consecutive generations, if the offsets are proven."""
    if proof is not ProofStatus.PROVEN:
        return str(proof.value)
    return "covered" if number % 2 else "alt"


def _throughput(drains: Sequence[DrainResult]) -> list[Figure]:
    """Return the throughput of the newest drains that had something to drain."""
    shown = [one for one in drains[-COLUMNS:] if one.offsets and one.seconds > 0]
    bars = [
        Bar(
            round(one.offsets / one.seconds),
            time_text(one.at)[11:16],
            f"{time_text(one.at)}: {many(one.offsets, 'offset')} in {one.seconds:,.1f} s",
            "alt",
        )
        for one in shown
    ]
    if not bars:
        return []
    words = "Offsets per second of each drain, including Spark's startup."
    label = "Offsets per second of each drain"
    table = Table(
        ("finished", "offsets", "seconds", "offsets per second"),
        [
            (time_text(one.at), f"{one.offsets:,}", f"{one.seconds:,.1f}", f"{bar.value:,}")
            for one, bar in zip(reversed(shown), reversed(bars), strict=True)
        ],
    )
    points = [
        ChartPoint(at, bar.value, "alt")
        for one, bar in zip(shown, bars, strict=True)
        if (at := _seconds(one.at)) is not None
    ]
    chart = Chart.of(label, points, {"alt": "offsets per second"}) if points else None
    return [Figure("Throughput", bar_chart(bars, label, "drained"), words, chart, table)]


def _seconds(moment: str) -> int | None:
    """Return an ISO time as seconds since 1970; None if it isn't one."""
    try:
        return round(datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return None


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
    first, last = min(one.first for one in stretches), max(one.last for one in stretches)
    words += f"; all of them from {time_text(first)} to {time_text(last)}"
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
        colour = "window" if proof is ProofStatus.PROVEN else str(proof.value)
    else:
        colour = _generation_colour(span.generation, proof)
    return Stretch(span.name, words, first, last, colour)
