"""The plan of a republish: which records go where, frozen before the first one. Opens nothing.

A plan is sealed JSON, written once into the run's folder. Its hash is stored with the progress in
Kafka, so that no attempt can resume the run with a different plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field

from kafka_drain.archive.format import SealedDocument
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import Level, Line
from kafka_drain.progress import duration_text
from kafka_drain.republish.planning.chains import chains_of
from kafka_drain.republish.planning.documents import (
    ChangeJson,
    SchemaIdsJson,
    ShardJson,
    ThroughJson,
)
from kafka_drain.republish.planning.placement import BY_KEY, PARTITIONERS
from kafka_drain.republish.planning.shards import PREFIX, ProgressSlot, Shard
from kafka_drain.schemas.schema_ids import SchemaIds
from kafka_drain.storage.typed_json import ADDED, OPTIONAL, Complete, Readable, WrittenAs

#: In version 2, shards may share a progress, and a run's names in Kafka include its archive. A
#: release that knows only version 1 would send some shards twice and others never, and wouldn't
#: fence the producers in flight.
OLDER, NEWER = 1, 2
#: In version 3, schema ids are replaced: an older release would send them as they are.
WITH_SCHEMA_IDS = 3
#: In version 4, records are dropped or changed: an older release would send all of them unchanged.
WITH_CHANGE = 4

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"
#: Kind of transactions: each by a new producer. Plans of 0.2 and before may say `fast`: by one
#: producer, which a delayed commit could tear.
STRICT = "strict"

#: The deliveries, each with the parts of a record that it keeps.
DELIVERIES = {
    EXACTLY_ONCE: "key, value, headers, timestamp and order",
    AT_LEAST_ONCE: "key, value, headers and partition; Spark's Kafka sink can't set timestamps",
}
#: Number of digits of the archive's id in the names that its runs use in Kafka.
ID_DIGITS = 12

#: Records and bytes per second assumed by a dry run; two cores and a broker achieved more.
ASSUMED_RECORDS, ASSUMED_BYTES = 100_000, 30_000_000

#: Time for which the plan of a run that never opened stays valid before the run is planned again.
#: Its files are kept for one more day, so that a run that is about to open still finds them.
UNOPENED, UNOPENED_FILES = timedelta(days=3), timedelta(days=4)


def change_summary(change: ChangeJson) -> dict[str, Any]:
    """Return a change without what grows with the archive."""
    return {name: held for name, held in change.items() if name not in ("schemas", "shards")}


def name_in_kafka(key: str, archive_id: str) -> str:
    """Return the base of a run's group names, and the prefix of its transactional ids."""
    return f"{key}-{archive_id[:ID_DIGITS]}" if archive_id else key


_Shard = Annotated[Shard, WrittenAs(ShardJson, Shard.from_dict, Shard.to_dict)]


@dataclass(frozen=True, slots=True)
class Target(Complete):
    """A topic that gets records.

    Attributes:
        topic: Its name.
        id: Its topic id; empty in the plan of a dry run that would create it.
        partitions: Number of partitions.
        start: High watermark of each partition when the plan was made; all records of the run are
            at or above it.
        is_compacted: Whether its `cleanup.policy` includes `compact`.
    """

    topic: str
    id: str
    partitions: int
    start: tuple[int, ...]
    is_compacted: Annotated[bool, Field(alias="compacted")] = False


@dataclass(frozen=True, kw_only=True)
class RepublishPlan(SealedDocument):
    """The plan of a republish.

    Attributes:
        run: Display name of the run.
        key: Name of its folder, and part of its transactional ids and groups.
        created_at: When the plan was made, in UTC.
        pipeline: The pipeline's name.
        cluster_id: Id of the target cluster.
        request: The request, as `RepublishRequest.to_dict` writes it.
        delivery: `exactly_once` or `at_least_once`.
        transactions: `strict`, or `fast` in a plan of an older release.
        engine: `worker` or `spark`.
        placement: `original`, `key` or a partition number.
        provenance: Whether to add headers that say where each record came from.
        targets: The topics that get records.
        shards: One for each source partition (and incarnation of its topic).
        size: Size of the files in bytes.
        timestamps_replaced: Number of records with timestamp 0, which librdkafka takes for "now".
        span_ms: Milliseconds from the lowest to the highest timestamp; None if unknown, as in a
            plan of an older release.
        notes: Notes for the user to read before sending.
        through: The part of the archive that a follower has sent when this run is done.
        archive_id: The archive's id; empty in a plan of version 1.
        schema_ids: The schema ids that are replaced on the way; None to send records as they are.
        change: The drops and changes on the way; None to send the records as they are.
        said_records: Number of records as its file has it; -1 until it is read.
    """

    # Sealing takes the lowest that the plan needs.
    format_version: Annotated[int, Readable((OLDER, NEWER, WITH_SCHEMA_IDS, WITH_CHANGE))] = field(
        default=OLDER, compare=False
    )
    run: str
    key: str
    archive_id: str = field(default="", metadata=ADDED)
    created_at: str
    pipeline: str
    cluster_id: str
    request: Mapping[str, Any]
    delivery: str
    transactions: str
    engine: str
    placement: str | int
    provenance: bool
    said_records: Annotated[int, Field(alias="records")] = field(default=-1, compare=False)
    size: Annotated[int, Field(alias="bytes")]
    timestamps_replaced: int = 0
    span_ms: int | None = field(default=None, metadata=OPTIONAL)
    notes: tuple[str, ...] = ()
    through: ThroughJson | None = None
    targets: tuple[Target, ...]
    shards: tuple[_Shard, ...]
    schema_ids: SchemaIdsJson | None = field(default=None, metadata=OPTIONAL)
    change: ChangeJson | None = field(default=None, metadata=OPTIONAL)

    def is_older(self, than: timedelta, now: datetime) -> bool:
        """Return whether the plan was made longer ago than `than`."""
        return now - datetime.fromisoformat(self.created_at) > than

    @property
    def records(self) -> int:
        """Number of records."""
        return sum(shard.records for shard in self.shards)

    @property
    def files(self) -> int:
        """Number of files."""
        return len({file.path for shard in self.shards for file in shard.files})

    @property
    def keeps_timestamps(self) -> bool:
        """Whether records keep their timestamps."""
        return self.delivery == EXACTLY_ONCE

    @property
    def kafka_name(self) -> str:
        """Base of the run's group names: its key and its archive.

        A run of the same name in another archive gets different groups.
        """
        return name_in_kafka(self.key, self.archive_id)

    @property
    def transactional_name(self) -> str:
        """Base of the run's transactional ids.

        It includes the plan's hash, so that in a copy of the archive, a run with the same name and
        another target gets different ids.

        A plan of version 1 may have been started by a release that used only the run's key.
        """
        return f"{self.kafka_name}-{self.sha256[:12]}" if self.archive_id else self.kafka_name

    @property
    def attempts(self) -> ProgressSlot:
        """Slot that holds the number of attempts of the run, beside the progress of its shards."""
        return ProgressSlot(f"{PREFIX}{self.kafka_name}-attempts", self.shards[0].progress.tp)

    @cached_property
    def translation(self) -> SchemaIds | None:
        """The translation of schema ids; None to send records as they are."""
        return None if self.schema_ids is None else SchemaIds.from_dict(self.schema_ids)

    @cached_property
    def chains(self) -> list[tuple[Shard, ...]]:
        """The shards by writer, in the order in which each writer sends them."""
        return chains_of(self.shards)

    @property
    def is_chained(self) -> bool:
        """Whether shards share a writer."""
        return len(self.chains) != len(self.shards)

    @property
    def slots(self) -> list[ProgressSlot]:
        """Slots that hold the progress of each chain."""
        return [chain[0].progress for chain in self.chains]

    def target(self, topic: str) -> Target:
        """Return a target by name."""
        return next(target for target in self.targets if target.topic == topic)

    def starts(self) -> dict[TopicPartition, int]:
        """Return the lowest offset that the run's records can have in each target partition."""
        return {
            TopicPartition(target.topic, partition): start
            for target in self.targets
            for partition, start in enumerate(target.start)
        }

    def seconds(
        self, records_per_second: float = 0, bytes_per_second: float = 0, pace: float = 0
    ) -> float:
        """Estimate the seconds that sending takes; a limit or pace of 0 means unlimited."""
        by_records = min(records_per_second or ASSUMED_RECORDS, ASSUMED_RECORDS)
        by_bytes = min(bytes_per_second or ASSUMED_BYTES, ASSUMED_BYTES)
        by_pace = (self.span_ms or 0) / 1000 / pace if pace else 0.0
        return max(self.records / by_records, self.size / by_bytes, by_pace)

    def takes(
        self, records_per_second: float = 0, bytes_per_second: float = 0, pace: float = 0
    ) -> str:
        """Return how long sending takes, in words.

        A limit of bytes counts before compression, which only the files' sizes are known after.
        """
        given = ", if keys and values are as large as their files" if bytes_per_second else ""
        if pace:
            span = "unknown" if self.span_ms is None else duration_text(self.span_ms / 1000)
            given += f" (pace {pace:g}; from the first timestamp to the last: {span})"
        seconds = self.seconds(records_per_second, bytes_per_second, pace)
        return f"about {duration_text(seconds)}{given}"

    @property
    def keeps(self) -> str:
        """The properties of the source's records that the target's keep, in words."""
        if self.placement in PARTITIONERS:
            # Records of a key from several partitions aren't put into order.
            return (
                "key, value, headers and timestamp; the order of a key's records of one partition"
            )
        return DELIVERIES[self.delivery]

    def lines(
        self, records_per_second: float = 0, bytes_per_second: float = 0, pace: float = 0
    ) -> list[str]:
        """Return the plan as text lines for the user."""
        takes = self.takes(records_per_second, bytes_per_second, pace)
        return [
            f"republish {self.pipeline}: {self.records:,} records of {self.files:,} files "
            f"({self.size / 1e6:,.1f} MB), {takes}",
            f"republish {self.pipeline}: run {self.key}, {self.delivery}, engine {self.engine}, "
            f"placement {self.placement}; keeps {self.keeps}",
            *(
                # A plan's document keeps a note as text alone.
                Line(
                    f"republish {self.pipeline}: {note}",
                    Level.WARNING if note.startswith("WARNING ") else Level.PLAIN,
                )
                for note in self.notes
            ),
            *(
                f"  {shard.source} -> {shard.target}: offsets {shard.first:,} to "
                f"{shard.end - 1:,}, {shard.records:,} records"
                for shard in self.shards
            ),
        ]

    def summary(self) -> dict[str, Any]:
        """Return the plan without its files, as JSON types; small enough for XCom."""
        return {
            "run": self.run,
            "key": self.key,
            "plan": self.sha256,
            "delivery": self.delivery,
            "transactions": self.transactions if self.keeps_timestamps else None,
            "engine": self.engine,
            "placement": self.placement,
            "keeps": self.keeps,
            "request": dict(self.request),
            "records": self.records,
            "files": self.files,
            "bytes": self.size,
            "notes": list(self.notes),
            **({"schema_ids": self.schema_ids} if self.schema_ids else {}),
            **({"change": change_summary(self.change)} if self.change else {}),
            "shards": [
                {
                    "source": str(shard.source),
                    "target": shard.target,
                    "first_offset": shard.first,
                    "last_offset": shard.end - 1,
                    "records": shard.records,
                    "files": len(shard.files),
                }
                for shard in self.shards
            ],
        }

    def document(self) -> dict[str, Any]:
        """Return the sealed keys, as JSON types."""
        computed = {"format_version": self._version, "records": self.records}
        return SealedDocument.document(self) | computed

    @property
    def _version(self) -> int:
        # A release that doesn't know a partitioner would place keys by another.
        if self.change is not None or self.placement in {*PARTITIONERS} - {BY_KEY}:
            return WITH_CHANGE
        if self.schema_ids is not None:
            return WITH_SCHEMA_IDS
        return NEWER if self.archive_id or self.is_chained else OLDER
