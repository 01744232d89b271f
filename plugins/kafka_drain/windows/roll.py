"""Close a generation and open the next one at exact offsets."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ArchiveDocument
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_state import GenerationState, read_state
from kafka_drain.archive.incarnations import drained_before
from kafka_drain.archive.index import Query
from kafka_drain.archive.journal.entries import REMOVED, Noted
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.moved import moved_from
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration, SnapshotWindow
from kafka_drain.archive.soundness import check_sealed_state, restricted
from kafka_drain.archive.window import Window, range_rows
from kafka_drain.config.offset_ranges import NOTHING, Accepted
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.data_files.file_offsets import CommittedFile
from kafka_drain.drain.preflight import refuse_damage
from kafka_drain.errors import (
    ArchiveError,
    AuthorizationError,
    CheckpointError,
    ConfigError,
    DataLossError,
    LockedError,
    TopicError,
)
from kafka_drain.findings import errors
from kafka_drain.kafka.cluster import KafkaCluster, Topic
from kafka_drain.kafka.identity import next_incarnation, refuse_other_cluster
from kafka_drain.metadata_log.manifest import SinkFile
from kafka_drain.offsets import (
    OffsetRange,
    Offsets,
    TopicPartition,
    merge,
    to_spark_json,
    within,
    without,
)
from kafka_drain.outages import REPEAT_SECONDS
from kafka_drain.output import Level, Line, say
from kafka_drain.progress import duration_text
from kafka_drain.proof.committed_files import read_committed_files
from kafka_drain.proof.content_checks import Reread, SegmentFiles
from kafka_drain.proof.gap_explanation import same_topics
from kafka_drain.proof.log_tails import rewritten_logs
from kafka_drain.proof.offset_checks import held_ranges
from kafka_drain.proof.past_windows import findings_before_drain, past_windows
from kafka_drain.proof.replacement import judge_removed, refuse_unequal
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.topic_ids import read_from
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.storage.lease import Lease, hold_lease, wait_for_lease
from kafka_drain.storage.object_retention import locked_in
from kafka_drain.storage.paths import list_folder, quoted
from kafka_drain.windows.superseded_files import needed_files

#: Longest wait of maintenance for a drain and its validation to finish.
WAIT_SECONDS = 300.0


@dataclass(frozen=True)
class RollPlan:
    """The plan of a roll.

    Attributes:
        document: The content of `archive.json`.
        closed: The generation to close.
        reason: Rollover, topic recreated or deleted, archive moved, or damaged.
        starting_offsets: The next generation's starting offsets.
        unsealed: Number of committed files without a receipt; they stay, and readers skip them.
        left_out: Sealed ends of the partitions that the next generation doesn't drain.
        given_up: Offsets in the unsealed files that Kafka can no longer deliver, by partition.
        not_read: Those of partitions that are left out, which no drain reads again meanwhile.
        voided: Windows with offsets that the next generation drains again; they are removed.
        to_repair: Whether one of these also stands for sealed files, as those of earlier releases
            may.
        last_committed: The last batch of the generation to close that was committed by then.
    """

    archive: Archive
    document: ArchiveDocument
    closed: SnapshotGeneration
    reason: str
    starting_offsets: dict[TopicPartition, int]
    topic_ids: dict[str, str]
    unsealed: int
    left_out: dict[TopicPartition, int] = field(default_factory=dict)
    given_up: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)
    not_read: dict[TopicPartition, list[OffsetRange]] = field(default_factory=dict)
    voided: list[str] = field(default_factory=list)
    to_repair: bool = False
    last_committed: int = -1

    @property
    def discards(self) -> bool:
        """Whether it removes a window, or records that readers won't get again."""
        return bool(self.voided or self.given_up or self.not_read)

    def lines(self) -> list[str]:
        """Return the plan as lines of text for the user."""
        name = self.archive.root
        lines = [
            f"roll {name}: closes generation {self.closed.number} ({self.reason}), opens "
            f"generation {self.closed.number + 1} at "
            + ", ".join(f"{tp} {offset:,}" for tp, offset in sorted(self.starting_offsets.items()))
        ]
        if self.left_out:
            lines.append(
                f"roll {name}: stops draining "
                + ", ".join(f"{tp} {offset:,}" for tp, offset in sorted(self.left_out.items()))
                + "; everything drained so far stays sealed"
            )
        if self.unsealed:
            lines.append(
                Line(
                    f"roll {name}: WARNING {self.unsealed:,} files without a receipt stay where "
                    "they are, and readers skip them; the next drain reads again what Kafka still "
                    "holds of them",
                    Level.WARNING,
                )
            )
        if self.not_read:
            lines.append(
                Line(
                    f"roll {name}: WARNING of these, it doesn't read what is left out, and readers "
                    "won't get it until the pipeline names it again, if Kafka still has it then: "
                    f"{_ranges_text(self.not_read)}",
                    Level.WARNING,
                )
            )
        if self.given_up:
            lines.append(
                Line(
                    f"roll {name}: WARNING Kafka can no longer deliver, and readers won't get: "
                    f"{_ranges_text(self.given_up)}",
                    Level.WARNING,
                )
            )
        if self.voided:
            lines.append(
                f"roll {name}: removes window {', '.join(self.voided)}: the next drain reads its "
                "offsets again; a mirror that has sent it is refused from then on: start another "
                "one, into an empty topic"
            )
        if self.to_repair:
            lines.append(
                Line(
                    f"roll {name}: WARNING it also stands for sealed files, which no drain reads "
                    f"again: run `kafka-drain repair {quoted(name)} --apply` right after the roll",
                    Level.WARNING,
                )
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON types."""
        return {
            "archive": str(self.archive.root),
            "closed": self.closed.number,
            "opened": self.closed.number + 1,
            "reason": self.reason,
            "starting_offsets": to_spark_json(self.starting_offsets),
            "unsealed_files": self.unsealed,
            "left_out": to_spark_json(self.left_out),
            "given_up": range_rows(self.given_up),
            "not_read": range_rows(self.not_read),
            "voided": self.voided,
            "to_repair": self.to_repair,
        }


def _ranges_text(ranges: Mapping[TopicPartition, Sequence[OffsetRange]]) -> str:
    return "; ".join(f"{tp} {', '.join(map(str, rs))}" for tp, rs in sorted(ranges.items()))


def plan_roll(
    archive: Archive,
    cluster: KafkaCluster,
    leave_out: Collection[str] = (),
    *,
    leave_unsealed: bool = False,
    rewritten: bool = False,
    replaceable: Accepted = NOTHING,
) -> RollPlan:
    """Plan where the next generation starts, without changing anything.

    Args:
        cluster: The Kafka cluster that it was drained from.
        leave_out: Topics, or partitions as `topic:partition`, to stop draining; topics that no
            longer exist are left out in any case.
        leave_unsealed: Whether the user accepts that readers won't get unsealed files, even if
            Kafka can no longer deliver their records.
        rewritten: Whether to go on with the logs that were rewritten, as other incarnations of
            their topics.
        replaceable: Offsets at which the user accepts that Kafka's records replace those of a
            window that is removed.

    Raises:
        ConfigError: When the generation doesn't drain a topic or partition in `leave_out`, or
            `rewritten` is asked for and no log was.
        ArchiveError: When the folder is not an archive, has no generation, or belongs to another
            cluster.
        CheckpointError: When complete batches aren't sealed yet (validate first), or a sealed
            receipt is missing or changed.
        DataLossError: When unsealed files, or a window to remove, can't be drained again, or Kafka
            has fewer offsets than were drained, or other records than such a window, or than
            unsealed files.
        AuthorizationError: When describing a topic is not permitted.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    snapshot = archive.snapshot()
    if snapshot.open_generation is None:
        raise ArchiveError(f"{archive.root} has no generation yet; drain first")
    refuse_other_cluster(archive.root, snapshot.document.cluster_id, cluster.asked())
    # If the receipts end earlier than recorded, the newest may be lost.
    sealed = check_sealed_state(snapshot, windows=False, query=Query())
    refuse_damage(findings_before_drain(sealed, cluster), archive.root)
    snapshot = sealed.snapshot
    generation = snapshot.generations[-1]
    state = read_state(snapshot, generation)
    known = snapshot.topic_ids(generation)
    cluster = cluster.counting(known)
    ends = state.sealed_ends
    there = _existing(cluster, {tp.topic for tp in ends})
    earlier = _left_out_before(snapshot, generation, cluster, there, ends) if rewritten else {}
    unwanted = _named(leave_out, {**earlier, **ends})
    gone = {tp.topic for tp in ends}.difference(there)
    recreated = {name for name, topic in there.items() if topic.id != known.get(name)}
    left_out = {tp: n for tp, n in ends.items() if tp in unwanted or tp.topic in gone}
    same = {tp: offset for tp, offset in ends.items() if tp.topic in there.keys() - recreated}
    begins: dict[TopicPartition, int] = {}
    only_copies: dict[TopicPartition, list[OffsetRange]] = {}
    held = _held(snapshot, state)
    if rewritten:
        again = {tp: at for tp, at in earlier.items() if tp not in unwanted}
        begins = rewritten_logs(snapshot, cluster, {**again, **same})
        there = _existing(cluster, {tp.topic for tp in begins}) | there
        only_copies = _only_copies(snapshot, state, held, known, cluster)
        if not begins and not only_copies:
            raise ConfigError(
                f"no log of {archive.root} was rewritten, as far as Kafka can tell; roll without "
                "--rewritten"
            )
    others = {tp.topic for tp in begins}
    sealed_beside = {tp: at for tp, at in same.items() if tp.topic in others and tp not in begins}
    same = {tp: at for tp, at in same.items() if tp.topic not in others}
    there |= {name: replace(there[name], id=next_incarnation(there[name].id)) for name in others}
    first = cluster.earliest([*same, *sealed_beside])
    kept = {tp: at for tp, at in same.items() if tp not in unwanted}
    # Unsealed files may be the only copy of what a log that is left out has lost.
    _refuse_short(archive, cluster, same if state.new else kept)
    # Of a rewritten log, the next generation reads what was drained behind the difference again.
    lost = _together(given_up({**first, **begins}, held), only_copies)
    rest = {tp: without(held.get(tp, []), lost.get(tp, [])) for tp in unwanted}
    if not leave_unsealed:
        gone_parts = [tp for tp in ends if tp.topic in gone]
        never = recreated | others
        _check_unsealed(
            archive,
            state,
            same,
            first,
            gone_parts,
            never,
            is_rewritten=rewritten,
            only_copies=only_copies,
        )
    beside, voided = _beside(
        snapshot,
        cluster,
        state,
        kept,
        {tp: at for tp, at in sealed_beside.items() if tp not in unwanted},
        first,
        known,
    )
    starts = (
        same
        | beside
        | begins
        | cluster.earliest(
            TopicPartition(name, p) for name in recreated for p in there[name].partitions
        )
    )
    starts = {tp: offset for tp, offset in starts.items() if tp not in unwanted}
    for window in voided:
        _refuse_other_records(snapshot, window, known, cluster, replaceable)
    return RollPlan(
        archive=archive,
        document=snapshot.document,
        closed=generation,
        reason=_reason(state, recreated, gone, left_out, others),
        starting_offsets=starts,
        topic_ids={name: there[name].id for name in {tp.topic for tp in starts}},
        unsealed=len(state.new),
        left_out=left_out,
        given_up=lost,
        not_read={tp: ranges for tp, ranges in rest.items() if ranges},
        voided=[window.key for window in voided],
        to_repair=any(
            part.range.start < ends.get(part.tp, 0)
            for window in voided
            for part in window.receipt.partitions
        ),
        last_committed=state.last_committed,
    )


def _unsealed(snapshot: Snapshot, state: GenerationState) -> list[SinkFile]:
    """Return the unsealed files that no window replaces, from which readers get the records."""
    if not state.new:
        return []
    replaced, folder = snapshot.fold.replaced, state.generation.data_name
    return [file for file in state.new if f"{folder}/{file.path}" not in replaced]


def _held(
    snapshot: Snapshot, state: GenerationState
) -> Mapping[TopicPartition, Sequence[OffsetRange]]:
    """Return the offsets in the unsealed files of the generation to close."""
    unsealed, generation = _unsealed(snapshot, state), state.generation
    if not unsealed:
        return {}
    files, _ = read_committed_files(generation, unsealed, generation.document.format)
    return held_ranges(files)


def _beside(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    state: GenerationState,
    same: Offsets,
    sealed: Offsets,
    first: Offsets,
    topic_ids: Mapping[str, str],
) -> tuple[dict[TopicPartition, int], list[SnapshotWindow]]:
    """Return where partitions beside a rewritten log go on, and the windows to remove.

    They pass what windows hold, but nothing that is removed for another topic's sake. These windows
    stay, because they may hold records of a rewritten log as well.

    Args:
        sealed: The sealed ends of these partitions.
    """
    voided: list[SnapshotWindow] = []
    while True:
        kept = [w for w in restricted(snapshot, Query()).fold.windows if w not in voided]
        beside = {
            tp: past_windows(snapshot, kept, cluster, tp, at, topic_ids[tp.topic])
            for tp, at in sealed.items()
        }
        found = _drained_again(snapshot, state, {**same, **beside}, first, topic_ids)
        # It only grows: partitions start no later than in the round before.
        if found == voided:
            return beside, voided
        voided = found


def _drained_again(
    snapshot: Snapshot,
    state: GenerationState,
    starts: Offsets,
    first: Offsets,
    topic_ids: Mapping[str, str],
) -> list[SnapshotWindow]:
    """Return the windows with offsets that the generation hasn't sealed: repairs drained them.

    The next generation drains these offsets too, and readers would get them twice.

    Args:
        starts: Where it starts partitions whose logs are as they were.

    Raises:
        DataLossError: When Kafka no longer holds all of such a window.
    """
    voided = []
    # What the index names ends before each later generation begins.
    for window in restricted(snapshot, Query()).fold.windows:
        receipt = window.receipt
        fate = judge_window(
            [
                (part.range, starts.get(part.tp), first.get(part.tp, 0))
                if receipt.topics.get(part.tp.topic) == topic_ids.get(part.tp.topic)
                else (part.range, None, 0)
                for part in receipt.partitions
            ]
        )
        if fate == WindowFate.TORN:
            held = {part.tp for part in receipt.partitions}
            left = sorted(tp for tp in held if tp in first and tp not in starts)
            others = (
                f"are left out ({', '.join(map(str, left))})" if left else "Kafka no longer has"
            )
            way_out = ", or leave none of them out until they are sealed" if left else ""
            raise DataLossError(
                f"window {window.key} holds offsets that the next generation drains again, and "
                f"others that {others}: readers would get some twice, or lose some. "
                f"Restore checkpoint and manifest of {state.generation.folder} from a copy{way_out}"
            )
        if fate == WindowFate.GOES:
            voided.append(window)
    return voided


def _refuse_other_records(
    snapshot: Snapshot,
    window: SnapshotWindow,
    topic_ids: Mapping[str, str],
    cluster: KafkaCluster,
    accepted: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> None:
    """Refuse to remove a window unless Kafka still holds each of its records, as it was.

    Raises:
        DataLossError: Names the offsets.
    """
    live = snapshot.fold.live(window.receipt.files)
    if not live:
        return
    listed = [
        SinkFile(file.path.removeprefix(f"{window.data_name}/"), file.bytes, 0, 0, "receipt")
        for file in live
    ]
    written = window.plan.format
    _, reread, is_readable = _compared(snapshot, window, written, listed, topic_ids, cluster)
    found = judge_removed(
        [(c.tp, OffsetRange(c.first, c.last + 1)) for file in live for c in file.contents],
        reread,
        is_readable=is_readable,
    )
    refuse_unequal(window.key, found.but(accepted))


def _only_copies(
    snapshot: Snapshot,
    state: GenerationState,
    held: Mapping[TopicPartition, Sequence[OffsetRange]],
    topic_ids: Mapping[str, str],
    cluster: KafkaCluster,
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets in unsealed files whose records Kafka may no longer have, by partition.

    Of a damaged file, there is nothing to lose; one whose key is missing can be read later.
    """
    generation, files = state.generation, _unsealed(snapshot, state)
    written = generation.document.format
    read, reread, _ = _compared(snapshot, generation, written, files, topic_ids, cluster)
    if any(file.locked for file in read):
        return {tp: [*held.get(tp, ())] for tp in generation.starting_offsets}
    return may_lose(held, reread.changed, reread.missing)


def _compared(
    snapshot: Snapshot,
    owner: SnapshotGeneration | SnapshotWindow,
    file_format: str,
    listed: Sequence[SinkFile],
    topic_ids: Mapping[str, str],
    cluster: KafkaCluster,
) -> tuple[Sequence[CommittedFile], Reread, bool]:
    """Compare files with Kafka's records; return those that were read, and whether all were."""
    # Not at the top: hardly a roll compares files, and importing pyarrow takes a while.
    from kafka_drain.proof.rereading import compare_with_kafka

    document = snapshot.document
    files, damage = read_committed_files(owner, listed, file_format)
    open_ones = [file for file in files if not file.locked]
    reread = Reread()
    if open_ones:
        identity = Identity(document.pipeline, document.cluster_id, topic_ids)
        reread = compare_with_kafka(
            SegmentFiles(owner.root, file_format, open_ones),
            cluster,
            lambda names: same_topics(identity, names, cluster),
            document.isolation_level,
        )
    return files, reread, not damage and len(open_ones) == len(files)


def _existing(cluster: KafkaCluster, names: Collection[str]) -> dict[str, Topic]:
    """Describe the topics that exist."""
    try:
        return cluster.topics(names)
    except TopicError:
        described: dict[str, Topic] = {}
    # One by one: a topic that this user may not see doesn't count as deleted.
    for name in names:
        try:
            described |= cluster.topics([name])
        except TopicError:
            if cluster.has_topic(name):
                raise
    return described


def _left_out_before(
    snapshot: Snapshot,
    generation: SnapshotGeneration,
    cluster: KafkaCluster,
    there: Mapping[str, Topic],
    ends: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    """Return where partitions were drained to that the generation was rolled without.

    Where one is named again whose log was rewritten, a drain refuses it until a roll starts it.
    """
    topics = dict(there)
    for name in snapshot.topic_ids(generation).keys() - there.keys():
        # Of a topic that is no longer drained, permissions may be gone as well.
        with suppress(AuthorizationError):
            topics |= _existing(cluster, [name])
    partitions = [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]
    ids = {name: topic.id for name, topic in topics.items()}
    return drained_before(snapshot, generation, [tp for tp in partitions if tp not in ends], ids)


def _named(leave_out: Collection[str], ends: Collection[TopicPartition]) -> set[TopicPartition]:
    """Return the partitions given as `topic` or `topic:partition`."""
    found: set[TopicPartition] = set()
    for name in leave_out:
        named = {tp for tp in ends if name in (tp.topic, f"{tp.topic}:{tp.partition}")}
        if not named:
            raise ConfigError(
                f"{name} can't be left out: the generation drains "
                f"{', '.join(map(str, sorted(ends)))}; name one of these topics, or "
                "topic:partition"
            )
        found |= named
    return found


def _reason(
    state: GenerationState,
    recreated: set[str],
    gone: set[str],
    left_out: Collection[TopicPartition],
    rewritten: Collection[str],
) -> str:
    if rewritten:
        return f"log of {', '.join(sorted(rewritten))} was rewritten"
    if gone:
        return f"topic {', '.join(sorted(gone))} no longer exists"
    if recreated:
        return f"topic {', '.join(sorted(recreated))} was recreated"
    bad = errors(state.findings)
    if bad:
        return f"damaged: {bad[0].reason}"
    if left_out:
        return f"without {', '.join(map(str, sorted(left_out)))}"
    return "archive was moved" if moved_from(state) else "rollover"


def _check_unsealed(
    archive: Archive,
    state: GenerationState,
    ends: Offsets,
    first: Offsets,
    gone: Collection[TopicPartition],
    recreated: Collection[str],
    *,
    is_rewritten: bool,
    only_copies: Collection[TopicPartition],
) -> None:
    damaged = errors(state.findings)
    unsealed = state.last_committed > state.last_sealed
    seen = read_from(state.generation)
    last_read = seen.last_batch if seen else None
    anyway = (
        f"`kafka-drain roll {quoted(archive.root)} --leave-unsealed` excludes them from what "
        "readers get, and names what Kafka can no longer deliver"
    )
    if only_copies:
        raise DataLossError(
            f"{len(state.new):,} files without a receipt may be the only copy of records of "
            f"{', '.join(map(str, sorted(only_copies)))} that Kafka no longer has: run "
            f"`kafka-drain validate {quoted(archive.root)}` first, which seals them if they are "
            f"whole; otherwise, {anyway}"
        )
    is_never_sealed = is_rewritten or never_sealed(recreated, last_read, state.last_sealed)
    if unsealed and not damaged and not is_never_sealed:
        raise CheckpointError(
            f"{state.generation.folder} has batches after {state.last_sealed} without a receipt; "
            f"run `kafka-drain validate {quoted(archive.root)}` first, then roll. Validation names "
            f"the batches that it can't seal: {anyway}"
        )
    if state.new and gone:
        raise DataLossError(
            f"{len(state.new):,} files without a receipt may be the only copy of offsets after "
            f"the sealed end of {', '.join(map(str, sorted(gone)))}: the topic no longer exists. "
            f"Restore checkpoint or manifest from a copy; without one, {anyway}"
        )
    expired = [tp for tp in ends if first[tp] > ends[tp]]
    if state.new and expired:
        shown = ", ".join(f"{tp} [{ends[tp]}, {first[tp]})" for tp in sorted(expired))
        raise DataLossError(
            f"{len(state.new):,} files without a receipt may be the only copy of offsets that "
            f"Kafka no longer holds: {shown}. Restore checkpoint or manifest from a copy; without "
            f"one, {anyway}"
        )


def _refuse_short(archive: Archive, cluster: KafkaCluster, ends: Offsets) -> None:
    last = cluster.latest(ends, "read_uncommitted")
    short = [tp for tp in ends if last[tp] < ends[tp]]
    if short:
        shown = ", ".join(f"{tp} ends at {last[tp]}, sealed to {ends[tp]}" for tp in sorted(short))
        raise DataLossError(
            f"Kafka's log is shorter than what was drained: {shown}. Offsets from there on refer "
            "to other records now: what is there can be archived beside what was, by "
            f"`kafka-drain roll {quoted(archive.root)} --rewritten`"
        )


def roll(
    plan: RollPlan,
    *,
    lease: Lease | None = None,
    reason: str | None = None,
    file_format: str | None = None,
    partition_by: list[str] | None = None,
) -> Generation:
    """Open the next generation; the caller holds the archive's lease.

    Args:
        plan: The plan to carry out.
        lease: The archive's: while this process was suspended, a drain may have gone on.
        reason: The reason to note instead of the plan's.
        file_format: Format of the new generation's files; None keeps the closed generation's.
        partition_by: Partition columns of its folders; None keeps the closed generation's.

    Raises:
        LockedError: When the lease may be another process's by now; a retry may help.
    """
    document = plan.closed.document
    _refuse_kept(plan)
    if lease is not None:
        lease.confirm()
    if _has_sealed_more(plan):
        raise _sealed_more(plan)
    for key in plan.voided:
        _void(plan.archive, Window(plan.archive.root, key))
    opened = plan.archive.generation(plan.closed.number + 1)
    opened.write(
        starting_offsets=plan.starting_offsets,
        file_format=file_format or document.format,
        partition_by=document.partition_by if partition_by is None else partition_by,
        topic_ids=plan.topic_ids,
        reason=reason or plan.reason,
        values=document.values,
        is_new=True,
    )
    if lease is not None:
        _take_back_stale(plan, opened, lease)
    # Must come after the generation is written: if a roll is killed between the two, preflight
    # refuses to drain until the roll is run again.
    plan.archive.update_topics(plan.document, plan.topic_ids)
    say(f"roll {plan.archive.root}: generation {opened.number} is open")
    return opened


def _take_back_stale(plan: RollPlan, opened: Generation, lease: Lease) -> None:
    """Remove a generation that was just opened, if more was sealed or drained meanwhile.

    By a validation, which holds no lease, or after the lease was over: even between the last look
    at it and the write, this process may have been suspended.

    Raises:
        LockedError: When it was removed; a retry may help.
    """
    try:
        lease.confirm()
    except LockedError:
        with wait_for_lease(plan.archive.root, run="roll"):
            if not _has_sealed_more(plan) and not _has_drained_more(plan):
                return
            _take_back(opened)
        raise
    if _has_sealed_more(plan):
        _take_back(opened)
        raise _sealed_more(plan)


def _take_back(opened: Generation) -> None:
    # A drain refuses a generation that starts early; nothing is in it.
    if [*list_folder(opened.folder)] == ["generation.json"]:
        opened.folder.fs.rm(opened.folder.path, recursive=True)


def _has_sealed_more(plan: RollPlan) -> bool:
    """Return whether more of the closed generation was sealed since the plan was made."""
    closed = plan.archive.generation(plan.closed.number)
    return closed.receipt_names() != plan.closed.receipt_names()


def _has_drained_more(plan: RollPlan) -> bool:
    """Return whether drains have committed batches of the closed generation since the plan."""
    snapshot = plan.archive.snapshot()
    closed = next(each for each in snapshot.generations if each.number == plan.closed.number)
    return read_state(snapshot, closed).last_committed > plan.last_committed


def _sealed_more(plan: RollPlan) -> LockedError:
    return LockedError(
        f"{plan.closed.folder}: a validation has sealed more since this roll was planned; the "
        "generation stays open. A retry rolls from there"
    )


def run_roll(
    archive: Archive,
    cluster: KafkaCluster,
    leave_out: Collection[str] = (),
    *,
    leave_unsealed: bool = False,
    rewritten: bool = False,
    replaceable: Accepted = NOTHING,
    may_discard: bool = False,
    run: str,
) -> RollPlan:
    """Plan a roll and carry it out, while no drain is running.

    Args:
        cluster: The Kafka cluster that it was drained from.
        leave_out: As for `plan_roll`.
        leave_unsealed: As for `plan_roll`.
        rewritten: As for `plan_roll`.
        replaceable: As for `plan_roll`.
        may_discard: Whether it may remove windows and give up records; without it, such a roll is
            refused.
        run: Name of this run, for display.

    Returns:
        The plan that was carried out.

    Raises:
        ConfigError: When it would discard something and may not; nothing was changed.
        LockedError: When a drain holds the archive's lease; a retry may help.
        KafkaDrainError: As `plan_roll` does.
    """
    archive.require()  # no lease is written to any other folder
    with hold_lease(archive.root, run=run) as lease:
        plan = plan_roll(
            archive,
            cluster,
            leave_out,
            leave_unsealed=leave_unsealed,
            rewritten=rewritten,
            replaceable=replaceable,
        )
        for line in plan.lines():
            say(line)
        if plan.discards and not may_discard:
            raise ConfigError(
                f"this roll of {archive.root} removes a window or gives up records, as shown "
                "above; nothing was changed. Pass --apply to carry it out"
            )
        roll(plan, lease=lease)
    return plan


def _refuse_kept(plan: RollPlan) -> None:
    """Refuse to remove windows that the store locks, or that an unfinished republish still sends.

    Before anything is changed.
    """
    needed = needed_files(plan.archive) if plan.voided else {}
    for key in plan.voided:
        window = Window(plan.archive.root, key)
        _refuse_needed(plan.archive, window, needed, "Nothing was changed")
        locked = locked_in(window.folder)
        if locked.files:
            raise ArchiveError(
                f"{plan.archive.root}: window {key} can't be removed, as this roll would have to: "
                f"{locked}. Nothing was changed. Roll again then, or have somebody end the locks "
                "of its files who may"
            )


def _refuse_needed(
    archive: Archive, window: Window, needed: Mapping[str, Collection[str]], done: str
) -> None:
    """Refuse to remove a window that an unfinished republish still sends.

    Args:
        needed: The result of `needed_files`.
        done: What was changed so far.
    """
    paths = {file.path for file in window.read_receipt().files} if window.has_receipt() else set()
    if run := next((run for run, files in needed.items() if not paths.isdisjoint(files)), None):
        raise ArchiveError(
            f"{archive.root}: republish {run} still needs window {window.key}, which this roll "
            "would have to remove. Let it finish, or end it with "
            f"{RepublishRun(archive.root, run).abandoning}. {done}"
        )


def _void(archive: Archive, window: Window) -> None:
    """Remove a window whose offsets are drained again.

    If killed half way, its offsets count as lost: the next validation finds them, and a repair
    drains them.

    Raises:
        ArchiveError: When a republish has begun to send it meanwhile.
    """
    with wait_for_lease(archive.root / "windows", run="roll") as lease:
        # Again: this may have waited for minutes.
        _refuse_needed(archive, window, needed_files(archive), "No generation was opened")
        gone = {f"{window.name}/{name}": REMOVED for name in ("receipt.json", "plan.json")}
        note_sealed(archive.root, Noted(documents=gone))
        lease.confirm()
        (window.folder / "receipt.json").unlink(missing_ok=True)
        window.folder.fs.rm(window.folder.path, recursive=True)


def due_for_roll(snapshot: Snapshot, pipeline: Pipeline, now: datetime) -> str:
    """Return why the open generation should be closed; empty if it needn't be.

    Args:
        snapshot: The archive.
        pipeline: Its limits; a generation without files has no age.
    """
    generation = snapshot.open_generation
    receipt = generation.last_receipt() if generation else None
    lines = receipt.files_so_far.files if receipt else 0
    if generation is None or not lines:
        return ""
    if lines > (most := pipeline.max_manifest_lines):
        return f"its manifest has {lines:,} lines, max_manifest_lines is {most:,}"
    days = (now - datetime.fromisoformat(generation.document.opened_at)).days
    if days >= (most := pipeline.max_generation_days):
        return f"it was opened {days:,} days ago, max_generation_days is {most:,}"
    return ""


def refuse_discarding(plan: RollPlan) -> None:
    """Refuse a roll that removes a window or gives up records, which nobody was asked about.

    Raises:
        ConfigError: Says what it removes, and how somebody carries it out.
    """
    if plan.discards:
        raise ConfigError(
            f"{plan.lines()[-1]}. Nobody was asked about that: run `kafka-drain roll "
            f"{quoted(plan.archive.root)} --apply`"
        )


def roll_between_drains(
    archive: Archive, cluster: KafkaCluster, *, run: str, wait_seconds: float
) -> RollPlan | None:
    """Roll as soon as no drain is running and everything is sealed.

    Args:
        cluster: The Kafka cluster that it was drained from.
        run: Name of this run for display: Airflow's run id, or `terminal`.
        wait_seconds: Longest wait for a drain and its validation to finish.

    Returns:
        The plan that was carried out; None if drains left no opportunity: the next run rolls.

    Raises:
        KafkaDrainError: As `plan_roll` does.
    """
    deadline, said = time.monotonic() + wait_seconds, -math.inf
    while True:
        try:
            with hold_lease(archive.root, run=run) as lease:
                plan = plan_roll(archive, cluster)
                for line in plan.lines():
                    say(line)
                refuse_discarding(plan)
                roll(plan, lease=lease)
                return plan
        except (LockedError, CheckpointError) as error:
            now = time.monotonic()
            if now >= deadline:
                skipped = f"roll {archive.root}: WARNING skipped this time: {error}"
                say(Line(skipped, Level.WARNING))
                return None
            if now - said >= REPEAT_SECONDS:
                said = now
                left = duration_text(deadline - now)
                say(f"roll {archive.root}: waiting, for {left} at most: {error}")
        time.sleep(1)


def never_sealed(recreated: Collection[str], last_read: int | None, last_sealed: int) -> bool:
    """Return whether no validation will ever seal the open generation's remaining batches.

    That is the case when a topic was recreated and the batches may have been read from the new one.

    Args:
        recreated: Topics that were recreated after the generation was opened.
        last_read: The last batch after which a drain queried Kafka; None if there is none.
        last_sealed: The last batch that has a receipt.
    """
    return bool(recreated) and (last_read is None or last_read <= last_sealed)


def given_up(
    first: Offsets, held: Mapping[TopicPartition, Sequence[OffsetRange]]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets in a set of files that Kafka can no longer deliver.

    Args:
        first: The earliest offset in Kafka of each partition whose log is the one that was drained.
        held: The offsets in the files, sorted and disjoint.
    """
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for tp, ranges in held.items():
        for offsets in ranges:
            end = min(offsets.end, first.get(tp, offsets.end))
            if offsets.start < end:
                found.setdefault(tp, []).append(OffsetRange(offsets.start, end))
    return found


def may_lose(
    held: Mapping[TopicPartition, Sequence[OffsetRange]],
    changed: Mapping[TopicPartition, Sequence[OffsetRange]],
    missing: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets in a set of files whose records Kafka may no longer have, by partition.

    Args:
        held: The offsets in the files, sorted and disjoint.
        changed: Those from the first on at which Kafka has another record, and others between.
        missing: Those at which it has none.
    """
    lost = _together(changed, missing)
    return {
        tp: [part for each in ranges for part in within(held[tp], each)]
        for tp, ranges in lost.items()
    }


def _together(
    some: Mapping[TopicPartition, Sequence[OffsetRange]],
    others: Mapping[TopicPartition, Sequence[OffsetRange]],
) -> dict[TopicPartition, list[OffsetRange]]:
    both = {tp: merge([*some.get(tp, ()), *others.get(tp, ())]) for tp in {*some, *others}}
    return {tp: ranges for tp, ranges in both.items() if ranges}


class WindowFate(Enum):
    """The fate of a sealed window when the next generation drains."""

    #: The next generation drains none of its offsets.
    STAYS = auto()
    #: The next generation drains some of its offsets too, and Kafka still has all of them.
    GOES = auto()
    #: The next generation drains some of its offsets too, but Kafka no longer has all of them.
    TORN = auto()


def judge_window(parts: Iterable[tuple[OffsetRange, int | None, int]]) -> WindowFate:
    """Decide the fate of a window: a repair may have drained offsets that aren't sealed yet.

    Args:
        parts: For each range of the window: the range, the next generation's starting offset (None
            if it doesn't drain the partition), and the earliest offset in Kafka.
    """
    parts = list(parts)
    if not any(end is not None and held.end > max(end, first) for held, end, first in parts):
        return WindowFate.STAYS
    is_there = all(end is not None and held.start >= first for held, end, first in parts)
    return WindowFate.GOES if is_there else WindowFate.TORN
