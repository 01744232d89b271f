"""Plan a republish: from the files that the archive's receipts seal to shards. Sends nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from upath import UPath

from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.generation import list_data_files
from kafka_drain.archive.index import Index
from kafka_drain.archive.receipts import SealedContent, SealedFile
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.data_files.content_hash import digest_text
from kafka_drain.data_files.reader import topic_of
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    ManifestInvalidError,
    NotSealedError,
    SourceRecordError,
)
from kafka_drain.findings import errors
from kafka_drain.intervals import from_iso, in_utc, milliseconds, time_text
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topics import request_bytes
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress, Ticker
from kafka_drain.proof.erased_records import refuse_unerased
from kafka_drain.proof.sealed_files import damage_of
from kafka_drain.republish.changing.change import Change, Changer, schemas_to_rows
from kafka_drain.republish.planning.binding import Binding, others_gone, refuse_other_target
from kafka_drain.republish.planning.chains import chain_numbers
from kafka_drain.republish.planning.change_counts import (
    Outcome,
    count_outcomes,
    note_of,
    note_unseen,
    refuse_no_hits,
)
from kafka_drain.republish.planning.changes import Outline
from kafka_drain.republish.planning.documents import (
    ChangedShardJson,
    ChangeJson,
    ChangeSpecJson,
    SchemaIdsJson,
    SchemaTextJson,
    ThroughJson,
)
from kafka_drain.republish.planning.header_names import refuse_nul
from kafka_drain.republish.planning.into_source import check_sources
from kafka_drain.republish.planning.key_samples import partitioner_notes
from kafka_drain.republish.planning.pace import refuse_unpaced
from kafka_drain.republish.planning.placement import PARTITIONERS, fixed_partition
from kafka_drain.republish.planning.plan import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    STRICT,
    RepublishPlan,
    name_in_kafka,
)
from kafka_drain.republish.planning.previous_runs import refuse_repeated
from kafka_drain.republish.planning.record_sizes import Large, large_records
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.row_counts import count_rows
from kafka_drain.republish.planning.runs import run_key
from kafka_drain.republish.planning.schema_ids import count_schema_ids, notes_of, plan_schema_ids
from kafka_drain.republish.planning.selection import Rows, Selection
from kafka_drain.republish.planning.shards import (
    PREFIX,
    ProgressSlot,
    Shard,
    ShardFile,
    provenance_of,
)
from kafka_drain.republish.planning.targets import (
    Larger,
    Need,
    check_names,
    create_targets,
    plan_targets,
)
from kafka_drain.schemas.capture import read_document
from kafka_drain.schemas.decoders import archived_schemas
from kafka_drain.schemas.decoding import read_schemas
from kafka_drain.schemas.schema_map import read_map
from kafka_drain.storage.paths import quoted

#: Limits up to which `auto` chooses the worker: Spark takes ten seconds to start, and several
#: machines are faster only above them.
WORKER_BYTES, WORKER_RECORDS = 20_000_000_000, 50_000_000

#: Time for which Kafka keeps the progress of a writer that doesn't commit, by default.
PROGRESS_SECONDS = 7 * 86_400

#: Keys and values are rarely so many times as large as the compressed files that have them.
COMPRESSION = 100

_LONG = (
    "sending takes longer than Kafka keeps progress by default, seven days: a writer that begins "
    "later finds none and ends the run, and so does a retry after writers that were done earlier. "
    "Raise offsets.retention.minutes of the target's brokers before, or send in parts (topics, "
    "partitions or times)"
)


@dataclass
class _Part:
    """A source partition before its target is known.

    Attributes:
        rows: The selected rows.
        files: The files that hold such rows.
        oldest_ms: Lowest timestamp; None when unknown.
        newest_ms: Highest timestamp; None when unknown.
    """

    rows: Rows
    files: list[ShardFile]
    oldest_ms: int | None = None
    newest_ms: int | None = None

    def add(self, counted: _Counted) -> None:
        self.files.append(counted.file)
        ages = (self.oldest_ms, counted.oldest_ms), (self.newest_ms, counted.newest_ms)
        self.oldest_ms, self.newest_ms = (
            most((ms for ms in both if ms is not None), default=None)
            for most, both in zip((min, max), ages, strict=True)
        )


@dataclass(frozen=True)
class _Counted:
    """A file's share of a part.

    Attributes:
        zeros: Number of its timestamps that are 0.
        oldest_ms: Lowest timestamp; None when unknown.
        newest_ms: Highest timestamp; None when unknown.
    """

    file: ShardFile
    zeros: int
    oldest_ms: int | None
    newest_ms: int | None


def make_plan(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    request: RepublishRequest,
    *,
    run: str,
    now: datetime,
    apply: bool = False,
    key: str | None = None,
    files: Callable[[], list[ArchiveFile]] | None = None,
    through: ThroughJson | None = None,
    bound: Binding | None = None,
    identify: Callable[[], str] = lambda: "",
    accept: Callable[[Outline], None] | None = None,
    change: Change | None = None,
    before_creation: Callable[[], None] = lambda: None,
    state: UPath | None = None,
    made: dict[str, str] | None = None,
) -> RepublishPlan:
    """Plan a republish of sealed files; sends nothing.

    Args:
        snapshot: The archive to read the files from.
        cluster: The cluster to send the records to.
        request: The requested republish.
        run: The run's name.
        apply: Whether the run will be executed. Only then are header names checked, and missing
            target topics created, if the request allows it; otherwise the plan only says that they
            will be created.
        key: Name of the run's folder; derived from the run's name when None.
        files: Lists the files to choose from; all of the archive when None.
        through: The part of the archive that a follower has sent when this run is done.
        bound: Cluster and topics of the follower's previous runs.
        identify: Returns the archive's id. Called only after all checks have passed, as it may
            write the id.
        accept: Called with the plan's outline before anything is created; raises an error to
            refuse it.
        change: The drops and changes on the way; None to send the records as they are.
        before_creation: Called before topics are created; raises an error to refuse it.
        state: The folder that keeps the run; None for the archive's.
        made: Receives the id of each topic that was created, even if planning then fails.

    Raises:
        ConfigError: When the request can't be fulfilled as given.
        ArchiveError: When the folder isn't an archive, or never held the requested topics.
        NotSealedError: When files aren't sealed yet.
        ManifestInvalidError: When the manifest, a receipt or a file is damaged.
        SourceRecordError: When a row has no topic and no target topic is named, or Kafka's client
            can't send a header name.
        TopicError: When a target topic is missing, has too few partitions, or has settings that
            would change or drop records.
        AuthorizationError: When an ACL is missing.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    pipeline = snapshot.document.pipeline
    chosen = request.selection
    listed = files() if files else archive_files(snapshot, chosen.times, chosen.asked_offsets)
    sealed = _sealed(snapshot, listed, request)
    refuse_unerased(snapshot, [file for file, _ in sealed])
    _refuse_damaged(snapshot, sealed)
    _refuse_unknown(snapshot, sealed, request, is_following=files is not None)
    parts, zeros = _parts(snapshot, sealed, request)
    changed: ChangeJson | None = None
    changer: Changer | None = None
    said_of_change: list[str] = []
    if change is not None:
        changer = _changer(snapshot, change)
        parts, changed, zeros, said_of_change = _changed(
            snapshot, parts, change, changer, follows=request.follow
        )
    needs = _needs(parts, request)
    key = key or run_key(run)
    gone: list[str] = []
    if bound is not None:
        said = "Nothing was sent"
        refuse_other_target(cluster, bound.of_topics(needs), key, said=said)
        gone = others_gone(cluster, bound, needs)
    check_names(needs)
    warnings = check_sources(
        snapshot, cluster, needs, is_asked=request.into_source, follows=through is not None
    )
    larger = _larger(snapshot, parts, request, changer)
    planned = plan_targets(snapshot.root, cluster, needs, request, now, larger)
    targets, notes = planned.targets, planned.notes
    said_of_keys: list[str] = []
    if request.placement in PARTITIONERS:
        said_of_keys = partitioner_notes(
            snapshot.root, {tp: part.files for (tp, _), part in parts.items()}, request.placement
        )
    # What is left out or changed needs no name; the change's own look has found the others.
    if apply and request.delivery == EXACTLY_ONCE and changer is None:
        without = {f.path for f, s in sealed if s.nul_header_names is False}
        _refuse_nul(snapshot, parts, without, follows=request.follow)
    schema_ids = _schema_ids(snapshot, parts, request, changer)
    cluster_id = cluster.cluster_id()
    # A topic that is created gets the partitions that are planned.
    counts = {target.topic: target.partitions for target in targets}
    if accept is not None:
        accept(
            Outline(cluster_id, targets, _shards(parts, request, key, counts), schema_ids, changed)
        )
    # Before topics are created: it writes, which may fail.
    archive_id = identify()
    if apply and planned.new:
        # Only after all checks: a request that is refused leaves no topics behind.
        before_creation()
        create_targets(cluster, planned.new, made if made is not None else {})
        planned = plan_targets(snapshot.root, cluster, needs, request, now, larger)
        targets, notes = planned.targets, planned.notes
    if through is not None:
        here = Binding(cluster_id, {target.topic: target.id for target in targets})
        through = {**through, "bound": (bound or Binding()).plus(here).to_dict()}
    shards = _shards(parts, request, name_in_kafka(key, archive_id), counts)
    sizes = {file.path: file.bytes for shard in shards for file in shard.files}
    if zeros and request.delivery != AT_LEAST_ONCE:
        notes.append(
            f"WARNING {zeros:,} records have timestamp 0, which Kafka's client replaces with the "
            "time of sending"
        )
    engine, reason = _engine(request, sum(s.records for s in shards), sum(sizes.values()))
    plan = RepublishPlan(
        run=run,
        key=key,
        created_at=now.isoformat(timespec="milliseconds"),
        pipeline=pipeline,
        cluster_id=cluster_id,
        request=request.to_dict(),
        delivery=request.delivery,
        transactions=STRICT,
        engine=engine,
        placement=request.placement,
        provenance=request.provenance,
        targets=targets,
        shards=shards,
        size=sum(sizes.values()),
        timestamps_replaced=zeros,
        span_ms=_span(parts.values()),
        notes=(
            *reason,
            *_beyond(snapshot, chosen),
            *warnings,
            *gone,
            *notes,
            *said_of_change,
            *said_of_keys,
            *(notes_of(schema_ids) if schema_ids else ()),
        ),
        through=through,
        archive_id=archive_id,
        schema_ids=schema_ids,
        change=changed,
    )
    if request.delivery == EXACTLY_ONCE:
        plan = replace(plan, notes=(*plan.notes, *_progress_warnings(plan, request)))
    if request.pace:
        refuse_unpaced(plan)
    if not request.repeat:
        home = state or snapshot.root
        for place in sorted({snapshot.root, home}, key=str):
            refuse_repeated(place, plan, is_elsewhere=place != home)
    return plan.sealed().value


def _span(parts: Collection[_Part]) -> int | None:
    """Return the milliseconds from the lowest timestamp to the highest; None when unknown."""
    oldest = [part.oldest_ms for part in parts if part.oldest_ms is not None]
    newest = [part.newest_ms for part in parts if part.newest_ms is not None]
    return max(newest) - min(oldest) if oldest and newest else None


def _progress_warnings(plan: RepublishPlan, request: RepublishRequest) -> list[str]:
    """Return a warning if sending takes, or may well take, longer than Kafka keeps its progress.

    How long a limit of bytes makes it take depends on the files' compression, which isn't known.
    """
    if plan.seconds(*request.limits) > PROGRESS_SECONDS:
        return [f"WARNING {_LONG}"]
    _, limit, _ = request.limits
    times = limit * PROGRESS_SECONDS / max(plan.size, 1)
    if not 0 < times < COMPRESSION:
        return []
    return [
        "WARNING the limit of bytes per second counts before compression: if keys and values are "
        f"more than {times:,.1f} times as large as their files, {_LONG}"
    ]


def _beyond(snapshot: Snapshot, chosen: Selection) -> list[str]:
    """Return a warning if records before the end that is asked for may not be archived yet."""
    receipts = (generation.last_receipt() for generation in reversed(snapshot.generations))
    newest = next(filter(None, receipts), None)
    if newest is None or chosen.to_ms is None:
        return []
    sealed_ms = milliseconds(in_utc(from_iso(newest.sealed_at)))
    if sealed_ms >= chosen.to_ms:
        return []
    return [
        f"WARNING no drain was sealed since {time_text(sealed_ms)}, before the end of what is "
        "asked for: later records are sent only if a backfill has them. Unless a drain and its "
        "validation have found none since, run these first"
    ]


def _sealed(
    snapshot: Snapshot, files: list[ArchiveFile], request: RepublishRequest
) -> list[tuple[ArchiveFile, SealedFile]]:
    waiting = [file for file in files if file.sealed is None]
    # A follower sends what is sealed, and the rest in the next run.
    if waiting and not (request.sealed_only or request.follow):
        raise NotSealedError(
            f"{snapshot.root}: {len(waiting):,} files are committed but not sealed yet, the first "
            f"is {waiting[0].path}; run `kafka-drain validate {quoted(snapshot.root)}`, which "
            "proves and seals them, or leave them out (--sealed-only; sealed_only in Airflow). "
            "Nothing was sent"
        )
    return [(file, file.sealed) for file in files if file.sealed is not None]


def _refuse_damaged(snapshot: Snapshot, files: list[tuple[ArchiveFile, SealedFile]]) -> None:
    owners = {file.owner: file.owner.data_name for file, _ in files}
    listing = {
        f"{name}/{path}": size
        for owner, name in owners.items()
        for path, size in list_data_files(owner.data).items()
    }
    damages = (damage_of(snapshot.root, s, listing.get(f.path), deep=False) for f, s in files)
    bad = errors([damage for damage in damages if damage])
    if bad:
        raise ManifestInvalidError(
            f"{snapshot.root} is damaged, nothing was sent: "
            + "; ".join(str(finding) for finding in bad[:5])
            + f". Run `kafka-drain validate {quoted(snapshot.root)}`; "
            f"{bad[0].reason.remedy_of(snapshot.root)}"
        )


def _parts(
    snapshot: Snapshot, files: list[tuple[ArchiveFile, SealedFile]], request: RepublishRequest
) -> tuple[dict[tuple[TopicPartition, str], _Part], int]:
    """Return the selected parts, and the number of timestamps that are 0.

    Parts are keyed by source partition and topic id, sorted, older incarnations of a topic first.
    """
    # A recreated topic's offsets restart at 0: the topic id tells the incarnations apart.
    parts: dict[tuple[TopicPartition, str], _Part] = {}
    zeros = 0
    ticker = Ticker("plan", Progress("files", len(files)))
    for number, (file, sealed) in enumerate(files):
        for content, rows in _wanted(sealed, request):
            counted = _count(snapshot, file, sealed, content, rows)
            if counted is not None:
                zeros += counted.zeros
                key = (content.tp, file.topic_ids.get(content.tp.topic, ""))
                parts.setdefault(key, _Part(rows, [])).add(counted)
        ticker.at(number)
    incarnations: dict[TopicPartition, int] = {}
    for tp, _ in parts:
        incarnations[tp] = incarnations.get(tp, 0) + 1
        if incarnations[tp] > 1 and request.selection.offsets:
            raise ConfigError(
                f"offsets of {tp} are ambiguous, as the topic was recreated and its offsets "
                "restarted; select by time instead"
            )
    # The incarnations of a topic keep their order, regardless of where their files are now.
    order = snapshot.topic_incarnations()
    in_order = sorted(parts, key=lambda key: (key[0], order.get((key[0].topic, key[1]), 0)))
    return {key: parts[key] for key in in_order}, zeros


def _wanted(sealed: SealedFile, request: RepublishRequest) -> Iterator[tuple[SealedContent, Rows]]:
    for content in sealed.contents:
        rows = request.selection.rows(content.tp)
        bounds = (
            content.first, content.last, content.first_timestamp, content.last_timestamp
        )  # fmt: skip
        if rows is None or rows.none_of(*bounds):
            continue
        if request.target_of(content.tp.topic) is None:
            raise SourceRecordError(
                f"the row with partition {content.tp.partition} and offset {content.first} in "
                f"{sealed.path} has no topic; name a target topic or correct the file. Nothing was "
                "sent"
            )
        yield content, rows


def _count(
    snapshot: Snapshot, file: ArchiveFile, sealed: SealedFile, content: SealedContent, rows: Rows
) -> _Counted | None:
    """Return a file's share of a shard; None if none of its records is selected.

    The file is read only if its receipt doesn't have the answer.
    """
    first, last, records, zeros = content.first, content.last, content.records, 0
    low, high = content.first_timestamp, content.last_timestamp
    may_be_zero = low is None or high is None or low <= 0 <= high
    if may_be_zero or not rows.all_of(first, last, low, high):
        path, topic = snapshot.root / file.path, topic_of(file.path)
        counted = count_rows(path, file.file_format, topic, content.tp, rows)
        if counted.first is None or counted.last is None:
            return None
        first, last = counted.first, counted.last
        low, high = counted.oldest_ms, counted.newest_ms
        records, zeros = counted.records, counted.zero_timestamps
    share = ShardFile(
        path=file.path,
        file_format=file.file_format,
        bytes=file.bytes,
        sha256=sealed.sha256,
        first=first,
        last=last,
        records=records,
        ascending=content.ascending,
    )
    return _Counted(share, zeros, low, high)


def _refuse_nul(
    snapshot: Snapshot,
    parts: Mapping[tuple[TopicPartition, str], _Part],
    without: Collection[str],
    *,
    follows: bool,
) -> None:
    """Refuse header names that Kafka's client can't send; each file is read once.

    Args:
        snapshot: The archive.
        parts: The selected parts.
        without: Files that have none, according to their receipts; they aren't read.
        follows: Whether the run is a mirror's.
    """
    files = [(file, selected) for file, selected in _by_file(parts) if file.path not in without]
    ticker = Ticker("check header names", Progress("files", len(files)))
    for number, (file, selected) in enumerate(files):
        refuse_nul(str(snapshot.root), file, selected, follows=follows)
        ticker.at(number)


def _schema_ids(
    snapshot: Snapshot,
    parts: Mapping[tuple[TopicPartition, str], _Part],
    request: RepublishRequest,
    changer: Changer | None,
) -> SchemaIdsJson | None:
    if request.schema_map is None:
        return None
    schema_map = read_map(snapshot.root, request.schema_map)
    if changer is None:
        counts, framed = count_schema_ids(snapshot.root, _by_file(parts), request.keep_ids)
    else:
        apply = changer.apply
        counts, framed = count_schema_ids(
            snapshot.root,
            _by_file(parts),
            request.keep_ids,
            lambda batch, tp: apply(batch, tp).batch,
        )
    return plan_schema_ids(counts, schema_map, request.keep_ids, framed)


def _changer(snapshot: Snapshot, change: Change) -> Changer:
    root = snapshot.root
    return change.open(archived_schemas(read_document(root), read_schemas(root)))


def _changed(
    snapshot: Snapshot,
    parts: Mapping[tuple[TopicPartition, str], _Part],
    change: Change,
    changer: Changer,
    *,
    follows: bool,
) -> tuple[dict[tuple[TopicPartition, str], _Part], ChangeJson, int, list[str]]:
    """Apply a change to the selected records.

    Returns:
        The parts with what is sent of them, what is planned, the number of timestamps that are 0,
        and notes for the user.
    """
    outcomes = count_outcomes(snapshot.root, _by_file(parts), changer, follows=follows)
    total = Outcome()
    left: dict[tuple[TopicPartition, str], _Part] = {}
    shards: list[ChangedShardJson] = []
    for (tp, topic_id), part in parts.items():
        of_part, files = Outcome(), []
        for file in part.files:
            outcome = outcomes.get((file.path, tp), Outcome())
            of_part += outcome
            if outcome.sent:
                files.append(replace(file, records=outcome.sent))
        total += of_part
        if not files:
            continue
        left[tp, topic_id] = replace(
            part, files=files, oldest_ms=of_part.oldest_ms, newest_ms=of_part.newest_ms
        )
        # What a file holds that is read no more isn't dropped again.
        kept = [outcomes[file.path, tp] for file in files]
        shards.append(
            {
                "dropped": sum(outcome.dropped for outcome in kept),
                "changed": of_part.changed,
                "digest": digest_text(of_part.digest),
            }
        )
    spec = cast(ChangeSpecJson, change.spec.to_dict())
    notes = [note_of(spec, total)]
    if total.sent + total.dropped:
        notes += note_unseen(changer.unseen)
    if total.sent:
        wanted = change.spec.wanted
        fields = [str(named) for named, _ in wanted.replacements(b"")]
        headers = sorted(set(wanted.drop_headers))
        notes += refuse_no_hits(fields, changer.hits, headers, changer.left_out, follows=follows)
    planned: ChangeJson = {
        **spec,
        "selected": total.sent + total.dropped,
        "dropped": total.dropped,
        "changed": total.changed,
        "schemas": cast("list[SchemaTextJson]", schemas_to_rows(changer.seen)),
        "shards": shards,
    }
    return left, planned, total.zero_timestamps, notes


def _larger(
    snapshot: Snapshot,
    parts: Mapping[tuple[TopicPartition, str], _Part],
    request: RepublishRequest,
    changer: Changer | None,
) -> Larger:
    """Return a function that finds the records which are too large for a target topic."""
    found: dict[tuple[str, int, str], list[Large]] = {}

    def search(topic: str, limit: int, codec: str) -> list[Large]:
        sent_there = {
            key: p for key, p in parts.items() if request.target_of(key[0].topic) == topic
        }
        apply = None if changer is None else changer.apply
        return list(
            large_records(
                str(snapshot.root),
                _by_file(sent_there),
                limit,
                codec,
                headers_of=provenance_of if request.provenance else None,
                as_sent=None if apply is None else lambda batch, tp: apply(batch, tp).batch,
                largest_request=(
                    request_bytes([limit]) if request.delivery == AT_LEAST_ONCE else None
                ),
            )
        )

    def larger(topic: str, limit: int, codec: str) -> list[Large]:
        # A topic that was just created is looked at again.
        key = (topic, limit, codec)
        if key not in found:
            found[key] = search(*key)
        return found[key]

    return larger


def _by_file(
    parts: Mapping[tuple[TopicPartition, str], _Part],
) -> list[tuple[ShardFile, dict[TopicPartition, Rows]]]:
    """Return each file once, with its selected rows by partition."""
    files: dict[str, tuple[ShardFile, dict[TopicPartition, Rows]]] = {}
    for (tp, _), part in parts.items():
        for file in part.files:
            files.setdefault(file.path, (file, {}))[1][tp] = part.rows
    return list(files.values())


def _refuse_unknown(
    snapshot: Snapshot,
    files: list[tuple[ArchiveFile, SealedFile]],
    request: RepublishRequest,
    *,
    is_following: bool,
) -> None:
    """Refuse topics and partitions that the archive never held.

    An interval without records is no error, nor is a follower that is up to date.
    """
    held = {content.tp.topic for _, sealed in files for content in sealed.contents}
    known = held | set(snapshot.document.topics)
    selection = request.selection
    asked = {*selection.topics, *(tp.topic for tp in selection.offsets), *request.rename}
    if unknown := sorted(asked - known):
        raise ArchiveError(
            f"{snapshot.root} holds no records of {', '.join(unknown)}; it holds "
            f"{', '.join(sorted(known)) or 'nothing yet'}; drain first, or correct the topics"
        )
    if selection.partitions or selection.offsets:
        _refuse_unknown_partitions(snapshot, files, selection)
    if not held and not selection.to_dict() and not is_following:
        raise ArchiveError(f"{snapshot.root} holds no sealed records; drain and validate first")


def _refuse_unknown_partitions(
    snapshot: Snapshot, files: list[tuple[ArchiveFile, SealedFile]], selection: Selection
) -> None:
    """Refuse partitions that the archive never drained; one without records is no error."""
    known = {content.tp for _, sealed in files for content in sealed.contents}
    index = snapshot.index or Index()
    # A partition that no generation has drained counts if a window has records of it.
    known.update(row.key[0] for row in index.partitions if row.end is not None or row.records)
    indexed = {row.generation for row in index.generations}
    for generation in snapshot.generations:
        if generation.number in indexed:
            continue
        receipt = generation.last_receipt()
        known.update(generation.starting_offsets, receipt.ends if receipt else ())
    numbers = {tp.partition for tp in known if tp.topic in (selection.topics or {tp.topic})}
    unknown = [f"partition {n}" for n in selection.partitions if n not in numbers]
    unknown += [str(tp) for tp in sorted(selection.offsets) if tp not in known]
    if unknown:
        topics = {tp.topic: sum(tp.topic == other.topic for other in known) for tp in known}
        held = ", ".join(f"{name}: {count:,} partitions" for name, count in sorted(topics.items()))
        raise ArchiveError(
            f"{snapshot.root} never held {', '.join(unknown)}"
            + (f" of {', '.join(selection.topics)}" if selection.topics else "")
            + f"; it holds {held or 'nothing yet'}; drain first, or correct the partitions. "
            "Nothing was sent"
        )


def _needs(
    parts: Mapping[tuple[TopicPartition, str], _Part], request: RepublishRequest
) -> dict[str, Need]:
    """Return the records' requirements on each target topic."""
    needs: dict[str, list[Need]] = {}
    for (tp, _), part in parts.items():
        topic = request.target_of(tp.topic) or ""
        partition = fixed_partition(request.placement, tp.partition) or 0
        need = Need(1 + partition, part.oldest_ms, part.newest_ms, (tp.topic,), tuple(part.files))
        needs.setdefault(topic, []).append(need)
    return {topic: Need.together(several) for topic, several in needs.items()}


def _shards(
    parts: Mapping[tuple[TopicPartition, str], _Part],
    request: RepublishRequest,
    name: str,
    counts: Mapping[str, int],
) -> tuple[Shard, ...]:
    slots = _slots(parts, request, name, counts)
    shards: list[Shard] = []
    for (tp, topic_id), part in parts.items():
        shards.append(
            Shard(
                number=len(shards),
                source=tp,
                topic_id=topic_id,
                target_topic=request.target_of(tp.topic) or "",
                target_partition=fixed_partition(request.placement, tp.partition),
                rows=part.rows,
                files=tuple(sorted(part.files, key=lambda f: f.first)),
                progress=slots[tp, topic_id],
            )
        )
    return tuple(shards)


def _slots(
    parts: Mapping[tuple[TopicPartition, str], _Part],
    request: RepublishRequest,
    key: str,
    counts: Mapping[str, int],
) -> dict[tuple[TopicPartition, str], ProgressSlot]:
    """Return the progress slot of each part: one slot for everything that a writer sends."""
    by_topic: dict[str, dict[TopicPartition, list[tuple[TopicPartition, str]]]] = {}
    for part in parts:
        sources = by_topic.setdefault(request.target_of(part[0].topic) or "", {})
        sources.setdefault(part[0], []).append(part)
    slots: dict[tuple[TopicPartition, str], ProgressSlot] = {}
    for topic, sources in by_topic.items():
        loads = [
            (
                fixed_partition(request.placement, tp.partition),
                sum(file.records for part in incarnations for file in parts[part].files),
            )
            for tp, incarnations in sources.items()
        ]
        numbers = chain_numbers(loads, counts[topic])
        is_chained = len(set(numbers)) < len(numbers)
        slot = -1
        for chain, incarnations in zip(numbers, sources.values(), strict=True):
            for part in incarnations:
                # Incarnations of a topic are sent in sequence, even without chains.
                slot = chain if is_chained else slot + 1
                # A group holds one slot per partition of the topic.
                layer, partition = divmod(slot, counts[topic])
                tp = TopicPartition(topic, partition)
                slots[part] = ProgressSlot(f"{PREFIX}{key}-{layer}", tp)
    return slots


def _engine(request: RepublishRequest, records: int, size: int) -> tuple[str, list[str]]:
    if request.delivery == AT_LEAST_ONCE:
        return "spark", []
    if request.engine != "auto":
        return request.engine, []
    if request.pace:
        return "worker", []
    engine = "worker" if size <= WORKER_BYTES and records <= WORKER_RECORDS else "spark"
    bound = f"{WORKER_BYTES / 1e9:g} GB and {WORKER_RECORDS:,} records"
    return engine, [f"engine {engine}: auto uses the worker for plans of up to {bound}"]
