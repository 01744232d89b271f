"""The files that can hold a match, and the order in which they are read. Opens nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from kafka_drain.errors import ConfigError
from kafka_drain.find.criteria import Criteria
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.selection import Rows

if TYPE_CHECKING:
    from kafka_drain.archive.files import ArchiveFile

#: Number of bytes up to which files are read for a match without being asked to.
SCAN_BYTES = 256 << 20

_POSITION = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]*):(?P<incarnation>\d+):(?P<partition>\d+):(?P<offset>\d+)"
)


class FileContent(Protocol):
    """A file's records of one partition, by its receipt or by itself."""

    @property
    def tp(self) -> TopicPartition:
        """The partition."""

    @property
    def first(self) -> int:
        """Lowest offset."""

    @property
    def last(self) -> int:
        """Highest offset."""

    @property
    def records(self) -> int:
        """Number of records."""

    @property
    def first_timestamp(self) -> int | None:
        """Lowest timestamp in milliseconds since 1970; None if unknown."""

    @property
    def last_timestamp(self) -> int | None:
        """Highest timestamp in milliseconds since 1970; None if unknown."""

    @property
    def ascending(self) -> bool:
        """Whether the rows are in offset order."""


@dataclass(frozen=True, order=True, slots=True)
class Position:
    """Where a record is in the order of all: by topic, partition and offset.

    Attributes:
        incarnation: Tells topics of the same name apart that were deleted and created again: the
            first generation of each, so that the older one comes first.
    """

    topic: str
    incarnation: int
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.incarnation}:{self.partition}:{self.offset}"

    @classmethod
    def parse(cls, text: str) -> Position:
        """Parse the text of `str`.

        Raises:
            ConfigError: When it isn't that.
        """
        found = _POSITION.fullmatch(text)
        if found is None:
            raise ConfigError(
                f"after = {text!r} is not acceptable; accepted: the position that an earlier "
                "search ended with"
            )
        numbers = (int(found[name]) for name in ("incarnation", "partition", "offset"))
        return cls(found["topic"], *numbers)


@dataclass(frozen=True)
class FilePart:
    """The records of one partition in one file, some of which may match.

    Attributes:
        content: The partition's content in the file.
        incarnation: See `Position`.
        rows: The records that topics, partitions, offsets and times select.
        from_offset: Only records with this offset or a higher one.
    """

    file: ArchiveFile
    content: FileContent
    incarnation: int
    rows: Rows
    from_offset: int = 0

    @property
    def tp(self) -> TopicPartition:
        """The partition."""
        return self.content.tp

    def at(self, offset: int) -> Position:
        """Return the position of one of its records."""
        return Position(self.tp.topic, self.incarnation, self.tp.partition, offset)


@dataclass(frozen=True)
class ReadGroup:
    """Parts of one partition that are read together, because their offsets overlap."""

    parts: tuple[FilePart, ...]

    def through(self) -> Position:
        """Return the position up to which everything is read once this step is done."""
        return max(part.at(part.content.last) for part in self.parts)

    def records(self) -> int:
        """Return the number of records in its parts."""
        return sum(part.content.records for part in self.parts)


def parts_of(
    files: Iterable[tuple[ArchiveFile, Sequence[FileContent]]],
    incarnations: Mapping[tuple[str, str], int],
    criteria: Criteria,
    after: Position | None = None,
) -> list[FilePart]:
    """Return the parts that can hold a match according to topics, partitions, offsets and times.

    Args:
        files: The files that readers use, each with what it holds.
        incarnations: The first generation of each topic, by its name and id.
        criteria: The search's criteria.
        after: Only records after this position; None for all.
    """
    found: list[FilePart] = []
    for file, contents in files:
        for content in contents:
            tp = content.tp
            rows = criteria.selection.rows(tp)
            if rows is None or rows.none_of(
                content.first, content.last, content.first_timestamp, content.last_timestamp
            ):
                continue
            incarnation = incarnations.get((tp.topic, file.topic_ids.get(tp.topic, "")), 0)
            part = FilePart(file, content, incarnation, rows)
            if after is not None:
                if part.at(content.last) <= after:
                    continue
                if part.at(after.offset) == after:
                    part = replace(part, from_offset=after.offset + 1)
            found.append(part)
    return found


def steps_of(parts: Iterable[FilePart]) -> list[ReadGroup]:
    """Return parts in the order in which they are read, which is that of `Position`.

    Parts whose offsets overlap are one step, so that the records of all steps are in order.
    """
    steps: list[list[FilePart]] = []
    reach: Position | None = None
    for part in sorted(parts, key=lambda part: (part.at(part.content.first), part.file.path)):
        if reach is None or part.at(part.content.first) > reach:
            steps.append([])
        steps[-1].append(part)
        last = part.at(part.content.last)
        reach = last if reach is None else max(reach, last)
    return [ReadGroup(tuple(step)) for step in steps]


def why_scan(files: int, size: int, criteria: Criteria, unproven: int = 0) -> str:
    """Return why a search needs to be asked for; empty if it doesn't.

    Args:
        files: Number of files that have to be read, because nothing else rules out a match.
        size: Number of bytes to be read of them.
        criteria: The search's criteria.
        unproven: Number of files with statistics and Bloom filters that no receipt proves.
    """
    if size <= SCAN_BYTES or not criteria.look_inside():
        return ""
    selection = criteria.selection
    narrow = [
        flag
        for flag, given in (
            ("--topic", selection.topics),
            ("--partition", selection.partitions),
            ("--from-time", selection.from_ms is not None),
            ("--to-time", selection.to_ms is not None),
            ("--key", criteria.keys),
        )
        if not given
    ]
    believed = (
        f" (those of {unproven:,} files are in no receipt, and so aren't believed)"
        if unproven
        else ""
    )
    return (
        f"{size / 1e6:,.0f} MB in {files:,} files would have to be read, because neither receipts "
        f"nor statistics and Bloom filters of keys{believed} rule them out; narrow it with "
        f"{', '.join(narrow) or 'closer bounds'}, or read them all with --scan"
    )
