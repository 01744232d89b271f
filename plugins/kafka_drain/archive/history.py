"""The history of an archive's sealed runs, derived from receipts, which never change.

A long-lived reader, such as a web server, reads each receipt only once. Later calls ask for what is
new: their cost doesn't grow with the number of receipts and generations that were read before.
"""

from __future__ import annotations

import threading
from array import array
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_summary import Summary, SummaryRow
from kafka_drain.archive.index import IndexedGeneration, IndexedWindow
from kafka_drain.archive.receipts import Receipt, unknown_files
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.summary_files import sound_summary
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage.paths import read_bytes
from kafka_drain.storage.sealed_json import SealError, check_seal

#: Number of newest runs, and of newest days, that are kept: the columns of a page's maps. Older
#: ones are only in the totals of a span.
COLUMNS = 96
#: Number of newest runs whose totals are kept, without partitions: those of a year of hours.
POINTS = 8_784
#: Number of archives whose histories are kept.
ARCHIVES = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """The records of one partition that a run, or a day, sealed.

    Attributes:
        offsets: Number of offsets, including gaps.
        records: Number of records in files.
        gaps: Number of offsets that are in no file, by reason.
    """

    offsets: int = 0
    records: int = 0
    gaps: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Cell) -> Cell:
        gaps = Counter(self.gaps) + Counter(other.gaps) if other.gaps or self.gaps else {}
        return Cell(self.offsets + other.offsets, self.records + other.records, dict(gaps))


@dataclass(frozen=True, slots=True)
class SealedRun:
    """The contents of one receipt.

    Attributes:
        receipt: File name of the receipt.
        generation: Number of the generation.
        batch: Newest batch id.
        sealed_at: Time of sealing, in UTC, as ISO 8601.
        offsets: Number of offsets, including gaps.
        records: Number of records in its files.
        files: Number of files.
        bytes: Total size of the files.
        cells: Offsets, records and gaps by partition.
    """

    receipt: str
    generation: int
    batch: int
    sealed_at: str
    offsets: int
    records: int
    files: int
    bytes: int
    cells: Mapping[TopicPartition, Cell]

    @classmethod
    def of(cls, receipt: Receipt) -> SealedRun:
        """Return the contents of a generation's receipt."""
        cells = {
            part.tp: Cell(
                len(part.range),
                part.records,
                {str(reason): sum(map(len, ranges)) for reason, ranges in part.gaps.items()},
            )
            for part in receipt.partitions
            if len(part.range)
        }
        return cls(
            receipt=receipt.name,
            generation=receipt.generation or 0,
            batch=receipt.last_batch,
            sealed_at=receipt.sealed_at,
            offsets=sum(cell.offsets for cell in cells.values()),
            records=sum(cell.records for cell in cells.values()),
            files=len(receipt.files),
            bytes=sum(file.bytes for file in receipt.files),
            cells=cells,
        )

    @property
    def point(self) -> Point:
        """The totals, as they are kept for long."""
        sealed_at = _seconds(self.sealed_at)
        return Point(sealed_at, self.generation, self.offsets, self.records, self.bytes)


def _seconds(sealed_at: str) -> int:
    """Return a time of sealing in seconds since 1970."""
    return round(datetime.fromisoformat(sealed_at).timestamp())


@dataclass(frozen=True, slots=True)
class Span:
    """The contents of a generation or a window, and the time range of its records.

    Attributes:
        generation: Number of the generation; None for a window.
        name: `generation 1`, or the window's key.
        segments: Number of receipts that seal it.
        offsets: Number of offsets, including gaps.
        records: Number of records in its files.
        bytes: Total size of the files.
        first_timestamp: Lowest timestamp in milliseconds since 1970; None without a record.
        last_timestamp: Highest timestamp.
        sealed_at: Time at which the newest receipt was sealed, in UTC, as ISO 8601.
    """

    generation: int | None
    name: str
    segments: int
    offsets: int
    records: int
    bytes: int
    first_timestamp: int | None
    last_timestamp: int | None
    sealed_at: str

    @classmethod
    def of(cls, receipt: Receipt) -> Span:
        """Return the contents of a single receipt."""
        return cls(
            generation=receipt.generation,
            name=receipt.window or f"generation {receipt.generation}",
            segments=1,
            offsets=receipt.offsets,
            records=receipt.records,
            bytes=sum(file.bytes for file in receipt.files),
            first_timestamp=_extreme(min, (p.first_timestamp for p in receipt.partitions)),
            last_timestamp=_extreme(max, (p.last_timestamp for p in receipt.partitions)),
            sealed_at=receipt.sealed_at,
        )

    @classmethod
    def of_row(cls, generation: int, row: SummaryRow) -> Span:
        """Return the contents of a single receipt of a generation, given its row in a summary."""
        return cls(
            generation=generation,
            name=f"generation {generation}",
            segments=1,
            offsets=row.offsets,
            records=row.records,
            bytes=row.bytes,
            first_timestamp=row.first_timestamp,
            last_timestamp=row.last_timestamp,
            sealed_at=row.sealed_at,
        )

    @classmethod
    def of_index(cls, row: IndexedGeneration | IndexedWindow) -> Span:
        """Return the contents of a generation or a window, given its row in the index."""
        number, name, segments = (
            (row.generation, f"generation {row.generation}", row.receipts)
            if isinstance(row, IndexedGeneration)
            else (None, row.window, 1)
        )
        return cls(
            generation=number,
            name=name,
            segments=segments,
            offsets=row.offsets,
            records=row.records,
            bytes=row.bytes,
            first_timestamp=row.first_timestamp,
            last_timestamp=row.last_timestamp,
            sealed_at=row.sealed_at,
        )

    def __add__(self, newer: Span) -> Span:
        return Span(
            generation=self.generation,
            name=self.name,
            segments=self.segments + newer.segments,
            offsets=self.offsets + newer.offsets,
            records=self.records + newer.records,
            bytes=self.bytes + newer.bytes,
            first_timestamp=_extreme(min, (self.first_timestamp, newer.first_timestamp)),
            last_timestamp=_extreme(max, (self.last_timestamp, newer.last_timestamp)),
            sealed_at=newer.sealed_at,
        )


def _extreme(
    choose: Callable[[Iterable[int]], int], timestamps: Iterable[int | None]
) -> int | None:
    known = [timestamp for timestamp in timestamps if timestamp is not None]
    return choose(known) if known else None


@dataclass(frozen=True, slots=True)
class UnknownFile:
    """A file with records of which it isn't known what Spark read.

    Attributes:
        generation: Number of its generation.
        receipt: File name of the receipt that seals it.
        day: The day on which it was sealed (UTC, ISO 8601).
        tps: The partitions of these records.
    """

    generation: int
    receipt: str
    day: str
    tps: frozenset[TopicPartition]

    @classmethod
    def all_of(cls, receipt: Receipt) -> dict[str, UnknownFile]:
        """Return a generation's receipt's files of unknown content, by path."""
        return {
            file.path: cls(
                generation=receipt.generation or 0,
                receipt=receipt.name,
                day=receipt.sealed_at[:10],
                tps=frozenset(content.tp for content in file.contents if content.records),
            )
            for file in unknown_files(receipt)
        }


class Point(NamedTuple):
    """The totals of a run.

    Attributes:
        sealed_at: Time of sealing, in seconds since 1970.
        generation: Number of the generation.
        offsets: Number of offsets, including gaps.
        records: Number of records in its files.
        bytes: Total size of the files.
    """

    sealed_at: int
    generation: int
    offsets: int
    records: int
    bytes: int


@dataclass
class Points:
    """The totals of the newest runs, oldest first, in a few bytes each."""

    _columns: tuple[array[int], ...] = field(
        default_factory=lambda: tuple(array("q") for _ in Point._fields)
    )

    def __iter__(self) -> Iterator[Point]:
        return map(Point._make, zip(*self._columns, strict=True))

    def __len__(self) -> int:
        return len(self._columns[0])

    def add(self, point: Point) -> None:
        """Add a run that is newer than the previous ones."""
        for column, value in zip(self._columns, point, strict=True):
            column.append(value)
            del column[:-POINTS]

    def copy(self) -> Points:
        """Return a copy."""
        return Points(tuple(column[:] for column in self._columns))


@dataclass
class History:
    """The sealed records, by run and by day.

    Attributes:
        runs: The newest runs, oldest first.
        days: Sealed records of each of the newest days (UTC, ISO 8601), by partition.
        read: Name of the newest receipt included so far, by generation.
        spans: Generations and sealed windows, by name.
        unknown: Files of generations with unknown content, by path.
        drained_again: Those of them whose records a window has read again from Kafka, or deleted;
            by the window's name.
        points: Totals of the newest runs, of more than `runs` has.
        newest: SHA-256 of the newest receipt included so far, which proves those before it.
    """

    runs: list[SealedRun] = field(default_factory=list)
    days: dict[str, dict[TopicPartition, Cell]] = field(default_factory=dict)
    read: dict[int, str] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)
    unknown: dict[str, UnknownFile] = field(default_factory=dict)
    drained_again: dict[str, frozenset[str]] = field(default_factory=dict)
    points: Points = field(default_factory=Points)
    newest: str = ""

    @property
    def still_unknown(self) -> list[UnknownFile]:
        """The files whose content is unknown, without those that were drained again."""
        again = frozenset[str]().union(*self.drained_again.values())
        return [file for path, file in self.unknown.items() if path not in again]

    def clear(self) -> None:
        """Remove everything."""
        self.runs.clear()
        self.days.clear()
        self.read.clear()
        self.spans.clear()
        self.unknown.clear()
        self.drained_again.clear()
        self.points, self.newest = Points(), ""

    def add(self, receipts: Iterable[Receipt]) -> None:
        """Add receipts of a generation, each newer than the previous ones."""
        for receipt in receipts:
            span = Span.of(receipt)
            before = self.spans.get(span.name)
            self.spans[span.name] = before + span if before else span
            self.unknown |= UnknownFile.all_of(receipt)
            self.add_run(SealedRun.of(receipt))
            self.newest = receipt.sha256

    def add_run(self, run: SealedRun) -> None:
        """Add a run that is newer than the previous ones."""
        self.runs.append(run)
        self.points.add(run.point)
        self.read[run.generation] = run.receipt
        day = self.days.setdefault(run.sealed_at[:10], {})
        for tp, cell in run.cells.items():
            day[tp] = day.get(tp, Cell()) + cell
        del self.runs[:-COLUMNS]
        while len(self.days) > COLUMNS:
            del self.days[min(self.days)]

    def add_summary(self, generation: Generation, summary: Summary) -> None:
        """Add a generation whose runs and days are too old to be kept.

        Raises:
            ReceiptError: When a receipt that the summary doesn't suffice for is damaged.
        """
        for row in summary.receipts:
            if row.unknown_content or (row.records and row.first_timestamp is None):
                receipt = generation.read_receipt(row.name)
                span = Span.of(receipt)
                self.unknown |= UnknownFile.all_of(receipt)
            else:
                span = Span.of_row(generation.number, row)
            before = self.spans.get(span.name)
            self.spans[span.name] = before + span if before else span
            at = _seconds(row.sealed_at)
            self.points.add(Point(at, generation.number, row.offsets, row.records, row.bytes))
            self.read[generation.number] = row.name
            self.newest = row.sha256

    def add_index(self, row: IndexedGeneration) -> None:
        """Add a generation of which not even the points are kept."""
        span = Span.of_index(row)
        self.spans[span.name] = span
        self.read[row.generation], self.newest = row.newest, row.sha256


def read_history(archive: Archive, history: History) -> None:
    """Add the segments sealed since the last call.

    Raises:
        ArchiveError: When the folder isn't an archive.
        ReceiptError: When a receipt is damaged; those before it have been added.
    """
    if history.read and not _is_of(history, archive):
        # The folder now holds a different archive.
        history.clear()
    snapshot = archive.snapshot()
    old = {} if history.read else _old(snapshot)
    for generation in snapshot.generations:
        # A receipt names the one before it, even of another generation: an older generation than
        # that of the newest receipt gets no more.
        known = old.get(generation.number)
        if isinstance(known, IndexedGeneration):
            history.add_index(known)
        elif known is not None:
            history.add_summary(generation, known)
        elif generation.number >= max(history.read, default=0):
            last = history.read.get(generation.number, "")
            new = (name for name in generation.receipt_names() if name > last)
            history.add(map(generation.read_receipt, new))
    _read_windows(snapshot, history)


def _old(snapshot: Snapshot) -> dict[int, Summary | IndexedGeneration]:
    """Return the totals of generations of which neither runs nor days are kept, by number.

    That is the summary; or the row in the index, if the points aren't kept either.
    """
    index = snapshot.index
    rows = {row.generation: row for row in index.generations} if index is not None else {}
    found: dict[int, Summary | IndexedGeneration] = {}
    runs, days = 0, set[str]()
    for generation in reversed(snapshot.generations[:-1]):
        row = rows.get(generation.number)
        if (
            row is not None
            and runs >= POINTS
            and _is_older(row.sealed_at, days)
            and _has_times(row)
            and not row.unknown_content
        ):
            found[generation.number] = row
            continue
        newest = generation.last_receipt()
        summary = sound_summary(generation, newest.sha256) if newest else None
        if summary is None:
            continue
        own = {row.sealed_at[:10] for row in summary.receipts}
        if runs >= COLUMNS and _is_older(max(own), days):
            found[generation.number] = summary
        runs += len(summary.receipts)
        days |= own
    return found


def _is_older(sealed_at: str, days: Collection[str]) -> bool:
    """Return whether something was sealed before the newest days, of which the cells are kept."""
    return len(days) >= COLUMNS and sealed_at[:10] < sorted(days)[-COLUMNS]


def _has_times(row: IndexedGeneration | IndexedWindow) -> bool:
    """Return whether a row says when its records were written, or has none."""
    return not row.records or row.first_timestamp is not None


def _is_of(history: History, archive: Archive) -> bool:
    """Return whether the newest receipt that was read is still there, byte by byte."""
    number = max(history.read)
    folder = archive.generation(number).folder / "receipts"
    try:
        return check_seal(read_bytes(folder / history.read[number])) == history.newest
    except (FileNotFoundError, NotADirectoryError, SealError):
        return False


def _read_windows(snapshot: Snapshot, history: History) -> None:
    """Add newly sealed windows, and remove those that no longer exist."""
    known = {name for name, span in history.spans.items() if span.generation is None}
    for gone in known.difference(snapshot.folders):
        del history.spans[gone]
        history.drained_again.pop(gone, None)
    index = snapshot.index
    rows = {row.window: row for row in index.windows} if index is not None else {}
    for key, window in snapshot.folders.items():
        if key in known:
            continue
        row = rows.get(key)
        # A file of unknown content may be among those that it replaces.
        if row is not None and _has_times(row) and not (history.unknown and row.replaces):
            history.spans[key] = Span.of_index(row)
            history.drained_again[key] = frozenset()
        elif window.is_sealed:
            receipt = window.receipt
            history.spans[key] = Span.of(receipt)
            again = history.unknown.keys() & set(receipt.drained_again)
            history.drained_again[key] = frozenset(again)


class Histories:
    """The histories of some archives, kept for the lifetime of the process; thread-safe."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[threading.Lock, History]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, archive: Archive) -> History:
        """Return an archive's up-to-date history; raises like `read_history`."""
        with self._lock:
            key = str(archive.root)
            lock, history = self._held.setdefault(key, (threading.Lock(), History()))
            self._held.move_to_end(key)
            while len(self._held) > ARCHIVES:
                self._held.popitem(last=False)
        with lock:
            read_history(archive, history)
            days = {day: dict(cells) for day, cells in history.days.items()}
            return replace(
                history,
                runs=list(history.runs),
                days=days,
                read=dict(history.read),
                spans=dict(history.spans),
                unknown=dict(history.unknown),
                drained_again=dict(history.drained_again),
                points=history.points.copy(),
            )
