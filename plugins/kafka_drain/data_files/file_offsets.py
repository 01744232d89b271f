"""What a data file holds: offsets, rows and times by partition. Plain values; opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kafka_drain.offsets import OffsetRange, TopicPartition

__all__ = ["CommittedFile", "FileOffsets"]


@dataclass(frozen=True, slots=True)
class FileOffsets:
    """The offsets that one file holds of one partition.

    Attributes:
        tp: The topic-partition.
        ranges: The offsets, as sorted disjoint ranges.
        records: How many rows; more than offsets when some are there twice.
        duplicates: Offsets that are there more than once, lowest first, at most ten.
        ascending: Whether the rows are in offset order.
        first_timestamp: Lowest timestamp in milliseconds since 1970; None when no row has one.
        last_timestamp: Highest timestamp in milliseconds since 1970; None when no row has one.
    """

    tp: TopicPartition
    ranges: tuple[OffsetRange, ...]
    records: int
    duplicates: tuple[int, ...] = ()
    ascending: bool = True
    first_timestamp: int | None = None
    last_timestamp: int | None = None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> FileOffsets:
        """Read one of a file's `contents` as JSON types."""
        return cls(
            **{
                **document,
                "tp": TopicPartition(**document["tp"]),
                "ranges": tuple(OffsetRange(**r) for r in document["ranges"]),
                "duplicates": tuple(document["duplicates"]),
            }
        )

    @property
    def first(self) -> int:
        """Lowest offset."""
        return self.ranges[0].start

    @property
    def last(self) -> int:
        """Highest offset."""
        return self.ranges[-1].end - 1


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A data file that the manifest commits, read.

    Attributes:
        path: The file, relative to the archive.
        bytes: Its size.
        sha256: The SHA-256 of its bytes, in hexadecimal.
        contents: What it holds of each partition.
        batch: The batch that the manifest lists the file in; None when that is forgotten.
        fingerprint: XOR of its records' hashes, in hexadecimal; None when a record's time can't be
            represented.
    """

    path: str
    bytes: int
    sha256: str
    contents: tuple[FileOffsets, ...]
    batch: int | None = None
    fingerprint: str | None = None

    @property
    def records(self) -> int:
        """How many rows it has."""
        return sum(content.records for content in self.contents)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> CommittedFile:
        """Read what `to_dict` returned."""
        contents = tuple(FileOffsets.from_dict(each) for each in document["contents"])
        return cls(**{**document, "contents": contents})
