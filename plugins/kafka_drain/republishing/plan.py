"""What a republish will send: the committed files by source partition, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_drain.archive import Archive
from kafka_drain.archive_files import ArchiveFile, archive_files
from kafka_drain.committed_files import read_committed_files
from kafka_drain.contents import CommittedFile, FileOffsets
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    ManifestInvalidError,
    SourceRecordError,
    TopicError,
)
from kafka_drain.findings import errors
from kafka_drain.generation import list_data_files
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.offset_checks import check_duplicates
from kafka_drain.offsets import TopicPartition
from kafka_drain.receipts import SealedContent
from kafka_drain.sealed_files import damage_of

__all__ = ["ENGINES", "RepublishPlan", "Shard", "ShardFile", "make_plan"]

#: Engines, each with what it keeps of a record.
ENGINES = {
    "worker": "key, value, headers, partition and timestamp",
    "spark": "key, value, headers and partition; Spark's Kafka sink can't set timestamps",
}


@dataclass(frozen=True, slots=True)
class ShardFile:
    """One file's share of a shard.

    Attributes:
        path: Path relative to the archive.
        file_format: Format.
        first: Lowest offset.
        last: Highest offset.
        records: How many rows of this partition.
        ascending: Whether the rows are in offset order.
    """

    path: str
    file_format: str
    first: int
    last: int
    records: int
    ascending: bool


@dataclass(frozen=True, slots=True)
class Shard:
    """The unit of republishing: one source partition, in offset order, one writer.

    Attributes:
        source: Where the records came from.
        target_topic: Where they go, to the partition of the same number.
        files: The files, by first offset.
    """

    source: TopicPartition
    target_topic: str
    files: tuple[ShardFile, ...]

    @property
    def records(self) -> int:
        """How many records."""
        return sum(file.records for file in self.files)


@dataclass(frozen=True, slots=True)
class RepublishPlan:
    """What will be sent.

    Attributes:
        archive: The archive.
        pipeline: The pipeline's name.
        engine: `worker` or `spark`.
        target_topic: Target of all records; None when each goes to the topic it came from.
        shards: One for each source partition.
        files: How many files.
        bytes: Their size.
    """

    archive: Archive
    pipeline: str
    engine: str
    target_topic: str | None
    shards: tuple[Shard, ...]
    files: int
    bytes: int

    @property
    def records(self) -> int:
        """How many records."""
        return sum(shard.records for shard in self.shards)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {
            "archive": str(self.archive.root),
            "engine": self.engine,
            "keeps": ENGINES[self.engine],
            "delivery": "at_least_once",
            "records": self.records,
            "files": self.files,
            "bytes": self.bytes,
            "shards": [
                {
                    "source": str(shard.source),
                    "target": f"{shard.target_topic}-{shard.source.partition}",
                    "first_offset": shard.files[0].first,
                    "last_offset": max(file.last for file in shard.files),
                    "records": shard.records,
                    "files": len(shard.files),
                }
                for shard in self.shards
            ],
        }

    def lines(self) -> list[str]:
        """Return the plan as people read it."""
        return [
            f"republish {self.pipeline}: {self.records:,} records of {self.files:,} files "
            f"({self.bytes / 1e6:,.1f} MB) in {self.archive.root}",
            f"republish {self.pipeline}: engine {self.engine}, at least once, keeps "
            f"{ENGINES[self.engine]}",
            *(
                f"  {shard.source} -> {shard.target_topic}-{shard.source.partition}: "
                f"offsets {shard.files[0].first:,} to {max(f.last for f in shard.files):,}, "
                f"{shard.records:,} records"
                for shard in self.shards
            ),
        ]


def make_plan(
    archive: Archive,
    cluster: KafkaCluster,
    *,
    engine: str = "worker",
    target_topic: str | None = None,
    topics: Collection[str] = (),
    say: Callable[[str], None] = lambda line: None,
) -> RepublishPlan:
    """Plan a republish of what the manifest commits; sends nothing.

    Args:
        archive: Where the files are.
        cluster: Where the records go.
        engine: `worker` or `spark`.
        target_topic: Target of all records; None sends each to the topic it came from.
        topics: Source topics to send; none for all.
        say: Takes a line of progress every two seconds.

    Raises:
        ConfigError: When the engine is unknown.
        ArchiveError: When the folder is no archive, or holds nothing of these topics.
        ManifestInvalidError: When the manifest, a file or an offset is not as it should be.
        SourceRecordError: When a row has no topic and no target topic is named.
        TopicError: When a target topic is missing or has too few partitions.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine = {engine!r} is not acceptable; accepted: {', '.join(ENGINES)}")
    pipeline = archive.document()["pipeline"]
    by_source: dict[tuple[TopicPartition, str], list[ShardFile]] = {}
    sizes: dict[str, int] = {}
    for file, contents in _read_contents(archive, say):
        for content in contents:
            tp = content.tp
            if topics and tp.topic not in topics:
                continue
            _check_topic(file.path, content, target_topic)
            # A topic that was made again counts its offsets from 0 again.
            key = (tp, file.topic_ids.get(tp.topic, ""))
            by_source.setdefault(key, []).append(_shard_file(file, content))
            sizes[file.path] = file.bytes
    if not by_source:
        wanted = f"records of {', '.join(topics)}" if topics else "records"
        raise ArchiveError(f"{archive.root} holds no {wanted}; drain first, or correct the topics")
    shards = tuple(
        Shard(tp, target_topic or tp.topic, tuple(sorted(files, key=lambda f: f.first)))
        # In the order of the generations where a topic was made again.
        for (tp, _), files in sorted(by_source.items(), key=lambda item: item[0][0])
    )
    _check_targets(shards, cluster)
    return RepublishPlan(
        archive=archive,
        pipeline=pipeline,
        engine=engine,
        target_topic=target_topic,
        shards=shards,
        files=len(sizes),
        bytes=sum(sizes.values()),
    )


def _read_contents(
    archive: Archive, say: Callable[[str], None]
) -> Iterator[tuple[ArchiveFile, Sequence[SealedContent | FileOffsets]]]:
    """Yield each file with what it holds: by its receipt, or read where it isn't sealed yet.

    Raises:
        ManifestInvalidError: When a file is gone, damaged, or holds an offset twice.
    """
    files = archive_files(archive)
    owners = {file.owner: file.owner.data_name for file in files}
    listing = {
        f"{name}/{path}": size
        for owner, name in owners.items()
        for path, size in list_data_files(owner.data).items()
    }
    found = []
    for file in files:
        if file.sealed is not None:
            damage = damage_of(archive.root, file.sealed, listing.get(file.path), deep=False)
            found += [damage] if damage else []
    unsealed = [file for file in files if file.listed is not None]
    read: dict[str, CommittedFile] = {}
    for file in unsealed[:1]:
        listed = [other.listed for other in unsealed if other.listed is not None]
        committed, damaged = read_committed_files(file.owner, listed, file.file_format, say)
        found += [*damaged, *check_duplicates(committed)]
        read = {item.path: item for item in committed}
    bad = errors(found)
    if bad:
        raise ManifestInvalidError(
            f"{archive.root} is damaged, nothing was sent: "
            + "; ".join(str(finding) for finding in bad[:5])
            + f". Run `kafka-drain validate`; {bad[0].reason.remedy}"
        )
    for file in files:
        yield file, file.sealed.contents if file.sealed else read[file.path].contents


def _shard_file(file: ArchiveFile, content: SealedContent | FileOffsets) -> ShardFile:
    return ShardFile(
        path=file.path,
        file_format=file.file_format,
        first=content.first,
        last=content.last,
        records=content.records,
        ascending=content.ascending,
    )


def _check_topic(path: str, content: SealedContent | FileOffsets, target_topic: str | None) -> None:
    if not content.tp.topic and target_topic is None:
        raise SourceRecordError(
            f"the row with partition {content.tp.partition} and offset {content.first} in {path} "
            "has no topic; name a target topic or correct the file. Nothing was sent"
        )


def _check_targets(shards: Collection[Shard], cluster: KafkaCluster) -> None:
    targets = cluster.topics({shard.target_topic for shard in shards})
    for name, topic in targets.items():
        needed = 1 + max(s.source.partition for s in shards if s.target_topic == name)
        if len(topic.partitions) < needed:
            raise TopicError(
                f"topic {name} has {len(topic.partitions)} partitions, the records need {needed} "
                "to stay in theirs; add partitions or choose another topic. Nothing was sent"
            )
