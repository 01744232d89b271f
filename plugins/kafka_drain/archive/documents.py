"""The typed documents of an archive: how each is parsed, read, and written.

See `docs/format.md`. Keys may be added within a format version: keys that are unknown to this
release are kept when a document is rewritten. Receipts and the journal's entries, which are sealed,
have their types in their own modules, the lease in its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
    with_config,
)
from typing_extensions import NotRequired, TypedDict
from upath import UPath

from kafka_drain.archive.format import ArchiveVersion, SealedDocument, Version
from kafka_drain.errors import ArchiveError, ConfigError, LockedError
from kafka_drain.intervals import Interval
from kafka_drain.kafka.topics import MAX_MESSAGE_BYTES
from kafka_drain.offsets import OffsetRange, TopicPartition, from_spark_json
from kafka_drain.storage.immutability import Immutability, Mode
from kafka_drain.storage.json_files import create_document, write_document
from kafka_drain.storage.paths import read_bytes
from kafka_drain.storage.typed_json import DocumentError, Row, VersionError, parse

D = TypeVar("D", bound="Document")

FileFormat = Literal["parquet", "orc", "avro", "json"]

#: Objects that are passed on as dictionaries; like documents, they keep unknown keys.
_open = with_config(ConfigDict(strict=True, extra="allow"))


def _columns(names: list[str]) -> list[str]:
    if not {*names} <= {"topic", "date", "hour"}:
        raise ValueError("expected topic, date or hour")
    return names


#: Columns that the folders of data files name.
FolderColumns = Annotated[list[str], AfterValidator(_columns)]


def _time(text: str) -> str:
    try:
        has_zone = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        has_zone = False
    if not has_zone:
        raise ValueError("expected a time in ISO 8601, with its offset from UTC")
    return text


#: A time in ISO 8601 that pages and commands compute with.
Time = Annotated[str, AfterValidator(_time)]


class Document(Row):
    """A JSON document of an archive."""

    @classmethod
    def read(cls: type[D], path: UPath) -> D:
        """Read a document; raises like `parse`, or FileNotFoundError if it doesn't exist."""
        return cls.parse(path, read_bytes(path))

    @classmethod
    def read_note(cls: type[D], path: UPath) -> D | None:
        """Read a document that proves nothing and that the next run rewrites.

        In an archive written by an older release, it may be empty after a power cut. Validation
        reports an unreadable one as a finding.

        Returns:
            None if the file doesn't exist or can't be read.
        """
        try:
            return cls.read(path)
        except (FileNotFoundError, NotADirectoryError, ArchiveError):
            return None

    @classmethod
    def parse(cls: type[D], path: UPath, content: bytes) -> D:
        """Parse a document's bytes.

        Raises:
            ArchiveError: When it has another format, isn't a JSON object, or was changed; names
                the file, the key, what is there and what was expected.
        """
        try:
            return parse(cls, content)
        except VersionError as error:
            raise ArchiveError(
                f"{path} has archive format {error.version!r}, but this kafka-drain reads "
                f"format {error.readable}; use the release that wrote it"
            ) from error
        except DocumentError as error:
            raise ArchiveError(f"{path} {error}") from error

    def write(self, path: UPath) -> None:
        """Write the document; a reader sees either the old one or the complete new one.

        Raises:
            ArchiveError: When the folder can't be written.
        """
        write_document(path, self.content())

    def create(self, path: UPath) -> bool:
        """Write the document unless the file exists; return whether it was written."""
        return create_document(path, self.content())

    def replace(self: D, path: UPath, known: D | None) -> None:
        """Write the document unless it says what is known; a suspended process must not undo more.

        Args:
            known: The document that it replaces; None for none.

        Raises:
            LockedError: When another process has written the file since.
        """
        if self != known and not (known is None and self.create(path)):
            if known is None or type(self).read(path) != known:
                raise LockedError(f"another process has written {path} meanwhile; a retry may help")
            self.write(path)


class VersionedDocument(Document):
    """A document with a format version.

    Attributes:
        format_version: Version of the archive's format; 1 if the document has none.
    """

    format_version: Version = 1


class IdentityDocument(Document):
    """`identity.json`: the archive's id.

    Attributes:
        id: 32 random hexadecimal digits; a copy of the archive keeps it.
    """

    id: str


@_open
class Source(TypedDict):
    """The source of a pipeline: exactly one of the three keys."""

    topics: NotRequired[list[str]]
    topic_pattern: NotRequired[str]
    assign: NotRequired[dict[str, list[int]]]


@_open
class Immutable(TypedDict):
    """The lock on files and receipts that are sealed from now on."""

    mode: Mode
    days: int


class ArchiveDocument(VersionedDocument):
    """`archive.json`: the identity of an archive.

    Its version is that of the archive: the lowest one that its content requires of a reader.

    Attributes:
        pipeline: Name of the pipeline.
        cluster_id: Id of the Kafka cluster.
        topics: Topic ids by topic.
        source: Selection of topics: `topics`, `topic_pattern` or `assign`.
        isolation_level: Isolation level of the source.
        retention: The sink's `retention` option: Spark drops older files from the manifest.
        immutable: The store's lock of files and receipts that are sealed from now on; None for
            none.
    """

    format_version: ArchiveVersion
    pipeline: str
    cluster_id: str
    topics: dict[str, str]
    source: Source
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    retention: str | None = None
    immutable: Immutable | None = None

    @property
    def immutability(self) -> Immutability | None:
        """The store's lock of new files and receipts; None for none."""
        if self.immutable is None:
            return None
        return Immutability(self.immutable["mode"], self.immutable["days"])

    @property
    def settings(self) -> tuple[str, str | None, dict[str, Any] | None]:
        """The settings that a pipeline may change, as the journal notes them."""
        locks = None if self.immutable is None else dict(self.immutable)
        return self.isolation_level, self.retention, locks


@_open
class Values(TypedDict):
    """Settings for decoding values, and for Avro the schema of the columns."""

    settings: ValueSettings
    reader: NotRequired[dict[str, Any] | list[Any] | str]


@_open
class ValueSettings(TypedDict):
    """Settings of a pipeline for its values, without defaults."""

    encoding: Literal["avro", "json"]
    registry_conn_id: NotRequired[str]
    subjects: NotRequired[list[str]]
    schema_files: NotRequired[dict[str, str]]
    reader_schema: NotRequired[str]
    columns: NotRequired[str]


class GenerationDocument(VersionedDocument):
    """`generation.json`: the start of a generation, and how its files are written.

    Attributes:
        generation: Number of the generation; None if written by a release that didn't record it.
        opened_at: Time of opening, in ISO 8601.
        reason: Reason for opening: `first`, `rollover`, `reprocess` and others.
        format: Format of the data files.
        partition_by: Columns that folders are named by.
        values: Decoding of values; None if disabled.
        topics: Topic ids by topic; release 0.1 had them only in `archive.json`.
        starting_offsets: First offset by topic and partition, in Spark's JSON form.
    """

    generation: int | None = None
    opened_at: str
    reason: str
    format: FileFormat
    partition_by: FolderColumns
    values: Values | None = None
    topics: dict[str, str] = {}
    starting_offsets: dict[str, dict[str, int]]

    @field_validator("starting_offsets")
    @classmethod
    def _are_offsets(cls, starting: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
        offsets = from_spark_json(json.dumps(starting))
        if min(offsets.values(), default=0) < 0:
            raise ValueError("expected non-negative offsets by topic and partition")
        return starting

    @property
    def known_topics(self) -> dict[str, str] | None:
        """Topic ids by topic; None if it is of a release that didn't record them there."""
        return self.topics if "topics" in self.model_fields_set else None

    def first_offsets(self) -> dict[TopicPartition, int]:
        """Return the starting offsets by topic-partition."""
        return from_spark_json(json.dumps(self.starting_offsets))


class OffsetRow(Row):
    """Offsets of one partition in a plan.

    Attributes:
        start: The first offset.
        end: End of the offsets, exclusive.
    """

    topic: str
    partition: int
    start: int
    end: int

    @model_validator(mode="after")
    def _is_range(self) -> OffsetRow:
        OffsetRange(self.start, self.end)
        return self


@_open
class RecordsRow(TypedDict):
    """Number of records of one partition."""

    topic: str
    partition: int
    records: int


@_open
class Replaced(TypedDict):
    """Contents of the intact files that a window replaces: number, size in bytes, records."""

    files: int
    bytes: int
    records: list[RecordsRow]


@_open
class ErasureRow(TypedDict):
    """An erasure that a window carries out, and the number of records that it erases there.

    A record that several erasures name counts for each of them.
    """

    erasure: int
    request: str
    by: str
    records: int


def _interval(bounds: list[str]) -> list[str]:
    try:
        Interval.parse(bounds)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    return bounds


class WindowPlan(VersionedDocument):
    """`plan.json`: the contents of a window, fixed before it is written.

    Attributes:
        kind: Why the window is written; None in a plan of an earlier release.
        interval: Data interval of a backfill: start (inclusive) and end (exclusive).
        topics: Topic ids by topic, for a backfill.
        before: Time before which all records of a deletion are.
        replaced: Contents of the replaced files, for a window that replaces intact files.
        erasures: The erasures that it carries out, with the number of records; None otherwise.
        hashes: SHA-256 of the files that an erasure replaces, by path.
        ranges: Its offsets, sorted and disjoint for each partition.
        replaces: Files, relative to the archive, that it replaces.
        partition_by: Columns named by its folders.
        opened_at: Time of opening, in ISO 8601.
    """

    kind: str | None = None
    interval: Annotated[list[str], AfterValidator(_interval)] | None = None
    topics: dict[str, str] = {}
    before: str = ""
    replaced: Replaced | None = None
    erasures: list[ErasureRow] | None = None
    hashes: dict[str, str] = {}
    ranges: list[OffsetRow]
    replaces: list[str]
    format: FileFormat
    partition_by: FolderColumns = []
    opened_at: str = ""

    @property
    def start(self) -> datetime | None:
        """The start of a backfill's data interval."""
        return Interval.parse(self.interval).start if self.interval else None

    def offsets(self) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the window's offsets by topic-partition."""
        return _offsets(self.ranges)


def _offsets(rows: Iterable[OffsetRow]) -> dict[TopicPartition, list[OffsetRange]]:
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for row in rows:
        tp = TopicPartition(row.topic, row.partition)
        found.setdefault(tp, []).append(OffsetRange(row.start, row.end))
    return found


#: Longest wait of a partition behind an ongoing transaction: the longest timeout that a producer
#: can request (the brokers' transaction.max.timeout.ms, 15 minutes by default).
STALL_SECONDS = 15 * 60.0


class Observation(Row):
    """A run's observation of one partition.

    Attributes:
        run: Name of the run; a retry isn't another run.
        at: Time of the run, in seconds since 1970.
        earliest: First offset that Kafka still had.
        last_stable: Last stable offset.
        waiting_since: When the partition was first seen at this last stable offset with records
            behind it, in seconds since 1970; None if nothing is waiting.
        waiting_run: The run that saw that first.
    """

    topic: str
    partition: int
    run: str
    at: float
    earliest: int
    last_stable: int
    high_watermark: int
    waiting_since: float | None = None
    waiting_run: str = ""

    @property
    def hidden(self) -> int:
        """Last stable offset lag: number of offsets behind an open transaction."""
        return self.high_watermark - self.last_stable

    @property
    def is_stalled(self) -> bool:
        """Whether an earlier run already saw the partition at this offset, too long ago."""
        return self.waiting_run != self.run and self.stands_still_at(self.last_stable, self.at)

    def stands_still_at(self, last_stable: int, now: float) -> bool:
        """Return whether a partition has been waiting at an offset for too long.

        Args:
            last_stable: Its current last stable offset, with records behind it.
            now: Current time, in seconds since 1970.
        """
        return (
            self.waiting_since is not None
            and self.last_stable == last_stable
            and now - self.waiting_since >= STALL_SECONDS
        )


class ObservedDocument(Document):
    """`observed.json`: what Kafka held at the last validation.

    Attributes:
        partitions: A row for each partition.
    """

    partitions: list[Observation]


class TopicRow(Row):
    """Settings of one topic; see `TopicSettings`.

    Attributes:
        topic_id: Its id; None in notes of older releases.
        compacted_from: By partition, where a drain went on when it first saw that Kafka compacts
            the topic, after one that saw that it doesn't; None: nothing was read before.
        compacted_until: By partition, where the log ended when a drain first saw that Kafka no
            longer compacts the topic; None if it does, never did, or in notes of older releases.
        retention_ms: Age at which Kafka deletes its records; None in notes of older releases.
    """

    partitions: int
    replication_factor: int
    max_message_bytes: int = MAX_MESSAGE_BYTES
    config: dict[str, str] = {}
    compacted: bool | None = None
    retention_ms: int | None = None
    topic_id: str | None = None
    compacted_from: dict[str, int] | None = None
    compacted_until: dict[str, int] | None = None


class TopicsDocument(Document):
    """`topics.json`: settings of the source topics, by name."""

    __pydantic_extra__: dict[str, TopicRow]

    @property
    def topics(self) -> dict[str, TopicRow]:
        """The settings by topic."""
        return self.__pydantic_extra__


class SchemaRow(Row):
    """A schema that values were written with; see `WriterSchema`."""

    id: int
    avro: dict[str, Any] | list[Any] | str = Field(alias="schema")
    subject: str | None = None
    version: int | None = None


class SchemasDocument(Document):
    """`schemas.json`: all writer schemas that the archive has seen."""

    schemas: list[SchemaRow]


class ReferenceRow(Row):
    """A schema's reference to a type or file by name, in a version of a subject."""

    name: str
    subject: str
    version: int


class RegisteredRow(Row):
    """A version of a subject in a Schema Registry.

    Attributes:
        id: The schema's id.
        guid: The schema's GUID; None if the registry has none.
        kind: `AVRO`, `PROTOBUF` or `JSON`.
        text: The schema as the registry has it.
        references: The schemas that it refers to.
        deleted: Whether it was deleted, softly: its id still decodes.
    """

    version: int
    id: int
    guid: str | None = None
    kind: str = Field(alias="type")
    text: str = Field(alias="schema")
    references: list[ReferenceRow] = []
    deleted: bool = False


class SubjectRow(Row):
    """A subject of a Schema Registry; the settings are None if it has none of its own."""

    name: str
    compatibility: str | None = None
    mode: str | None = None
    versions: list[RegisteredRow]


class SeenIdsRow(Row):
    """The schema ids that a part (`key` or `value`) of a topic's records has."""

    topic: str
    part: str
    ids: list[int] = []
    guids: list[str] = []


class ReadThroughRow(Row):
    """The segments whose record ids have been read; see `ThroughJson` of a follower."""

    generations: dict[str, str] = {}
    windows: list[str] = []


class RegistryDocument(VersionedDocument):
    """`registry.json`: what a Schema Registry held of the schemas that the records use.

    Attributes:
        url: The registry's URL, without a login.
        captured_at: When it was asked last.
        compatibility: The registry's own compatibility.
        mode: The registry's own mode.
        seen: The ids in the records.
        read: Of which segments the ids were read.
        notes: Notes on failed reads, which the next drain repeats.
    """

    url: str
    captured_at: str
    compatibility: str | None = None
    mode: str | None = None
    subjects: list[SubjectRow]
    seen: list[SeenIdsRow]
    read_through: ReadThroughRow = Field(alias="read")
    notes: list[str]

    @classmethod
    def empty(cls) -> RegistryDocument:
        """Return the document of an archive that keeps no schemas yet."""
        keys = {"url": "", "captured_at": "", "subjects": [], "seen": [], "read": {}, "notes": []}
        return cls.model_validate(keys)


class MappedRow(Row):
    """A version of a subject, and its counterpart in another registry."""

    subject: str
    version: int
    id: int
    guid: str | None = None
    new_version: int
    new_id: int
    new_guid: str | None = None


class SchemaMapDocument(VersionedDocument):
    """`schema-maps/<name>.json`: the schemas of an archive in another registry.

    Attributes:
        url: The other registry's URL, without a login.
        written_at: When it was written.
    """

    url: str
    written_at: str
    schemas: list[MappedRow]


class ReadFromDocument(Document):
    """`read_from.json`: topic ids that a drain saw after Spark had read.

    Attributes:
        last_batch: The last batch that had been read by then.
        topics: Topic ids by topic.
    """

    last_batch: int
    topics: dict[str, str]


class ToldRow(Row):
    """The receipts of generations that an earlier run has published; it may be cleared.

    Attributes:
        run: The run.
        before: Name of the newest receipt published before, by number of the generations of which
            it has published any; without those of which it was the first.
        told: Name of the newest one that it has published, by number of these generations.
    """

    run: str
    before: dict[str, str]
    told: dict[str, str]


class ToldDocument(Document):
    """`told/generations.json`: which receipts of generations asset events have published.

    Attributes:
        run: The run that published last; None for a run that isn't repeated.
        before: Name of the newest receipt published before that run, by generation number.
        told: Name of the newest published receipt, by generation number.
        earlier: The runs before it that have published any, oldest first: a limited number.
    """

    run: str | None
    before: dict[str, str]
    told: dict[str, str]
    earlier: list[ToldRow] | None = None

    def rows(self) -> list[ToldRow]:
        """Return all runs that have published any and may be repeated, oldest first."""
        new = {n: name for n, name in self.told.items() if name != self.before.get(n)}
        rows = list(self.earlier or ())
        if self.run is not None and new:
            before = {n: name for n, name in self.before.items() if n in new}
            rows.append(ToldRow(run=self.run, before=before, told=new))
        return rows


class ToldWindowDocument(Document):
    """`told/windows/<name>.json`: that a window was published.

    Attributes:
        run: The run that published it; None for a run that isn't repeated.
        sha256: Hash of the window's receipt.
    """

    run: str | None
    sha256: str


class HeadDocument(Document):
    """`journal.json`: the end of the journal.

    Attributes:
        entries: Number of the newest entry when it was written.
        sha256: Hash of that entry.
    """

    entries: int
    sha256: str


class ChainHeadDocument(Document):
    """`cluster.json` and `schema-seals.json`: the newest link of a chain of sealed documents.

    Attributes:
        sha256: Its hash.
    """

    number: int
    sha256: str


class PieceRow(Row):
    """A window of a reprocess.

    Attributes:
        window: Name of the window.
        replaces: Files, relative to the archive, that it replaces.
        replaced: Contents of these files.
    """

    window: str
    ranges: list[OffsetRow]
    replaces: list[str]
    replaced: Replaced

    def offsets(self) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the window's offsets by topic-partition."""
        return _offsets(self.ranges)


class ReprocessDocument(Document):
    """`maintenance/reprocess.json`: an unfinished reprocess; see `ReprocessPlan`."""

    since: str
    closes: int
    format: FileFormat
    compression: str
    partition_by: FolderColumns
    topics: dict[str, str]
    opened_at: str
    pieces: list[PieceRow]


Verdict = Literal["complete", "findings"]


class StandingRow(Row):
    """An error in `overview.json` that stands; see `StandingFinding`."""

    reason: str
    where: str
    detail: str
    found_at: Time
    generation: int | None
    more: int


class OverviewDocument(Document):
    """`overview.json`: state of the archive at its last validation; see `make_overview`."""

    pipeline: str
    verdict: str
    validated_at: Time
    files: int
    bytes: int
    records: int
    offsets: int
    report: str
    partitions: int
    generations: int
    windows: int
    unsealed_segments: int
    findings: dict[str, int]
    gaps: dict[str, int]
    sealed_at: Time | None
    newest_record: Time | None
    lag: int | None
    expires_at: Time | None
    missing: dict[str, int] | None = None
    standing: list[StandingRow] | None = None
    drained_until: Time | None = None


class ReceiptsRow(Row):
    """Numbers of receipts: all, those that the validation wrote, and segments without one."""

    total: int
    written: int
    unsealed: int


class PartitionRow(Row):
    """The drained offsets and records of one partition of one incarnation of a topic."""

    topic: str
    partition: int
    start: int
    end: int
    records: int
    gaps: dict[str, int]


class GenerationRow(Row):
    """The files of a generation."""

    generation: int
    files: int
    bytes: int
    records: int


class WindowRow(Row):
    """A sealed window, and the damaged files that it replaces."""

    name: str
    records: int
    offsets: int
    files: int
    bytes: int
    replaces: list[str]


class BatchRow(Row):
    """A segment of a generation; what is only known once it is sealed is None before."""

    generation: int
    first: int
    last: int
    offsets: int
    records: int | None
    files: int | None
    bytes: int | None
    sealed_at: str | None


class GapRow(Row):
    """Missing offsets that no earlier receipt explains."""

    topic: str
    partition: int
    start: int
    end: int
    reason: str
    acknowledged: bool


class FindingRow(Row):
    """A finding of a validation; see `Finding`."""

    reason: str
    severity: Literal["error", "warning"]
    where: str
    detail: str


class ReportKafkaRow(Row):
    """The cluster that a validation asked.

    Attributes:
        bootstrap_servers: Its addresses, as they were given.
        cluster_id: Its id; empty if it told none, None if it wasn't asked.
    """

    bootstrap_servers: str
    cluster_id: str | None = None


class ReportDocument(Document):
    """`reports/<run>.json`: the report of a validation; see `Report`."""

    archive: str
    pipeline: str
    verdict: Verdict
    files: int
    bytes: int
    records: int
    offsets: int
    reasons: dict[str, int]
    scope: Literal["all", "open"]
    deep: bool
    receipts: ReceiptsRow
    seconds: float
    validated_at: str
    partitions: list[PartitionRow]
    generations: list[GenerationRow]
    windows: list[WindowRow]
    erasures: list[ErasureRow] | None = None
    kafka: ReportKafkaRow | None = None
    batches: list[BatchRow]
    gaps: list[GapRow]
    findings: list[FindingRow]


class WitnessDocument(Document):
    """`evidence/witness.json`: what the archive told its witness last.

    Attributes:
        witness: The witness: a file, or `kafka:` and a topic.
        line: SHA-256 of the line.
    """

    witness: str
    line: str


class DrillStarted(VersionedDocument):
    """`drills/<drill>/started.json`: a drill in progress, and what it may leave behind.

    Attributes:
        drill: The drill's name.
        started_at: Time of its start, in ISO 8601.
        cluster_id: Id of the Kafka cluster that it restores to.
        run: Key of its republish.
        topics: Its scratch topics: name, and topic id once the topic exists, else empty.
    """

    format_version: Version
    drill: str
    started_at: str
    cluster_id: str
    run: str
    topics: dict[str, str]


class SampleRow(Row):
    """The sample of records that a drill restores.

    Attributes:
        kind: `newest_hour`, `random_day` or `whole`.
        from_time: First timestamp, in ISO 8601; None for no bound.
        to_time: End of the timestamps, exclusive; None for no bound.
        seed: Seed that a random day was chosen by.
    """

    kind: Literal["newest_hour", "random_day", "whole"]
    from_time: str | None
    to_time: str | None
    seed: int


class DecodedRow(Row):
    """Numbers of restored values by the result of decoding them.

    Attributes:
        values: Number of values that were looked at.
        decoded: Number of values that were decoded.
        without_schema: Number of values that name no schema, such as tombstones.
        unknown_schemas: Ids of schemas that values name and the archive doesn't have.
        undecodable: Number of values that their schema doesn't decode, or that aren't JSON.
    """

    values: int
    decoded: int
    without_schema: int
    unknown_schemas: list[int]
    undecodable: int


class ProblemRow(Row):
    """A reason why a drill failed.

    Attributes:
        step: Failed step: `plan`, `restore`, `decode` or `clean_up`.
        error: Type of the error.
        detail: The observation, and the remedy.
        transient: Whether a later drill may succeed without a change.
    """

    step: Literal["plan", "restore", "decode", "clean_up"]
    error: str
    detail: str
    transient: bool


class DrillDocument(VersionedDocument):
    """`drills/<drill>/result.json`: the result of a drill.

    Attributes:
        drill: The drill's name.
        pipeline: Name of the pipeline.
        verdict: `passed` if every record of the sample was restored once and verified.
        started_at: Time of its start, in ISO 8601.
        finished_at: Time of its end, in ISO 8601.
        sample: The restored sample.
        cluster_id: Id of the Kafka cluster that it restored to.
        topics: Scratch topic by source topic.
        records: Number of records of the sample; None if there was no plan.
        rto_seconds: Seconds from the start until everything was verified; None if it wasn't.
        rpo_seconds: Age in seconds of the newest sealed record at the start; None if unknown.
        newest_record: Timestamp of that record, in ISO 8601.
        drained_through: Time of the newest seal, in ISO 8601.
        verification: Result of comparing each partition.
        decoded: Result of decoding; None if the archive knows no schema.
        problems: Why it failed; empty if it passed.
        left: Scratch topics that couldn't be removed; the next drill removes them.
        max_age_days: Age in days at which it is too old to rely on; None for none.
    """

    format_version: Version
    drill: str
    pipeline: str
    verdict: Literal["passed", "failed"]
    started_at: Time
    finished_at: str
    sample: SampleRow | None
    cluster_id: str
    topics: dict[str, str]
    records: int | None
    rto_seconds: float | None
    rpo_seconds: float | None
    newest_record: str | None
    drained_through: str | None
    verification: dict[str, Any] | None
    decoded: DecodedRow | None
    problems: list[ProblemRow]
    left: list[str]
    max_age_days: int | None


class EndRow(Row):
    """The end of a source partition.

    Attributes:
        offset: Its end offset, behind open transactions too.
    """

    topic: str
    partition: int
    offset: int


class CutOverGroupRow(Row):
    """A consumer group that was translated to the target.

    Attributes:
        read_again: Maximum number of records that it reads again.
        offsets: The offsets from which it continues in the target.
    """

    group: str
    read_again: int
    offsets: list[EndRow]


class CutOverDocument(VersionedDocument):
    """`cut-over/<key>/<time>-<step>.json`: what one attempt of a step of a cut-over saw.

    Attributes:
        run_name: Name of the cut-over, and of its mirror.
        step: The step; `back` for a way back.
        verdict: `refused` if a condition of the step didn't hold.
        run: The run that took the step: one of Airflow's, or `terminal`.
        started_at: Time of its start, in ISO 8601.
        finished_at: Time of its end, in ISO 8601.
        source_cluster_id: Id of the Kafka cluster that clients leave.
        target_cluster_id: Id of the Kafka cluster that they move to.
        ends: The source's end offsets.
        lag: Number of offsets at the source that no receipt covers.
        records: Number of records that the mirror's finished runs have sent and compared.
        runs: Number of these runs.
        last_run: Key of the last of them; None for none.
        groups: Groups that were translated; None if the step doesn't look at them.
        problems: Why it was refused; empty if it passed.
        notes: Further observations.
        back: The way back from here.
    """

    format_version: Version
    run_name: str
    step: Literal[
        "mirror",
        "producers_off",
        "last_drain",
        "last_mirror",
        "groups",
        "verify",
        "hand_over",
        "back",
    ]
    verdict: Literal["passed", "refused"]
    run: str
    started_at: str
    finished_at: str
    source_cluster_id: str
    target_cluster_id: str
    ends: list[EndRow]
    lag: int
    records: int
    runs: int
    last_run: str | None
    groups: list[CutOverGroupRow] | None
    problems: list[str]
    notes: list[str]
    back: list[str]


class ErasedHeaderRow(Row):
    """A header whose records are erased.

    Attributes:
        name: The header's name.
        hash: HMAC-SHA-256 of name and value, in hexadecimal digits.
    """

    name: str
    hash: str


class ErasedTopicRow(Row):
    """A topic of an erasure, with the end offsets up to which it reaches.

    Attributes:
        ends: By partition, the end of Kafka's offsets at the time of the request; None for all: the
            topic no longer existed, so no record is added to it.
    """

    topic: str
    topic_id: str
    ends: dict[str, int] | None


class ErasureDocument(VersionedDocument):
    """`erasures/<number>.json`: a request to erase records, without what it names.

    Attributes:
        request: Id of the request.
        by: The requester.
        asked_at: When it was accepted, in ISO 8601.
        salt: Random key of the hashes, the same for all erasures of an archive, in hexadecimal
            digits.
        keys: HMAC-SHA-256 of each key, in hexadecimal digits; empty for any key.
        headers: The headers, any of which a record must have; empty for any.
        topics: The topics; empty for all.
        from_ms: Lowest timestamp in milliseconds since 1970; None for no bound.
        to_ms: End of the timestamps, exclusive; None for no bound.
        scope: Its scope in each topic.
        for_ever: Whether records that were written after the request are erased too.
    """

    format_version: Version
    request: str
    by: str
    asked_at: str
    salt: str
    keys: list[str]
    headers: list[ErasedHeaderRow]
    topics: list[str]
    from_ms: int | None
    to_ms: int | None
    scope: list[ErasedTopicRow]
    for_ever: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureDoneDocument(SealedDocument):
    """`erasures/<number>.done.json`: what an erasure has been carried out on.

    Attributes:
        erasure: The erasure's number.
        done_at: When no reader could get such a record any more, in ISO 8601.
        records: Number of records that were erased.
        windows: SHA-256 of the receipts of the windows that hold what is left, by window.
        generations: By generation, the last receipt whose files were searched.
        searched: The windows whose files were searched.
    """

    erasure: int
    done_at: str
    records: int
    windows: dict[str, str]
    generations: dict[str, str]
    searched: list[str]


class ErasureLiftedDocument(VersionedDocument):
    """`erasures/<number>.lifted.json`: an erasure that is no longer applied to other records.

    Attributes:
        by: The person who lifted it.
        lifted_at: When, in ISO 8601.
    """

    format_version: Version
    by: str
    lifted_at: str
