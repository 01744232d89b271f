"""Compare a window with the files that it replaces, record by record where receipts don't suffice.

receipts   the window's fingerprint is that of the segments whose files it replaces: nothing
           else is read
files      otherwise, the old files' records are compared with the window's by their hashes
lost       of files that are lost or can't be read, their receipt has the fingerprint, together
           with that of the segment's other files
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from upath import UPath

from kafka_drain.archive.fold import owner_of
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import read_state
from kafka_drain.archive.receipts import Receipt, ReceiptError, SealedFile
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.window import Window
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.data_files.reader import read_columns, read_records, topic_of
from kafka_drain.data_files.records import TimestampError
from kafka_drain.data_files.xxhash64 import record_hashes
from kafka_drain.errors import KEY_ERRORS, DataFileError, ManifestInvalidError
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import NO_END, OffsetRange, Ranges, TopicPartition, merge, subtract, within
from kafka_drain.progress import Progress, Ticker
from kafka_drain.proof.committed_file import read_file
from kafka_drain.proof.content_checks import Tally, content_of, together
from kafka_drain.proof.fingerprints import is_noted
from kafka_drain.proof.hash_blocks import BLOCK, HashBlocks, Offsets, rows_of, without_headers
from kafka_drain.proof.replacement import Replacement, ReplacementMatch, judge_lost, rest_of
from kafka_drain.proof.sealed_files import damage_of
from kafka_drain.proof.window_contents import overlaps
from kafka_drain.storage.paths import quoted

#: Number of runs of differing blocks whose bounds are looked for record by record.
NARROWED = 100
#: Number of ranges of a run that are named one by one.
FEW = 5

_EVERYTHING = OffsetRange(0, NO_END)


@dataclass(frozen=True)
class _Segment:
    """A segment of which some files are replaced.

    Attributes:
        owner: The generation or window that it belongs to.
        files: Those of its files that are replaced.
    """

    owner: Generation | Window
    receipt: Receipt
    file_format: str
    files: Sequence[SealedFile]


@dataclass
class _Sum:
    """Records at the offsets of a group, as they are and without their headers."""

    records: int = 0
    value: int = 0
    plain: int = 0

    def taken(self) -> tuple[Tally, Tally]:
        return (
            Tally(self.records, f"{self.value:016x}"),
            Tally(self.records, f"{self.plain:016x}"),
        )


def compare_replaced(
    snapshot: Snapshot, receipt: Receipt, file_format: str, erased: Ranges | None = None
) -> Replacement:
    """Compare a window's records with those of the files that it replaces.

    Of files that no receipt seals, what Spark read is compared with the window before their batch
    is sealed, if a note says what that was. Without one, nobody can tell whether such a file was
    changed or its log rewritten: its records count as unknown.

    Args:
        snapshot: The archive, with all generations and windows.
        receipt: The window's receipt, sealed or not.
        erased: Offsets whose records were erased: the window doesn't hold them.

    Raises:
        DataFileError: When a file of the window can't be read.
        ManifestInvalidError: When a receipt is damaged.
        OSError: When a file of the window can't be read.
        StoreUnavailableError: When the archive's store doesn't respond.
    """
    segments = list(_segments(snapshot, frozenset(receipt.replaces)))
    sealed = {file.path for segment in segments for file in segment.files}
    found = Replacement()
    if segments and not _has_their_fingerprint(receipt, segments):
        compared = RecordComparison(snapshot.root, receipt, file_format, erased or {})
        found = compared.of(segments)
    return found.and_unknown(_unnoted(snapshot, {*receipt.replaces} - sealed))


def _unnoted(snapshot: Snapshot, paths: Collection[str]) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets of readable unsealed files for which no note describes Spark's records.

    Args:
        snapshot: The archive.
        paths: The files, relative to it.
    """
    generation = snapshot.open_generation
    if generation is None or not paths:
        return {}
    state = read_state(snapshot, generation)
    unsealed = range(state.last_sealed + 1, state.last_committed + 1)
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for listed in state.new:
        if f"{generation.data_name}/{listed.path}" not in paths:
            continue
        batches = unsealed if listed.batch is None else [listed.batch]
        if all(is_noted(generation, batch) for batch in batches):
            continue
        file_format = generation.document.format
        read = read_file(str(snapshot.root), generation.data_name, listed, file_format)
        # Of one that can't be read, there is nothing to lose.
        if isinstance(read, CommittedFile):
            for content in read.contents:
                held = OffsetRange(content.first, content.last + 1)
                found.setdefault(content.tp, []).append(held)
    return {tp: merge(ranges) for tp, ranges in found.items()}


def _segments(snapshot: Snapshot, paths: frozenset[str]) -> Iterator[_Segment]:
    """Yield the segments whose receipts seal some of the files."""
    owners = {owner_of(path) for path in paths}
    try:
        for generation in snapshot.generations:
            for receipt in generation.receipts() if generation.name in owners else ():
                if files := [file for file in receipt.files if file.path in paths]:
                    yield _Segment(generation, receipt, generation.document.format, files)
        for window in snapshot.fold.windows:
            if files := [file for file in window.receipt.files if file.path in paths]:
                yield _Segment(window, window.receipt, window.plan.format, files)
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{snapshot.root}: a receipt is damaged ({error}); run `kafka-drain validate "
            f"{quoted(snapshot.root)}` to see which"
        ) from error


def _has_their_fingerprint(receipt: Receipt, segments: Sequence[_Segment]) -> bool:
    """Return whether a window holds the records of whole segments, and no others."""
    are_whole = all(len(segment.files) == len(segment.receipt.files) for segment in segments)
    held = together(
        Tally(_records_of(segment.receipt), segment.receipt.fingerprint) for segment in segments
    )
    return (
        are_whole
        and receipt.fingerprint is not None
        and held == Tally(_records_of(receipt), receipt.fingerprint, held.by_partition)
        and all(_is_same_topic(receipt, segment) for segment in segments)
    )


def _is_same_topic(receipt: Receipt, segment: _Segment) -> bool:
    """Return whether the same offsets are the same records in a window and in files.

    A window has the ids of the topics that it holds, a segment those of all that it was read from.
    """
    names = {content.tp.topic for file in segment.files for content in file.contents}
    ids = segment.receipt.topics
    return all(name in ids and receipt.topics.get(name) == ids[name] for name in names)


def _records_of(receipt: Receipt) -> int:
    return sum(content.records for file in receipt.files for content in file.contents)


@dataclass
class _Old:
    """Records of old files: of those that have headers, and of those drained without.

    Attributes:
        blocks: Their hashes, by whether the file has headers and by partition.
    """

    blocks: dict[bool, dict[TopicPartition, HashBlocks]] = field(
        default_factory=lambda: {True: {}, False: {}}
    )

    def add(self, has_headers: bool, found: Mapping[TopicPartition, HashBlocks]) -> None:
        for tp, more in found.items():
            blocks = self.blocks[has_headers].setdefault(tp, HashBlocks(more.size))
            for block, value in more.hashes.items():
                blocks.hashes[block] = blocks.hashes.get(block, 0) ^ value
            blocks.offsets += more.offsets


class RecordComparison:
    """Reads both sides of a comparison: a window, and the files that it replaces."""

    def __init__(self, root: UPath, receipt: Receipt, file_format: str, erased: Ranges) -> None:
        self._root = root
        self._receipt = receipt
        self._format = file_format
        self._erased = erased
        held: dict[TopicPartition, list[OffsetRange]] = {}
        for part in receipt.partitions:
            held.setdefault(part.tp, []).append(part.range)
        self._window = {tp: merge(ranges) for tp, ranges in held.items()}
        total = len(receipt.replaces)
        self._ticker = Ticker(f"window {receipt.window}", Progress("old files compared", total))

    def of(self, segments: Sequence[_Segment]) -> Replacement:
        """Return the offsets at which the window differs from the segments' files."""
        changed: dict[TopicPartition, list[OffsetRange]] = {}
        unknown: dict[TopicPartition, list[OffsetRange]] = {}
        old, intact = _Old(), list[tuple[_Segment, SealedFile]]()
        lost: list[tuple[_Segment, set[str]]] = []
        number = 0
        for segment in segments:
            gone = set[str]()
            for file in segment.files:
                number += 1
                self._ticker.at(number)
                if _is_same_topic(self._receipt, segment) and self._read_old(segment, file, old):
                    intact.append((segment, file))
                else:
                    gone.add(file.path)
            if gone:
                lost.append((segment, gone))
        for tp, ranges in self._differing(old, intact).items():
            changed.setdefault(tp, []).extend(ranges)
        for match, found in self._judged(lost):
            into = changed if match is ReplacementMatch.CHANGED else unknown
            for tp, ranges in found.items() if match is not ReplacementMatch.EQUAL else ():
                into.setdefault(tp, []).extend(ranges)
        return Replacement(_merged(changed), _merged(unknown))

    def _read_old(self, segment: _Segment, file: SealedFile, old: _Old) -> bool:
        """Add the records of an old file; return False if it has changed since it was sealed."""
        path = self._root / file.path
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            return False
        if damage_of(self._root, file, size, deep=True) is not None:
            return False
        try:
            has_headers = self._has_headers(file.path, segment.file_format)
            found = self._hashed(file.path, segment.file_format, BLOCK, self._not_erased)
        except (TimestampError, *KEY_ERRORS, DataFileError):
            # Its bytes are the sealed ones, but its records can't be compared one by one.
            return False
        old.add(has_headers, found)
        return True

    def _has_headers(self, name: str, file_format: str) -> bool:
        """Return whether a file was drained with headers; a JSON file doesn't tell."""
        if file_format == "json":
            return True
        needed = ["partition", "offset"] + ["topic"] * (topic_of(name) is None)
        for batch in read_columns(self._root / name, file_format, needed, ["headers"]):
            return "headers" in batch.schema.names
        return True

    def _not_erased(self, tp: TopicPartition) -> Offsets:
        return Offsets(subtract(_EVERYTHING, self._erased.get(tp, ())))

    def _hashed(
        self,
        name: str,
        file_format: str,
        size: int,
        wanted: Callable[[TopicPartition], Offsets | None],
        *,
        headers: bool = True,
    ) -> dict[TopicPartition, HashBlocks]:
        """Return the hashes of a file's records at wanted offsets."""
        found: dict[TopicPartition, HashBlocks] = {}
        for tp, rows, hashes in self._rows(name, file_format, headers=headers):
            offsets = wanted(tp)
            if offsets is not None:
                blocks = found.setdefault(tp, HashBlocks(size))
                blocks.add(*rows_of(rows, hashes, tp.partition), offsets)
        return found

    def _rows(
        self, name: str, file_format: str, *, headers: bool
    ) -> Iterator[tuple[TopicPartition, pa.RecordBatch, list[int]]]:
        topic = topic_of(name)
        for batch in read_records(self._root / name, file_format):
            kept = batch if headers else without_headers(batch)
            for of, rows, hashes in record_hashes(kept, topic):
                for number in sorted(set(rows["partition"].to_pylist())):
                    yield TopicPartition(of or "", number), rows, hashes

    def _new(
        self, wanted: Mapping[TopicPartition, Sequence[OffsetRange]], size: int, *, headers: bool
    ) -> dict[TopicPartition, HashBlocks]:
        """Return the hashes of the window's records at wanted offsets."""
        found: dict[TopicPartition, HashBlocks] = {tp: HashBlocks(size) for tp in wanted}
        offsets = {tp: Offsets(ranges) for tp, ranges in wanted.items()}
        for file in self._receipt.files:
            if not overlaps(file, wanted):
                continue
            part = self._hashed(file.path, self._format, size, offsets.get, headers=headers)
            for tp, more in part.items():
                for block, value in more.hashes.items():
                    found[tp].hashes[block] = found[tp].hashes.get(block, 0) ^ value
        return found

    def _differing(
        self, old: _Old, intact: Sequence[tuple[_Segment, SealedFile]]
    ) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the offsets at which the window has another record than intact files, or none."""
        changed: dict[TopicPartition, list[OffsetRange]] = {}
        for headers, held in old.blocks.items():
            for blocks in held.values():
                blocks.offsets = merge(blocks.offsets)
            new = self._new({tp: b.offsets for tp, b in held.items()}, BLOCK, headers=headers)
            runs = {
                tp: merge(differing)
                for tp, blocks in held.items()
                if (differing := blocks.differing(new[tp]))
            }
            if runs:
                for tp, ranges in self._narrowed(runs, held, intact, headers=headers).items():
                    changed.setdefault(tp, []).extend(ranges)
        return changed

    def _narrowed(
        self,
        runs: Ranges,
        held: Mapping[TopicPartition, HashBlocks],
        intact: Sequence[tuple[_Segment, SealedFile]],
        *,
        headers: bool,
    ) -> dict[TopicPartition, list[OffsetRange]]:
        """Return each run of differing blocks from its first to its last differing offset."""
        edges = {tp: merge(_edges(ranges[:NARROWED])) for tp, ranges in runs.items()}
        wanted = {
            tp: [part for r in held[tp].offsets for part in within(ranges, r)]
            for tp, ranges in edges.items()
        }
        offsets = {tp: Offsets(ranges) for tp, ranges in wanted.items()}
        before = {tp: HashBlocks(1) for tp in wanted}
        for segment, file in intact:
            if not overlaps(file, wanted):
                continue
            found = self._hashed(file.path, segment.file_format, 1, offsets.get, headers=headers)
            for tp, more in found.items():
                before[tp].hashes |= more.hashes
        now = self._new(wanted, 1, headers=headers)
        narrowed = {}
        for tp, ranges in runs.items():
            exact = before[tp].differing(now[tp])
            narrowed[tp] = [bounds for run in ranges for bounds in _bounds(run, exact, held[tp])]
        return narrowed

    def _judged(
        self, lost: Sequence[tuple[_Segment, set[str]]]
    ) -> Iterator[tuple[ReplacementMatch, dict[TopicPartition, list[OffsetRange]]]]:
        """Judge the lost files of each segment together: their receipt has one fingerprint."""
        known: list[tuple[Tally | None, dict[TopicPartition, list[OffsetRange]]]] = []
        for segment, gone in lost:
            is_same = _is_same_topic(self._receipt, segment)
            others = self._others(segment, gone) if is_same else None
            whole = _offsets_of(segment, gone, others or ())
            own = self.of_window(whole)
            sealed = None
            if others is not None and own == whole and not self._are_erased(whole):
                records = Tally(_records_of(segment.receipt), segment.receipt.fingerprint)
                sealed = rest_of(records, (content_of([other]) for other in others))
            known.append((sealed, own))
        found = self.sums([ranges for _, ranges in known])
        for (sealed, ranges), each in zip(known, found, strict=True):
            yield judge_lost(sealed, each.taken()), ranges

    def _are_erased(self, ranges: Ranges) -> bool:
        return any(within(self._erased.get(tp, ()), r) for tp, rs in ranges.items() for r in rs)

    def _others(self, segment: _Segment, gone: set[str]) -> list[CommittedFile] | None:
        """Read the other files of a segment; None if one has changed since it was sealed."""
        found = []
        owner = segment.owner
        for file in segment.receipt.files:
            if file.path in gone:
                continue
            name = file.path.removeprefix(f"{owner.data_name}/")
            listed = SinkFile(name, file.bytes, 0, 0, "receipt")
            read = read_file(str(self._root), owner.data_name, listed, segment.file_format)
            if not isinstance(read, CommittedFile) or read.sha256 != file.sha256:
                return None
            found.append(read)
        return found

    def of_window(self, whole: Ranges) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the parts of ranges that the window accounts for."""
        own = {
            tp: [part for r in ranges for part in within(self._window.get(tp, ()), r)]
            for tp, ranges in whole.items()
        }
        return {tp: ranges for tp, ranges in own.items() if ranges}

    def sums(self, groups: Sequence[Ranges]) -> list[_Sum]:
        """Combine the hashes of the window's records at the offsets of each group."""
        sums = [_Sum() for _ in groups]
        places: dict[TopicPartition, list[tuple[OffsetRange, int]]] = {}
        for number, ranges in enumerate(groups):
            for tp, parts in ranges.items():
                places.setdefault(tp, []).extend((part, number) for part in parts)
        for found in places.values():
            found.sort()
        for headers in (True, False) if places else ():
            for file in self._receipt.files:
                for tp, rows, hashes in self._rows(file.path, self._format, headers=headers):
                    _add(sums, places.get(tp, []), rows_of(rows, hashes, tp.partition), headers)
        return sums


def _add(
    sums: Sequence[_Sum],
    places: Sequence[tuple[OffsetRange, int]],
    rows: tuple[list[int], list[int]],
    headers: bool,
) -> None:
    for offset, value in zip(*rows, strict=True):
        at = bisect_right(places, offset, key=lambda place: place[0].start) - 1
        if at < 0 or offset not in places[at][0]:
            continue
        held = sums[places[at][1]]
        if headers:
            held.records += 1
            held.value ^= value
        else:
            held.plain ^= value


def _offsets_of(
    segment: _Segment, gone: set[str], others: Sequence[CommittedFile]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets that a segment's lost files held: neither gaps nor in its other files."""
    spans: dict[TopicPartition, list[OffsetRange]] = {}
    for file in segment.files:
        for content in file.contents if file.path in gone else ():
            span = OffsetRange(content.first, content.last + 1)
            spans.setdefault(content.tp, []).append(span)
    elsewhere: dict[TopicPartition, list[OffsetRange]] = {}
    covered: dict[TopicPartition, list[OffsetRange]] = {}
    for part in segment.receipt.partitions:
        covered.setdefault(part.tp, []).append(part.range)
        elsewhere.setdefault(part.tp, []).extend(r for rs in part.gaps.values() for r in rs)
    for held in (held for other in others for held in other.contents):
        elsewhere.setdefault(held.tp, []).extend(held.ranges)
    found = {
        tp: [
            rest
            for span in merge(ranges)
            for part in within(merge(covered.get(tp, [])), span)
            for rest in subtract(part, elsewhere.get(tp, []))
        ]
        for tp, ranges in spans.items()
    }
    return {tp: ranges for tp, ranges in found.items() if ranges}


def _edges(runs: Iterable[OffsetRange]) -> Iterator[OffsetRange]:
    """Yield the first and the last block of each run."""
    for run in runs:
        yield OffsetRange(run.start, run.start + BLOCK)
        yield OffsetRange(run.end - BLOCK, run.end)


def _bounds(
    run: OffsetRange, exact: Sequence[OffsetRange], held: HashBlocks
) -> Iterator[OffsetRange]:
    """Yield the differing offsets of a run: exactly, if they are few; otherwise its bounds."""
    inside = within(merge(exact), run)
    if len(run) <= 2 * BLOCK and 0 < len(inside) <= FEW:
        yield from inside
    elif inside:
        yield OffsetRange(inside[0].start, inside[-1].end)
    else:
        yield from (part for r in held.offsets for part in within([run], r))


def _merged(
    ranges: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> dict[TopicPartition, list[OffsetRange]]:
    return {tp: merge(parts) for tp, parts in ranges.items() if parts}
