"""Read the files of an archive in which records are looked for."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.data_files.reader import bytes_to_read, read_offsets, read_records, topic_of
from kafka_drain.data_files.record_lines import TIMESTAMP_TYPES, RecordLine
from kafka_drain.data_files.records import RowBounds, path_of
from kafka_drain.data_files.rows import rows_of
from kafka_drain.data_files.scalars import binaries, text
from kafka_drain.errors import ArchiveError, ConfigError, DataFileError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.plan import FileContent, FilePart, Position, parts_of, steps_of, why_scan
from kafka_drain.intervals import time_text
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import say
from kafka_drain.progress import Progress, Ticker
from kafka_drain.republish.planning.row_filter import wanted_rows
from kafka_drain.schemas.capture import read_document
from kafka_drain.schemas.decoders import Headers, archived_schemas, body_of
from kafka_drain.schemas.decoding import read_schemas
from kafka_drain.schemas.payloads import Payloads, plain
from kafka_drain.schemas.schema_ids import SchemaId
from kafka_drain.storage.paths import is_local, quoted

#: Number of files whose statistics are read at once; in a store, the latency of requests dominates.
_LANES_ON_DISK, _LANES_IN_STORE = 2, 16

#: Number of schema ids that a search names.
_SHOWN = 10


@dataclass(frozen=True)
class Match:
    """A record that was found.

    Its `repr` shows neither key nor value.

    Attributes:
        position: Its topic, partition and offset.
        timestamp: Its timestamp in milliseconds since 1970; None if it has none.
        timestamp_type: 0 for CreateTime, 1 for LogAppendTime.
        file: The file that holds it, relative to the archive.
        is_sealed: Whether a receipt proves it.
    """

    position: Position
    topic_id: str
    timestamp: int | None
    timestamp_type: int | None
    key: bytes | None = field(repr=False)
    value: bytes | None = field(repr=False)
    headers: Headers = field(repr=False)
    file: str
    is_sealed: bool

    def to_dict(self, payloads: Payloads) -> dict[str, Any]:
        """Return the record as JSON types, decoded."""
        key = payloads.of("key", self.key, self.headers)
        value = payloads.of("value", self.value, self.headers)
        return {
            "topic": self.position.topic,
            "topic_id": self.topic_id,
            "partition": self.position.partition,
            "offset": self.position.offset,
            "timestamp": None if self.timestamp is None else time_text(self.timestamp),
            "timestamp_type": TIMESTAMP_TYPES.get(self.timestamp_type or 0),
            "key": key.content,
            "key_format": key.format,
            "key_schema": key.schema,
            "value": value.content,
            "value_format": value.format,
            "value_schema": value.schema,
            "headers": [
                {"name": name, "value": shown.content, "format": shown.format}
                for name, shown in self.shown_headers()
            ],
            "file": self.file,
            "sealed": self.is_sealed,
            "position": str(self.position),
        }

    def record(self) -> RecordLine:
        """Return the record as it is, without what says where it was found."""
        return RecordLine(
            topic=self.position.topic,
            partition=self.position.partition,
            offset=self.position.offset,
            timestamp=self.timestamp,
            timestamp_type=self.timestamp_type,
            key=self.key,
            value=self.value,
            headers=tuple(
                (name, value.encode() if isinstance(value, str) else value)
                for name, value in self.headers or ()
            ),
        )

    def shown_headers(self) -> list[tuple[str, Any]]:
        """Return the name and the payload of each header."""
        return [
            (name, plain(value.encode() if isinstance(value, str) else value))
            for name, value in self.headers or ()
        ]


@dataclass
class Search:
    """A search in an archive.

    Attributes:
        criteria: The search's criteria.
        limit: Number of records after which it ends.
        after: Only records after this position; None for all.
        scan: Whether files may be read as a whole, however large they are.
        should_stop: Asked between files; ends the search.
        through: The position up to which everything was found so far.
        is_complete: Whether it has ended because everything was searched.
        recreated: Topics that were deleted and created again: records of both have the same
            offsets.
    """

    archive: Archive
    criteria: Criteria
    limit: int = 100
    after: Position | None = None
    scan: bool = False
    should_stop: Callable[[], bool] = lambda: False
    through: Position | None = None
    is_complete: bool = False
    recreated: frozenset[str] = frozenset()
    _kept: dict[tuple[str, TopicPartition], list[Match]] = field(default_factory=dict, repr=False)
    #: By part, because a file may be read again for some of its parts.
    _undecoded: dict[tuple[str, TopicPartition], Counter[SchemaId]] = field(
        default_factory=dict, repr=False
    )
    _done: int = 0
    _ticker: Ticker = field(init=False, repr=False)

    def payloads(self, *, needs_libraries: bool = False) -> Payloads:
        """Return the decoder of the records, with the archive's schemas; see `Payloads`."""
        root = self.archive.root
        find = archived_schemas(read_document(root), read_schemas(root))
        return Payloads(find, needs_libraries=needs_libraries)

    @property
    def undecoded(self) -> int:
        """Number of values that name a schema, and in which no path could be looked for."""
        return sum(count for ids in self._undecoded.values() for count in ids.values())

    def not_searched(self) -> str:
        """Return which values a path couldn't be looked for in; empty if there were none."""
        count = self.undecoded
        if not count:
            return ""
        ids = sorted(
            {*chain(*self._undecoded.values())}, key=lambda id_: (isinstance(id_, str), id_)
        )
        shown = ", ".join(map(str, ids[:_SHOWN])) + (" …" if len(ids) > _SHOWN else "")
        values, they = ("value", "it wasn't") if count == 1 else ("values", "they weren't")
        return f"{count:,} {values} couldn't be decoded (schema ids {shown}): {they} searched"

    def matches(self) -> Iterator[Match]:
        """Yield the records that match, by topic, partition and offset.

        Raises:
            ArchiveError: When the folder isn't an archive, or has never had one of the topics.
            ConfigError: When too many files would have to be read, and the search may not.
            DataFileError: When a file can't be read, or is gone since.
            MachineError: When a library is missing that decodes values which decide.
            ManifestInvalidError: When manifest or receipts are damaged: records could be missing.
            StoreUnavailableError: When the archive's store doesn't respond.
        """
        snapshot = self.archive.snapshot()
        incarnations = snapshot.topic_incarnations()
        names = Counter(name for name, _ in incarnations)
        self.recreated = frozenset(name for name, seen in names.items() if seen > 1)
        chosen = self.criteria.selection
        known = {*names, *snapshot.document.topics}
        if not known.issuperset(chosen.topics):
            # A backfill may be the first to have read one.
            known |= {topic for receipt in snapshot.fold.receipts for topic in receipt.topics}
        if unknown := sorted({*chosen.topics} - known):
            raise ArchiveError(
                f"{self.archive.root} has no topic {', '.join(map(repr, unknown))}; it has "
                f"{', '.join(sorted(known)) or 'none'}; correct the topics"
            )
        listed = archive_files(snapshot, chosen.times, chosen.asked_offsets)
        contents = [(file, self._contents(file)) for file in listed]
        parts = parts_of(contents, incarnations, self.criteria, self.after)
        steps = steps_of(self._without_ruled_out(parts))
        has_path = self.criteria.path is not None
        payloads = self.payloads(needs_libraries=True) if has_path else None
        progress = Progress("records", sum(step.records() for step in steps))
        self._ticker = Ticker("find", progress)
        of_file: dict[str, list[FilePart]] = {}
        for step in steps:
            for part in step.parts:
                of_file.setdefault(part.file.path, []).append(part)
        left, self.through = self.limit, self.after
        for step in steps:
            if self.should_stop():
                return
            found = [
                match
                for part in step.parts
                for match in self._of(part, of_file[part.file.path], left, payloads)
            ]
            for match in heapq.nsmallest(left, found, key=lambda match: match.position):
                yield match
                self.through = match.position
            left -= min(left, len(found))
            if not left:
                return
            self.through = step.through()
            self._done += step.records()
        if progress.total:
            say(progress.line("find", self._done))
        self.is_complete = True

    def _contents(self, file: ArchiveFile) -> Sequence[FileContent]:
        """Return the contents of a file; one that no receipt describes yet is read."""
        if file.sealed is not None:
            return file.sealed.contents
        with _named(file):
            return read_offsets(self._path(file), file.file_format, topic_of(file.path))

    def _path(self, file: ArchiveFile) -> Path:
        """Return a file's path: in a store, opened with the archive's own login."""
        root = self.archive.root
        return path_of(str(root), file.path) if is_local(root) else cast(Path, root / file.path)

    def _of(
        self, part: FilePart, of_file: Sequence[FilePart], left: int, payloads: Payloads | None
    ) -> list[Match]:
        """Return the first matches of a part.

        A compacted file may hold a hundred partitions. So the matches of its other parts are kept
        for later, if they are few: otherwise the search ends soon, or the file is read again.

        Args:
            of_file: All parts of its file, in the order in which they are read.
            left: Number of matches that are still wanted.
            payloads: Decodes values, if there is a path into them.
        """
        kept = self._kept.pop((part.file.path, part.tp), None)
        if kept is not None:
            return kept
        ahead = of_file[of_file.index(part) :]
        found: dict[TopicPartition, list[Match]] = {each.tp: [] for each in ahead}
        for tp in found:
            self._undecoded.pop((part.file.path, tp), None)
        own, rows = found[part.tp], 0
        for batch in self._batches(part.file, ahead):
            rows += batch.num_rows
            self._ticker.at(self._done + min(rows, part.content.records))
            for each in ahead:
                found[each.tp] += self._matches_in(batch, each, payloads)
            if len(own) >= left:
                if part.content.ascending:
                    return own[:left]
                own[:] = heapq.nsmallest(left, own, key=lambda match: match.position)
            if sum(map(len, found.values())) - len(own) > self.limit:
                ahead = [part]
        for other in ahead[1:]:
            self._kept[other.file.path, other.tp] = found[other.tp]
        return own

    def _batches(self, file: ArchiveFile, parts: Sequence[FilePart]) -> Iterator[pa.RecordBatch]:
        """Yield a file's rows that may match, without comparing partitions and times."""
        wanted = bounds_of(parts, self.criteria)
        with _named(file):
            for batch in read_records(self._path(file), file.file_format, wanted=wanted):
                _refuse_invalid(batch)
                yield rows_inside(batch, self.criteria)

    def _matches_in(
        self, batch: pa.RecordBatch, part: FilePart, payloads: Payloads | None
    ) -> Iterator[Match]:
        in_folder = topic_of(part.file.path) is not None
        rows = wanted_rows(batch, part.tp, part.rows, part.from_offset, in_topic_folder=in_folder)
        types = rows["timestampType"].to_pylist()
        for row, timestamp_type in zip(rows_of(rows), types, strict=True):
            key, value, headers, timestamp, offset = row
            if payloads is not None and not self._has_path(part, value, headers, payloads):
                continue
            yield Match(
                position=part.at(offset),
                topic_id=part.file.topic_ids.get(part.tp.topic, ""),
                timestamp=timestamp,
                timestamp_type=timestamp_type,
                key=key,
                value=value,
                headers=headers,
                file=part.file.path,
                is_sealed=part.file.sealed is not None,
            )

    def _has_path(
        self, part: FilePart, value: bytes | None, headers: Headers, payloads: Payloads
    ) -> bool:
        """Return whether a value has the path; count it if only its schema could tell."""
        path = self.criteria.path
        decoded = payloads.of("value", value, headers)
        # Digits of bytes, and a null, have no members.
        if decoded.format not in (None, "text", "hex"):
            return path is None or path.matches(decoded.content)
        id_ = None if value is None else body_of("value", value, headers)[0]
        if id_ is not None:
            self._undecoded.setdefault((part.file.path, part.tp), Counter())[id_] += 1
        return False

    def _without_ruled_out(self, parts: Sequence[FilePart]) -> list[FilePart]:
        """Return the parts of files that statistics and Bloom filters don't rule out.

        Raises:
            ConfigError: When too much is left to read.
        """
        if not parts or not self.criteria.look_inside():
            return list(parts)
        by_file: dict[str, list[FilePart]] = {}
        for part in parts:
            by_file.setdefault(part.file.path, []).append(part)
        ticker = Ticker("find statistics", Progress("files", len(by_file)))
        root = self.archive.root
        sizes: dict[str, int] = {}

        def size_of(those: list[FilePart]) -> int:
            file, wanted = those[0].file, bounds_of(those, self.criteria)
            with _named(file):
                return bytes_to_read(self._path(file), file.file_format, file.bytes, wanted)

        with ThreadPoolExecutor(_LANES_ON_DISK if is_local(root) else _LANES_IN_STORE) as pool:
            for path, size in zip(by_file, pool.map(size_of, by_file.values()), strict=True):
                sizes[path] = size
                ticker.at(len(sizes))
        left = {path: size for path, size in sizes.items() if size}
        unproven = sum(_is_unproven(by_file[path][0].file) for path in left)
        size = sum(left.values())
        why = "" if self.scan else why_scan(len(left), size, self.criteria, unproven)
        if why:
            raise ConfigError(why)
        return [part for part in parts if part.file.path in left]


def _refuse_invalid(batch: pa.RecordBatch) -> None:
    """Refuse names of headers that aren't text, and parts of milliseconds: changed bytes.

    No hash was taken of them here.
    """
    try:
        batch["headers"].validate(full=True)
        batch["timestamp"].cast(pa.timestamp("ms", tz="UTC"))
    except pa.ArrowInvalid as error:
        raise DataFileError(f"its headers or times were changed: {error}") from error


def _is_unproven(file: ArchiveFile) -> bool:
    """Return whether nothing proves a Parquet file's own statistics."""
    is_proven = file.sealed is not None and file.sealed.index_sha256 is not None
    return file.file_format == "parquet" and not is_proven


@contextmanager
def _named(file: ArchiveFile) -> Iterator[None]:
    """Name the file that can't be read."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataFileError(
            f"{file.path} is gone: since the search began, maintenance or a repair has replaced "
            "it; search again"
        ) from error
    except DataFileError as error:
        place = quoted(file.owner.root)
        raise DataFileError(
            f"{file.path}: {error}; run `kafka-drain validate {place} --deep`"
        ) from error


def bounds_of(parts: Sequence[FilePart], criteria: Criteria) -> RowBounds:
    """Return bounds with which a format may skip rows when it reads some parts of one file.

    Args:
        parts: The parts; at least one.
        criteria: The search's criteria.
    """
    partitions = {part.tp.partition for part in parts}
    firsts, ends = [], []
    for part in parts:
        ranges = part.rows.ranges
        firsts.append(max(part.from_offset, ranges[0].start if ranges else 0))
        ends.append(ranges[-1].end if ranges else None)
    known = [end for end in ends if end is not None]
    sealed = parts[0].file.sealed
    return RowBounds(
        partition=partitions.pop() if len(partitions) == 1 else None,
        first=min(firsts),
        end=max(known) if len(known) == len(ends) else None,
        from_ms=criteria.selection.from_ms,
        to_ms=criteria.selection.to_ms,
        keys=criteria.keys or None,
        index_sha256=None if sealed is None else sealed.index_sha256,
        records=parts[0].file.records,
    )


def rows_inside(batch: pa.RecordBatch, criteria: Criteria) -> pa.RecordBatch:
    """Return the rows with the wanted keys, headers and bytes in values, in their order.

    Paths into decoded values are left to the caller.

    Args:
        batch: Has the columns of `data_files.records.SCHEMA`.
        criteria: The search's criteria.
    """
    if criteria.keys:
        # A null is in no set.
        batch = batch.filter(pc.is_in(batch["key"], binaries(sorted(criteria.keys))))
    if criteria.value_contains is not None:
        # A null in the mask drops the row.
        batch = batch.filter(pc.match_substring(batch["value"], criteria.value_contains))
    for name, value in criteria.headers:
        batch = _with_header(batch, name, value)
    return batch


def _with_header(batch: pa.RecordBatch, name: str, value: bytes) -> pa.RecordBatch:
    headers = batch["headers"]
    pairs = headers.flatten()
    if not len(pairs):
        return batch.slice(0, 0)
    wanted = pc.and_(
        pc.equal(pairs.field("key"), text(name)),
        pc.equal(pairs.field("value"), binaries([value])[0]),
    )
    # A record may have the same header twice.
    return batch.take(pc.unique(pc.list_parent_indices(headers).filter(wanted)))
