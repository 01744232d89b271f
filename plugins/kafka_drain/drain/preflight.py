"""Check before a drain that its topics, archive and checkpoint are consistent, and plan it.

Changes nothing. Spark itself would accept most of what is refused here, and silently lose data.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.generation_state import GenerationState, read_state
from kafka_drain.archive.incarnations import drained_before
from kafka_drain.archive.index import Query
from kafka_drain.archive.moved import moved_from
from kafka_drain.archive.receipts import SealedTail
from kafka_drain.archive.snapshot import (
    RESTORE_DOCUMENT,
    SEALED_PARTS,
    Snapshot,
    SnapshotGeneration,
)
from kafka_drain.archive.soundness import check_sealed_state, restricted
from kafka_drain.archive.watermarks import Observations, expiry_warnings, read_observations
from kafka_drain.clock import Clock, utc_now
from kafka_drain.config.offset_ranges import NOTHING, Accepted
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.schedules import interval_seconds
from kafka_drain.drain.kafka_checks import (
    Classify,
    hidden_warnings,
    isolation_warnings,
    readable_offsets,
    refuse_expired,
    refuse_rewritten,
    refuse_truncated,
    refuse_unfinishable,
    retention_warnings,
    unread_files,
    way_past_batch,
)
from kafka_drain.drain.starting_offsets import resolve_starting_offsets
from kafka_drain.errors import ArchiveError, CheckpointError, KafkaUnavailableError, TopicError
from kafka_drain.findings import Finding, errors
from kafka_drain.kafka.acls import DRAINED
from kafka_drain.kafka.cluster import KafkaCluster, Topic
from kafka_drain.kafka.identity import (
    counted_as,
    is_other_cluster,
    is_other_topic,
    is_told,
    is_told_cluster,
    untold,
)
from kafka_drain.metadata_log.checkpoint import Checkpoint
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import (
    OffsetRange,
    Offsets,
    TopicPartition,
    count,
    ranges_between,
    to_spark_json,
)
from kafka_drain.output import Level, Line
from kafka_drain.proof.gap_probe import classify_gaps
from kafka_drain.proof.log_tails import archived_tails, unsealed_tails
from kafka_drain.proof.past_windows import findings_before_drain, past_windows
from kafka_drain.storage.immutability import weakened
from kafka_drain.storage.json_files import is_unfinished
from kafka_drain.storage.lease_store import NAME as LEASE
from kafka_drain.storage.object_retention import require_lockable
from kafka_drain.storage.paths import (
    is_local,
    is_of_volume,
    list_folder,
    quoted,
    require_reachable,
)


@dataclass(frozen=True)
class DrainPlan:
    """The plan of a drain.

    Attributes:
        snapshot: The archive's current state; None when this drain creates the archive.
        generation: The open generation; None when this drain opens the first one.
        cluster_id: The Kafka cluster's id.
        topics: The drained topics, by name.
        starting_offsets: The generation's starting offsets.
        start: The offsets from which this drain resumes.
        end: Its end offsets, if nothing more arrives.
        were_read: Offsets up to which drains before it have read, which may be after `start`.
        pending: Whether a batch was planned but not committed, so that Spark has to finish it.
        last_listed: The last batch whose files the manifest lists; None if there is none. If this
            batch is pending, Spark commits it without reading anything.
        has_unsealed: Whether the manifest lists files without a receipt.
        hidden: Number of offsets by partition that are behind an open transaction, so that
            read_committed can't read them yet.
        warnings: Warnings for the user.
        not_compared: Partitions and files whose newest records can't be compared with Kafka's, and
            why.
        skips_expired: Whether expired offsets were acknowledged, so that Spark may skip them.
        skipped: Offsets that haven't been drained and that Kafka no longer has.
    """

    pipeline: Pipeline
    archive: Archive
    snapshot: Snapshot | None
    generation: SnapshotGeneration | None
    cluster_id: str
    topics: dict[str, Topic]
    starting_offsets: dict[TopicPartition, int]
    start: dict[TopicPartition, int]
    end: dict[TopicPartition, int]
    were_read: dict[TopicPartition, int] = field(default_factory=dict)
    pending: bool = False
    last_listed: int | None = None
    has_unsealed: bool = False
    hidden: dict[TopicPartition, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    not_compared: list[str] = field(default_factory=list)
    skips_expired: bool = False
    skipped: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)

    @property
    def ranges(self) -> dict[TopicPartition, list[OffsetRange]]:
        """The offsets to drain of each partition."""
        return {tp: [drained] for tp, drained in ranges_between(self.start, self.end)}

    @property
    def offsets(self) -> int:
        """Number of offsets to drain."""
        return sum(count(parts) for parts in self.ranges.values())

    @property
    def nothing_new(self) -> bool:
        """Whether there is nothing for Spark to do."""
        return not self.offsets and not self.pending

    def lines(self) -> list[str]:
        """Return the plan as text lines."""
        generation = self.generation.number if self.generation else "1 (opened by this drain)"
        return [
            f"drain {self.pipeline.name}: {', '.join(sorted(self.topics))} ({len(self.end)} "
            f"partitions) to {self.archive.root}, generation {generation}",
            f"drain {self.pipeline.name}: {self.offsets:,} offsets to drain"
            if self.offsets
            else f"drain {self.pipeline.name}: nothing new; every offset is drained",
            *([self._begins] if self.snapshot is None else ()),
            *(
                Line(f"drain {self.pipeline.name}: WARNING {warning}", Level.WARNING)
                for warning in self.warnings
            ),
            *(f"drain {self.pipeline.name}: {line}" for line in self.not_compared),
        ]

    @property
    def _begins(self) -> Line:
        return Line(
            f"drain {self.pipeline.name}: a new archive begins at {self.archive.root}, which holds "
            "none; if it was drained before, check that its volume is mounted",
            Level.WARNING,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types, for an XCom or printed output."""
        return {
            "pipeline": self.pipeline.name,
            "archive": str(self.archive.root),
            "generation": self.generation.number if self.generation else None,
            "topics": sorted(self.topics),
            "offsets": self.offsets,
            "start": to_spark_json(self.start),
            "end": to_spark_json(self.end),
            "warnings": self.warnings,
            "not_compared": self.not_compared,
        }


def preflight(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    *,
    acknowledged: Accepted = NOTHING,
    clock: Clock = utc_now,
    classify: Classify = classify_gaps,
) -> DrainPlan:
    """Check that a drain can run, and return its plan.

    Args:
        pipeline: The pipeline to drain.
        cluster: The cluster to drain from.
        acknowledged: Expired offsets that are accepted as lost.
        clock: Returns the current time; replaced in tests.
        classify: Asks Kafka why an offset has no record; replaced in tests.

    Raises:
        TopicError: When a topic or partition is missing, or a topic was recreated.
        ArchiveError: When the archive's folder isn't an archive, belongs to another pipeline or
            cluster, or can't be written.
        CheckpointError: When checkpoint, manifest, receipts and generation contradict each other.
        DataLossError: When Kafka no longer holds offsets that haven't been drained yet, or has
            other records than the archive where that ends.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    archive = Archive.at(pipeline.archive)
    _check_folder(archive.root)
    if pipeline.immutable is not None:
        require_lockable(archive.root, pipeline.immutable)
    topics, partitions = find_partitions(pipeline, cluster)
    cluster_id = said = cluster.cluster_id()
    told = _ids(topics)
    snapshot, pending = None, False
    last_listed: int | None = None
    listed: Offsets = {}
    unsealed: dict[TopicPartition, SealedTail] = {}
    new: Sequence[SinkFile] = ()
    not_compared: list[str] = []
    unread: list[str] = []
    if archive.exists or archive.has_lost_document:
        snapshot = archive.snapshot()
        known = snapshot.topics_now
        topics = {
            name: replace(topic, id=counted_as(known.get(name), topic.id))
            for name, topic in topics.items()
        }
        check_identity(snapshot, pipeline, cluster_id, topics)
        # What the journal has of it stays true, even if Kafka has told none, or tells none now.
        said = cluster_id if is_told_cluster(snapshot.document.cluster_id) else ""
        cluster_id = snapshot.document.cluster_id
        sealed = check_sealed_state(snapshot, windows=False, query=Query())
        refuse_damage(findings_before_drain(sealed, cluster), archive.root)
        snapshot = sealed.snapshot
    else:
        _refuse_without_document(archive.root)
    generation = snapshot.open_generation if snapshot else None
    first = cluster.earliest(partitions)
    planned: Offsets = {}
    if snapshot is None or generation is None:
        starting_offsets = resolve_starting_offsets(
            pipeline.source_options, partitions, cluster, pipeline.isolation_level
        )
        start = starting_offsets
    else:
        _check_how_files_are_written(pipeline, generation)
        state = _check_state(snapshot, generation)
        checkpoint, last_listed = state.checkpoint, state.manifest.last_batch
        if new := state.new:
            unsealed, unread = unsealed_tails(generation, generation.document.format, new)
        pending = checkpoint.last_offsets != checkpoint.last_commit
        if last_listed is not None:
            listed = checkpoint.ends.get(last_listed, {})
        starting_offsets = dict(generation.starting_offsets)
        if checkpoint.last_offsets is None:
            # Nothing was drained yet: partitions added since then start at their beginning, or
            # resume where an earlier generation ended.
            added = [tp for tp in partitions if tp not in starting_offsets]
            starting_offsets |= {tp: first[tp] for tp in added}
            before = drained_before(snapshot, generation, added, _ids(topics))
            windows = restricted(snapshot, Query()).fold.windows if before else ()
            # When a partition was left out, repairs may have drained what wasn't sealed of it.
            starting_offsets |= {
                tp: past_windows(snapshot, windows, cluster, tp, at, topics[tp.topic].id)
                for tp, at in before.items()
            }
        start = _cursor(checkpoint, starting_offsets)
        _check_drained_topics(
            snapshot, generation, start, state.cursor, partitions, pipeline, topics
        )
        if pending and checkpoint.last_offsets is not None:
            planned = checkpoint.ends[checkpoint.last_offsets]
            _refuse_unnamed(snapshot, planned.keys() - start.keys(), partitions, pipeline)
            _refuse_without(snapshot, planned, start)
            if checkpoint.last_offsets == last_listed:
                # It isn't read again.
                planned = {}
    # Spark reads a partition that was added later from 0.
    start = {tp: start.get(tp, 0) for tp in partitions}
    # After all that says where it starts: a busy log ends ever later.
    end, hidden = readable_offsets(pipeline, cluster, partitions)
    refuse_truncated(archive.root, start, end, hidden)
    refuse_unfinishable(archive.root, planned, end, hidden)
    # Nothing is read again of a batch that the manifest lists.
    were_read = {tp: max(at, listed.get(tp, 0)) for tp, at in start.items()}
    warnings = refuse_expired(pipeline, were_read, first, acknowledged)
    if snapshot is not None:
        tails = archived_tails(snapshot, start)
        high = {tp: end[tp] + hidden.get(tp, 0) for tp in end}
        not_compared = refuse_rewritten(snapshot, cluster, tails, first, high, unsealed, new)
        not_compared += unread_files(snapshot.root, unread)
    locked_before = snapshot.document.immutability if snapshot else None
    warnings += filter(None, [weakened(locked_before, pipeline.immutable)])
    observed = read_observations(archive)
    warnings += [
        *untold(
            said, {n: told[n] if is_told(topic.id) else topic.id for n, topic in topics.items()}
        ),
        *hidden_warnings(hidden, end, observed, clock()),
        *isolation_warnings(pipeline, cluster, start, end, classify),
        *retention_warnings(pipeline, cluster, topics, clock()),
        *_expiring(pipeline, observed, first, end, clock()),
    ]
    return DrainPlan(
        pipeline=pipeline,
        archive=archive,
        snapshot=snapshot,
        generation=generation,
        cluster_id=cluster_id,
        topics=topics,
        starting_offsets=starting_offsets,
        start=start,
        end=end,
        were_read=were_read,
        pending=pending,
        last_listed=last_listed,
        has_unsealed=bool(new),
        hidden=hidden,
        warnings=warnings,
        not_compared=not_compared,
        skips_expired=bool(acknowledged),
        skipped={
            tp: [OffsetRange(at, first[tp])]
            for tp, at in were_read.items()
            if first.get(tp, 0) > at
        },
    )


def _expiring(
    pipeline: Pipeline,
    observed: Observations,
    first: dict[TopicPartition, int],
    end: dict[TopicPartition, int],
    now: datetime,
) -> list[str]:
    interval = interval_seconds(pipeline.schedule, now)
    if interval is None:
        return []
    return expiry_warnings(observed, first, end, interval, now.timestamp())


def _check_folder(root: UPath) -> None:
    require_reachable(root)
    if not is_local(root):
        return
    if root.exists() and not root.is_dir():
        raise ArchiveError(f"{root} is a file, not a folder; choose another archive")
    existing = root
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise ArchiveError(
            f"{root} can't be created: {existing} is a file, not a folder; choose another archive"
        )
    if not os.access(str(existing), os.W_OK | os.X_OK):
        command = "chown -R" if root.exists() else "install -d -o"
        raise ArchiveError(
            f"{root} can't be written: this user has no write permission for {existing}; give it "
            f"to this user (as root, `{command} {os.geteuid()} {quoted(root)}`), or choose another "
            "archive"
        )
    archive = Archive(root)
    if not root.exists() or archive.exists or archive.has_lost_document:
        return
    _refuse_without_document(root)
    # A first drain that was killed early leaves its lease, or a partial document.
    names = (entry.name for entry in root.iterdir() if not is_of_volume(entry.name))
    if any(name != LEASE and not is_unfinished(name) for name in names):
        raise ArchiveError(
            f"{root} isn't empty and isn't an archive (it has no archive.json); "
            "choose an empty or new folder"
        )


def find_partitions(
    pipeline: Pipeline, cluster: KafkaCluster
) -> tuple[dict[str, Topic], list[TopicPartition]]:
    """Return a pipeline's topics by name, and the partitions that it drains.

    Raises:
        TopicError: When a topic or partition is missing.
        AuthorizationError: When an ACL is missing.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    if pipeline.topic_pattern:
        names = cluster.matching(pipeline.topic_pattern)
    else:
        names = list(pipeline.topics or pipeline.assign or [])
    topics = cluster.topics(names, DRAINED)
    if not pipeline.assign:
        return topics, [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]
    wanted = [TopicPartition(name, p) for name, ps in pipeline.assign.items() for p in ps]
    missing = [str(tp) for tp in wanted if tp.partition not in topics[tp.topic].partitions]
    if missing:
        raise TopicError(
            f"assign names partitions that don't exist: {', '.join(missing)}; topics have "
            + ", ".join(f"{t.name}: {len(t.partitions)} partitions" for t in topics.values())
        )
    return topics, wanted


def check_identity(
    snapshot: Snapshot, pipeline: Pipeline, cluster_id: str, topics: dict[str, Topic]
) -> None:
    """Refuse an archive of another pipeline or cluster, or of topics that were recreated.

    Raises:
        ArchiveError: When it belongs to another pipeline or cluster.
        TopicError: When a topic was recreated after it was drained.
    """
    document, root = snapshot.document, snapshot.root
    snapshot.refuse_other_pipeline(pipeline.name)
    if is_other_cluster(document.cluster_id, cluster_id):
        raise ArchiveError(
            f"{root} was drained from Kafka cluster {document.cluster_id}, but the "
            f"connection {pipeline.kafka_conn_id!r} leads to cluster {cluster_id}, whose offsets "
            "refer to other records; correct the connection or choose another archive"
        )
    generation = snapshot.open_generation
    if generation is None:
        # A first drain was stopped before it read anything.
        return
    # Ignore topics that the generation was rolled without.
    counted = generation.document.topics
    for name, topic_id in document.topics.items():
        if counted and name not in counted:
            continue
        if name in topics and is_other_topic(topic_id, topics[name].id):
            raise TopicError(
                f"topic {name} was deleted and recreated after it was drained (topic id "
                f"{topics[name].id}, the archive has {topic_id}): its offsets start at 0 again, so "
                "Spark would skip its first records. What was drained is kept; run `kafka-drain "
                f"roll {quoted(root)}`: the next generation starts at the beginning of the new "
                "topic"
            )


def _check_how_files_are_written(pipeline: Pipeline, generation: SnapshotGeneration) -> None:
    document = generation.document
    seen = (document.format, document.partition_by)
    # If the first one was stopped before it read anything, the next writes generation.json again.
    if seen != (pipeline.format, pipeline.partition_by) and generation.has_begun:
        raise ArchiveError(
            f"{generation.folder} holds {seen[0]} partitioned by {seen[1]}, but the pipeline says "
            f"{pipeline.format} partitioned by {pipeline.partition_by}. Readers need the same "
            "layout throughout a generation; change the pipeline back, choose another archive, or "
            f"write this one anew (`kafka-drain reprocess {quoted(generation.root)}`)"
        )


def _check_state(snapshot: Snapshot, generation: SnapshotGeneration) -> GenerationState:
    state = read_state(snapshot, generation)
    refuse_damage(errors(state.findings), generation.root)
    written = moved_from(state)
    if written:
        place = quoted(generation.root)
        raise CheckpointError(
            f"{generation.root} was moved: Spark's manifest refers to {written}. Spark would keep "
            "listing files there, and Spark's own readers wouldn't find them. Validation, "
            f"republish and `kafka-drain files {place}` still work; to resume draining, run "
            f"`kafka-drain roll {place}`: the next generation starts here, where this one ends"
        )
    return state


def refuse_damage(findings: list[Finding], root: UPath) -> None:
    """Refuse to continue with a damaged archive.

    Raises:
        CheckpointError: When there are findings; lists the first five and what to do.
    """
    if not findings:
        return
    shown = "; ".join(str(finding) for finding in findings[:5])
    more = f" (and {len(findings) - 5} more)" if len(findings) > 5 else ""
    raise CheckpointError(
        f"{root}: {shown}{more}. That means: {findings[0].reason.meaning}. "
        f"What to do: {findings[0].reason.remedy_of(root)}"
    )


def _cursor(
    checkpoint: Checkpoint, starting_offsets: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if checkpoint.last_commit is None:
        return starting_offsets
    return checkpoint.ends.get(checkpoint.last_commit, starting_offsets)


def _ids(topics: Mapping[str, Topic]) -> dict[str, str]:
    return {name: topic.id for name, topic in topics.items()}


def _refuse_unnamed(
    snapshot: Snapshot,
    begun: Collection[TopicPartition],
    partitions: Collection[TopicPartition],
    pipeline: Pipeline,
) -> None:
    """Refuse to finish a batch of partitions that the pipeline doesn't name, or Kafka hasn't.

    Args:
        begun: The partitions of which the batch was to read the first offsets.

    Raises:
        CheckpointError: Names them, and the way on.
    """
    gone = sorted(set(begun) - set(partitions))
    _refuse_unlisted(gone, partitions, pipeline, way_past_batch(snapshot.root))
    if gone:
        raise CheckpointError(
            f"a drain was stopped in a batch that includes {', '.join(map(str, gone))}, which "
            f"pipeline {pipeline.name!r} no longer names, or Kafka no longer has; name it again, "
            f"or continue without it: {way_past_batch(snapshot.root)}"
        )


def _refuse_without(snapshot: Snapshot, planned: Offsets, start: Offsets) -> None:
    """Refuse to finish a batch that doesn't name a topic which Kafka didn't list for a while.

    Spark would fail in it, or read the topic from its beginning in the batch after it.

    Args:
        planned: The batch's end offsets; empty if they can't be read.
        start: The cursor.

    Raises:
        CheckpointError: Names the partitions, and the way on.
    """
    lacks = sorted(start.keys() - planned.keys()) if planned else []
    if lacks:
        raise CheckpointError(
            f"a drain was stopped in a batch that doesn't include {', '.join(map(str, lacks))}, "
            "which Kafka didn't list then, so Spark would fail, or read it from its beginning; "
            f"{way_past_batch(snapshot.root)}"
        )


def _check_drained_topics(
    snapshot: Snapshot,
    generation: SnapshotGeneration,
    start: dict[TopicPartition, int],
    drained: Offsets,
    partitions: list[TopicPartition],
    pipeline: Pipeline,
    topics: dict[str, Topic],
) -> None:
    gone = sorted(set(start) - set(partitions))
    way = f"continue with {_without(snapshot, gone, partitions)}"
    _refuse_unlisted(gone, partitions, pipeline, way)
    if gone:
        # A list of all topics leaves out those that the user may not describe.
        why = (
            ", or Kafka no longer lists to this user (it was deleted, or the ACL DESCRIBE is gone)"
        )
        raise CheckpointError(
            f"the checkpoint has drained {', '.join(map(str, gone))}, which pipeline "
            f"{pipeline.name!r} no longer names{why if pipeline.topic_pattern else ''}; name it "
            f"again, or continue without it: {_without(snapshot, gone, partitions)} (what was "
            "drained stays sealed)"
        )
    added = [tp for tp in partitions if tp not in start]
    # A topic that was away for a while: a batch of this generation doesn't name it.
    own = {tp: drained[tp] for tp in added if tp in drained}
    before = drained_before(snapshot, generation, added, _ids(topics)) | own
    if before:
        shown = ", ".join(f"{tp} to {offset}" for tp, offset in sorted(before.items()))
        raise CheckpointError(
            f"earlier generations or batches drained {shown}, but the checkpoint doesn't name "
            "them, so Spark would read them from their beginning; run "
            f"`kafka-drain roll {quoted(snapshot.root)}`: the next generation resumes where they "
            "ended"
        )


def _refuse_unlisted(
    gone: Sequence[TopicPartition],
    partitions: Collection[TopicPartition],
    pipeline: Pipeline,
    way: str,
) -> None:
    """Refuse to go on without a partition of a topic that Kafka lists otherwise.

    Args:
        way: How to go on if the partition is gone for good.

    Raises:
        KafkaUnavailableError: Names them.
    """
    listed = {tp.topic for tp in partitions}
    lacks = [tp for tp in gone if tp.topic in listed]
    if lacks and not pipeline.assign:
        raise KafkaUnavailableError(
            f"Kafka doesn't list {', '.join(map(str, lacks))} now, only other partitions of the "
            "topic. It never removes one, but a broker that has just started may not know each of "
            "them yet; try again. If it stays so, the topic was recreated with fewer partitions: "
            f"{way}"
        )


def _without(
    snapshot: Snapshot, gone: Sequence[TopicPartition], partitions: Collection[TopicPartition]
) -> str:
    """Return the command that continues without some partitions, or without their whole topics."""
    listed = {tp.topic for tp in partitions}
    left = dict.fromkeys(
        f"{tp.topic}:{tp.partition}" if tp.topic in listed else tp.topic for tp in gone
    )
    flags = " ".join(f"--leave-out {name}" for name in left)
    return f"`kafka-drain roll {quoted(snapshot.root)} {flags}`"


def _refuse_without_document(root: UPath) -> None:
    """Refuse an archive whose archive.json is lost, and its copy too.

    A first drain would go on with the checkpoint of its first generation.
    """
    if parts := SEALED_PARTS & list_folder(root).keys():
        raise ArchiveError(
            f"{root} has {', '.join(sorted(parts))} of an archive, but its archive.json is lost, "
            f"and so is the archive's own copy; {RESTORE_DOCUMENT}. Nothing was changed"
        )


def refuse_lost_archive(
    pipeline: str, root: str, *, is_there: bool, validated_at: datetime | None, is_meant: bool
) -> None:
    """Refuse to begin an archive where one was validated before: its volume may not be mounted.

    Args:
        pipeline: The pipeline's name.
        root: The archive's folder, a path or a URL.
        is_there: Whether it holds an archive.
        validated_at: When one was validated there, as is known outside of it; None for never, or
            if nobody knows.
        is_meant: Whether the user has asked for a new archive.

    Raises:
        ArchiveError: Says since when it is known, and what to check.
    """
    if is_there or is_meant or validated_at is None:
        return
    # Of a path: which volume it is on now.
    mounted = "" if "://" in root else f" (`findmnt -T {root}` shows which one is)"
    raise ArchiveError(
        f"{root} holds no archive, but Airflow knows that one was validated there, last at "
        f"{validated_at.astimezone(timezone.utc):%Y-%m-%d %H:%M:%S} UTC. A drain would begin a new "
        f"one, and archive what Kafka still holds a second time. Check that its volume is mounted"
        f"{mounted} and that nobody has moved or renamed it. If it is gone for good, run "
        f"drain_{pipeline} with new_archive on"
    )
