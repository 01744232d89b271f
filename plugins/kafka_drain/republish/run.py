"""A whole republish run: plan, open, send the shards, verify, write the receipt.

Every step can be killed and run again: the plan is written once, the progress is kept in Kafka, and
a run that has a receipt sends nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.erasures import read_erasures
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.fold import owner_of
from kafka_drain.archive.index import Query
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import refuse_unsound, restricted
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    KafkaDrainError,
    LockedError,
    SupersededError,
    TransientError,
    VerifyError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.topics import largest_batch
from kafka_drain.offsets import OffsetRange, TopicPartition, merge
from kafka_drain.output import Level, Line, level_of, say
from kafka_drain.progress import Progress
from kafka_drain.proof.erased_records import refuse_unerased
from kafka_drain.republish.changing.change import Change, schemas_of_rows
from kafka_drain.republish.changing.function import find_function
from kafka_drain.republish.changing.function_id import other_function
from kafka_drain.republish.changing.keys import read_key
from kafka_drain.republish.changing.masks import key_id
from kafka_drain.republish.changing.spec import ChangeSpec
from kafka_drain.republish.engines.worker_main import VerifyJob
from kafka_drain.republish.planning.binding import Binding, refuse_other_target, watch_targets
from kafka_drain.republish.planning.changes import Approved
from kafka_drain.republish.planning.documents import (
    ChangeReceiptJson,
    ChangeSpecJson,
    ReceiptJson,
    ThroughJson,
    VerificationJson,
)
from kafka_drain.republish.planning.follow import (
    NOTHING,
    follower_key,
    new_files,
    next_run,
    previous_binding,
    previous_change,
    previous_request,
    through_now,
    unsent_segments,
)
from kafka_drain.republish.planning.into_source import check_sources
from kafka_drain.republish.planning.openings import (
    Claim,
    claim_opening,
    has_opened,
    refuse_lost,
)
from kafka_drain.republish.planning.pace import refuse_unpaced
from kafka_drain.republish.planning.plan import (
    AT_LEAST_ONCE,
    EXACTLY_ONCE,
    UNOPENED,
    RepublishPlan,
    change_summary,
)
from kafka_drain.republish.planning.planner import make_plan
from kafka_drain.republish.planning.previous_runs import refuse_repeated, sent
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun, run_key
from kafka_drain.republish.planning.targets import remove_made
from kafka_drain.republish.sending.attempts import abort_shards, open_run
from kafka_drain.republish.sending.playback import Playback
from kafka_drain.republish.sending.progress_store import TIMEOUT_SECONDS, ProgressStore
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.republish.verifying.matching import PartitionMatch
from kafka_drain.republish.verifying.verify import summarize, verified_together
from kafka_drain.storage.lease import is_held
from kafka_drain.storage.paths import is_file

if TYPE_CHECKING:
    from kafka_drain.evidence.signing import Signer

RECEIPT_VERSION = 1

#: Files of a run that its receipt rests on.
_FILES = ("receipt.json", "offset-map.json")

#: Keys of the receipt that later runs need; they may be large, and their hash is signed.
_FOR_RUNS = ("sent", "through")


class RepublishEngine(Protocol):
    """Send and verify; see `engines.Engines`."""

    def __call__(
        self, plan: RepublishPlan, groups: list[list[SendJob]], tick: Callable[[], None]
    ) -> None:
        """Send groups of jobs, each group's jobs in sequence; Spark's sink uses only the plan."""

    def verify(
        self, plan: RepublishPlan, jobs: list[VerifyJob]
    ) -> dict[TopicPartition, PartitionMatch]:
        """Verify target partitions."""


def plan_republish(
    archive: Archive,
    cluster: KafkaCluster,
    request: RepublishRequest,
    *,
    now: datetime,
    apply: bool,
    approved: Approved | None = None,
    hash_key: bytes = b"",
) -> Republish:
    """Plan a run, or load the plan it started with. Writes nothing except missing target topics.

    Args:
        archive: The archive to read the files from.
        cluster: The cluster to send the records to.
        request: The requested republish.
        apply: Whether the run will be executed. Only then are missing topics created and the
            archive given an id.
        approved: The approved plan, unless the run has started with it already.
        hash_key: The key of pseudonyms, if the request names no file that has it.

    Raises:
        ConfigError: When the run was planned for a different request.
        KafkaDrainError: A subclass that names the problem; nothing was sent.
    """
    change = _asked_change(request, hash_key)
    snapshot = archive.snapshot()
    pipeline = snapshot.document.pipeline
    windows = _noted_windows(snapshot)
    name = request.name(pipeline)
    folder = RepublishRun(archive.state, run_key(name))
    since = NOTHING
    asked: Mapping[str, Any] | None = None
    bound = Binding()
    if request.follow:
        folder, since = next_run(archive, follower_key(name))
        asked = previous_request(archive, follower_key(name))
        bound = previous_binding(archive, follower_key(name), since)
    made: dict[str, str] = {}
    listed: list[ArchiveFile] = []
    plan, receipt = folder.plan(), folder.receipt()
    was_planned = plan is not None
    if folder.is_abandoned and receipt is None:
        raise ConfigError(
            f"run {folder.key} was abandoned and what it sent is unknown. Nothing was sent; name "
            "another run, and a target that this one didn't send to"
        )
    refuse_lost(folder, is_known=was_planned or receipt is not None)
    asked = plan.request if plan is not None else asked
    if asked is not None:
        # If a follower's request were widened now, the older records would never be sent.
        _refuse_other_request(folder.key, asked, request)
    before = previous_change(archive, follower_key(name)) if request.follow else None
    _refuse_other_change(folder.key, before if plan is None else plan.change, change)
    replaced = None
    if plan is not None and receipt is None:
        known = plan
        plan = _kept(
            archive, folder, known, cluster, now, creates=request.create_target, apply=apply
        )
        replaced = known if plan is None else None
    # Some of a follower's targets may be gone; the plan says whether this run needs them.
    here = bound.of_topics(cluster.existing(bound.topics.keys())) if bound.topics else bound
    if plan is not None:
        if request.pace and receipt is None:
            refuse_unpaced(plan)
        _refuse_other_archive(archive, plan)
        here = here.plus(Binding.of_plan(plan))
    if receipt is not None:
        here = here.plus(Binding.of_receipt(receipt))
    if here != Binding():
        said = "Nothing was sent" if receipt is not None else "Nothing more was sent"
        refuse_other_target(cluster, here, folder.key, said=said)
    if plan is None:
        through: ThroughJson | None = None
        files: Callable[[], list[ArchiveFile]] | None = None
        if request.follow:
            # A segment missed now would never be sent.
            snapshot = refuse_unsound(snapshot, query=unsent_segments(snapshot, since)).snapshot
            through = through_now(snapshot, since)
            files = partial(_noted, partial(new_files, snapshot, since, through), listed)
        if approved is not None:
            files = partial(_these_files, snapshot, approved.files, request)
        try:
            plan = make_plan(
                snapshot,
                cluster,
                request,
                run=name,
                now=now,
                key=folder.key,
                apply=apply,
                files=files,
                through=through,
                bound=bound,
                # A dry run writes nothing.
                identify=archive.identify if apply else (lambda: ""),
                accept=approved.accept if approved is not None else None,
                change=change,
                before_creation=folder.require_writable,
                made=made,
                state=archive.state,
            )
        except BaseException:
            remove_made(cluster, made)
            raise
    return Republish(
        archive,
        cluster,
        folder,
        plan,
        request,
        replaced,
        change=change,
        made=made,
        windows=windows,
        leaves_out=plan.through is not None and not plan.shards and (was_planned or bool(listed)),
    )


def _noted_windows(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of the windows that the journal has, which is read before any receipt.

    The folder of a window is there long before its receipt, after which files are removed.
    """
    noted = snapshot.journal.noted.documents
    return frozenset(
        key
        for key in snapshot.window_names
        if f"{snapshot.any_window(key).name}/receipt.json" in noted
    )


def _noted(find: Callable[[], list[ArchiveFile]], listed: list[ArchiveFile]) -> list[ArchiveFile]:
    """Return the files that are found, and note them."""
    found = find()
    listed += found
    return found


def _asked_change(request: RepublishRequest, hash_key: bytes) -> Change | None:
    """Return the requested change, with its function and key; None for none.

    Raises:
        ConfigError: When the function can't be imported, or the key is missing or too short.
    """
    wanted = request.wanted
    if not wanted:
        return None
    function = find_function(wanted.function) if wanted.function else None
    key = b""
    if wanted.hashed:
        key = read_key(request.hash_key_file) if request.hash_key_file else hash_key
        if not key:
            raise ConfigError(
                "hash needs the secret key of pseudonyms: name a file that has it "
                "(--hash-key-file), in Airflow also the pipeline's hash_key_conn_id"
            )
    spec = ChangeSpec(
        wanted, function.id if function is not None else None, key_id(key) if key else ""
    )
    return Change(spec, key=key, folder=function.folder if function is not None else "")


def _refuse_other_change(run: str, planned: ChangeSpecJson | None, change: Change | None) -> None:
    """Refuse another function or key than the one that a run, or a follower, started with.

    Raises:
        ConfigError: Says what differs.
    """
    if planned is None or change is None:
        # The requests differ, which is refused as such.
        return
    spec = ChangeSpec.from_dict(planned)
    if spec.function is not None and spec.function != change.spec.function:
        assert change.spec.function is not None
        raise ConfigError(f"run {run}: {other_function(spec.function, change.spec.function)}")
    if spec.key_id != change.spec.key_id:
        raise ConfigError(
            f"run {run} started with another key of pseudonyms, id {spec.key_id}, here is "
            f"{change.spec.key_id}: the same content would get two pseudonyms. Give that key, or "
            "start a new run into an empty topic"
        )


def _other_results(plan: RepublishPlan, sources: Collection[TopicPartition]) -> str:
    assert plan.change is not None
    function = plan.change["function"]
    what = "the change" if function is None else f"{function['name']}"
    more = f" and {len(sources) - 5:,} more" if len(sources) > 5 else ""
    return (
        f"run {plan.key}: {what} made something else of the records of "
        f"{', '.join(map(str, sorted(sources)[:5]))}{more} than when it was planned, so it isn't a "
        "function of each record alone. No receipt was written. Correct the function, and start a "
        "new run into an empty topic"
    )


def _these_files(
    snapshot: Snapshot, paths: Collection[str], request: RepublishRequest
) -> list[ArchiveFile]:
    chosen = request.selection
    listed = archive_files(snapshot, chosen.times, chosen.asked_offsets)
    return [file for file in listed if file.path in paths]


def _refuse_other_request(run: str, asked: Mapping[str, Any], request: RepublishRequest) -> None:
    if not request.matches_request(asked):
        raise ConfigError(
            f"run {run} started with {dict(asked)}, this request is {request.to_dict()}; use the "
            "same request to resume it, or name another run"
        )


def _kept(
    archive: Archive,
    run: RepublishRun,
    plan: RepublishPlan,
    cluster: KafkaCluster,
    now: datetime,
    *,
    creates: bool,
    apply: bool,
) -> RepublishPlan | None:
    """Return the plan of a run that hasn't ended; None if it is to be planned again.

    Args:
        creates: Whether missing targets are created.
        apply: Whether the run will be executed, so that its folder may be written to.
    """
    name = f"republish {plan.pipeline}: run {run.key} never started"
    if has_opened(run):
        if apply and not run.is_opened:
            run.mark_opened(plan)
    elif _is_outdated(archive, plan, now):
        say(f"{name}; planning it again")
        return None
    elif creates and _has_lost_targets(plan, cluster):
        say(f"{name}, and its target is gone")
        return None
    return plan


def _is_outdated(archive: Archive, plan: RepublishPlan, now: datetime) -> bool:
    """Return whether to replan a run that never opened: maintenance may have removed its files.

    Where records were erased, files that were rewritten may still have them. While maintenance
    runs, it may be removing them. A mirror that sends some of the files which a window replaces
    can't send the others.
    """
    if plan.is_older(UNOPENED, now) or _gone_file(archive, plan) is not None:
        return True
    if _rewritten_for_mirror(archive.snapshot(), plan):
        return True
    may_go = read_erasures(archive.root) or _is_removing(archive)
    return bool(may_go and _files_of(archive.snapshot(), plan)[1])


def _is_removing(archive: Archive) -> bool:
    """Return whether somebody may be removing files that windows have replaced."""
    # A backfill with force removes windows while it holds the lease of `windows`.
    return is_held(archive.root / "maintenance") or is_held(archive.root / "windows")


def _has_lost_targets(plan: RepublishPlan, cluster: KafkaCluster) -> bool:
    """Return whether a run that never opened made topics that were removed when it failed."""
    ids = {target.topic: target.id for target in plan.targets}
    there = cluster.ids_of(ids)
    return not there.keys() >= ids.keys()


def _gone_file(archive: Archive, plan: RepublishPlan) -> str | None:
    """Return a file of a plan that is no longer there; None if all are."""
    paths = sorted({file.path for shard in plan.shards for file in shard.files})
    return next((path for path in paths if not is_file(archive.root / path)), None)


def _files_of(snapshot: Snapshot, plan: RepublishPlan) -> tuple[list[ArchiveFile], set[str]]:
    """Return the files of a plan that readers get, and the paths of those that they don't get."""
    paths, offsets = set[str](), dict[TopicPartition, list[OffsetRange]]()
    for shard in plan.shards:
        for file in shard.files:
            paths.add(file.path)
            offsets.setdefault(shard.source, []).append(OffsetRange(file.first, file.last + 1))
    if not paths:
        return [], paths
    asked = {tp: merge(ranges) for tp, ranges in offsets.items()}
    files = [file for file in archive_files(snapshot, offsets=asked) if file.path in paths]
    return files, paths.difference(file.path for file in files)


def _rewritten_for_mirror(snapshot: Snapshot, plan: RepublishPlan) -> frozenset[str]:
    """Return the paths of a mirror's files that windows have replaced; none of another run's.

    They may still lie there, where a store locks them. Of files that a window replaces together, a
    mirror sends all or none.
    """
    if plan.through is None:
        return frozenset()
    paths = frozenset(file.path for shard in plan.shards for file in shard.files)
    asked = Query(names=frozenset(map(owner_of, paths)))
    # A damaged window is refused where a run is planned.
    return paths & restricted(snapshot, asked).readable_fold.replaced


def _refuse_other_archive(archive: Archive, plan: RepublishPlan) -> None:
    known = archive.identity()
    if plan.archive_id and known != plan.archive_id:
        raise ArchiveError(
            f"run {plan.key} belongs to the archive with id {plan.archive_id}, but {archive.root} "
            f"has id {known or 'none'}; restore its identity.json from a copy, or name another "
            "run. Nothing more was sent"
        )


@dataclass
class Republish:
    """One republish run: its plan and the remaining steps.

    Attributes:
        archive: The archive to read the files from.
        cluster: The cluster to send the records to.
        run: The run's folder.
        request: The requested republish.
        replaced: The plan that this one replaces because its run never opened.
        attempt: This attempt's number; 0 before it has started.
        change: The drops and changes, with the function and the key; None for none.
        made: The ids of the topics that were created for this run.
        windows: Names of the archive's sealed windows when the run was planned.
        leaves_out: Whether it is a follower's, and none of the new records is to be sent: it is
            done with them.
    """

    archive: Archive
    cluster: KafkaCluster
    run: RepublishRun
    plan: RepublishPlan
    request: RepublishRequest
    replaced: RepublishPlan | None = None
    attempt: int = 0
    change: Change | None = None
    made: Mapping[str, str] = field(default_factory=dict)
    windows: frozenset[str] = frozenset()
    leaves_out: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        """Librdkafka settings for the target cluster."""
        return self.cluster.config.for_librdkafka()

    def execute(self, engine: RepublishEngine, clock: Callable[[], datetime]) -> dict[str, Any]:
        """Send the rest, verify it, and write the receipt.

        Args:
            engine: Sends groups of jobs, or the whole plan through Spark's own sink.
            clock: Returns the current time.

        Returns:
            The receipt, plus `records_sent`: the number of records this attempt sent.

        Raises:
            ConfigError: When another run has started to send the same records since this one was
                planned.
            VerifyError: When the target doesn't hold the records it should; says what is wrong.
            KafkaDrainError: A subclass that names the problem. After a transient one, a retry
                resumes where this attempt stopped.
        """
        try:
            return self._execute(engine, clock)
        except BaseException:
            self._remove_made()
            raise

    def _check_files(self, plan: RepublishPlan) -> None:
        """Refuse a plan whose files were rewritten and removed before it was written.

        From then on, they stay until the run has ended; and once it has opened, it keeps its plan.
        An erasure that is accepted from then on finds the plan, and waits; one before is found
        here.

        Raises:
            LockedError: When one of them is gone, or may have had records that were erased.
            ArchiveError: When they have records that are to be erased.
        """
        if self.run.is_opened:
            return
        snapshot = self.archive.snapshot()
        if read_erasures(self.archive.root):
            files, rewritten = _files_of(snapshot, plan)
            if rewritten:
                raise LockedError(
                    f"{min(rewritten)} was rewritten while run {plan.key} was planned, and its "
                    "records may have been erased. Nothing was sent; a retry plans it again"
                )
            refuse_unerased(snapshot, files)
        if snapshot.window_names == self.windows:
            return
        # Before the files are looked for: what is removing some now may have begun before the plan
        # was there, and what begins from now on finds it.
        if _is_removing(self.archive) and (rewritten := _files_of(snapshot, plan)[1]):
            raise LockedError(
                f"{min(rewritten)} was rewritten while run {plan.key} was planned, and maintenance "
                "may be removing it now. Nothing was sent; a retry plans it again"
            )
        if of_mirror := _rewritten_for_mirror(snapshot, plan):
            raise LockedError(
                f"{min(of_mirror)} was rewritten while run {plan.key} was planned, maybe with "
                "others that the mirror hasn't planned to send. Nothing was sent; a retry plans it "
                "again"
            )
        gone = _gone_file(self.archive, plan)
        if gone is not None:
            raise LockedError(
                f"{gone} was rewritten or deleted while run {plan.key} was planned. Nothing was "
                "sent; a retry plans it again"
            )

    def _remove_made(self) -> None:
        """Remove the topics that were created for a run which then didn't open."""
        if not self.made:
            return
        try:
            if self.run.is_opened:
                # Its progress is bound to them: the next attempt goes on there.
                return
        except (KafkaDrainError, OSError) as error:
            self._tell(f"its new topics are left, as {self.run.folder} can't be read: {error}")
            return
        remove_made(self.cluster, self.made)

    def _execute(self, engine: RepublishEngine, clock: Callable[[], datetime]) -> dict[str, Any]:
        receipt = self.run.receipt()
        if receipt is not None:
            bound = Binding.of_receipt(receipt)
            refuse_other_target(self.cluster, bound, self.run.key, said="Nothing was sent")
            self._tell(f"already sent and verified at {receipt['finished_at']}; nothing was sent")
            return {**receipt, "records_sent": 0}
        if not self.plan.shards:
            level = Level.PLAIN if self.request.follow else Level.WARNING
            self._tell(Line("no records are selected, nothing was sent", level))
            if not self.leaves_out:
                # No receipt: records that are drained and sealed later can still be sent.
                return self.plan.summary() | {"records_sent": 0}
        plan = self.run.write_plan(self.plan, replacing=self.replaced)
        # Another process may have planned the same run at the same moment.
        _refuse_other_request(self.run.key, plan.request, self.request)
        _refuse_other_change(self.run.key, plan.change, self.change)
        if not plan.shards:
            # A follower would come to these records again and again, and not get past a window
            # that has them beside others which it has sent.
            verification, offset_map = summarize(plan, {})
            self.run.mark_opened(plan)
            self.run.write_offset_map(offset_map.to_bytes())
            return {**self._seal(plan, clock, 0, 0.0, verification.to_dict()), "records_sent": 0}
        self._check_targets(plan)
        self._check_files(plan)
        self._refuse_abandoned()
        claim = None if self.run.is_opened else self._claim(plan)
        began = time.monotonic()
        attempt, before = 1, 0
        if plan.delivery == EXACTLY_ONCE:
            self.attempt = attempt = open_run(plan, self.run, self.settings, claim)
            before = self.progress(plan)
            if before:
                self._tell(f"attempt {attempt} resumes after {before:,} records")
            self._send(plan, engine, attempt, before)
        else:
            if self.run.is_opened:
                again = "WARNING an earlier attempt started to send; everything is sent again"
                self._tell(Line(again, Level.WARNING))
            if claim is not None:
                claim.confirm()
            self.run.mark_opened(plan)
            engine(plan, [], lambda: None)
        seconds = time.monotonic() - began
        # Verify before writing the receipt: until then a retry sends nothing and verifies again.
        self._check_targets(plan)
        root, state = str(self.archive.root), str(self.archive.state)
        change = self._change_of(plan)
        jobs = [
            VerifyJob(root, state, plan.key, tps, self.settings, change)
            for tps in verified_together(plan)
        ]
        matches = engine.verify(plan, jobs)
        verification, offset_map = summarize(plan, matches)
        for line in verification.lines():
            self._tell(line)
        if verification.change is not None and verification.change.others:
            raise VerifyError(_other_results(plan, verification.change.others))
        if not verification.gets_receipt(plan.delivery):
            raise VerifyError(
                f"run {plan.key}: the target doesn't hold every sent record once and in order: "
                f"lost {verification.lost:,}, duplicated {verification.duplicates:,}, out of order "
                f"{verification.out_of_order:,}. No receipt was written. Check what else writes to "
                "the target or deletes from it, and restore into an empty topic"
            )
        self._refuse_abandoned()
        self.run.write_offset_map(offset_map.to_bytes())
        receipt = self._seal(plan, clock, attempt, seconds, verification.to_dict())
        return {**receipt, "records_sent": plan.records - before}

    def abort(self) -> None:
        """Abort the open transactions of this attempt, which was stopped; report if that fails.

        The transactions of a later attempt are left alone.
        """
        plan = self.run.plan()
        if plan is None or not self.attempt or self.run.receipt() is not None:
            return
        try:
            fenced = abort_shards(plan, self.run, self.settings, self.attempt)
        except SupersededError as error:
            self._tell(f"{error}: nothing left to abort")
        except KafkaDrainError as error:
            self._tell(f"open transactions will end at their one-minute timeout: {error}")
        else:
            self._tell(f"aborted the open transactions of {fenced:,} shards")

    def progress(self, plan: RepublishPlan) -> int:
        """Return the number of records sent, according to the progress in Kafka."""
        store = ProgressStore(self.settings, waits=False)
        try:
            return self._sent(plan, store)
        finally:
            store.close()

    def _refuse_abandoned(self) -> None:
        """End an attempt whose run somebody gave up: what waits for that goes on already."""
        if self.run.is_abandoned:
            raise ConfigError(
                f"run {self.run.key} was abandoned meanwhile. Nothing more is sent; what was sent "
                "stays in its target"
            )

    def _sent(
        self, plan: RepublishPlan, store: ProgressStore, timeout: float = TIMEOUT_SECONDS
    ) -> int:
        found = store.read(plan.slots, timeout)
        return sum(at.records for at in found.values() if at is not None)

    def _send(
        self, plan: RepublishPlan, engine: RepublishEngine, attempt: int, before: int
    ) -> None:
        store = ProgressStore(self.settings, waits=False)
        progress, what = Progress("records", plan.records - before), f"republish {plan.pipeline}"
        shown = progress.clock()

        is_quiet = False
        targets = watch_targets(self.cluster, plan)

        def tick() -> None:
            nonlocal shown, is_quiet
            if progress.clock() - shown < 2.0:
                return
            try:
                self._refuse_abandoned()
                if gone := targets.look():
                    raise gone
                say(progress.line(what, self._sent(plan, store, timeout=5.0) - before))
                is_quiet = False
            except TransientError as error:
                # The senders handle outages themselves.
                if not is_quiet:
                    self._tell(f"the progress is unknown: {error}")
                is_quiet = True
            finally:
                shown = progress.clock()

        try:
            engine(plan, self._jobs(plan, attempt), tick)
            say(progress.line(what, self._sent(plan, store) - before))
        except KafkaDrainError as error:
            blamed = targets.blame(error)
            if blamed is error:
                raise
            raise blamed from error
        finally:
            store.close()

    def _jobs(self, plan: RepublishPlan, attempt: int) -> list[list[SendJob]]:
        """Return the jobs, largest first; a recreated topic's incarnations are sent in sequence."""
        sizes = {
            target.topic: largest_batch(self.cluster.topic_config(target.topic))
            for target in plan.targets
        }
        groups: dict[Any, list[SendJob]] = {}
        change = self._change_of(plan)
        pace, writers = self.request.pace, len({chain[0].source for chain in plan.chains})
        playback = Playback(pace, writers) if pace else None
        for chain in plan.chains:
            job = SendJob(
                root=str(self.archive.root),
                key=plan.transactional_name,
                plan=plan.sha256,
                attempt=attempt,
                attempts=plan.attempts,
                shards=chain,
                partitions=plan.target(chain[0].target_topic).partitions,
                provenance=plan.provenance,
                settings=self.settings,
                schema_ids=plan.translation,
                change=change,
                placement=plan.placement,
                largest_batch=sizes[chain[0].target_topic],
                records_per_second=self.request.records_per_second,
                bytes_per_second=self.request.bytes_per_second,
                playback=playback,
            )
            # All incarnations of a topic are in one chain, or each is in its own chain.
            groups.setdefault(chain[0].source, []).append(job)
        return sorted(groups.values(), key=lambda jobs: -sum(job.records for job in jobs))

    def _change_of(self, plan: RepublishPlan) -> Change | None:
        """Return the plan's change, completed by the key and the function's folder."""
        if plan.change is None:
            return None
        assert self.change is not None
        return replace(
            self.change,
            spec=ChangeSpec.from_dict(plan.change),
            schemas=schemas_of_rows(plan.change["schemas"]),
        )

    def _claim(self, plan: RepublishPlan) -> Claim:
        """Claim the opening; an earlier attempt may have planned long ago and sent nothing.

        Raises:
            ConfigError: When another run has started to send the same records.
            TopicError: When a target is a source topic that holds records.
        """
        check_sources(
            self.archive.snapshot(),
            self.cluster,
            [target.topic for target in plan.targets],
            is_asked=self.request.into_source,
            follows=plan.through is not None,
        )
        if not self.request.repeat:
            is_elsewhere = self.archive.state != self.archive.root
            refuse_repeated(self.archive.root, plan, is_elsewhere=is_elsewhere)
        return claim_opening(self.archive.state, plan, repeat=self.request.repeat)

    def _check_targets(self, plan: RepublishPlan) -> None:
        """Refuse a target that was recreated: the records already sent to it are gone.

        Raises:
            TopicError: When a target was recreated; names it.
        """
        bound = Binding.of_plan(plan)
        refuse_other_target(self.cluster, bound, plan.key, said="Nothing more was sent")

    def _seal(
        self,
        plan: RepublishPlan,
        clock: Callable[[], datetime],
        attempts: int,
        seconds: float,
        verification: VerificationJson,
    ) -> ReceiptJson:
        receipt: ReceiptJson = {
            "format_version": RECEIPT_VERSION,
            "run": plan.run,
            "key": plan.key,
            "pipeline": plan.pipeline,
            "plan": plan.sha256,
            "request": dict(plan.request),
            "delivery": plan.delivery,
            "exactly_once": plan.delivery == EXACTLY_ONCE,
            "transactions": None if plan.delivery == AT_LEAST_ONCE else plan.transactions,
            "engine": plan.engine,
            "cluster_id": plan.cluster_id,
            "records": plan.records,
            "attempts": attempts,
            "seconds": round(seconds, 1),
            "records_per_second": round(plan.records / max(seconds, 1e-3)),
            "started_at": plan.created_at,
            "finished_at": clock().isoformat(timespec="milliseconds"),
            "timestamps_replaced": plan.timestamps_replaced,
            "verification": verification,
            "sent": sent(plan),
            "through": plan.through,
        }
        if plan.change is not None:
            receipt["change"] = cast(ChangeReceiptJson, change_summary(plan.change))
        self.run.write_receipt(receipt)
        return self.run.receipt() or receipt

    def _tell(self, line: str) -> None:
        say(Line(f"republish {self.plan.pipeline}: {line}", level_of(line)))


def sign_run(archive: Archive, run: RepublishRun, signer: Signer, now: datetime) -> str:
    """Sign a run's receipt, and the hashes of its files; return the path of the statement.

    Args:
        signer: The key.

    Raises:
        ArchiveError: When the run has no receipt, or the archive can't be written.
    """
    # Not at the top: most republishes sign nothing.
    from kafka_drain.evidence.signing import sign

    receipt = run.receipt()
    if receipt is None:
        raise ArchiveError(f"run {run.key} has no receipt, so there is nothing to sign")
    document = {name: value for name, value in receipt.items() if name not in _FOR_RUNS}
    files = [f"republish/{run.key}/{name}" for name in _FILES if is_file(run.folder / name)]
    return sign(archive, signer, "republish", run.key, document, files, now)
