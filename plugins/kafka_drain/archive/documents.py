"""The documents that say what an archive, a generation and a window are: typed, read in one place.

`docs/format.md` describes them. Within a format version keys may be added: those that this release
doesn't know are kept when a document is written again.
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
        format_version: Version of the archive's format; those that were written without one have 1.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    #: The version of one that names none.
    without_version: ClassVar[int | None] = 1

    format_version: int = 1

    @classmethod
    def read(cls: type[D], path: UPath) -> D:
        """Read a document; raises as `parse` does, and FileNotFoundError when there is none."""
        return cls.parse(path, read_bytes(path))

    @classmethod
    def parse(cls: type[D], path: UPath, content: bytes) -> D:
        """Parse a document's bytes.

        Raises:
            ArchiveError: When it is of another format, no JSON object, or not as it was written.
        """
        document = _parsed(path, content)
        # The version first: another format may have other keys.
        version = document.get("format_version", cls.without_version)
        if version not in READABLE:
            raise ArchiveError(
                f"{path.parent} has archive format {version!r}, this kafka-drain reads format "
                f"{', '.join(map(str, READABLE))}; use the release that wrote it"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            wrong = _wrong(error, document)
            raise ArchiveError(f"{path} {wrong}; restore it from a copy") from error

    def content(self) -> dict[str, Any]:
        """Return the JSON object as it was read, with what this release doesn't know."""
        return self.model_dump(mode="json", exclude_unset=True)


class ArchiveDocument(Document):
    """`archive.json`: whose archive it is.

    Attributes:
        pipeline: The pipeline's name.
        cluster_id: The Kafka cluster's id.
        topics: Topic ids by topic.
        source: What is drained: `topics`, `topic_pattern` or `assign`.
        isolation_level: How the source reads transactions.
        retention: The sink's option of that name: Spark drops older files from the manifest.
    """

    without_version = None

    pipeline: str
    cluster_id: str
    topics: dict[str, str]
    source: dict[str, Any]
    isolation_level: str = "read_committed"
    retention: str | None = None


class GenerationDocument(Document):
    """`generation.json`: where a generation starts, and how its files are written.

    Attributes:
        generation: Its number; None of a release that didn't write it.
        opened_at: When it was opened, in ISO 8601.
        reason: Why: `first`, `rollover`, `reprocess` and others.
        format: Format of the data files.
        partition_by: Columns that folders are named by.
        starting_offsets: The first offset by topic and partition, as Spark's JSON has it.
        topics: Topic ids by topic; release 0.1 had them in `archive.json` alone.
        values: How values are decoded; None for not.
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
            raise ValueError("expected offsets from 0 on by topic and partition")
        return starting

    def first_offsets(self) -> dict[TopicPartition, int]:
        """Return the starting offsets by topic-partition."""
        return from_spark_json(json.dumps(self.starting_offsets))


class OffsetRow(BaseModel):
    """Offsets of one partition, as a plan has them.

    Attributes:
        topic: The topic.
        partition: The partition.
        start: The first offset.
        end: Where they end, this one not included.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="allow")

    topic: str
    partition: int
    start: int
    end: int


class WindowPlan(Document):
    """`plan.json`: what a window holds, frozen before it is written.

    Attributes:
        ranges: Its offsets, sorted and disjoint for each partition.
        format: Format of its files.
        replaces: Files, relative to the archive, that it stands for.
        partition_by: Columns that its folders name.
        opened_at: When it was opened, in ISO 8601.
        interval: The data interval of a backfill: its first time, and the time just after it.
        topics: Topic ids by topic, of a backfill.
        replaced: What the replaced files hold, of a window that stands for sound files.
    """

    ranges: list[OffsetRow]
    format: str
    replaces: list[str]
    partition_by: list[str] = []
    opened_at: str = ""
    interval: list[str] | None = None
    topics: dict[str, str] = {}
    replaced: dict[str, Any] | None = None

    @property
    def start(self) -> datetime | None:
        """The first time of a backfill's data interval."""
        return Interval.parse(self.interval).start if self.interval else None

    def offsets(self) -> dict[TopicPartition, list[OffsetRange]]:
        """Return its offsets by topic-partition."""
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
    """Say what is wrong with a document."""
    missing = [str(each["loc"][0]) for each in error.errors() if each["type"] == "missing"]
    if missing:
        return f"has no {', '.join(missing)}"
    first = error.errors()[0]
    name = str(first["loc"][0])
    said = first["msg"].removeprefix("Value error, ")
    return f"was changed: {name} is {str(document[name])[:200]}; {said}"
