"""Shards: the units of a republish, as its plan lists them. Opens nothing; serialized as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.republish.planning.selection import Rows

if TYPE_CHECKING:
    # Spark's executors have no pydantic.
    from kafka_drain.republish.planning.documents import ShardJson

#: Prefix of all transactional ids and groups of republishes, so that one prefixed ACL covers them.
PREFIX = "kafka-drain-republish-"


def provenance_of(source: TopicPartition, offset: int) -> list[tuple[str, str | bytes | None]]:
    """Return the headers that say where a record came from."""
    return [
        ("kafka-drain.topic", source.topic.encode()),
        ("kafka-drain.partition", b"%d" % source.partition),
        ("kafka-drain.offset", b"%d" % offset),
    ]


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file's share of a shard.

    Attributes:
        path: Path relative to the archive.
        bytes: Size of the file.
        sha256: The SHA-256 of its bytes.
        first: Lowest offset of this partition.
        last: Highest offset of this partition.
        records: Number of its rows that are sent.
        ascending: Whether the rows are in offset order.
    """

    path: str
    file_format: str
    bytes: int
    sha256: str
    first: int
    last: int
    records: int
    ascending: bool


@dataclass(frozen=True, slots=True)
class ProgressSlot:
    """Where a shard's progress is kept: the offset that a consumer group has committed.

    Attributes:
        group: The group, which has no members.
        tp: A topic-partition that exists in the target cluster; see KIP-98's TxnOffsetCommit.
    """

    group: str
    tp: TopicPartition


@dataclass(frozen=True, slots=True)
class Shard:
    """One source partition, sent in offset order by one writer.

    Attributes:
        number: Its index in the plan.
        topic_id: Id of the source topic; a recreated topic's offsets restart at 0.
        target_topic: The topic that gets the records.
        target_partition: The partition that gets them; None when each record's key chooses it.
        rows: The sent rows of the files.
        files: The files, by first offset.
        progress: Slot of its progress.
    """

    number: int
    source: TopicPartition
    topic_id: str
    target_topic: str
    target_partition: int | None
    rows: Rows
    files: tuple[ShardFile, ...]
    progress: ProgressSlot

    @property
    def records(self) -> int:
        """Number of records that are sent."""
        return sum(file.records for file in self.files)

    @property
    def first(self) -> int:
        """Lowest offset in the files."""
        return self.files[0].first

    @property
    def end(self) -> int:
        """The offset after the highest one in the files: the progress when everything is sent."""
        return 1 + max(file.last for file in self.files)

    @property
    def target(self) -> str:
        """Where the records go, as text for the user."""
        if self.target_partition is None:
            return f"{self.target_topic} by key"
        return f"{self.target_topic}-{self.target_partition}"

    def to_dict(self) -> ShardJson:
        """Return the shard as JSON types."""
        ranges = self.rows.ranges
        return {
            "number": self.number,
            "topic": self.source.topic,
            "partition": self.source.partition,
            "topic_id": self.topic_id,
            "target_topic": self.target_topic,
            "target_partition": self.target_partition,
            "records": self.records,
            "ranges": None if ranges is None else [(r.start, r.end) for r in ranges],
            "from_ms": self.rows.from_ms,
            "to_ms": self.rows.to_ms,
            "progress_group": self.progress.group,
            "progress_topic": self.progress.tp.topic,
            "progress_partition": self.progress.tp.partition,
            "files": [
                {
                    "path": file.path,
                    "format": file.file_format,
                    "bytes": file.bytes,
                    "sha256": file.sha256,
                    "first_offset": file.first,
                    "last_offset": file.last,
                    "records": file.records,
                    "ascending": file.ascending,
                }
                for file in self.files
            ],
        }

    @classmethod
    def from_dict(cls, document: ShardJson) -> Shard:
        """Read the result of `to_dict`."""
        ranges = document["ranges"]
        return cls(
            number=document["number"],
            source=TopicPartition(document["topic"], document["partition"]),
            topic_id=document["topic_id"],
            target_topic=document["target_topic"],
            target_partition=document["target_partition"],
            rows=Rows(
                None if ranges is None else tuple(OffsetRange(a, b) for a, b in ranges),
                document["from_ms"],
                document["to_ms"],
            ),
            files=tuple(
                ShardFile(
                    path=file["path"],
                    file_format=file["format"],
                    bytes=file["bytes"],
                    sha256=file["sha256"],
                    first=file["first_offset"],
                    last=file["last_offset"],
                    records=file["records"],
                    ascending=file["ascending"],
                )
                for file in document["files"]
            ),
            progress=ProgressSlot(
                document["progress_group"],
                TopicPartition(document["progress_topic"], document["progress_partition"]),
            ),
        )
