"""The documents of a republish as their JSON has them: typed, and checked in one place.

`docs/format.md` describes them. Within a format version keys may be added: those that this release
doesn't know are left aside. What an older release didn't write isn't required. Opens nothing.
"""

from __future__ import annotations

from typing import Any, Literal, TypeVar

from typing_extensions import NotRequired, TypedDict

from kafka_drain.archive.format import Version
from kafka_drain.storage import typed_json
from kafka_drain.storage.sealed_json import check_seal
from kafka_drain.storage.typed_json import DocumentError, reason_of

D = TypeVar("D")


class FileJson(TypedDict):
    """One file's share of a shard; see `shards.ShardFile`."""

    path: str
    format: str
    bytes: int
    sha256: str
    first_offset: int
    last_offset: int
    records: int
    ascending: bool


class ShardJson(TypedDict):
    """One source partition; see `shards.Shard`."""

    number: int
    topic: str
    partition: int
    topic_id: str
    target_topic: str
    target_partition: int | None
    records: int
    ranges: list[tuple[int, int]] | None
    from_ms: int | None
    to_ms: int | None
    progress_group: str
    progress_topic: str
    progress_partition: int
    files: list[FileJson]


class BindingJson(TypedDict):
    """Where a follower has sent its records; see `binding.Binding`."""

    cluster_id: str
    topics: dict[str, str]


class ThroughJson(TypedDict):
    """The part of the archive that a follower has sent.

    Attributes:
        generations: Name of the last receipt by generation number.
        files: Digest of all files up to that receipt, by generation number.
        windows: Keys of the windows.
        bound: The cluster and topics it was sent to.
    """

    generations: dict[str, str]
    files: NotRequired[dict[str, str]]
    windows: list[str]
    bound: NotRequired[BindingJson]


class CountedIdsJson(TypedDict):
    """Numbers of a topic's keys or values with and without a schema id.

    Absent: no ids are kept while others are translated; no other registry's framing was seen.
    """

    topic: str
    part: str
    translated: int
    without: int
    kept: NotRequired[int]
    framings: NotRequired[dict[str, int]]


class SchemaIdsJson(TypedDict):
    """The schema ids that are replaced on the way; see `SchemaIds`."""

    map: str
    ids: dict[str, int]
    guids: dict[str, str]
    kept: list[str]
    counts: list[CountedIdsJson]


class FunctionJson(TypedDict):
    """A user's function; see `function.FunctionId`."""

    name: str
    sha256: str
    python: str


class SchemaTextJson(TypedDict):
    """A schema that a change reads records with; see `decoders.SchemaText`."""

    id: int | str
    kind: str
    text: str
    references: dict[str, str]


class ChangedShardJson(TypedDict):
    """The effect of a change on a shard.

    Attributes:
        dropped: Number of selected records that aren't sent.
        changed: Number of sent records that aren't what they were.
        digest: Hash of the records as they are sent, without added headers and new schema ids.
    """

    dropped: int
    changed: int
    digest: str


class ChangeSpecJson(TypedDict):
    """The drops and changes; see `spec.ChangeSpec`, which has the same order."""

    filter: list[str]
    mask: list[str]
    hash: list[str]
    drop_headers: list[str]
    function: FunctionJson | None
    mark: bool
    key_id: str | None


class ChangeJson(ChangeSpecJson):
    """The drops and changes, and the fate of the records; shards are in their order."""

    selected: int
    dropped: int
    changed: int
    schemas: list[SchemaTextJson]
    shards: list[ChangedShardJson]


class ChangeReceiptJson(ChangeSpecJson):
    """The drops and changes, as verify found them."""

    selected: int
    dropped: int
    changed: int


class SentJson(TypedDict):
    """The sent records of a source partition, with their target."""

    source_topic: str
    source_topic_id: str
    source_partition: int
    ranges: list[tuple[int, int]]
    from_ms: int | None
    to_ms: int | None
    records: int
    target_topic: str
    target_topic_id: NotRequired[str]
    target_partition: int | None


class VerifiedJson(TypedDict):
    """The records of a target partition; see `result.VerifiedPartition`."""

    topic: str
    partition: int
    records: int
    found: int
    lost: int
    twice: int
    out_of_order: int
    foreign: int
    compacted: int
    fingerprint: str
    notes: list[str]


class VerificationJson(TypedDict):
    """The records of all target partitions; see `result.Verification`."""

    is_exact: bool
    records: int
    lost: int
    twice: int
    out_of_order: int
    foreign: int
    compacted: int
    partitions: list[VerifiedJson]


class ReceiptJson(TypedDict):
    """`receipt.json`: what was sent, and what verify found."""

    format_version: Version
    run: str
    key: str
    pipeline: str
    plan: str
    request: dict[str, Any]
    delivery: str
    exactly_once: bool
    transactions: str | None
    engine: str
    cluster_id: NotRequired[str]
    records: int
    attempts: int
    seconds: float
    records_per_second: int
    started_at: str
    finished_at: str
    timestamps_replaced: int
    verification: VerificationJson | None
    sent: list[SentJson]
    through: ThroughJson | None
    change: NotRequired[ChangeReceiptJson]
    sha256: NotRequired[str]


class OpenedJson(TypedDict):
    """`opened.json`: the plan's hash, and how many shards it has."""

    plan: str
    shards: int


class AbandonedJson(TypedDict):
    """`abandoned.json`: when a user gave the run up."""

    at: str


class ClaimJson(TypedDict):
    """A claim to open: the run's key, and the number up to which claims needn't be checked."""

    run: str
    settled: int


class DecisionJson(TypedDict):
    """The decision about a claim: `opened` or `withdrawn`, and the run that decided it."""

    state: Literal["opened", "withdrawn"]
    by: str


class PartitionMapJson(TypedDict):
    """Where a source partition's records are in a target partition; see `offset_map.Block`."""

    source_topic: str
    source_partition: int
    source_topic_id: str
    target_topic: str
    target_partition: int
    blocks: list[tuple[int, int, int, int, int]]


class SourceOffsetJson(TypedDict):
    """An offset that was translated."""

    topic: str
    partition: int
    offset: int


class GroupOffsetJson(TypedDict):
    """An offset that apply commits, and what was committed before; null for nothing."""

    topic: str
    partition: int
    before: int | None
    metadata_before: str | None
    after: int
    metadata_after: NotRequired[str]


class GroupRecordJson(TypedDict):
    """A record of an apply; see `groups.records.GroupRecord`."""

    format_version: Version
    run: str
    cluster_id: str
    from_group: str
    group: str
    group_existed: bool
    written_at: str
    sources: list[SourceOffsetJson]
    offsets: list[GroupOffsetJson]


def parse(kind: type[D], content: bytes) -> D:
    """Parse a document, which is one of the types above.

    Raises:
        ValueError: When it isn't JSON, has another version, lacks a key, or has a value of another
            type; names it.
    """
    try:
        return typed_json.parse(kind, content)
    except DocumentError as error:
        raise ValueError(reason_of(error)) from error


def parse_sealed(kind: type[D], content: bytes) -> D:
    """Parse a document that also ends in its own SHA-256.

    Raises:
        SealError: When a byte was changed.
        ValueError: As `parse` does.
    """
    check_seal(content)
    return parse(kind, content)
