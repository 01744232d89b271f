"""The documents of a republish as their JSON has them: typed, and checked in one place.

`docs/format.md` describes them. Within a format version keys may be added: those that this release
doesn't know are left aside. What an older release didn't write isn't required. Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from functools import cache
from typing import Any, Literal, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from typing_extensions import NotRequired, TypedDict

from kafka_drain.archive.format_version import READABLE
from kafka_drain.storage.sealed_json import check_seal

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


class TargetJson(TypedDict):
    """A topic that gets records; see `plan.Target`."""

    topic: str
    id: str
    partitions: int
    start: list[int]
    compacted: bool


class BindingJson(TypedDict):
    """Where a follower has sent its records; see `binding.Binding`."""

    cluster_id: str
    topics: dict[str, str]


class ThroughJson(TypedDict):
    """How much of the archive a follower has sent.

    Attributes:
        generations: Name of the last receipt by generation number.
        files: Digest of all files up to that receipt, by generation number.
        windows: Keys of the windows.
        bound: Where it was sent.
    """

    generations: dict[str, str]
    files: NotRequired[dict[str, str]]
    windows: list[str]
    bound: NotRequired[BindingJson]


class CountedIdsJson(TypedDict):
    """How many of a topic's keys or values have a schema id, and how many have none.

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
    """What a change makes of a shard.

    Attributes:
        dropped: Number of selected records that aren't sent.
        changed: Number of sent records that aren't what they were.
        digest: Hash of the records as they are sent, without added headers and new schema ids.
    """

    dropped: int
    changed: int
    digest: str


class ChangeSpecJson(TypedDict):
    """What is dropped and changed; see `spec.ChangeSpec`, which has the same order."""

    filter: list[str]
    mask: list[str]
    hash: list[str]
    drop_headers: list[str]
    function: FunctionJson | None
    mark: bool
    key_id: str | None


class ChangeJson(ChangeSpecJson):
    """What is dropped and changed, and what becomes of the records; shards are in their order."""

    selected: int
    dropped: int
    changed: int
    schemas: list[SchemaTextJson]
    shards: list[ChangedShardJson]


class ChangeReceiptJson(ChangeSpecJson):
    """What was dropped and changed, as verify found it."""

    selected: int
    dropped: int
    changed: int


class PlanJson(TypedDict):
    """`plan.json`; see `plan.RepublishPlan`.

    The request is compared as a whole, so that a key of a later release isn't left aside.
    """

    format_version: int
    run: str
    key: str
    archive_id: NotRequired[str]
    created_at: str
    pipeline: str
    cluster_id: str
    request: dict[str, Any]
    delivery: str
    transactions: str
    engine: str
    placement: str | int
    provenance: bool
    records: int
    bytes: int
    timestamps_replaced: int
    notes: list[str]
    through: ThroughJson | None
    schema_ids: NotRequired[SchemaIdsJson]
    change: NotRequired[ChangeJson]
    targets: list[TargetJson]
    shards: list[ShardJson]
    sha256: NotRequired[str]


class SentJson(TypedDict):
    """Which records of a source partition were sent where."""

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
    """What a target partition holds; see `result.VerifiedPartition`."""

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
    """What all target partitions hold; see `result.Verification`."""

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

    format_version: int
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


class OffsetMapJson(TypedDict):
    """`offset-map.json`; see `offset_map.OffsetMap`."""

    format_version: int
    run: str
    pipeline: str
    cluster_id: str
    partitions: list[PartitionMapJson]
    sha256: NotRequired[str]


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

    format_version: int
    run: str
    cluster_id: str
    from_group: str
    group: str
    group_existed: bool
    written_at: str
    sources: list[SourceOffsetJson]
    offsets: list[GroupOffsetJson]


class _VersionJson(TypedDict):
    format_version: NotRequired[Any]


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


def parse(kind: type[D], content: bytes) -> D:
    """Parse a document.

    Args:
        kind: One of the types above.
        content: The file's bytes.

    Raises:
        ValueError: When it isn't JSON, lacks a key, or has a value of another type; names it.
    """
    try:
        # A TypedDict's class is hashable; mypy doesn't see it.
        parsed: D = _adapter(cast(Hashable, kind)).validate_json(content, strict=True)
        return parsed
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}" if where else first["msg"]) from error


def parse_version(kind: type[D], content: bytes, versions: Collection[int] = READABLE) -> D:
    """Parse a document that says which version of the format it has.

    Raises:
        ValueError: As `parse` does, and when it has another version.
    """
    # The version first: another format may have other keys.
    version = parse(_VersionJson, content).get("format_version")
    if version not in versions:
        raise ValueError(f"format version {version!r}")
    return parse(kind, content)


def parse_sealed(kind: type[D], content: bytes, versions: Collection[int] = READABLE) -> D:
    """Parse a document that also ends in its own SHA-256.

    Raises:
        SealError: When a byte was changed.
        ValueError: As `parse_version` does.
    """
    check_seal(content)
    return parse_version(kind, content, versions)
