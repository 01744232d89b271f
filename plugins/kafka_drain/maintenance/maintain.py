"""Maintenance: roll the open generation, compact closed segments, delete expired files.

    scrub      reads a share of the sealed files again, and compares them with their receipts
    roll       closes the open generation when it is due, between two drains
    erase      carries out the erasures in force on what was sealed since
    compact    rewrites small files of closed generations and windows as few large ones
    retention  deletes files whose newest record is too old
    remove     deletes superseded files, after the new files were compared with their receipts

Each step can be killed and rerun; readers see the old files or the new ones, never both.
Maintenance never touches the open generation's files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.erasures import in_force, read_erasures
from kafka_drain.archive.generation import list_data_files
from kafka_drain.archive.index import Query
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.archive.scrubs import WHERE
from kafka_drain.archive.soundness import refuse_unsound
from kafka_drain.archive.summary_files import write_missing_summaries
from kafka_drain.clock import Clock, utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import (
    KEY_ERRORS,
    ConfigError,
    KafkaDrainError,
    KeyUnavailableError,
    ManifestInvalidError,
)
from kafka_drain.intervals import TimeRange, milliseconds
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.compact import (
    half_sent,
    plan_compactions,
    refuse_locked,
    run_compaction,
)
from kafka_drain.maintenance.compaction_plan import Compaction
from kafka_drain.maintenance.erase import sweep
from kafka_drain.maintenance.retention import (
    Deletion,
    held_by_future,
    plan_deletions,
    seal_deletions,
    without_locked,
)
from kafka_drain.maintenance.scrub import scrub, scrub_report
from kafka_drain.output import say
from kafka_drain.progress import Progress
from kafka_drain.proof.report import raise_findings
from kafka_drain.republish.planning.follow import followers
from kafka_drain.spark.engine import SparkRunner
from kafka_drain.storage.lease import hold_lease
from kafka_drain.storage.object_retention import StoreLocks
from kafka_drain.storage.paths import quoted
from kafka_drain.windows.reprocess.refusals import abandoning
from kafka_drain.windows.reprocess.state import unfinished_reprocess
from kafka_drain.windows.roll import WAIT_SECONDS, due_for_roll, roll_between_drains
from kafka_drain.windows.superseded_files import remove_superseded, remove_unsealed, still_locked


@dataclass(frozen=True)
class MaintenancePlan:
    """The plan of a maintenance run.

    Attributes:
        roll: Why the open generation will be closed; empty if it won't be.
        compactions: Small files to rewrite as large ones.
        deletions: Files that are too old.
        held: Files that aren't compacted or deleted now, with reasons.
        waits_for: Why nothing is erased, compacted or deleted; empty if there is no obstacle.
        erasures: Numbers of the erasures in force, carried out on what was sealed since.
    """

    archive: Archive
    roll: str = ""
    compactions: Sequence[Compaction] = field(default=())
    deletions: Sequence[Deletion] = field(default=())
    held: Sequence[str] = field(default=())
    waits_for: str = ""
    erasures: Sequence[int] = field(default=())

    def lines(self) -> list[str]:
        """Return the plan as lines of text for the user."""
        name = f"maintain {self.archive.root}"
        lines = [f"{name}: closes the open generation: {self.roll}"] if self.roll else []
        if self.waits_for:
            lines.append(f"{name}: {self.waiting}")
        if self.erasures:
            lines.append(f"{name}: carries out {self.carried_out} on what was sealed since")
        lines += [f"{name}: deletes {deletion.line()}" for deletion in self.deletions]
        lines += [f"{name}: compacts {compaction.line()}" for compaction in self.compactions]
        lines += [f"{name}: leaves {held}" for held in self.held]
        return lines or [f"{name}: nothing to do"]

    @property
    def waiting(self) -> str:
        """The obstacle, if there is one, in words."""
        return f"erases, compacts and deletes nothing: {self.waits_for}"

    @property
    def carried_out(self) -> str:
        """The erasures in force, in words."""
        numbers = ", ".join(map(str, self.erasures))
        return f"erasure{'s' * (len(self.erasures) > 1)} {numbers}" if numbers else "none"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan's figures as JSON types."""
        return {
            "archive": str(self.archive.root),
            "roll": self.roll,
            "erasures": list(self.erasures),
            "compactions": len(self.compactions),
            "compacted_files": sum(len(found.files) for found in self.compactions),
            "compacted_bytes": sum(found.group.bytes for found in self.compactions),
            "deleted_files": sum(len(found.files) for found in self.deletions),
            "deleted_bytes": sum(found.bytes for found in self.deletions),
            "deleted_files_dated_later": sum(len(found.dated_later) for found in self.deletions),
            "held": list(self.held),
        }


def plan_maintenance(
    pipeline: Pipeline,
    *,
    will_roll: bool = True,
    clock: Clock = utc_now,
    locks: StoreLocks | None = None,
) -> MaintenancePlan:
    """Plan maintenance without changing anything.

    Args:
        pipeline: The pipeline, with its archive and maintenance settings.
        will_roll: Whether a generation that is due for a roll counts as closed.
        clock: Returns the current time; replaced in tests.
        locks: The store's locks, if it was asked in this run already.

    Raises:
        ArchiveError: When the folder is not an archive, or another pipeline's.
        ManifestInvalidError: When a receipt is damaged, or something sealed is missing or changed.
    """
    archive = Archive.at(pipeline.archive)
    ages = pipeline.retention_days is not None
    asked = Query(_too_old(pipeline, clock), uncompacted=True, dated_later=ages)
    snapshot = refuse_unsound(archive.snapshot(), query=asked).snapshot
    snapshot.refuse_other_pipeline(pipeline.name)
    try:
        roll = due_for_roll(snapshot, pipeline, clock())
        if unfinished_reprocess(archive) is not None:
            return MaintenancePlan(
                archive,
                roll,
                waits_for="a reprocess was started and hasn't finished; run that again first, or "
                f"end it with {abandoning(archive.root)}",
            )
        generations = snapshot.generations
        closed = generations if roll and will_roll else generations[:-1]
        deletions, future = list[Deletion](), list[str]()
        if pipeline.retention_days is not None:
            age = (pipeline.retention_days, clock(), pipeline.max_future_days)
            deletions = plan_deletions(snapshot, closed, *age)
            future = held_by_future(snapshot, closed, *age)
        locks = locks or _locks(archive, clock)
        old = [file.path for deletion in deletions for file in deletion.files]
        deletions, left = without_locked(deletions, locks.locked(old))
        # Old files that are kept aren't rewritten either: they would be kept twice.
        going = {*left, *(file.path for deletion in deletions for file in deletion.files)}
        found = plan_compactions(snapshot, closed, pipeline.target_file_bytes, going)
    except ReceiptError as error:
        raise ManifestInvalidError(
            f"{archive.root}: a receipt is damaged ({error}); run `kafka-drain validate "
            f"{quoted(archive.root)}` to see which. Nothing was changed"
        ) from error
    compactions, held = _without_half_sent(archive, found)
    held += future
    if left:
        held.append(f"{locks.summary(left)}, which are past retention_days")
    erasures = [each.number for each in in_force(read_erasures(archive.root))]
    return MaintenancePlan(archive, roll, compactions, deletions, held, erasures=erasures)


def _too_old(pipeline: Pipeline, clock: Clock) -> TimeRange | None:
    """Return the times of records that are past their retention; None if there is none."""
    if pipeline.retention_days is None:
        return None
    return TimeRange(to_ms=milliseconds(clock() - timedelta(days=pipeline.retention_days)))


def _locks(archive: Archive, clock: Clock) -> StoreLocks:
    return StoreLocks(archive.root, f"maintain {archive.root}", clock)


def _without_half_sent(
    archive: Archive, compactions: Iterable[Compaction]
) -> tuple[list[Compaction], list[str]]:
    """Hold back groups that a follower has partly sent: it sends large files whole or not."""
    sent, free, held = followers(archive), list[Compaction](), list[str]()
    for found in compactions:
        if who := half_sent(sent, found.group):
            held.append(f"{found.line()}: follower {who} has sent only some of them so far")
        else:
            free.append(found)
    return free, held


def run_maintenance(
    pipeline: Pipeline,
    cluster: KafkaCluster,
    runner: SparkRunner,
    *,
    run: str,
    wait_seconds: float = WAIT_SECONDS,
    clock: Clock = utc_now,
    choose: Callable[[MaintenancePlan], MaintenancePlan] = lambda plan: plan,
) -> dict[str, Any]:
    """Carry out the maintenance that is due, after cleaning up after a killed run.

    Args:
        pipeline: The pipeline, with its archive and maintenance settings.
        cluster: The Kafka cluster that it was drained from; only a roll connects to it.
        runner: Runs Spark applications.
        run: Name of this run, for display.
        wait_seconds: Longest wait of a roll for a drain and its validation to finish.
        clock: Returns the time at which things are due; the current one.
        choose: Returns the part of a plan that is carried out; all of it by default.

    Returns:
        archive, rolled, windows (sealed by this run), files_removed (of the files before), files
        and bytes before and after, of the superseded files that the store still keeps, the number
        and when the last is free, files and bytes that were read again (scrubbed), and when the
        files that weren't read for longest were (oldest_read_at; None if that isn't known).

    Raises:
        LockedError: When another maintenance is running; a retry may help.
        SparkJobError: When Spark failed; the next run starts again.
        ManifestInvalidError: When a window's files don't match what was sealed; none of the files
            that it replaces were removed. When a file that was read again isn't as sealed; nothing
            was compacted.
        KeyUnavailableError: When files' master key can't be had; the others were compacted, or if
            an erasure must search them, only those that are old enough were deleted.
        KmsUnavailableError: When their KMS doesn't answer; the others were compacted.
        ConfigError: When a roll would discard something; all else was done.
        KafkaDrainError: As `plan_roll` does.
    """
    archive = Archive.at(pipeline.archive)
    archive.require()
    with hold_lease(archive.root / "maintenance", run=run):
        before = list_data_files(archive.root)
        locks = _locks(archive, clock)
        plan = choose(plan_maintenance(pipeline, clock=clock, locks=locks))
        # First: neither a roll that is refused nor a lost key may keep damage from being found.
        read_again = scrub(archive, pipeline.scrub_days, clock())
        rolled, refused = None, None
        if plan.roll:
            say(f"maintain {archive.root}: {plan.roll}")
            try:
                rolled = roll_between_drains(archive, cluster, run=run, wait_seconds=wait_seconds)
            except ConfigError as error:
                # Erasures and retention mustn't wait for somebody to decide.
                refused = error
        for number in write_missing_summaries(archive.snapshot()):
            say(f"maintain {archive.root}: summarized the receipts of generation {number}")
        sealed: list[str] = []
        if plan.waits_for:
            say(f"maintain {archive.root}: {plan.waiting}")
        else:
            remove_unsealed(archive)
            remove_superseded(archive, locks)
            unsearched: KeyUnavailableError | None = None
            # First: what should be erased must not be compacted with the rest.
            try:
                sealed += sweep(archive, pipeline, runner, locks, run=run)
            except KeyUnavailableError as error:
                # Files that nobody can search are deleted for their age alone.
                unsearched = error
            # Plan again: superseded files were just removed, and the roll may have waited. Without
            # the roll: a generation that couldn't be closed belongs to drains.
            plan = choose(plan_maintenance(pipeline, will_roll=False, clock=clock, locks=locks))
            for line in plan.lines():
                say(line)
            sealed += _delete(plan, run, locks)
            if unsearched is not None:
                raise unsearched
            # Damaged files wait for their repair.
            if not read_again.damaged:
                sealed += _compact(plan, pipeline, runner, run, locks)
        after = list_data_files(archive.root)
        locked = still_locked(archive, locks, after.keys())
    figures = {
        "archive": str(archive.root),
        "rolled": rolled is not None,
        "windows": sealed,
        "files_removed": len(before.keys() - after.keys()),
        "files_before": len(before),
        "bytes_before": sum(before.values()),
        "files_after": len(after),
        "bytes_after": sum(after.values()),
        "locked_files": locked.files,
        "locked_until": locked.ends_at,
        "scrubbed_files": read_again.files,
        "scrubbed_bytes": read_again.bytes,
        "oldest_read_at": read_again.oldest_at,
    }
    say(
        f"maintain {archive.root}: {figures['files_before']:,} files, "
        f"{figures['bytes_before']:,} bytes before; {figures['files_after']:,} files, "
        f"{figures['bytes_after']:,} bytes after"
    )
    if read_again.damaged:
        raise_findings(scrub_report(archive, clock(), read_again), str(archive.root / WHERE))
    if refused is not None:
        raise refused
    return figures


def _delete(plan: MaintenancePlan, run: str, locks: StoreLocks) -> list[str]:
    if receipts := seal_deletions(plan.archive, plan.deletions, run=run):
        remove_superseded(plan.archive, locks)
    return [receipt.window for receipt in receipts]


def _compact(
    plan: MaintenancePlan, pipeline: Pipeline, runner: SparkRunner, run: str, locks: StoreLocks
) -> list[str]:
    archive = plan.archive
    progress = Progress("bytes", sum(found.group.bytes for found in plan.compactions))
    done, sealed, locked = 0, list[str](), list[KafkaDrainError]()
    for found in plan.compactions:
        try:
            refuse_locked(archive, found)
        except KEY_ERRORS as error:
            # It may be lost for good, and the others mustn't wait for it.
            locked.append(error)
            continue
        receipt = run_compaction(archive, found, pipeline, runner, run=run)
        sealed.append(receipt.window)
        done += found.group.bytes
        say(
            f"maintain {archive.root}: window {receipt.window} holds {receipt.records:,} records "
            f"of {len(found.files):,} files in {len(receipt.files):,}"
        )
        say(progress.line(f"maintain {archive.root}", done))
        # After each group: there may not be space for two copies of everything.
        remove_superseded(archive, locks)
    if locked:
        raise locked[0]
    return sealed
