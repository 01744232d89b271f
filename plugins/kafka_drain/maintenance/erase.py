"""Erase records on request: rewrite the files that hold them, and prove that all else is equal.

    roll       the open generation is closed if it holds such records
    accept     erasures/<number>.json: salted hashes of what is named, how far it reaches
    rewrite    as a compaction: without them, proven against the old receipts, sealed
    remove     the old files, after the new ones were compared with their receipts
    done       erasures/<number>.done.json: what it was carried out on

If killed anywhere, the next run with the same request, or of maintenance, finishes. What can be
refused is refused before a request is accepted, and one whose first run fails before it has sealed
anything is withdrawn: an erasure in force keeps its records from being republished.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.closed_segments import read_closed, together
from kafka_drain.archive.documents import (
    ErasureDocument,
    ErasureDoneDocument,
    ErasureLiftedDocument,
)
from kafka_drain.archive.erasure_withdrawal import finishing, unfinished_windows, ways_out
from kafka_drain.archive.erasures import Erasure, in_force, next_erasure, read_erasures
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.fold import WindowKind
from kafka_drain.archive.format import ERASED_VERSION
from kafka_drain.archive.generation import list_data_files
from kafka_drain.archive.generation_state import read_state
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.receipts import Receipt, ReceiptError
from kafka_drain.archive.segment_overlaps import drained_of
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.archive.soundness import note_of_erasures, refuse_unsound
from kafka_drain.clock import now_text
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    LockedError,
    ManifestInvalidError,
    PlanChangedError,
    TopicError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import refuse_other_cluster
from kafka_drain.maintenance.compact import refuse_locked, run_compaction
from kafka_drain.maintenance.compaction_plan import Compaction
from kafka_drain.maintenance.erasure_plan import left_over, plan_rewrites
from kafka_drain.maintenance.erasure_request import (
    SALT_BYTES,
    ErasureRequest,
    asks_the_same,
    scope_of,
)
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import Level, Line, say
from kafka_drain.proof.erased_records import FoundRecords, find_records, to_search
from kafka_drain.republish.planning.follow import followers, has_sent
from kafka_drain.republish.planning.runs import RepublishRun, list_runs
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.storage.immutability import Locked
from kafka_drain.storage.lease import Lease, hold_lease, wait_for_lease
from kafka_drain.storage.object_retention import StoreLocks, can_lock
from kafka_drain.storage.paths import is_local, quoted
from kafka_drain.storage.schemes import HDFS
from kafka_drain.windows.reprocess.refusals import abandoning
from kafka_drain.windows.reprocess.state import unfinished_reprocess
from kafka_drain.windows.roll import WAIT_SECONDS, roll_between_drains
from kafka_drain.windows.superseded_files import (
    badly_repaired,
    held_before,
    needed_files,
    remove_superseded,
    remove_unsealed,
    still_locked,
    unproven,
)

#: End of the note of a withdrawal by a run, rather than by a person.
_FAILED = ", which failed before it erased anything"


@dataclass(frozen=True)
class ErasurePlan:
    """The changes that erasures make to an archive.

    Attributes:
        erasures: The erasures in force.
        files: Number of files that were searched.
        found: The files with such records.
        rewrites: The windows that replace them and the other files of their segments.
        rolls: Whether the open generation is closed, because it holds such records.
        obstacles: Why nothing can be erased now; empty if there is none.
        copies: Copies of such records that this can't reach.
        searched: Last receipt that was searched, by generation; and the windows.
        locked: Of the files that are replaced, now or before, those that the store locks.
    """

    archive: Archive
    erasures: Sequence[Erasure]
    files: int
    found: Sequence[FoundRecords]
    rewrites: Sequence[Compaction]
    rolls: bool
    obstacles: Sequence[str]
    copies: Sequence[str]
    searched: tuple[Mapping[str, str], Sequence[str]] = field(default=({}, ()))
    locked: Locked = field(default_factory=Locked)

    @property
    def records(self) -> int:
        """The number of records to be erased."""
        return sum(found.number for found in self.found)

    def lines(self) -> list[str]:
        """Return the plan as lines of text for the user."""
        name, figures = f"erase {self.archive.root}", self.to_dict()
        lines = [
            f"{name}: {erasure}, asked for by {erasure.document.by}, names "
            f"{sum(f.records.get(erasure.number, 0) for f in self.found):,} records"
            for erasure in self.erasures
        ]
        if self.rolls:
            lines.append(f"{name}: closes the open generation, which holds some of them")
        lines.append(
            f"{name}: erases {self.records:,} records of {len(self.found):,} files; searched "
            f"{self.files:,} files"
        )
        if self.rewrites:
            lines.append(
                f"{name}: rewrites {figures['rewritten_files']:,} files, "
                f"{figures['rewritten_bytes']:,} bytes, in {len(self.rewrites):,} windows; the old "
                "files are deleted"
            )
        if self.locked.files:
            lines.append(Line(f"{name}: {incomplete(self.locked)}", Level.WARNING))
        lines += [f"{name}: doesn't reach {copy}" for copy in self.copies]
        lines += [Line(f"{name}: not now: {text}", Level.WARNING) for text in self.obstacles]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the plan's figures as JSON types."""
        return {
            "archive": str(self.archive.root),
            "erasures": [erasure.number for erasure in self.erasures],
            "searched_files": self.files,
            "files": len(self.found),
            "records": self.records,
            "bytes": sum(found.file.bytes for found in self.found),
            "rolls": self.rolls,
            "windows": len(self.rewrites),
            "rewritten_files": sum(len(each.files) for each in self.rewrites),
            "rewritten_bytes": sum(each.group.bytes for each in self.rewrites),
            **_figures_of(self.locked),
            "copies": list(self.copies),
            "obstacles": list(self.obstacles),
        }


def incomplete(locked: Locked) -> str:
    """Describe the rest of an erasure while the store locks old files."""
    return (
        f"isn't complete while the store keeps {locked}: no reader gets the erased records, but "
        "old files that may hold them lie there until then, and a later maintenance removes them. "
        "Only records that were encrypted can be forgotten earlier, by destroying their key"
    )


def _figures_of(locked: Locked) -> dict[str, Any]:
    return {"locked_files": locked.files, "locked_until": locked.ends_at}


def plan_erasure(
    pipeline: Pipeline, cluster: KafkaCluster, request: ErasureRequest | None
) -> ErasurePlan:
    """Plan an erasure, and the rest of those before it, without changing anything.

    Args:
        pipeline: The pipeline, with its archive.
        cluster: The Kafka cluster that it was drained from.
        request: The request; None for those made before.

    Raises:
        ConfigError: When the request names nothing, or nothing was asked for.
        ArchiveError: When the folder isn't an archive, or belongs to another pipeline or cluster.
        ManifestInvalidError: When something sealed is missing or changed, or can't be read.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    archive = Archive.at(pipeline.archive)
    archive.require()
    document = None
    if request is not None:
        document = erasure_document(archive, cluster, request, pipeline)
    return plan_document(pipeline, document)


def plan_document(pipeline: Pipeline, document: ErasureDocument | None) -> ErasurePlan:
    """Plan an erasure whose document was made already; arguments and errors as `plan_erasure`."""
    archive = Archive.at(pipeline.archive)
    archive.snapshot().refuse_other_pipeline(pipeline.name)
    erasures = _with_document(archive, document)
    return make_plan(archive, _required(erasures), pipeline.target_file_bytes)


def _required(erasures: Iterable[Erasure]) -> list[Erasure]:
    found = in_force(erasures)
    if not found:
        raise ConfigError(
            "no erasure is in force; name the records: --keys, --headers, --topic, --from-time or "
            "--to-time"
        )
    return found


def erasure_document(
    archive: Archive,
    cluster: KafkaCluster,
    request: ErasureRequest,
    pipeline: Pipeline | None = None,
) -> ErasureDocument:
    """Return the archive's document for a request; writes nothing.

    Args:
        pipeline: The pipeline, whose topics count too: a drain may not have read them yet.

    Raises:
        ConfigError: When the request names nothing.
        ArchiveError: When the archive belongs to another cluster.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    snapshot, erasures = archive.snapshot(), read_erasures(archive.root)
    known = _known_topics(snapshot)
    names = {topic for topic, _ in known} | _topics_of(pipeline, cluster)
    request.check(names)
    salt = bytes.fromhex(erasures[0].document.salt) if erasures else secrets.token_bytes(SALT_BYTES)
    # Of others, this user's permissions may be gone.
    asked = {name for name in names if not request.topics or name in request.topics}
    return request.document(salt, _scope(snapshot, cluster, known, asked), now_text())


def _topics_of(pipeline: Pipeline | None, cluster: KafkaCluster) -> set[str]:
    """Return the topics that the pipeline's next drain reads."""
    if pipeline is None:
        return set()
    if not pipeline.topic_pattern:
        return {*(pipeline.topics or pipeline.assign or ())}
    with suppress(TopicError):
        return {*cluster.matching(pipeline.topic_pattern)}
    return set()


def _with_document(archive: Archive, document: ErasureDocument | None) -> list[Erasure]:
    """Return the erasures; last the one that is asked for, unless it was accepted before."""
    erasures = read_erasures(archive.root)
    if document is None:
        return erasures
    for erasure in erasures:
        if erasure.lifted is not None and erasure.document.content() == document.content():
            if erasure.lifted.by.endswith(_FAILED):
                continue
            raise PlanChangedError(
                f"{erasure} was withdrawn by {erasure.lifted.by} after its plan was approved. "
                "Nothing was done; make a new plan"
            )
    if erasures and erasures[0].document.salt != document.salt:
        raise PlanChangedError(
            f"request {document.request} was planned before the archive's first erasure, "
            f"{erasures[0]}, was accepted: its hashes have another salt. Nothing was done; make a "
            "new plan"
        )
    before = next((e for e in in_force(erasures) if e.document.request == document.request), None)
    if before is None:
        return [*erasures, next_erasure(archive.root, document)]
    if not asks_the_same(before.document, document):
        by = before.document.by
        if asks_the_same(before.document, document.model_copy(update={"by": by})):
            raise ConfigError(
                f"{before} was asked for by {by}, not by {document.by}: give the same (--by), or "
                "nothing of the request. Nothing was changed"
            )
        raise ConfigError(
            f"request {document.request} was accepted before, for other records: {before}; use "
            "another id. Nothing was changed"
        )
    return erasures


def _known_topics(snapshot: Snapshot) -> set[tuple[str, str]]:
    known = set(snapshot.document.topics.items())
    for generation in snapshot.generations:
        known |= snapshot.topic_ids(generation).items()
    for receipt in snapshot.fold.receipts:
        known |= receipt.topics.items()
    return known


def _scope(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    known: Iterable[tuple[str, str]],
    asked: Iterable[str],
) -> Any:
    refuse_other_cluster(snapshot.root, snapshot.document.cluster_id, cluster.asked())
    cluster = cluster.counting(snapshot.topics_now)
    topics = cluster.topics(cluster.existing(asked))
    parts = [TopicPartition(t.name, p) for t in topics.values() for p in t.partitions]
    # Behind open transactions too: records that are there now are erased once they are drained.
    ends: dict[tuple[str, str], dict[int, int]] = {}
    for tp, end in cluster.latest(parts, "read_uncommitted").items():
        ends.setdefault((tp.topic, topics[tp.topic].id), {})[tp.partition] = end
    # A log that has lost its end since ends before some of its archived records.
    for topic_ids, archived in _archived_ends(snapshot):
        for tp, end in archived.items():
            of_topic = ends.get((tp.topic, topic_ids.get(tp.topic, "")))
            if of_topic is not None:
                of_topic[tp.partition] = max(end, of_topic.get(tp.partition, 0))
    return scope_of(list(known), ends)


def _archived_ends(
    snapshot: Snapshot,
) -> Iterator[tuple[Mapping[str, str], Mapping[TopicPartition, int]]]:
    """Yield the end offsets that each generation and window has, with the ids of their topics."""
    for generation in snapshot.generations:
        yield snapshot.topic_ids(generation), read_state(snapshot, generation).cursor
    for receipt in snapshot.fold.receipts:
        yield receipt.topics, receipt.ends


def make_plan(
    archive: Archive,
    erasures: Sequence[Erasure],
    target_bytes: int,
    *,
    closed_only: bool = False,
    seen: dict[str, FoundRecords | None] | None = None,
    locks: StoreLocks | None = None,
) -> ErasurePlan:
    """Search the files that erasures weren't carried out on, and plan the rewrites.

    Args:
        erasures: The erasures in force.
        target_bytes: Target size of a file.
        closed_only: Whether to leave the open generation's files alone.
        seen: Records in files that a plan for the same erasures has searched; added to.
        locks: The store's locks, if it was asked in this run already.

    Raises:
        ManifestInvalidError: When something sealed is missing or changed, or can't be read.
    """
    snapshot = refuse_unsound(archive.snapshot()).snapshot
    try:
        return _make_plan(
            archive,
            snapshot,
            erasures,
            target_bytes,
            closed_only,
            {} if seen is None else seen,
            locks or _locks(archive),
        )
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{archive.root}: a receipt is damaged ({error}); run `kafka-drain validate "
            f"{quoted(archive.root)}` to see which. Nothing was changed"
        ) from error


def _make_plan(
    archive: Archive,
    snapshot: Snapshot,
    erasures: Sequence[Erasure],
    target_bytes: int,
    closed_only: bool,
    seen: dict[str, FoundRecords | None],
    locks: StoreLocks,
) -> ErasurePlan:
    listed, newest = archive_files(snapshot), snapshot.open_generation
    of_open = [] if newest is None else _of_open(snapshot, newest, listed)
    opened = {file.path for file in of_open}
    files = [file for file in listed if not closed_only or file.path not in opened]
    wanted = to_search(snapshot, files, erasures)
    new = [(file, due) for file, due in wanted if file.path not in seen]
    seen.update(dict.fromkeys(file.path for file, _ in new))
    seen.update((each.file.path, each) for each in find_records(archive.root, new))
    found = {f.path: each for f, _ in wanted if (each := seen[f.path]) is not None}
    rolls = not opened.isdisjoint(found)
    closed = snapshot.generations if rolls else snapshot.generations[:-1]
    sent = followers(archive)

    def sent_by(receipt: Receipt) -> frozenset[str]:
        # A follower that is listed twice may have got as far as either says.
        return frozenset(
            f"{name} {number}"
            for number, (name, through) in enumerate(sent)
            if has_sent(through, receipt)
        )

    rewrites = [
        rewrite
        for segments in (together(read_closed(snapshot, closed), found) if found else ())
        for rewrite in plan_rewrites(segments, found, erasures, sent_by, target_bytes)
    ]
    left = left_over(found.values(), rewrites, opened)
    replaced = {path for rewrite in rewrites for path in rewrite.group.replaces}
    there = set(list_data_files(archive.root))
    left_out = {file.owner.name for file in of_open} if closed_only else set[str]()
    windows = [window.key for window in snapshot.fold.windows if window.name not in left_out]
    generations = {
        str(generation.number): names[-1]
        for generation in (snapshot.generations[:-1] if closed_only else snapshot.generations)
        if (names := generation.receipt_names())
    }
    return ErasurePlan(
        archive=archive,
        erasures=erasures,
        files=len(wanted),
        found=list(found.values()),
        rewrites=rewrites,
        rolls=rolls,
        obstacles=_obstacles(archive, replaced | there & snapshot.fold.gone, left),
        copies=_copies(archive, snapshot, listed, list(found.values()), there),
        searched=(generations, windows),
        locked=_old_files(archive, locks, replaced),
    )


def _old_files(archive: Archive, locks: StoreLocks, replaced: Collection[str] = ()) -> Locked:
    """Return files that held records of erasures and that the store keeps.

    Args:
        locks: The store's locks.
        replaced: Files that are about to be replaced.
    """
    if not can_lock(archive.root):
        return Locked()
    fold = archive.snapshot().fold
    erased = {p for w in fold.of_kind(WindowKind.ERASURE) for p in w.receipt.replaces}
    by_folder = {window.name: window.receipt.replaces for window in fold.windows}
    return still_locked(archive, locks, among=held_before({*erased, *replaced}, by_folder))


def _locks(archive: Archive) -> StoreLocks:
    return StoreLocks(archive.root, f"erase {archive.root}")


def _of_open(
    snapshot: Snapshot, generation: SnapshotGeneration, files: Iterable[ArchiveFile]
) -> list[ArchiveFile]:
    """Return the open generation's files, and those of repairs that stand for such files too.

    These can be rewritten once it is closed, like its own.
    """
    ids, newest = snapshot.topic_ids(generation), generation.last_receipt()
    starts = {(tp, ids.get(tp.topic, "")): at for tp, at in generation.starting_offsets.items()}
    if newest is not None:
        starts |= {key: drained.start for key, drained in drained_of(newest).items()}
    repairs = {window.name for window in snapshot.fold.of_kind(WindowKind.REPAIR)}

    def is_of_open(file: ArchiveFile) -> bool:
        if file.owner.name not in repairs:
            return file.owner.name == generation.name
        found = [
            (starts.get((content.tp, file.topic_ids.get(content.tp.topic, ""))), content.last)
            for content in (file.sealed.contents if file.sealed else ())
        ]
        return any(start is not None and start <= at for start, at in found)

    return [file for file in files if is_of_open(file)]


def _obstacles(archive: Archive, replaced: Collection[str], left: Sequence[str]) -> list[str]:
    """Return, in words, what has to be done first.

    Args:
        replaced: Files that are replaced, or were and are there: those that were kept for a
            republish may have the records too.
        left: Files that can't be rewritten by themselves.
    """
    found = []
    if unfinished_reprocess(archive) is not None:
        found.append(
            "a reprocess was started and hasn't finished; run that again first, or end it with "
            f"{abandoning(archive.root)}"
        )
    for run, needed in needed_files(archive).items() if replaced else ():
        if not needed.isdisjoint(replaced):
            found.append(
                f"republish {run} still needs some of the files; let it finish, or end it with "
                f"{RepublishRun(archive.root, run).abandoning}"
            )
    if left:
        found.append(
            f"{len(left):,} files, such as {left[0]}, can't be rewritten by themselves: a follower "
            "has sent only a part of their segments, or a repair's file reaches into others. Let "
            "followers run; for a repair's file, reprocess these segments first"
        )
    return found


def _copies(
    archive: Archive,
    snapshot: Snapshot,
    files: Sequence[ArchiveFile],
    found: Sequence[FoundRecords],
    there: AbstractSet[str],
) -> list[str]:
    """Return, in words, which copies of such records an erasure can't reach."""
    copies = [
        "Kafka: records that a topic still has stay there, until its own retention or compaction "
        "removes them",
        "backups and copies of the archive's folder, other archives of the same topics, and tables "
        "that were made of its records",
        "Iceberg: snapshots of a table that register_archive has made refer to the old files "
        "until the archive is registered again",
    ]
    if archive.root.protocol == HDFS:
        copies.append("snapshots of its folders on HDFS: delete those that have the old files")
    elif not is_local(archive.root):
        copies.append(
            "older versions of objects, if the bucket keeps versions: delete the noncurrent ones, "
            "or let a lifecycle rule expire them"
        )
    topics = {tp.topic for each in found for tp in each.ranges}
    targets, unknown = set[str](), list[str]()
    # Without a record, no run has sent one.
    for run in list_runs(archive.root) if topics else ():
        if not run.is_opened or run.is_of_drill:
            continue
        try:
            plan = run.plan()
        except ArchiveError:
            unknown.append(run.key)
            continue
        shards = plan.shards if plan is not None else ()
        targets |= {shard.target_topic for shard in shards if shard.source.topic in topics}
    if unknown:
        copies.append(
            f"whatever was sent by republish {', '.join(unknown)}, whose plan can't be read"
        )
    if targets:
        copies.append(f"topics that they were republished to: {', '.join(sorted(targets))}")
    old = there & snapshot.fold.gone
    # Maintenance, which compares these, has removed those that it could.
    kept = frozenset[str]().union(
        *badly_repaired(snapshot, old).values(), *(files for _, files in unproven(snapshot, old))
    )
    live = {file.path for file in files} | (snapshot.fold.gone - kept)
    others = sorted(there - live)
    if others:
        copies.append(
            f"{len(others):,} data files in the archive's folders that no reader gets, such as "
            f"{others[0]}: left by killed tasks, replaced by a repair, kept because a repair, or "
            "an earlier release's window, isn't proven to hold their records, or of a window that "
            "isn't sealed yet. They weren't searched; delete those that nothing is writing, and "
            "kept ones only if you don't need their other records"
        )
    return copies


def run_erasure(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    request: ErasureRequest | ErasureDocument | None,
    *,
    run: str,
    wait_seconds: float = WAIT_SECONDS,
) -> dict[str, Any]:
    """Accept an erasure and carry it out, with the rest of those before it.

    Args:
        pipeline: The pipeline, with its archive.
        cluster: The Kafka cluster that it was drained from.
        runner: Runs Spark applications.
        request: The request, or its `erasure_document`; None for those made before.
        run: Name of this run, for display.
        wait_seconds: Longest wait for a drain and its validation, to close its generation.

    Returns:
        windows: The windows that were sealed; erased: the number of records that were erased;
        locked_files, locked_until: of old files that the store keeps, the number and when the last
        is free: until a later maintenance has removed them, the erasure isn't complete.

    Raises:
        LockedError: When other maintenance is running, or drains leave no opportunity to close the
            generation; a retry may help.
        ArchiveError: When something has to be done first; says what.
        SparkJobError: When Spark failed; the next run starts again.
        ManifestInvalidError: When what is left differs from the old files' records; nothing of
            these files was changed.
        KafkaDrainError: As `plan_erasure` does.
    """
    archive = Archive.at(pipeline.archive)
    archive.require()
    with hold_lease(archive.root / "maintenance", run=run) as lease:
        # Before a number is given: that of a lost request must not be taken again.
        refuse_unsound(archive.snapshot()).snapshot.refuse_other_pipeline(pipeline.name)
        if isinstance(request, ErasureRequest):
            request = erasure_document(archive, cluster, request, pipeline)
        known = {erasure.number for erasure in read_erasures(archive.root)}
        erasures = _required(_with_document(archive, request))
        new = next((erasure for erasure in erasures if erasure.number not in known), None)
        target, seen = pipeline.target_file_bytes, dict[str, FoundRecords | None]()
        locks = _locks(archive)
        _finish_previous(archive, locks)
        plan = make_plan(archive, erasures, target, seen=seen, locks=locks)
        _refuse(plan, new)
        if plan.rolls:
            rolled = roll_between_drains(archive, cluster, run=run, wait_seconds=wait_seconds)
            if rolled is None:
                raise LockedError(
                    f"{archive.root}: the open generation holds records to be erased and couldn't "
                    "be closed, as said above; nothing of it was erased. A retry may help"
                )
        # Before anything is erased: a release that doesn't know erasures would bring it back.
        _shut_out_older_releases(archive, run=run, wait_seconds=wait_seconds)
        if new is not None:
            new.accept()
        with _withdrawn_if_failed(archive, new, lease, run=run):
            # From now on, it is found if one is lost or changed.
            note_sealed(archive.root, note_of_erasures(archive.root))
            # Again: from now on no republish begins that needs the old files.
            plan = make_plan(archive, erasures, target, seen=seen, locks=locks)
            if plan.rolls:
                # Drained since the roll, or while this waited: no file is rewritten to whose
                # generation drains still add.
                say(
                    f"erase {archive.root}: leaves records that were drained meanwhile to the next "
                    "maintenance after their generation is closed"
                )
                plan = make_plan(
                    archive, erasures, target, closed_only=True, seen=seen, locks=locks
                )
            _refuse(plan, None)
            for line in plan.lines():
                say(line)
            return carry_out(plan, pipeline, runner, locks, run=run)


@contextmanager
def _withdrawn_if_failed(
    archive: Archive, new: Erasure | None, lease: Lease | None, *, run: str
) -> Iterator[None]:
    """Withdraw the request that this run has accepted if it fails before it seals anything for it.

    Otherwise its records could be neither erased nor republished. What an earlier run has accepted
    stays in force. Either way it is said, and the error is raised.

    Args:
        new: The one that this run has accepted; None for none.
        lease: That of maintenance; once it is lost, others may carry the request out.
        run: Name of this run.
    """
    try:
        yield
    except Exception:
        try:
            snapshot = archive.snapshot()
            for erasure in in_force(read_erasures(archive.root)):
                begun = unfinished_windows(snapshot, erasure)
                is_new = new is not None and erasure.number == new.number
                if is_new and not begun and lease and not lease.lost.is_set():
                    _lift(archive, erasure, f"run {run}{_FAILED}")
                    text = "is withdrawn: it failed before it erased anything, and blocks nothing"
                elif is_new or begun or erasure.done is None:
                    text = f"stays in force. {ways_out(snapshot, erasure)}"
                else:
                    continue
                say(Line(f"erase {archive.root}: {erasure} {text}", Level.WARNING))
        except Exception as error:
            asked = f"{new} may be in force: it couldn't be withdrawn: {error}"
            say(Line(f"erase {archive.root}: {asked if new else error}", Level.WARNING))
        raise


def _shut_out_older_releases(archive: Archive, *, run: str, wait_seconds: float) -> None:
    """Raise the archive's format, so that releases without erasures refuse it.

    Raises:
        LockedError: When a drain, which may write archive.json too, holds the archive's lease;
            nothing was erased, and a retry may help.
    """
    if archive.snapshot().document.format_version < ERASED_VERSION:
        with wait_for_lease(archive.root, run=run, wait_seconds=wait_seconds):
            archive.raise_format(ERASED_VERSION)


def _finish_previous(archive: Archive, locks: StoreLocks) -> None:
    """Discard a killed run's unsealed windows, and remove the files that it left."""
    remove_unsealed(archive)
    remove_superseded(archive, locks)


def _refuse(plan: ErasurePlan, new: Erasure | None) -> None:
    if plan.obstacles:
        accepted = "Nothing was accepted, and nothing" if new is not None else "Nothing"
        raise ArchiveError(
            f"{plan.archive.root}: {'; '.join(plan.obstacles)}. {accepted} was erased"
        )


def carry_out(
    plan: ErasurePlan, pipeline: Pipeline, runner: SparkRunner, locks: StoreLocks, *, run: str
) -> dict[str, Any]:
    """Rewrite the files of a plan, remove the old ones, and note the search.

    The caller holds the maintenance lease.

    Returns:
        As `run_erasure` does.
    """
    archive = plan.archive
    # Before the first is sealed: an erasure that was carried out in part can't be withdrawn.
    for rewrite in plan.rewrites:
        refuse_locked(archive, rewrite)
    sealed = []
    for rewrite in plan.rewrites:
        receipt = run_compaction(archive, rewrite, pipeline, runner, run=run)
        sealed.append(receipt.window)
        say(
            f"erase {archive.root}: window {receipt.window} holds the other {receipt.records:,} "
            f"records of {len(rewrite.files):,} files"
        )
        # After each group: there may not be space for two copies of everything.
        remove_superseded(archive, locks)
    _note_done(plan, sealed)
    say(f"erase {archive.root}: erased {plan.records:,} records")
    locked = _old_files(archive, locks)
    if locked.files:
        say(Line(f"erase {archive.root}: {incomplete(locked)}", Level.WARNING))
    return {"windows": sealed, "erased": plan.records, **_figures_of(locked)}


def _note_done(plan: ErasurePlan, sealed: Sequence[str]) -> None:
    generations, windows = plan.searched
    own = plan.archive.snapshot().fold.of_kind(WindowKind.ERASURE)
    rows = {
        window.key: {row["erasure"]: row["records"] for row in window.plan.erasures or ()}
        for window in own
    }
    for erasure in plan.erasures:
        carried_out = {w.key: w.receipt.sha256 for w in own if erasure.number in rows[w.key]}
        before = erasure.done.generations if erasure.done else {}
        erasure.finish(
            ErasureDoneDocument(
                erasure=erasure.number,
                done_at=now_text(),
                records=sum(rows[key][erasure.number] for key in carried_out),
                windows=carried_out,
                generations={**before, **generations},
                searched=sorted({*windows, *sealed}),
            )
        )


def sweep(
    archive: Archive, pipeline: Pipeline, runner: SparkRunner, locks: StoreLocks, *, run: str
) -> list[str]:
    """Carry out erasures on closed segments that were sealed since; maintenance does it first.

    The caller holds the maintenance lease.

    Returns:
        The windows that were sealed.
    """
    known = read_erasures(archive.root)
    if known:
        try:
            _shut_out_older_releases(archive, run=run, wait_seconds=0)
        except LockedError as error:
            say(Line(f"erase {archive.root}: WARNING skipped this time: {error}", Level.WARNING))
            return []
    erasures = in_force(known)
    if not erasures:
        return []
    # A run that accepted one may have been killed before it noted it.
    note_sealed(archive.root, note_of_erasures(archive.root))
    target = pipeline.target_file_bytes
    plan = make_plan(archive, erasures, target, closed_only=True, locks=locks)
    if plan.obstacles and plan.found:
        for text in plan.obstacles:
            say(Line(f"erase {archive.root}: WARNING skipped this time: {text}", Level.WARNING))
        return []
    with _withdrawn_if_failed(archive, None, None, run=run):
        windows: list[str] = carry_out(plan, pipeline, runner, locks, run=run)["windows"]
    return windows


def liftable(archive: Archive, number: int) -> Erasure:
    """Return the erasure that is to be lifted; changes nothing.

    Raises:
        ConfigError: When there is no such erasure in force.
        ArchiveError: When it was carried out in part: what it has erased can't be brought back.
    """
    archive.require()
    found = [each for each in in_force(read_erasures(archive.root)) if each.number == number]
    if not found:
        raise ConfigError(f"{archive.root} has no erasure {number} in force")
    if begun := unfinished_windows(archive.snapshot(), found[0]):
        raise ArchiveError(
            f"{found[0]} was begun: {len(begun):,} of its windows are sealed, such as {begun[0]}, "
            f"and what they left out is gone. Finish it first, with {finishing(archive.root)}; "
            "after that it can be lifted. Nothing was changed"
        )
    return found[0]


def lift_erasure(archive: Archive, number: int, by: str, *, run: str) -> None:
    """Record that an erasure is no longer applied to other records; erased ones stay erased.

    One that has erased nothing yet is withdrawn by it.

    Raises:
        ConfigError: When there is no such erasure in force.
        ArchiveError: When it was carried out in part.
        LockedError: When maintenance is running; a retry may help.
    """
    archive.require()
    if not by.strip():
        raise ConfigError("lifting an erasure needs who asked: --by")
    with hold_lease(archive.root / "maintenance", run=run):
        erasure = liftable(archive, number)
        refuse_unsound(archive.snapshot())
        _lift(archive, erasure, by)
    say(
        f"erase {archive.root}: {erasure} is lifted; records that were erased stay erased, and "
        "aren't drained again"
    )


def _lift(archive: Archive, erasure: Erasure, by: str) -> None:
    erasure.lift(ErasureLiftedDocument(format_version=1, by=by, lifted_at=now_text()))
    note_sealed(archive.root, note_of_erasures(archive.root))
