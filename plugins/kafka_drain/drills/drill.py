"""A whole drill: choose a sample, restore it to scratch topics, verify, decode, clean up, report.

Whatever fails makes the drill fail; it still cleans up and keeps its result. A drill that is killed
leaves `started.json`, by which the next one removes what is left.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillDocument, DrillStarted, ProblemRow
from kafka_drain.archive.drill_status import SKEW
from kafka_drain.archive.drills import FOLDER, write_result
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.format import FORMAT_VERSION
from kafka_drain.archive.schema_seals import SEALS, check_schemas
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.topic_settings import noted_topic_settings
from kafka_drain.clock import Clock, utc_now
from kafka_drain.config.drill import PREFIX, SampleKind
from kafka_drain.drills.decoding import Decoding, by_schema_id
from kafka_drain.drills.sample import Sample, choose_sample, iso_of, newest_of, text_of
from kafka_drain.drills.scratch import (
    Scratch,
    refuse_drained,
    remove_leftovers,
    scratch_name,
    scratch_settings,
)
from kafka_drain.errors import ArchiveError, KafkaDrainError, TransientError
from kafka_drain.findings import errors
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import NO_END, OffsetRange, TopicPartition
from kafka_drain.output import Level, Line, say
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import drill_run, run_key
from kafka_drain.republish.run import RepublishEngine, plan_republish
from kafka_drain.schemas.capture import read_document
from kafka_drain.schemas.decoders import Decoders, archived_schemas
from kafka_drain.schemas.decoding import read_schemas
from kafka_drain.schemas.schema_ids import SchemaId
from kafka_drain.storage.lease import hold_lease

if TYPE_CHECKING:
    from kafka_drain.evidence.signing import Signer

T = TypeVar("T")

Step = Literal["plan", "restore", "decode", "clean_up"]

#: Values that are decoded of each partition.
DECODED = 100_000

#: Ids that aren't judged and that a drill names of each topic.
_NAMED = 10

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class DrillRequest:
    """A request for a drill: its sample, and its target.

    Attributes:
        sample: Kind of the sample.
        seed: Seed of a random day; None for a random one, which the result names.
        prefix: Begins the names of the scratch topics.
        topic_config: Settings of the scratch topics, in addition to those of the source.
        decoded: Number of values that are decoded of each partition.
        max_age_days: Age in days at which the drill is too old, for the archive's page.
    """

    sample: SampleKind = "random_day"
    seed: int | None = None
    prefix: str = PREFIX
    topic_config: Mapping[str, str] = field(default_factory=dict)
    decoded: int = DECODED
    max_age_days: int | None = None


@dataclass(frozen=True)
class DrillPlan:
    """The plan of a drill.

    Attributes:
        snapshot: The archive.
        partitions: Number of partitions that each source topic of the sample needs.
        newest: Highest timestamp of all sealed records, in milliseconds; None if unknown.
        drained_through: Time of the newest seal, in ISO 8601; None if nothing is sealed.
    """

    snapshot: Snapshot
    sample: Sample
    partitions: Mapping[str, int]
    newest: int | None
    drained_through: str | None

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        topics = ", ".join(self.partitions)
        return [f"drill {self.snapshot.document.pipeline}: {self.sample}, of {topics}"]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {**_sample_row(self.sample), "topics": dict(self.partitions)}


def plan_drill(archive: Archive, request: DrillRequest, now: datetime | None = None) -> DrillPlan:
    """Choose a drill's sample; changes nothing.

    Args:
        now: The time after which records are dated ahead; None for the current one.

    Raises:
        ArchiveError: When the folder isn't an archive, or nothing in it is sealed.
        ManifestInvalidError: When sealed data is missing or changed.
    """
    snapshot = archive.snapshot()
    files = [file for file in archive_files(snapshot) if file.sealed is not None]
    if not files:
        raise ArchiveError(f"{archive.root} has no sealed records to restore; drain and validate")
    seed = secrets.randbits(31) if request.seed is None else request.seed
    spans = {file.path: _spans(file) for file in files}
    # Producers' clocks may be ahead.
    until = _milliseconds((now or utc_now()) + SKEW)
    sample = choose_sample(request.sample, seed, (s for e in spans.values() for s in e), until)
    partitions: dict[str, int] = {}
    for file in files:
        if _is_in(sample, spans[file.path]):
            for tp in _partitions_of(file):
                partitions[tp.topic] = max(partitions.get(tp.topic, 0), tp.partition + 1)
    newest = newest_of((span for each in spans.values() for span in each), until)
    return DrillPlan(snapshot, sample, dict(sorted(partitions.items())), newest, snapshot.sealed_at)


def _partitions_of(file: ArchiveFile) -> list[TopicPartition]:
    return [content.tp for content in file.sealed.contents] if file.sealed is not None else []


def _spans(file: ArchiveFile) -> list[tuple[int, int]]:
    contents = file.sealed.contents if file.sealed is not None else ()
    return [
        (content.first_timestamp, content.last_timestamp)
        for content in contents
        if content.first_timestamp is not None and content.last_timestamp is not None
    ]


def _is_in(sample: Sample, spans: Iterable[tuple[int, int]]) -> bool:
    if sample.from_time is None or sample.to_time is None:
        return True
    start, end = (_milliseconds(time) for time in (sample.from_time, sample.to_time))
    return any(first < end and last >= start for first, last in spans)


def _milliseconds(time: datetime) -> int:
    return round((time - _EPOCH).total_seconds() * 1000)


@dataclass
class _Drill:
    """A drill in progress, and its results so far."""

    archive: Archive
    cluster: KafkaCluster
    request: DrillRequest
    clock: Clock
    name: str
    started_at: datetime
    plan: DrillPlan | None = None
    topics: dict[str, str] = field(default_factory=dict)
    records: int | None = None
    rto_seconds: float | None = None
    verification: dict[str, Any] | None = None
    decoding: Decoding | None = None
    problems: list[ProblemRow] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    def attempt(self, step: Step, do: Callable[[], T]) -> T | None:
        """Do a step, unless an earlier one failed; a failure becomes a problem."""
        if self.problems:
            return None
        try:
            return do()
        except (KafkaDrainError, OSError) as error:
            self.fail(step, type(error).__name__, str(error), isinstance(error, TransientError))
            return None

    def fail(self, step: Step, error: str, detail: str, transient: bool = False) -> None:
        say(f"drill {self.name}: {step.replace('_', ' ')} failed: {detail}")
        self.problems.append(ProblemRow(step=step, error=error, detail=detail, transient=transient))


def run_drill(
    archive: Archive,
    cluster: KafkaCluster,
    engine: RepublishEngine,
    request: DrillRequest,
    *,
    run: str,
    clock: Clock,
    signer: Signer | None = None,
) -> DrillDocument:
    """Run a drill and keep its result in the archive.

    Args:
        cluster: The cluster to restore to; the archive's own or another.
        engine: Sends and verifies.
        run: Name of the run, for the lease.
        clock: Returns the time.
        signer: Signs the result; None for nobody.

    Returns:
        The result, also of a drill that failed.

    Raises:
        ArchiveError: When the folder isn't an archive, or can't be written.
        LockedError: When another drill of the archive is running.
    """
    archive.require()
    if archive.own is not None:
        archive.identify()
    with hold_lease(archive.state / FOLDER, run=run, clock=clock):
        now = clock()
        name = f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(4)}"
        drill = _Drill(archive, cluster, request, clock, name, now)
        _run(drill, engine)
        result = _result(drill)
        where = write_result(archive.state, result)
        if signer is not None:
            # Not at the top: many drills aren't signed.
            from kafka_drain.evidence.signing import sign

            path = sign(archive, signer, "drill", name, result.content(), [where], clock())
            say(f"drill {name}: evidence: {path}")
    return result


def _run(drill: _Drill, engine: RepublishEngine) -> None:
    began = time.monotonic()
    groups = ConsumerGroups(drill.cluster.config)
    scratch: Scratch | None = None
    try:
        drill.plan = drill.attempt(
            "plan", lambda: plan_drill(drill.archive, drill.request, drill.started_at)
        )
        scratch = drill.attempt("plan", lambda: _prepare(drill, groups))
        drill.attempt("restore", lambda: _restore(drill, engine, began))
        drill.attempt("decode", lambda: _decode(drill))
    finally:
        if scratch is not None:
            drill.left = scratch.remove(groups, drill.clock())
    if drill.left:
        left = ", ".join(drill.left)
        drill.fail("clean_up", "TopicError", f"couldn't remove {left}; the next drill tries again")


def _prepare(drill: _Drill, groups: ConsumerGroups) -> Scratch:
    """Remove leftovers, and create the scratch topics."""
    archive, cluster, plan = drill.archive, drill.cluster, drill.plan
    assert plan is not None
    remove_leftovers(archive, cluster, groups, drill.clock())
    for line in plan.lines():
        say(line)
    prefix = drill.request.prefix
    drill.topics = {topic: scratch_name(prefix, drill.name, topic) for topic in plan.partitions}
    refuse_drained(plan.snapshot, cluster.cluster_id(), drill.topics.values())
    known = noted_topic_settings(archive.root)
    started = DrillStarted(
        format_version=FORMAT_VERSION,
        drill=drill.name,
        started_at=drill.started_at.isoformat(timespec="milliseconds"),
        cluster_id=cluster.cluster_id(),
        run=run_key(drill_run(drill.name)),
        topics={},
    )
    scratch = Scratch(archive, cluster, started)
    try:
        # Any of them will do, as none exists.
        topic, name = next(iter(drill.topics.items()), ("", drill.name))
        shape = known.get(topic) or TopicSettings(1, 1)
        keeping = cluster.keeping_settings(name, shape)
        scratch.create(
            {
                drill.topics[topic]: scratch_settings(
                    known.get(topic), partitions, drill.request.topic_config, keeping
                )
                for topic, partitions in plan.partitions.items()
            }
        )
    except KafkaDrainError:
        # Of several topics, some may have been created.
        scratch.remove(groups, drill.clock())
        raise
    return scratch


def _restore(drill: _Drill, engine: RepublishEngine, began: float) -> None:
    """Republish the sample exactly once, and verify it."""
    assert drill.plan is not None
    sample = drill.plan.sample
    request = RepublishRequest(
        topics=tuple(drill.topics),
        rename=drill.topics,
        from_time=sample.from_time,
        to_time=sample.to_time,
        sealed_only=True,
        run_name=drill_run(drill.name),
        engine="worker",
    )
    republish = plan_republish(drill.archive, drill.cluster, request, now=drill.clock(), apply=True)
    drill.records = republish.plan.records
    if not drill.records:
        raise ArchiveError(f"{sample} has no records; nothing was restored")
    receipt = republish.execute(engine, drill.clock)
    drill.rto_seconds = round(time.monotonic() - began, 3)
    drill.verification = dict(receipt["verification"])


def _decode(drill: _Drill) -> None:
    """Read restored values back, and decode them with the archive's own schemas."""
    assert drill.plan is not None
    root = drill.archive.root
    changed = errors(check_schemas(root, {}, SEALS.newest(root), whole=False))
    if changed:
        drill.fail("decode", "SchemaError", f"{changed[0]}; {changed[0].reason.remedy_of(root)}")
        return
    decoding = _decoding_of(drill.plan.snapshot)
    if decoding is None:
        return
    cluster, limit = drill.cluster, drill.request.decoded
    wanted = [
        restored
        for source, restored in drill.topics.items()
        if decoding.topics is None or source in decoding.topics
    ]
    for topic in cluster.topics(wanted).values() if wanted else ():
        for partition in topic.partitions:
            left = limit
            span = OffsetRange(0, NO_END)
            tp = TopicPartition(topic.name, partition)
            for batch in cluster.records(tp, span, "read_committed"):
                few = batch.slice(0, left)
                headers = (
                    [(header["key"], header["value"]) for header in each or ()]
                    for each in few["headers"].to_pylist()
                )
                decoding.add(zip(few["value"].to_pylist(), headers, strict=True))
                left -= batch.num_rows
                if left <= 0:
                    break
    drill.decoding = decoding
    for source, ids in _not_judged(drill, decoding).items():
        say(
            f"drill {drill.name}: decoding not judged: the archive doesn't have schema "
            f"{', '.join(map(str, ids))}, which values of {source} seem to name, and neither did "
            "the registry: their bytes may only look like ids"
        )
    if decoding.not_json:
        text = (
            f"drill {drill.name}: {decoding.not_json:,} of {decoding.values:,} restored values "
            "aren't JSON: they were restored as they are archived"
        )
        say(Line(text, Level.WARNING))
    if decoding.problem:
        drill.fail("decode", "SchemaError", decoding.problem)


def _decoding_of(snapshot: Snapshot) -> Decoding | None:
    """Return the decoding of values; None if the archive knows no schema and no id."""
    generation = snapshot.open_generation
    values = generation.document.values if generation is not None else None
    registry = read_document(snapshot.root)
    schemas = read_schemas(snapshot.root)
    if values is not None and values["settings"]["encoding"] == "json":
        # Without a registry, there has never been a schema, and bytes only look like ids.
        named = Decoders(archived_schemas(registry, schemas))
        return Decoding(None, named=named if registry.url or schemas.schemas else None)
    decoding = by_schema_id(registry, schemas)
    known = values is not None or schemas.schemas or registry.subjects
    return decoding if known or decoding.topics or decoding.not_judged else None


def _not_judged(drill: _Drill, decoding: Decoding) -> dict[str, Sequence[SchemaId]]:
    """Return ids that the values of restored topics may name, at most a few of each topic."""
    return {
        topic: ids[:_NAMED] for topic, ids in decoding.not_judged.items() if topic in drill.topics
    }


def _result(drill: _Drill) -> DrillDocument:
    plan, newest = drill.plan, drill.plan.newest if drill.plan is not None else None
    started = _milliseconds(drill.started_at)
    result: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "drill": drill.name,
        "pipeline": drill.archive.snapshot().document.pipeline,
        "verdict": "failed" if drill.problems else "passed",
        "started_at": drill.started_at.isoformat(timespec="milliseconds"),
        "finished_at": drill.clock().isoformat(timespec="milliseconds"),
        "sample": _sample_row(plan.sample) if plan is not None else None,
        "cluster_id": _cluster_id(drill),
        "topics": drill.topics,
        "records": drill.records,
        "rto_seconds": drill.rto_seconds,
        "rpo_seconds": None if newest is None else round((started - newest) / 1000, 3),
        "newest_record": iso_of(newest),
        "drained_through": plan.drained_through if plan is not None else None,
        "verification": drill.verification,
        "decoded": _decoded_row(drill, drill.decoding) if drill.decoding is not None else None,
        "problems": [problem.content() for problem in drill.problems],
        "left": drill.left,
        "max_age_days": drill.request.max_age_days,
    }
    return DrillDocument.model_validate(result)


def _sample_row(sample: Sample) -> dict[str, Any]:
    return {
        "kind": sample.kind,
        "from_time": text_of(sample.from_time),
        "to_time": text_of(sample.to_time),
        "seed": sample.seed,
    }


def _decoded_row(drill: _Drill, decoding: Decoding) -> dict[str, Any]:
    unknown = decoding.unknown.union(*_not_judged(drill, decoding).values())
    return {
        "values": decoding.values,
        "decoded": decoding.decoded,
        "without_schema": decoding.without_schema,
        "unknown_schemas": sorted(id_ for id_ in unknown if isinstance(id_, int)),
        "undecodable": decoding.undecodable,
    }


def _cluster_id(drill: _Drill) -> str:
    """Return the cluster's id; empty if it isn't known, and asking may take long."""
    told = drill.cluster.named().get("cluster_id")
    if told is not None or any(problem.transient for problem in drill.problems):
        return told or ""
    try:
        return drill.cluster.cluster_id()
    except KafkaDrainError:
        # The reason why the drill failed.
        return ""
