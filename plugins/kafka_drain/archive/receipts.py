"""Receipts: the sealed proof of one segment, chained by the hash of the previous one.

A receipt is sealed JSON, so a single changed byte is detected. If a whole receipt is replaced, the
hash in the next one reveals it. Opens nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kafka_drain.archive.format_version import FORMAT_VERSION, known_fields, require_readable
from kafka_drain.errors import TerminalError
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, count
from kafka_drain.storage.sealed_json import SealError, seal, unseal

__all__ = [
    "FileSet",
    "KafkaBounds",
    "Receipt",
    "ReceiptError",
    "SealedContent",
    "SealedFile",
    "SealedPartition",
    "parse_receipt",
    "records_of",
]


Gaps = Mapping[GapReason, Sequence[OffsetRange]]


class ReceiptError(TerminalError, ValueError):
    """Raised when a receipt differs from what was sealed; retrying won't change that."""


@dataclass(frozen=True, slots=True)
class KafkaBounds:
    """Kafka's offsets of a partition at the time of sealing."""

    earliest: int
    last_stable: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class FileSet:
    """Fingerprint of a set of files, independent of their order and extensible file by file.

    Attributes:
        files: Number of files.
        bytes: Total size of the files.
        digest: Sum, modulo 2^128, of BLAKE2b(path, NUL, size) over the files.
    """

    files: int = 0
    bytes: int = 0
    digest: int = 0

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
        tp: The topic-partition.
        first: Lowest offset.
        last: Highest offset.
        records: Number of rows, which equals the number of offsets: there are no duplicates.
        first_timestamp: Lowest timestamp in milliseconds since 1970.
        last_timestamp: Highest timestamp in milliseconds since 1970.
        ascending: Whether the rows are in offset order.
    """

    tp: TopicPartition
    first: int
    last: int
    records: int
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    ascending: bool = True

    @property
    def is_dense(self) -> bool:
        """Whether no offset between the first and the last is missing."""
        return self.records == self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class SealedFile:
    """A data file of a sealed segment.

    Attributes:
        path: The file, relative to the archive.
        bytes: Size in bytes.
        sha256: SHA-256 of its bytes.
        contents: Its contents per partition.
    """

    path: str
    bytes: int
    sha256: str
    contents: tuple[SealedContent, ...]


@dataclass(frozen=True, slots=True)
class SealedPartition:
    """What a segment proves about one partition.

    Attributes:
        tp: The topic-partition.
        range: The drained offsets.
        records: Number of records in the files.
        first: Lowest offset in the files; None if there is none.
        last: Highest offset in the files; None if there is none.
        first_timestamp: Lowest timestamp in milliseconds since 1970.
        last_timestamp: Highest timestamp in milliseconds since 1970.
        gaps: Offsets that are in no file, by reason.
        kafka: Kafka's offsets at the time of sealing; None if the topic was gone.
        start_so_far: Offset at which the generation started to drain it.
        records_so_far: Its number of records in the generation, including this segment.
        gaps_so_far: Its number of missing offsets in the generation, by reason, including this
            segment.
    """

    tp: TopicPartition
    range: OffsetRange
    records: int
    first: int | None
    last: int | None
    first_timestamp: int | None
    last_timestamp: int | None
    gaps: Gaps
    kafka: KafkaBounds | None
    start_so_far: int
    records_so_far: int
    gaps_so_far: Mapping[GapReason, int]


@dataclass(frozen=True, slots=True)
class Receipt:
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
        partitions: What is proven about each partition.
        files: The data files.
        fingerprint: XOR of the records' xxHash64, see `fingerprint.py`; None if unknown.
        files_so_far: All files of the generation, up to and including this segment.
        acknowledged: Acknowledged expired offsets, as `topic:partition:start-end`.
        replaces: Files, relative to the archive, that this window replaces.
        provenance: SHA-256 of the receipts that sealed what a compaction has rewritten, by path
            relative to the archive.
        journal: Number of entries in the archive's journal at the time of sealing.
        sha256: The receipt's own hash; empty until it is sealed.
    """

    pipeline: str
    cluster_id: str
    topics: Mapping[str, str]
    generation: int | None
    first_batch: int
    last_batch: int
    sealed_at: str
    previous: str | None
    partitions: tuple[SealedPartition, ...]
    files: tuple[SealedFile, ...]
    files_so_far: FileSet
    fingerprint: str | None = None
    acknowledged: tuple[str, ...] = ()
    window: str = ""
    replaces: tuple[str, ...] = ()
    provenance: Mapping[str, str] = field(default_factory=dict)
    journal: int = 0
    sha256: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """File name: twelve digits, so that names sort like batch ids."""
        return f"{self.last_batch:012d}.json"

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

    def to_bytes(self) -> bytes:
        """Return the sealed content of the receipt's file."""
        return seal(_to_dict(self))


def records_of(files: Iterable[SealedFile]) -> dict[TopicPartition, int]:
    """Return the number of records in sealed files for each partition."""
    held: dict[TopicPartition, int] = {}
    for file in files:
        for content in file.contents:
            held[content.tp] = held.get(content.tp, 0) + content.records
    return held


def parse_receipt(content: bytes, name: str = "a receipt") -> Receipt:
    """Parse a receipt and verify its own hash.

    Args:
        content: Content of its file.
        name: Name of the receipt, for messages.

    Raises:
        ReceiptError: When a byte was changed, or it isn't a receipt.
    """
    try:
        return _from_dict(unseal(content))
    except SealError as error:
        raise ReceiptError(f"{name} is damaged: {error}; restore it from a copy") from error
    except (KeyError, TypeError, ValueError) as error:
        raise ReceiptError(
            f"{name} isn't a receipt known to this release ({error!r}); restore it from a copy, "
            "or use the release that wrote it"
        ) from error


def _to_dict(receipt: Receipt) -> dict[str, Any]:
    so_far = receipt.files_so_far
    return {
        "format_version": FORMAT_VERSION,
        "pipeline": receipt.pipeline,
        "cluster_id": receipt.cluster_id,
        "topics": dict(receipt.topics),
        "generation": receipt.generation,
        "window": receipt.window,
        "first_batch": receipt.first_batch,
        "last_batch": receipt.last_batch,
        "sealed_at": receipt.sealed_at,
        "previous": receipt.previous,
        "offsets": receipt.offsets,
        "records": receipt.records,
        "fingerprint": receipt.fingerprint,
        "acknowledged": list(receipt.acknowledged),
        "replaces": list(receipt.replaces),
        "provenance": dict(receipt.provenance),
        "journal": receipt.journal,
        "partitions": [_partition_to_dict(part) for part in receipt.partitions],
        "files": [
            {
                "path": file.path,
                "bytes": file.bytes,
                "sha256": file.sha256,
                "contents": [_content_to_dict(content) for content in file.contents],
            }
            for file in receipt.files
        ],
        "files_so_far": {
            "files": so_far.files,
            "bytes": so_far.bytes,
            "digest": f"{so_far.digest:032x}",
        },
    }


def _content_to_dict(content: SealedContent) -> dict[str, Any]:
    return {
        "topic": content.tp.topic,
        "partition": content.tp.partition,
        "first_offset": content.first,
        "last_offset": content.last,
        "records": content.records,
        "first_timestamp": content.first_timestamp,
        "last_timestamp": content.last_timestamp,
        "ascending": content.ascending,
    }


def _partition_to_dict(part: SealedPartition) -> dict[str, Any]:
    return {
        "topic": part.tp.topic,
        "partition": part.tp.partition,
        "start": part.range.start,
        "end": part.range.end,
        "records": part.records,
        "first_offset": part.first,
        "last_offset": part.last,
        "first_timestamp": part.first_timestamp,
        "last_timestamp": part.last_timestamp,
        "gaps": {str(reason): [[r.start, r.end] for r in rs] for reason, rs in part.gaps.items()},
        "kafka": asdict(part.kafka) if part.kafka else None,
        "so_far": {
            "start": part.start_so_far,
            "records": part.records_so_far,
            "gaps": {str(reason): number for reason, number in part.gaps_so_far.items()},
        },
    }


def _from_dict(document: dict[str, Any]) -> Receipt:
    require_readable(document["format_version"])
    so_far = document["files_so_far"]
    return Receipt(
        pipeline=document["pipeline"],
        cluster_id=document["cluster_id"],
        topics=document["topics"],
        generation=document["generation"],
        window=document["window"],
        first_batch=document["first_batch"],
        last_batch=document["last_batch"],
        sealed_at=document["sealed_at"],
        previous=document["previous"],
        partitions=tuple(map(_partition_from_dict, document["partitions"])),
        files=tuple(
            SealedFile(
                path=file["path"],
                bytes=file["bytes"],
                sha256=file["sha256"],
                contents=tuple(map(_content_from_dict, file["contents"])),
            )
            for file in document["files"]
        ),
        files_so_far=FileSet(so_far["files"], so_far["bytes"], int(so_far["digest"], 16)),
        fingerprint=document["fingerprint"],
        acknowledged=tuple(document["acknowledged"]),
        replaces=tuple(document["replaces"]),
        # Receipts from before compaction existed have none.
        provenance=document.get("provenance", {}),
        # Neither have those of a release without a journal.
        journal=document.get("journal", 0),
        sha256=document["sha256"],
    )


def _content_from_dict(content: dict[str, Any]) -> SealedContent:
    return SealedContent(
        tp=TopicPartition(content["topic"], content["partition"]),
        first=content["first_offset"],
        last=content["last_offset"],
        records=content["records"],
        first_timestamp=content["first_timestamp"],
        last_timestamp=content["last_timestamp"],
        ascending=content["ascending"],
    )


def _partition_from_dict(part: dict[str, Any]) -> SealedPartition:
    so_far = part["so_far"]
    return SealedPartition(
        tp=TopicPartition(part["topic"], part["partition"]),
        range=OffsetRange(part["start"], part["end"]),
        records=part["records"],
        first=part["first_offset"],
        last=part["last_offset"],
        first_timestamp=part["first_timestamp"],
        last_timestamp=part["last_timestamp"],
        gaps={
            GapReason.of(reason): tuple(OffsetRange(a, b) for a, b in pairs)
            for reason, pairs in part["gaps"].items()
        },
        kafka=known_fields(KafkaBounds, part["kafka"]) if part["kafka"] else None,
        start_so_far=so_far["start"],
        records_so_far=so_far["records"],
        gaps_so_far={GapReason.of(reason): number for reason, number in so_far["gaps"].items()},
    )
