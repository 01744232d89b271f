"""What an archive's runs have sealed, over time: told from receipts, which never change.

A reader that stays, such as a web server, reads each receipt once.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.offsets import TopicPartition

__all__ = ["COLUMNS", "Cell", "Histories", "History", "SealedRun", "Span", "read_history"]

#: So many newest runs, and so many newest days, are kept: the columns of a page's maps. Of what is
#: older, a span has the totals.
COLUMNS = 96
#: So many archives' histories are kept.
ARCHIVES = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """What was sealed of one partition, by a run or on a day.

    Attributes:
        offsets: How many, gaps included.
        records: How many are in files.
        gaps: Offsets that are in no file, by reason.
    """

    offsets: int = 0
    records: int = 0
    gaps: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Cell) -> Cell:
        gaps = Counter(self.gaps) + Counter(other.gaps) if other.gaps or self.gaps else {}
        return Cell(self.offsets + other.offsets, self.records + other.records, dict(gaps))


@dataclass(frozen=True, slots=True)
class SealedRun:
    """What one receipt seals.

    Attributes:
        receipt: Name of the receipt's file.
        generation: The generation's number.
        batch: Newest batch id.
        sealed_at: When, in UTC, as ISO 8601.
        offsets: How many, gaps included.
        records: How many are in its files.
        files: How many files.
        bytes: Their size.
        cells: The same by partition.
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
        """Return what a generation's receipt seals."""
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


@dataclass(frozen=True, slots=True)
class Span:
    """What a generation or a window holds, and from when its records are.

    Attributes:
        generation: The generation's number; None for a window.
        name: `generation 1`, or the window's key.
        segments: How many receipts seal it.
        offsets: How many, gaps included.
        records: How many are in its files.
        bytes: The files' size.
        first_timestamp: Lowest timestamp in milliseconds since 1970; None without a record.
        last_timestamp: Highest timestamp.
        sealed_at: When the newest receipt was sealed, in UTC, as ISO 8601.
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
        """Return what a receipt seals."""
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


@dataclass
class History:
    """What was sealed, run by run and day by day.

    Attributes:
        runs: The newest runs, oldest first.
        days: What was sealed on each of the newest days (UTC, ISO 8601), by partition.
        read: Name of the newest receipt that was taken in, by generation.
        spans: Generations and sealed windows, by name.
    """

    runs: list[SealedRun] = field(default_factory=list)
    days: dict[str, dict[TopicPartition, Cell]] = field(default_factory=dict)
    read: dict[int, str] = field(default_factory=dict)
    spans: dict[str, Span] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget all."""
        self.runs.clear()
        self.days.clear()
        self.read.clear()
        self.spans.clear()

    def add(self, receipts: Iterable[Receipt]) -> None:
        """Take in a generation's receipts, each newer than those before."""
        for receipt in receipts:
            span = Span.of(receipt)
            before = self.spans.get(span.name)
            self.spans[span.name] = before + span if before else span
            self.add_run(SealedRun.of(receipt))

    def add_run(self, run: SealedRun) -> None:
        """Take in a run that is newer than those before."""
        self.runs.append(run)
        self.read[run.generation] = run.receipt
        day = self.days.setdefault(run.sealed_at[:10], {})
        for tp, cell in run.cells.items():
            day[tp] = day.get(tp, Cell()) + cell
        del self.runs[:-COLUMNS]
        while len(self.days) > COLUMNS:
            del self.days[min(self.days)]


def read_history(archive: Archive, history: History) -> None:
    """Take in what was sealed since.

    Raises:
        ArchiveError: When the folder is no archive.
        ReceiptError: When a receipt is damaged; those before it are taken in.
    """
    snapshot = archive.snapshot()
    generations = snapshot.generations
    names = {generation.number: generation.receipt_names() for generation in generations}
    if any(last not in names.get(number, ()) for number, last in history.read.items()):
        # Another archive lies here than the one that was read.
        history.clear()
    for generation in generations:
        last = history.read.get(generation.number, "")
        new = (name for name in names[generation.number] if name > last)
        history.add(map(generation.read_receipt, new))
    _read_windows(snapshot, history)


def _read_windows(snapshot: Snapshot, history: History) -> None:
    """Take in windows that were sealed since, and forget those that are gone."""
    known = {name for name, span in history.spans.items() if span.generation is None}
    for gone in known.difference(snapshot.folders):
        del history.spans[gone]
    for key, window in snapshot.folders.items():
        if key not in known and window.is_sealed:
            history.spans[key] = Span.of(window.receipt)


class Histories:
    """The histories of some archives, kept while the process lives; several threads may ask."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[threading.Lock, History]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, archive: Archive) -> History:
        """Return an archive's history, up to now; raises as `read_history` does."""
        with self._lock:
            key = str(archive.root)
            lock, history = self._held.setdefault(key, (threading.Lock(), History()))
            self._held.move_to_end(key)
            while len(self._held) > ARCHIVES:
                self._held.popitem(last=False)
        with lock:
            read_history(archive, history)
            days = {day: dict(cells) for day, cells in history.days.items()}
            return History(list(history.runs), days, dict(history.read), dict(history.spans))
