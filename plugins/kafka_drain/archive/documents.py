"""The typed documents that define an archive, a generation and a window, and their parsing.

See `docs/format.md`. Keys may be added within a format version: keys that are unknown to this
release are kept when a document is rewritten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, field_validator
from upath import UPath

from kafka_drain.archive.format_version import READABLE
from kafka_drain.errors import ArchiveError
from kafka_drain.intervals import Interval
from kafka_drain.offsets import OffsetRange, TopicPartition, from_spark_json
from kafka_drain.storage.paths import read_bytes

__all__ = ["ArchiveDocument", "Document", "GenerationDocument", "WindowPlan"]

D = TypeVar("D", bound="Document")


class Document(BaseModel):
    """A JSON object of an archive.

    Attributes:
        format_version: Version of the archive's format; 1 if the document has none.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    #: Version of a document without one.
    without_version: ClassVar[int | None] = 1

    format_version: int = 1

    @classmethod
    def read(cls: type[D], path: UPath) -> D:
        """Read a document; raises like `parse`, or FileNotFoundError if it doesn't exist."""
        return cls.parse(path, read_bytes(path))

    @classmethod
    def parse(cls: type[D], path: UPath, content: bytes) -> D:
        """Parse a document's bytes.

        Raises:
            ArchiveError: When it has another format, isn't a JSON object, or was changed.
        """
        document = _parsed(path, content)
        # The version first, because another format may have other keys.
        version = document.get("format_version", cls.without_version)
        if version not in READABLE:
            raise ArchiveError(
                f"{path.parent} has archive format {version!r}, but this kafka-drain reads format "
                f"{', '.join(map(str, READABLE))}; use the release that wrote it"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            wrong = _wrong(error, document)
            raise ArchiveError(f"{path} {wrong}; restore it from a copy") from error

    def content(self) -> dict[str, Any]:
        """Return the JSON object as read, including keys unknown to this release."""
        return self.model_dump(mode="json", exclude_unset=True)


class ArchiveDocument(Document):
    """`archive.json`: the identity of an archive.

    Attributes:
        pipeline: Name of the pipeline.
        cluster_id: Id of the Kafka cluster.
        topics: Topic ids by topic.
        source: What is drained: `topics`, `topic_pattern` or `assign`.
        isolation_level: Isolation level of the source.
        retention: The sink's `retention` option: Spark drops older files from the manifest.
    """

    without_version = None

    pipeline: str
    cluster_id: str
    topics: dict[str, str]
    source: dict[str, Any]
    isolation_level: str = "read_committed"
    retention: str | None = None


class GenerationDocument(Document):
    """`generation.json`: the start of a generation, and how its files are written.

    Attributes:
        generation: Number of the generation; None if written by a release that didn't record it.
        opened_at: Time of opening, in ISO 8601.
        reason: Reason for opening: `first`, `rollover`, `reprocess` and others.
        format: Format of the data files.
        partition_by: Columns that folders are named by.
        starting_offsets: First offset by topic and partition, in Spark's JSON form.
        topics: Topic ids by topic; release 0.1 had them only in `archive.json`.
        values: Decoding of values; None if disabled.
    """

    generation: int | None = None
    opened_at: str
    reason: str
    format: str
    partition_by: list[str]
    starting_offsets: dict[str, dict[str, int]]
    topics: dict[str, str] = {}
    values: dict[str, Any] | None = None

    @field_validator("starting_offsets")
    @classmethod
    def _are_offsets(cls, starting: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        offsets = from_spark_json(json.dumps(starting))
        if min(offsets.values(), default=0) < 0:
            raise ValueError("expected non-negative offsets by topic and partition")
        return starting

    def first_offsets(self) -> dict[TopicPartition, int]:
        """Return the starting offsets by topic-partition."""
        return from_spark_json(json.dumps(self.starting_offsets))


class OffsetRow(BaseModel):
    """Offsets of one partition in a plan.

    Attributes:
        topic: The topic.
        partition: The partition.
        start: The first offset.
        end: End of the offsets, exclusive.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    topic: str
    partition: int
    start: int
    end: int


class WindowPlan(Document):
    """`plan.json`: the contents of a window, fixed before it is written.

    Attributes:
        ranges: Its offsets, sorted and disjoint for each partition.
        format: Format of its files.
        replaces: Files, relative to the archive, that it replaces.
        kind: Why the window is written; None in a plan of an earlier release.
        partition_by: Columns named by its folders.
        opened_at: Time of opening, in ISO 8601.
        interval: Data interval of a backfill: start (inclusive) and end (exclusive).
        topics: Topic ids by topic, for a backfill.
        replaced: Contents of the replaced files, for a window that replaces intact files.
    """

    ranges: list[OffsetRow]
    format: str
    replaces: list[str]
    kind: str | None = None
    partition_by: list[str] = []
    opened_at: str = ""
    interval: list[str] | None = None
    topics: dict[str, str] = {}
    replaced: dict[str, Any] | None = None

    @property
    def start(self) -> datetime | None:
        """The start of a backfill's data interval."""
        return Interval.parse(self.interval).start if self.interval else None

    def offsets(self) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the window's offsets by topic-partition."""
        found: dict[TopicPartition, list[OffsetRange]] = {}
        for row in self.ranges:
            tp = TopicPartition(row.topic, row.partition)
            found.setdefault(tp, []).append(OffsetRange(row.start, row.end))
        return found


def _parsed(path: UPath, content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content)
    except ValueError as error:
        raise ArchiveError(f"{path} isn't JSON ({error}); restore it from a copy") from error
    if not isinstance(document, dict):
        shown = content[:40].decode(errors="replace")
        raise ArchiveError(f"{path} holds {shown!r}, expected a JSON object")
    return document


def _wrong(error: ValidationError, document: Mapping[str, Any]) -> str:
    """Describe what is wrong with a document."""
    missing = [str(each["loc"][0]) for each in error.errors() if each["type"] == "missing"]
    if missing:
        return f"has no {', '.join(missing)}"
    first = error.errors()[0]
    name = str(first["loc"][0])
    said = first["msg"].removeprefix("Value error, ")
    return f"was changed: {name} is {str(document[name])[:200]}; {said}"
