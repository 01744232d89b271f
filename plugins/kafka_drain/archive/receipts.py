"""Receipts: the sealed proof of one segment, chained by the hash of the previous one.

A receipt is sealed JSON, so a single changed byte is detected. If a whole receipt is replaced, the
hash in the next one reveals it. Opens nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any

from pydantic import Field, PlainSerializer, PlainValidator

from kafka_drain.archive.format import SealedDocument
from kafka_drain.errors import TerminalError
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import NO_END, OffsetRange, TopicPartition, count, overlapping
from kafka_drain.storage.sealed_json import SealedName
from kafka_drain.storage.typed_json import ADDED, OPTIONAL, Complete

Gaps = Mapping[GapReason, Sequence[OffsetRange]]


def _range_of(pair: Any) -> OffsetRange:
    if type(pair) is not list or [type(offset) for offset in pair] != [int, int]:
        raise ValueError("expected two offsets, [start, end]")
    return OffsetRange(*pair)


def _digest_of(text: Any) -> int:
    if type(text) is not str:
        raise ValueError("expected hexadecimal digits")
    return int(text, 16)


#: As `[start, end]` in a file.
_Range = Annotated[
    OffsetRange,
    PlainValidator(_range_of),
    PlainSerializer(lambda r: [r.start, r.end], return_type=list[int]),
]
#: As 32 hexadecimal digits in a file.
_Digest = Annotated[
    int, PlainValidator(_digest_of), PlainSerializer(lambda n: f"{n:032x}", return_type=str)
]


class ReceiptError(TerminalError, ValueError):
    """Raised when a receipt differs from what was sealed; retrying won't change that."""


class MisplacedError(ReceiptError):
    """Raised when a receipt was sealed for another place than the one that it was read from."""

    def __init__(self, text: str, receipt: Receipt | None = None) -> None:
        super().__init__(text)
        self.receipt = receipt


@dataclass(frozen=True, slots=True)
class KafkaBounds:
    """Kafka's offsets of a partition at the time of sealing."""

    earliest: int
    last_stable: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class FileSet(Complete):
    """Fingerprint of a set of files, independent of their order and extensible file by file.

    Attributes:
        files: Number of files.
        bytes: Total size of the files.
        digest: Sum, modulo 2^128, of BLAKE2b(path, NUL, size) over the files.
    """

    files: int = 0
    bytes: int = 0
    digest: _Digest = 0

    def plus(self, files: Iterable[tuple[str, int]]) -> FileSet:
        """Return the set with additional files, given the path and size in bytes of each."""
        number, size, digest = self.files, self.bytes, self.digest
        for path, file_bytes in files:
            hashed = hashlib.blake2b(f"{path}\0{file_bytes}".encode(), digest_size=16).digest()
            digest += int.from_bytes(hashed, "big")
            number += 1
            size += file_bytes
        return FileSet(number, size, digest % (1 << 128))


@dataclass(frozen=True, slots=True)
class SealedContent:
    """The contents of a sealed file for one partition.

    Attributes:
        first_offset: Lowest offset.
        last_offset: Highest offset.
        records: Number of rows, which equals the number of offsets: there are no duplicates.
        first_timestamp: Lowest timestamp in milliseconds since 1970.
        last_timestamp: Highest timestamp in milliseconds since 1970.
        ascending: Whether the rows are in offset order.
    """

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    records: int
    first_timestamp: int | None
    last_timestamp: int | None
    ascending: bool

    def __post_init__(self) -> None:
        if not 0 <= self.first_offset <= self.last_offset < NO_END:
            raise ValueError("expected 0 <= first_offset <= last_offset < 2^63")

    @classmethod
    def of(
        cls,
        tp: TopicPartition,
        first: int,
        last: int,
        records: int,
        first_timestamp: int | None = None,
        last_timestamp: int | None = None,
        ascending: bool = True,
    ) -> SealedContent:
        """Return the contents for a topic-partition."""
        times = first_timestamp, last_timestamp
        return cls(tp.topic, tp.partition, first, last, records, *times, ascending)

    @property
    def tp(self) -> TopicPartition:
        """The topic-partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def first(self) -> int:
        """Lowest offset."""
        return self.first_offset

    @property
    def last(self) -> int:
        """Highest offset."""
        return self.last_offset

    @property
    def is_dense(self) -> bool:
        """Whether no offset between the first and the last is missing."""
        return self.records == self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class SealedFile(Complete):
    """A data file of a sealed segment.

    Attributes:
        path: The file, relative to the archive.
        bytes: Size in bytes.
        sha256: SHA-256 of its bytes.
        contents: Its contents per partition.
        nul_header_names: Whether a header's name has a NUL, which Kafka's client can't send; None
            if unknown. Then a republish has to read the file to find out.
        index_sha256: SHA-256 of what a Parquet file has behind its last column chunk: page indexes,
            Bloom filters, footer; None if unknown. Then a search believes none of them.
    """

    path: str
    bytes: Annotated[int, Field(ge=0, le=NO_END)]
    sha256: str
    contents: tuple[SealedContent, ...]
    nul_header_names: bool | None = field(default=None, metadata=OPTIONAL)
    index_sha256: str | None = field(default=None, metadata=OPTIONAL)


#: The keys of a file that it has as far as they are known, as `CommittedFile` names them too.
FILE_NOTES = tuple(each.name for each in fields(SealedFile) if each.metadata)


@dataclass(frozen=True, slots=True)
class SoFar:
    """The totals of one partition in a generation, up to and including a segment.

    Attributes:
        start: Offset at which the generation started to drain it.
        records: Number of records.
        gaps: Number of missing offsets, by reason.
    """

    start: int
    records: int
    gaps: Mapping[GapReason, int]


@dataclass(frozen=True, slots=True)
class SealedTail:
    """The newest archived record of a partition, by which Kafka's log is known.

    Attributes:
        hash: Its xxHash64, in hexadecimal, as in fingerprints; None if it is unknown.
        leader_epoch: The epoch of the leader that appended it, as Kafka said when it was sealed;
            None if Kafka didn't say.
    """

    offset: int
    hash: str | None
    leader_epoch: int | None

    @classmethod
    def of(
        cls, offset: int, hash: str | None = None, leader_epoch: int | None = None
    ) -> SealedTail:
        """Return a record of which not everything may be known."""
        return cls(offset, hash, leader_epoch)


@dataclass(frozen=True, slots=True)
class SealedPartition(Complete):
    """A segment's proof about one partition.

    Attributes:
        start: The first drained offset.
        end: End of the drained offsets, exclusive.
        records: Number of records in the files.
        first_offset: Lowest offset in the files; None if there is none.
        last_offset: Highest offset in the files; None if there is none.
        first_timestamp: Lowest timestamp in milliseconds since 1970.
        last_timestamp: Highest timestamp in milliseconds since 1970.
        gaps: Offsets that are in no file, by reason.
        kafka: Kafka's offsets at the time of sealing; None if the topic was gone.
        so_far: Totals of the generation.
        tail: The newest archived record of it, of the generation or of what came before it; None in
            a window's receipt, and in those of earlier releases.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int
    first_offset: int | None
    last_offset: int | None
    first_timestamp: int | None
    last_timestamp: int | None
    gaps: Mapping[GapReason, tuple[_Range, ...]]
    kafka: KafkaBounds | None
    so_far: SoFar
    tail: SealedTail | None = field(default=None, metadata=OPTIONAL)

    def __post_init__(self) -> None:
        self.range  # noqa: B018 - a range that doesn't end before it starts
        OffsetRange(self.so_far.start, self.end)

    @classmethod
    def of(
        cls,
        tp: TopicPartition,
        range: OffsetRange,
        records: int,
        first: int | None,
        last: int | None,
        first_timestamp: int | None,
        last_timestamp: int | None,
        gaps: Gaps,
        kafka: KafkaBounds | None,
        start_so_far: int,
        records_so_far: int,
        gaps_so_far: Mapping[GapReason, int],
        tail: SealedTail | None = None,
    ) -> SealedPartition:
        """Return the proof about a topic-partition; ranges and totals as their own values."""
        return cls(
            topic=tp.topic,
            partition=tp.partition,
            start=range.start,
            end=range.end,
            records=records,
            first_offset=first,
            last_offset=last,
            first_timestamp=first_timestamp,
            last_timestamp=last_timestamp,
            gaps={reason: tuple(ranges) for reason, ranges in gaps.items()},
            kafka=kafka,
            so_far=SoFar(start_so_far, records_so_far, gaps_so_far),
            tail=tail,
        )

    @property
    def tp(self) -> TopicPartition:
        """The topic-partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def range(self) -> OffsetRange:
        """The drained offsets."""
        return OffsetRange(self.start, self.end)

    @property
    def first(self) -> int | None:
        """Lowest offset in the files; None if there is none."""
        return self.first_offset

    @property
    def last(self) -> int | None:
        """Highest offset in the files; None if there is none."""
        return self.last_offset

    @property
    def start_so_far(self) -> int:
        """Offset at which the generation started to drain the partition."""
        return self.so_far.start

    @property
    def records_so_far(self) -> int:
        """Number of records in the generation, including this segment."""
        return self.so_far.records

    @property
    def gaps_so_far(self) -> Mapping[GapReason, int]:
        """Number of missing offsets in the generation, by reason, including this segment."""
        return self.so_far.gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt(SealedDocument):
    """The proof of one segment: a batch of a generation, or a window.

    Attributes:
        pipeline: Name of the pipeline.
        cluster_id: Id of the Kafka cluster.
        topics: Topic ids by topic.
        generation: Number of the generation; None for a window.
        window: Name of the window; empty for a generation's segment.
        first_batch: Lowest batch id; lower than `last_batch` if the checkpoint no longer had the
            end offsets of the individual batches.
        last_batch: Highest batch id.
        sealed_at: Time of sealing, in UTC.
        previous: SHA-256 of the previous receipt; None for the first one.
        partitions: The proof of each partition.
        files: The data files.
        fingerprint: XOR of the records' xxHash64, see `fingerprint.py`; None if unknown.
        files_so_far: All files of the generation, up to and including this segment.
        acknowledged: Acknowledged expired offsets, as `topic:partition:start-end`.
        replaces: Files, relative to the archive, that this window replaces.
        changed: Offsets, as `topic:partition:start-end`, at which this window doesn't provably hold
            the records of the files that it replaces, as the user has accepted; None if it wasn't
            compared with them.
        provenance: SHA-256 of the receipts that sealed what a compaction has rewritten, by path
            relative to the archive.
        journal: Number of entries in the archive's journal at the time of sealing.
        cluster: The newest description of the cluster at the time of sealing; None for none.
        described: Whether that holds as of the sealing; otherwise it is older than the records.
        schemas: The newest seal of schemas at the time of sealing; None for none.
        said_offsets: The number of offsets as its file has it; -1 until it is read.
        said_records: The number of records; likewise.
    """

    pipeline: str
    cluster_id: str
    topics: Mapping[str, str]
    generation: int | None
    window: str = ""
    first_batch: int
    last_batch: int
    sealed_at: str
    previous: str | None
    said_offsets: Annotated[int, Field(alias="offsets")] = field(default=-1, compare=False)
    said_records: Annotated[int, Field(alias="records")] = field(default=-1, compare=False)
    fingerprint: str | None = None
    acknowledged: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    changed: tuple[str, ...] | None = field(default=None, metadata=OPTIONAL)
    # Receipts from before compaction existed have none.
    provenance: Mapping[str, str] = field(default_factory=dict, metadata=ADDED)
    # Neither have those of a release without a journal.
    journal: int = field(default=0, metadata=ADDED)
    cluster: SealedName | None = field(default=None, metadata=OPTIONAL)
    described: bool = field(default=True, metadata=OPTIONAL)
    schemas: SealedName | None = field(default=None, metadata=OPTIONAL)
    partitions: tuple[SealedPartition, ...]
    files: tuple[SealedFile, ...]
    files_so_far: FileSet

    @property
    def name(self) -> str:
        """File name."""
        return receipt_name(self.last_batch)

    @property
    def position(self) -> tuple[int, int]:
        """Generation and last batch, which sort segments by age; a window has generation 0."""
        return self.generation or 0, self.last_batch

    @property
    def where(self) -> str:
        """The file, relative to the archive."""
        if self.generation is None:
            return f"windows/{self.window}/receipt.json"
        return f"generations/{self.generation:04d}/receipts/{self.name}"

    @property
    def starts(self) -> dict[TopicPartition, int]:
        """Starting offsets of the segment."""
        return {part.tp: part.range.start for part in self.partitions}

    @property
    def ends(self) -> dict[TopicPartition, int]:
        """End offsets of the segment."""
        return {part.tp: part.range.end for part in self.partitions}

    @property
    def offsets(self) -> int:
        """Number of offsets that the segment drained, including gaps."""
        return count(part.range for part in self.partitions)

    @property
    def records(self) -> int:
        """Number of records in its files."""
        return sum(part.records for part in self.partitions)

    @property
    def drained_again(self) -> Collection[str]:
        """Files that this window replaces with records that it has read from Kafka, or deleted.

        A compaction, which names the receipts that it rewrote, keeps the records as they are.
        """
        return () if self.provenance else self.replaces

    def covers(self, wanted: Mapping[TopicPartition, Sequence[OffsetRange]]) -> bool:
        """Return whether the segment covers any of the offsets, sorted and disjoint for each."""
        return any(overlapping(wanted.get(part.tp, ()), part.range) for part in self.partitions)

    def covers_time(self, from_ms: int, to_ms: int) -> bool:
        """Return whether its records may be in a time range, which ends before `to_ms`."""
        return any(
            part.first_timestamp is not None
            and part.last_timestamp is not None
            and part.first_timestamp < to_ms
            and part.last_timestamp >= from_ms
            for part in self.partitions
        )

    def document(self) -> dict[str, Any]:
        """Return the sealed keys, as JSON types."""
        said = {"offsets": self.offsets, "records": self.records}
        return SealedDocument.document(self) | said


def receipt_name(last_batch: int) -> str:
    """Return the name of a segment's receipt: twelve digits, so that names sort like batches."""
    return f"{last_batch:012d}.json"


def records_of(files: Iterable[SealedFile]) -> dict[TopicPartition, int]:
    """Return the number of records in sealed files for each partition."""
    held: dict[TopicPartition, int] = {}
    for file in files:
        for content in file.contents:
            held[content.tp] = held.get(content.tp, 0) + content.records
    return held


def unknown_files(receipt: Receipt) -> list[SealedFile]:
    """Return a receipt's files with records of which it isn't known what Spark read."""
    if receipt.fingerprint is not None:
        return []
    return [file for file in receipt.files if any(content.records for content in file.contents)]


def parse_receipt(content: bytes, name: str = "a receipt") -> Receipt:
    """Parse a receipt and verify its own hash.

    Args:
        content: Content of its file.
        name: Name of the receipt, for messages.

    Raises:
        ReceiptError: When a byte was changed, or it isn't a receipt.
    """
    receipt = Receipt.parse_named(content, name, "a receipt", ReceiptError)
    if (receipt.said_offsets, receipt.said_records) != (receipt.offsets, receipt.records):
        raise ReceiptError(
            f"{name} says {receipt.said_offsets:,} offsets and {receipt.said_records:,} records, "
            f"but its partitions have {receipt.offsets:,} and {receipt.records:,}; restore it from "
            "a copy"
        )
    return receipt


def receipt_at(content: bytes, where: str) -> Receipt:
    """Parse the receipt that lies at a place, and verify that it was sealed for this place.

    All that a receipt says of its place is in its path: generation and batch, or window.

    Args:
        content: Content of its file.
        where: The file, relative to the archive.

    Raises:
        MisplacedError: When it is a copy of another receipt.
        ReceiptError: When a byte was changed, or it isn't a receipt.
    """
    receipt = parse_receipt(content, where)
    if receipt.where != where:
        raise MisplacedError(
            f"{where} is a copy of {receipt.where}, expected the receipt that was sealed there; "
            "a repair restores that one, or moves the copy aside",
            receipt,
        )
    return receipt
