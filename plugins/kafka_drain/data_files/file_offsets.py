"""Contents of a data file: offsets, rows and times by partition. Plain values; opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kafka_drain.offsets import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class FileOffsets:
    """The offsets of one partition in one file.

    Attributes:
        ranges: The offsets, as sorted disjoint ranges.
        records: Number of rows; higher than the number of offsets if there are duplicates.
        duplicates: Offsets that occur more than once, lowest first, at most ten.
        ascending: Whether the rows are in offset order.
        first_timestamp: Lowest timestamp in milliseconds since 1970; None if no row has one.
        last_timestamp: Highest timestamp in milliseconds since 1970; None if no row has one.
        last_hash: xxHash64 of the record with the highest offset, in hexadecimal, as in
            fingerprints; None if it is unknown.
    """

    tp: TopicPartition
    ranges: tuple[OffsetRange, ...]
    records: int
    duplicates: tuple[int, ...] = ()
    ascending: bool = True
    first_timestamp: int | None = None
    last_timestamp: int | None = None
    last_hash: str | None = None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> FileOffsets:
        """Create an instance from an item of a file's `contents` in JSON types."""
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
    """A data file committed by the manifest, with its contents.

    Attributes:
        path: The file, relative to the archive.
        bytes: Size in bytes.
        sha256: SHA-256 of its bytes, in hexadecimal.
        contents: Its contents per partition.
        batch: The batch that the manifest lists the file in; None if the manifest dropped it.
        fingerprint: XOR of its records' hashes, in hexadecimal; None if a record's time can't be
            represented, or it is locked.
        nul_header_names: Whether a header's name has a NUL; None if unknown, like the fingerprint.
        locked: Why its encrypted columns couldn't be read; empty if they could, or it has none.
        index_sha256: SHA-256 of a Parquet file's index, in hexadecimal; None for other formats, and
            if it is locked.
    """

    path: str
    bytes: int
    sha256: str
    contents: tuple[FileOffsets, ...]
    batch: int | None = None
    fingerprint: str | None = None
    nul_header_names: bool | None = None
    locked: str = ""
    index_sha256: str | None = None

    @property
    def records(self) -> int:
        """Number of rows in the file."""
        return sum(content.records for content in self.contents)

    def to_dict(self) -> dict[str, Any]:
        """Return the object as JSON types."""
        return asdict(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> CommittedFile:
        """Create an instance from the result of `to_dict`."""
        contents = tuple(FileOffsets.from_dict(each) for each in document["contents"])
        return cls(**{**document, "contents": contents})
