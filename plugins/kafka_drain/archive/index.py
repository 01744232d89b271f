"""The index of an archive: its closed segments in one document, so that nobody reads all of it.

A row for each closed generation and each sealed window, and what they hold together of each
partition: which offsets, and how many records. It is made of nothing but receipts and plans, the
same bytes each time, and names each with its hash: it counts only as long as journal and listings
have just these. What isn't in it is read. It proves nothing; a validation that reads everything
compares it. Opens nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from math import isqrt
from typing import Annotated, Any, TypeVar

from kafka_drain.archive.fold import Partition, WindowKind, owner_of
from kafka_drain.archive.format import SealedDocument
from kafka_drain.archive.generation_summary import SummaryRow
from kafka_drain.archive.journal.entries import Noted, Tip
from kafka_drain.archive.journal.identity import ids_by_topic
from kafka_drain.archive.receipts import Receipt
from kafka_drain.gaps import GapReason
from kafka_drain.intervals import TimeRange, from_iso, in_utc, milliseconds
from kafka_drain.offsets import OffsetRange, Offsets, Ranges, TopicPartition, merge, overlapping
from kafka_drain.storage.sealed_json import SealError
from kafka_drain.storage.typed_json import DocumentError, Readable, VersionError

#: The version of the index itself. One of another version is made anew.
VERSION = 2
#: An archive with at most so many generations, and so many windows, is always read as a whole.
FEW = 8
#: Closed generations, and windows, that are rechecked each time, whatever the query.
GENERATIONS_IN_TURN, WINDOWS_IN_TURN = 8, 16
#: Bytes after which a turn takes no further window: its plan and receipt name what it replaces.
BYTES_IN_TURN = 4 << 20

#: A row with more partitions has no offsets: every query for offsets matches it.
MOST_PARTITIONS = 128

_FEWEST_TURNS = 11

T = TypeVar("T")


class IndexFileError(ValueError):
    """Raised when bytes aren't an index."""


class OtherIndexError(IndexFileError):
    """Raised when an index is of another version: it doesn't count, and is no damage."""


@dataclass(frozen=True, slots=True)
class IndexedGeneration:
    """A closed generation.

    Attributes:
        generation: Its number.
        receipts: Number of its receipts.
        newest: File name of the newest one.
        sha256: The hash of that receipt.
        document: Digest of `generation.json`, as the journal has it.
        sealed_at: When the newest receipt was sealed, in UTC.
        offsets: Number of offsets that it drained, including gaps.
        records: Number of records in its files.
        files: Number of its files.
        bytes: Their total size.
        unknown_content: Whether it isn't known what Spark read of some of its records.
        first_timestamp: Lowest timestamp, in milliseconds since 1970; None if it has none, or one
            of its files doesn't say.
        last_timestamp: Highest timestamp; None likewise.
        held: The offsets that it holds of each partition, by topic, as `partition:start-end`; None
            if these are too many.
    """

    generation: int
    receipts: int
    newest: str
    sha256: str
    document: str
    sealed_at: str
    offsets: int
    records: int
    files: int
    bytes: int
    unknown_content: bool
    first_timestamp: int | None
    last_timestamp: int | None
    held: Mapping[str, str] | None

    @property
    def name(self) -> str:
        """Its folder, relative to the archive."""
        return f"generations/{self.generation:04d}"

    def may_hold(self, times: TimeRange) -> bool:
        """Return whether its files may have records in a time range."""
        return self.files > 0 and times.may_hold(self.first_timestamp, self.last_timestamp)

    @classmethod
    def of(
        cls, receipts: int, newest: Receipt, document: str, rows: Sequence[SummaryRow]
    ) -> IndexedGeneration:
        """Return the row of a generation.

        Args:
            receipts: Number of its receipts.
            newest: The newest one.
            document: Digest of its `generation.json`.
            rows: Its summary's rows, one for each receipt.
        """
        holding = [row for row in rows if row.files]
        firsts = [row.first_timestamp for row in holding]
        lasts = [row.last_timestamp for row in holding]
        known = [time for time in (*firsts, *lasts) if time is not None]
        is_known = bool(known) and len(known) == 2 * len(holding)
        return cls(
            generation=newest.generation or 0,
            receipts=receipts,
            newest=newest.name,
            sha256=newest.sha256,
            document=document,
            sealed_at=newest.sealed_at,
            offsets=sum(row.offsets for row in rows),
            records=sum(row.records for row in rows),
            files=newest.files_so_far.files,
            bytes=newest.files_so_far.bytes,
            unknown_content=any(row.unknown_content for row in rows),
            first_timestamp=min(known) if is_known else None,
            last_timestamp=max(known) if is_known else None,
            held=held_text(
                (part.tp, OffsetRange(part.start_so_far, part.range.end))
                for part in newest.partitions
            ),
        )


@dataclass(frozen=True, slots=True)
class IndexedWindow:
    """A sealed window whose offsets are all in closed generations.

    Attributes:
        window: Its name.
        kind: Why it was written.
        receipt: Hash of its receipt.
        plan: Digest of its plan, as the journal has it.
        size: Bytes of its plan and receipt.
        sealed_at: Time of sealing, in UTC.
        offsets: Number of offsets that it covers, including gaps.
        records: Number of records in its files.
        files: Number of its files.
        bytes: Their total size.
        first_timestamp: Lowest timestamp, in milliseconds since 1970; None if it has none, or one
            of its files doesn't say.
        last_timestamp: Highest timestamp; None likewise.
        replaces: Number of files that it replaces, by the generation or window that they are of.
        held: From the first to the last offset that it covers of each partition, by topic, as
            `partition:start-end`; None if these are too many.
    """

    window: str
    kind: str
    receipt: str
    plan: str
    # It only divides turns: a plan in other bytes may say the same.
    size: int = field(compare=False)
    sealed_at: str
    offsets: int
    records: int
    files: int
    bytes: int
    first_timestamp: int | None
    last_timestamp: int | None
    replaces: Mapping[str, int]
    held: Mapping[str, str] | None

    @property
    def name(self) -> str:
        """Its folder, relative to the archive."""
        return f"windows/{self.window}"

    def may_hold(self, times: TimeRange) -> bool:
        """Return whether its files may have records in a time range."""
        return self.files > 0 and times.may_hold(self.first_timestamp, self.last_timestamp)

    @classmethod
    def of(cls, receipt: Receipt, kind: WindowKind, plan: str, size: int) -> IndexedWindow:
        """Return the row of a window, given the digest of its plan, and the size of both."""
        row = SummaryRow.of(receipt)
        return cls(
            window=receipt.window,
            kind=kind.value,
            receipt=receipt.sha256,
            plan=plan,
            size=size,
            sealed_at=row.sealed_at,
            offsets=row.offsets,
            records=row.records,
            files=row.files,
            bytes=row.bytes,
            first_timestamp=row.first_timestamp,
            last_timestamp=row.last_timestamp,
            replaces=dict(sorted(Counter(map(owner_of, {*receipt.replaces})).items())),
            held=held_text((part.tp, part.range) for part in receipt.partitions),
        )


@dataclass(frozen=True, slots=True)
class IndexedTopic:
    """An incarnation of a topic.

    Attributes:
        topic: Its name.
        generation: Number of the first generation that counts in it.
    """

    topic: str
    topic_id: str
    generation: int


@dataclass(frozen=True, slots=True)
class IndexedPartition:
    """The total over all rows of a partition.

    Attributes:
        start: The first offset.
        end: End offset of its newest generation, exclusive; None if no generation has any.
        records: Number of records.
        gaps: Number of missing offsets, by reason.
        covered: The offsets that generations or windows cover, either with records or with
            explained gaps, as `[start, end]`; sorted, disjoint, and not adjacent.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int | None
    records: int
    gaps: Mapping[str, int]
    covered: tuple[tuple[int, int], ...]

    @property
    def key(self) -> Partition:
        """The partition, and the id of its topic."""
        return TopicPartition(self.topic, self.partition), self.topic_id


@dataclass(frozen=True)
class NewGeneration:
    """A closed generation that isn't in an index yet.

    Attributes:
        topics: Topic ids by topic, of its `generation.json`.
    """

    row: IndexedGeneration
    newest: Receipt
    topics: Mapping[str, str]


@dataclass(frozen=True)
class NewWindow:
    """A window that isn't in an index yet.

    Attributes:
        replaced: Its plan's entry for intact files that it replaces; None without one.
    """

    row: IndexedWindow
    receipt: Receipt
    replaced: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Query:
    """The sealed segments that a caller needs, beside what is read anyway.

    That is the open generation, and everything that isn't in the index.

    Attributes:
        times: Also files that may have records in this range; None for any time if there are
            offsets, and otherwise for none.
        offsets: Also files that may have some of these offsets, sorted and disjoint for each
            partition; None for any offset if there is a time, and otherwise for none.
        uncompacted: Also what no compaction has written.
        dated_later: Also files with a record dated later than they were sealed.
        names: Also these generations and windows, as their folders.
        claimed: Whether also what covers some of the offsets without a file that readers get:
            whoever plans or seals a window must see it.
    """

    times: TimeRange | None = None
    offsets: Ranges | None = None
    uncompacted: bool = False
    dated_later: bool = False
    names: frozenset[str] = frozenset()
    claimed: bool = False

    def matches_live(self, row: IndexedGeneration | IndexedWindow) -> bool:
        """Return whether it matches a row, provided that readers still get one of its files."""
        if self.uncompacted and not (
            isinstance(row, IndexedWindow) and WindowKind(row.kind).is_maintained
        ):
            return True
        if self.dated_later and row.may_hold(TimeRange(from_ms=_milliseconds(row.sealed_at) + 1)):
            return True
        if self.times is None and self.offsets is None:
            return False
        return row.may_hold(self.times or TimeRange()) and (
            self.offsets is None or may_cover(row.held, self.offsets)
        )

    def matches_any(self, row: IndexedGeneration | IndexedWindow) -> bool:
        """Return whether it matches a row, even if windows have replaced all of its files."""
        return row.name in self.names or (
            self.claimed and self.offsets is not None and may_cover(row.held, self.offsets)
        )


def _milliseconds(time: str) -> int:
    return milliseconds(in_utc(from_iso(time)))


@dataclass(frozen=True)
class Skipped:
    """The segments that aren't read for a query, because the index says enough of them.

    Attributes:
        generations: Numbers of closed generations.
        windows: Names of sealed windows.
        rechecked: Those generations that are compared with the journal this time all the same.
    """

    index: Index
    generations: frozenset[int] = frozenset()
    windows: frozenset[str] = frozenset()
    rechecked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Index(SealedDocument):
    """The closed segments of an archive.

    Attributes:
        generations: A row for each closed generation that has receipts, oldest first.
        windows: A row for each window that is settled, by name.
        topics: The incarnations of topics, by name and id.
        ids: The ids that archive.json may say of each sealed topic; see `ids_by_topic`.
        partitions: Totals of the rows, by partition.
        files: Number of files that were sealed, without those that windows have replaced intact.
        file_bytes: Their size.
    """

    format_version: Annotated[int, Readable((VERSION,))] = field(default=VERSION, kw_only=True)
    generations: tuple[IndexedGeneration, ...] = ()
    windows: tuple[IndexedWindow, ...] = ()
    topics: tuple[IndexedTopic, ...] = ()
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    partitions: tuple[IndexedPartition, ...] = ()
    files: int = 0
    file_bytes: int = 0

    @property
    def rows(self) -> list[IndexedGeneration | IndexedWindow]:
        """All rows."""
        return [*self.generations, *self.windows]

    @property
    def last(self) -> int:
        """Number of the newest generation in it; 0 if there is none."""
        return self.generations[-1].generation if self.generations else 0

    @property
    def receipts(self) -> int:
        """Number of receipts of its generations."""
        return sum(row.receipts for row in self.generations)

    @cached_property
    def drained(self) -> Mapping[Partition, OffsetRange]:
        """The offsets drained by its generations."""
        return {
            row.key: OffsetRange(row.start, row.end)
            for row in self.partitions
            if row.end is not None
        }

    @cached_property
    def covered(self) -> Mapping[Partition, list[OffsetRange]]:
        """The offsets that its generations and windows cover; sorted and disjoint."""
        return {row.key: [OffsetRange(*pair) for pair in row.covered] for row in self.partitions}

    def touched(self, offsets: Ranges) -> list[IndexedPartition]:
        """Return the partitions of which it covers some of the given offsets."""
        return [
            row
            for row in self.partitions
            if any(
                overlapping(self.covered[row.key], wanted) for wanted in offsets.get(row.key[0], ())
            )
        ]

    @cached_property
    def replaced(self) -> Mapping[str, int]:
        """Number of intact files that its windows replace, by generation or window."""
        found = Counter[str]()
        for row in self.windows:
            if WindowKind(row.kind).supersedes:
                found.update(row.replaces)
        return found

    def is_gone(self, row: IndexedGeneration | IndexedWindow) -> bool:
        """Return whether windows have replaced all files of a row, so that no reader gets any."""
        return self.replaced.get(row.name, 0) == row.files

    def agrees(self, noted: Noted, generations: Collection[int], windows: Collection[str]) -> bool:
        """Return whether all that it names is there, and was noted with the same hashes.

        Args:
            noted: The journal's notes.
            generations: Numbers of the generations that are there.
            windows: Names of the windows that are there.
        """
        documents = noted.documents
        return all(
            row.generation in generations
            and noted.tips.get(row.name) == Tip(row.newest, row.receipts, row.sha256)
            and documents.get(f"{row.name}/generation.json") == row.document
            for row in self.generations
        ) and all(
            row.window in windows
            and documents.get(f"{row.name}/receipt.json") == row.receipt
            and documents.get(f"{row.name}/plan.json") == row.plan
            for row in self.windows
        )

    def is_continued_by(self, topics: Mapping[str, str], starts: Offsets) -> bool:
        """Return whether a later generation starts at or after all offsets that are in it.

        Then nothing in it can hold an offset of that generation.

        Args:
            topics: Topic ids by topic of the generation.
            starts: Its starting offsets.
        """
        return all(
            topics.get(row.topic) != row.topic_id
            or (row.key[0] in starts and starts[row.key[0]] >= _end_of(row))
            for row in self.partitions
        )

    def plus(
        self, generations: Iterable[NewGeneration], windows: Iterable[NewWindow] = ()
    ) -> Index:
        """Return the index with more generations, newer than those in it, and more windows."""
        rows, files, size = dict[Partition, _Sum](), self.files, self.file_bytes
        for row in self.partitions:
            held = [*self.covered[row.key]]
            rows[row.key] = _Sum(row.start, row.end, row.records, Counter(row.gaps), held)
        first = {(row.topic, row.topic_id): row.generation for row in self.topics}
        new, more = list(generations), list(windows)
        for generation in new:
            for topic in generation.topics.items():
                first.setdefault(topic, generation.row.generation)
            _add_generation(rows, generation.newest)
            files += generation.row.files
            size += generation.row.bytes
        for window in more:
            _add_window(rows, window)
            replaced = window.replaced or {"files": 0, "bytes": 0}
            files += window.row.files - replaced["files"]
            size += window.row.bytes - replaced["bytes"]
        ids = ids_by_topic(((each.newest.topics, each.topics) for each in new), self.ids)
        return Index(
            generations=(*self.generations, *(each.row for each in new)),
            windows=tuple(
                sorted((*self.windows, *(each.row for each in more)), key=lambda row: row.window)
            ),
            topics=tuple(IndexedTopic(*topic, first[topic]) for topic in sorted(first)),
            ids={topic: tuple(sorted(ids[topic])) for topic in sorted(ids)},
            partitions=tuple(
                IndexedPartition(
                    topic=tp.topic,
                    topic_id=topic_id,
                    partition=tp.partition,
                    start=row.start,
                    end=row.end,
                    records=row.records,
                    gaps=dict(sorted((+row.gaps).items())),
                    covered=tuple((r.start, r.end) for r in merge(row.covered)),
                )
                for (tp, topic_id), row in sorted(rows.items())
            ),
            files=files,
            file_bytes=size,
        )

    def contradicts(self, other: Index) -> str:
        """Return the first entry on which the two differ; empty if they agree.

        One that was made earlier, or before something was restored, is no contradiction.
        """
        own = {(row.name, _hash_of(row)): row for row in self.rows}
        others = {(row.name, _hash_of(row)): row for row in other.rows}
        for key, row in others.items():
            if own.get(key, row) != row:
                return key[0]
        return "their sums" if own.keys() == others.keys() and self != other else ""


def suffices(index: Index, query: Query) -> bool:
    """Return whether an index says enough for a query of offsets; otherwise, everything is read.

    It doesn't if a topic's id is unknown, as in receipts of the first release. Nor does it for a
    caller that plans or seals a window over offsets that a generation leaves to windows: the index
    doesn't record which of them are covered already.
    """
    if query.offsets is None:
        return True
    if not all(row.topic_id for row in index.partitions):
        return False
    return not query.claimed or not any(
        row.gaps.get(GapReason.WINDOW) for row in index.touched(query.offsets)
    )


def skip(index: Index, query: Query, turn: int | None, others: Iterable[str] = ()) -> Skipped:
    """Return the segments that needn't be read for a query.

    A few closed segments are rechecked in rotation, so that a missing one is found within days; of
    the generations, always the newest that is in the index.

    Args:
        index: A sound index.
        turn: Grows by one from time to time; None to recheck nothing.
        others: Folders of the generations and windows that aren't in the index, and so are read.
    """
    if query.offsets is not None and not index.touched(query.offsets):
        # Nothing in it holds any of them.
        query = replace(query, times=None, offsets=None)
    wanted = [
        row
        for row in index.rows
        if query.matches_any(row) or (query.matches_live(row) and not index.is_gone(row))
    ]
    generations = {row.generation for row in wanted if isinstance(row, IndexedGeneration)}
    windows = {row.window for row in wanted if isinstance(row, IndexedWindow)}
    if turn is not None:
        windows |= {row.window for row in chunk_of_turn(window_chunks(index.windows), turn)}
    read = {*others, *(row.name for row in wanted), *(f"windows/{key}" for key in windows)}
    windows |= replacing(index.windows, read)
    looked_at = (
        []
        if turn is None
        else [
            *chunk_of_turn(chunks(index.generations, GENERATIONS_IN_TURN), turn),
            *index.generations[-1:],
        ]
    )
    return Skipped(
        index,
        frozenset(row.generation for row in index.generations) - generations,
        frozenset(row.window for row in index.windows) - windows,
        frozenset(row.generation for row in looked_at) - generations,
    )


def replacing(windows: Sequence[IndexedWindow], owners: Collection[str]) -> set[str]:
    """Return the windows that replace files of some generations and windows, or of one another."""
    by_owner: dict[str, list[str]] = {}
    for row in windows:
        for owner in row.replaces:
            by_owner.setdefault(owner, []).append(row.window)
    found, waiting = set[str](), list(owners)
    while waiting:
        new = set(by_owner.get(waiting.pop(), ())) - found
        found |= new
        waiting += [f"windows/{key}" for key in new]
    return found


def chunk_of_turn(chunks: Sequence[Sequence[T]], turn: int) -> Sequence[T]:
    """Return the chunk to recheck this time.

    The number of turns is padded to a prime, so that each chunk's turn comes even for a caller that
    skips turns, such as every second or tenth.
    """
    if not chunks:
        return ()
    turns = next(
        number
        for number in count(max(len(chunks), _FEWEST_TURNS))
        if all(number % divisor for divisor in range(2, isqrt(number) + 1))
    )
    return chunks[turn % turns % len(chunks)]


def chunks(rows: Sequence[T], size: int) -> list[Sequence[T]]:
    """Split rows into chunks of a size."""
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def window_chunks(windows: Sequence[IndexedWindow]) -> list[Sequence[IndexedWindow]]:
    """Split windows into chunks that are quick to read, or a single window."""
    found: list[list[IndexedWindow]] = []
    for row in windows:
        last = found[-1] if found else []
        is_full = sum(each.size for each in last) + row.size > BYTES_IN_TURN
        if not last or len(last) == WINDOWS_IN_TURN or is_full:
            found.append([row])
        else:
            last.append(row)
    return [*found]


def is_skippable(
    receipt: Receipt,
    kind: WindowKind,
    replaced: Mapping[str, Any] | None,
    bounds: Mapping[Partition, int],
) -> bool:
    """Return whether a window may be skipped unless a query matches it.

    Its offsets are all before those that generations outside of the index may hold; it erased
    nothing, as erased offsets may never come back; and if it replaces files, its plan says what
    these held, as of intact ones.

    Args:
        kind: Why it was written.
        replaced: Its plan's entry for intact files that it replaces; None without one.
        bounds: The result of `bounds_of`.
    """
    if kind is WindowKind.ERASURE or (receipt.replaces and replaced is None):
        return False
    for part in receipt.partitions:
        bound = bounds.get((part.tp, receipt.topics.get(part.tp.topic, "")))
        if bound is None or part.range.end > bound or GapReason.ERASED in part.gaps:
            return False
    return True


def bounds_of(
    drained: Mapping[Partition, OffsetRange], later: Iterable[tuple[Mapping[str, str], Offsets]]
) -> dict[Partition, int]:
    """Return the offsets before which no generation outside of an index may hold any.

    That is where the generations in it end; of a partition that none of them has drained, where the
    later ones start.

    Args:
        drained: The offsets drained by the generations in the index.
        later: Topic ids by topic, and starting offsets, of each later generation.
    """
    starts, drains, has_topic = dict[Partition, int](), Counter[Partition](), Counter[Any]()
    for topics, own in later:
        has_topic.update(topics.items())
        for tp, start in own.items():
            key = tp, topics.get(tp.topic, "")
            starts[key] = min(start, starts.get(key, start))
            drains[key] += 1
    bounds = {
        # A partition that was added to the topic later is drained from 0.
        key: start if drains[key] == has_topic[key[0].topic, key[1]] else 0
        for key, start in starts.items()
    }
    return bounds | {key: held.end for key, held in drained.items()}


def held_text(parts: Iterable[tuple[TopicPartition, OffsetRange]]) -> dict[str, str] | None:
    """Return from the first to the last offset of each partition, as text by topic.

    None if there are too many partitions.
    """
    found: dict[TopicPartition, OffsetRange] = {}
    for tp, r in parts:
        known = found.get(tp, r)
        found[tp] = OffsetRange(min(known.start, r.start), max(known.end, r.end))
    if len(found) > MOST_PARTITIONS:
        return None
    topics: dict[str, list[str]] = {}
    for tp, r in sorted(found.items()):
        topics.setdefault(tp.topic, []).append(f"{tp.partition}:{r.start}-{r.end}")
    return {topic: " ".join(texts) for topic, texts in topics.items()}


def may_cover(held: Mapping[str, str] | None, offsets: Ranges) -> bool:
    """Return whether what `held_text` says may be some of the given offsets."""
    if held is None:
        return True
    for topic in {tp.topic for tp in offsets}.intersection(held):
        for text in held[topic].split():
            partition, pair = text.split(":")
            start, end = pair.split("-")
            wanted = offsets.get(TopicPartition(topic, int(partition)))
            if wanted and overlapping(wanted, OffsetRange(int(start), int(end))):
                return True
    return False


def replacing_twice(windows: Iterable[Receipt], others: Iterable[Receipt]) -> set[str]:
    """Return those of some windows that replace a file which another window replaces, too.

    No window is sealed that does. But the index counts replaced files, and counts one twice then:
    it could take another file of the same owner, which readers need, for replaced.

    Args:
        others: The receipts of other windows, at least of those that replace files of an owner
            whose files the windows replace.
    """
    asked = list(windows)
    named = [(receipt, {*map(owner_of, receipt.replaces)}) for receipt in [*asked, *others]]
    owners = Counter(owner for _, own in named for owner in own)
    # A generation has thousands of files, and most often a single window replaces them all.
    rivals = [receipt for receipt, own in named if any(owners[owner] > 1 for owner in own)]
    twice = Counter(path for receipt in rivals for path in {*receipt.replaces})
    keys = {receipt.window for receipt in asked}
    return {
        receipt.window
        for receipt in rivals
        if receipt.window in keys and any(twice[path] > 1 for path in receipt.replaces)
    }


@dataclass
class _Sum:
    start: int
    end: int | None = None
    records: int = 0
    gaps: Counter[str] = field(default_factory=Counter)
    covered: list[OffsetRange] = field(default_factory=list)


def _add_generation(rows: dict[Partition, _Sum], newest: Receipt) -> None:
    for part in newest.partitions:
        key = part.tp, newest.topics.get(part.tp.topic, "")
        row = rows.setdefault(key, _Sum(part.start_so_far))
        row.start = min(row.start, part.start_so_far)
        row.end = part.range.end
        row.records += part.records_so_far
        row.gaps.update({str(reason): n for reason, n in part.gaps_so_far.items()})
        row.covered.append(OffsetRange(part.start_so_far, part.range.end))


def _add_window(rows: dict[Partition, _Sum], window: NewWindow) -> None:
    """Add the records of a settled window, whose offsets are those of gaps that it fills."""
    receipt = window.receipt
    for part in receipt.partitions:
        key = part.tp, receipt.topics.get(part.tp.topic, "")
        row = rows.setdefault(key, _Sum(part.range.start))
        row.start = min(row.start, part.range.start)
        row.records += part.records
        row.covered.append(part.range)
        if not receipt.files:
            row.gaps[str(GapReason.DELETED)] += part.gaps_so_far.get(GapReason.DELETED, 0)
    for gone in (window.replaced or {"records": ()})["records"]:
        tp = TopicPartition(gone["topic"], gone["partition"])
        rows[tp, receipt.topics.get(tp.topic, "")].records -= gone["records"]


def _end_of(row: IndexedPartition) -> int:
    """Return the offset after the last one that generations or windows cover."""
    return max(row.end or 0, row.covered[-1][1] if row.covered else 0)


def _hash_of(row: IndexedGeneration | IndexedWindow) -> str:
    """Return the hashes that identify the documents that a row is made of."""
    if isinstance(row, IndexedGeneration):
        return f"{row.sha256} {row.receipts} {row.document}"
    return f"{row.receipt} {row.plan}"


def parse_index(content: bytes) -> Index:
    """Parse an index and verify its own hash.

    Raises:
        OtherIndexError: When it is of another version.
        IndexFileError: When a byte was changed, or it isn't an index.
    """
    try:
        return Index.parse(content)
    except VersionError as error:
        raise OtherIndexError(str(error)) from error
    except (SealError, DocumentError) as error:
        raise IndexFileError(str(error)) from error
