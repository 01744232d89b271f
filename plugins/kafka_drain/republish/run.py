"""A republish as a whole: plan, open, send the shards, verify, receipt.

Every step can be killed and run again: the plan is written once, the progress is Kafka's, a run
that has its receipt sends nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.journal.checks import refuse_unsound
from kafka_drain.errors import (
    ArchiveError,
    ConfigError,
    KafkaDrainError,
    SupersededError,
    TransientError,
    VerifyError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress
from kafka_drain.republish.engines.worker_main import VerifyJob
from kafka_drain.republish.planning.binding import Binding, refuse_other_target
from kafka_drain.republish.planning.follow import (
    asked_before,
    bound_before,
    follower_key,
    new_files,
    next_run,
    through_now,
)
from kafka_drain.republish.planning.into_source import check_sources
from kafka_drain.republish.planning.openings import Claim, claim_opening
from kafka_drain.republish.planning.plan import AT_LEAST_ONCE, EXACTLY_ONCE, UNOPENED, RepublishPlan
from kafka_drain.republish.planning.planner import make_plan
from kafka_drain.republish.planning.previous_runs import sent
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun, run_key
from kafka_drain.republish.sending.attempts import abort_shards, open_run
from kafka_drain.republish.sending.progress_store import TIMEOUT_SECONDS, Ledger
from kafka_drain.republish.sending.shard_sender import SendJob
from kafka_drain.republish.verifying.matching import PartitionMatch
from kafka_drain.republish.verifying.verify import summed_up, target_partitions

__all__ = ["Republish", "plan_republish"]

RECEIPT_VERSION = 1


class Engine(Protocol):
    """Sends and verifies, see `engines.Engines`."""

    def __call__(
        self, plan: RepublishPlan, groups: list[list[SendJob]], tick: Callable[[], None]
    ) -> None:
        """Send groups of jobs, each group in turn; the plan alone, where Spark's own sink sends."""

    def verify(
        self, plan: RepublishPlan, jobs: list[VerifyJob], say: Callable[[str], None]
    ) -> dict[TopicPartition, PartitionMatch]:
        """Verify target partitions."""


def plan_republish(
    archive: Archive,
    cluster: KafkaCluster,
    request: RepublishRequest,
    *,
    now: datetime,
    say: Callable[[str], None],
    apply: bool,
) -> Republish:
    """Plan a run, or find the plan that it began with. Writes nothing, but for a missing topic.

    Args:
        archive: Where the files are.
        cluster: Where the records go.
        request: What is asked for.
        now: The time.
        say: Takes lines of progress.
        apply: Whether it is going to be executed: only then missing topics are made, and the
            archive gets an id.

    Raises:
        ConfigError: When the run was planned for something else.
        KafkaDrainError: Of the kind that says what is wrong; nothing was sent then.
    """
    snapshot = archive.snapshot()
    pipeline = snapshot.document.pipeline
    name = request.name(pipeline)
    folder = RepublishRun(archive.root, run_key(name))
    since: Mapping[str, Any] = {}
    asked: Mapping[str, Any] | None = None
    bound = Binding()
    if request.follow:
        folder, since = next_run(archive, follower_key(name))
        asked = asked_before(archive, follower_key(name))
        bound = bound_before(archive, follower_key(name), since)
    plan, receipt = folder.plan(), folder.receipt()
    if folder.is_abandoned and receipt is None:
        raise ConfigError(
            f"run {folder.key} was abandoned: what it sent isn't known. Nothing was sent; name "
            "another run, and a target that this one didn't send to"
        )
    asked = plan.request if plan is not None else asked
    if asked is not None:
        # A follower that asks for more would never send what came before.
        _refuse_other_request(folder.key, asked, request)
    replaced = None
    if plan is not None and receipt is None and _is_outdated(archive, folder, plan, now):
        say(f"republish {pipeline}: run {folder.key} never began, and is planned again")
        plan, replaced = None, plan
    # Of a follower's targets some may be gone: its plan says whether this run needs them.
    here = bound.of_topics(cluster.topic_names()) if bound.topics else bound
    if plan is not None:
        _refuse_other_archive(archive, plan)
        here = here.plus(Binding.of_plan(plan))
    if receipt is not None:
        here = here.plus(Binding.of_receipt(receipt))
    if here != Binding():
        said = "Nothing was sent" if receipt is not None else "Nothing more was sent"
        refuse_other_target(cluster, here, folder.key, said=said)
    if plan is None:
        through = None
        if request.follow:
            # A segment that is passed over now would never be sent.
            snapshot = refuse_unsound(snapshot).snapshot
            through = through_now(snapshot)
        plan = make_plan(
            snapshot,
            cluster,
            request,
            run=name,
            now=now,
            say=say,
            key=folder.key,
            creates_targets=apply,
            files=(lambda: new_files(snapshot, since, through)) if through else None,
            through=through,
            bound=bound,
            # A dry run writes nothing.
            identify=archive.identify if apply else (lambda: ""),
        )
    return Republish(archive, cluster, folder, plan, say, request, replaced)


def _refuse_other_request(run: str, asked: Mapping[str, Any], request: RepublishRequest) -> None:
    if not request.is_asked_by(asked):
        raise ConfigError(
            f"run {run} began with {dict(asked)}, this asks for {request.to_dict()}; ask for the "
            "same to go on with it, or name another run"
        )


def _is_outdated(archive: Archive, run: RepublishRun, plan: RepublishPlan, now: datetime) -> bool:
    """Whether a run that never opened is to be planned again: maintenance may take its files."""
    if run.is_opened:
        return False
    files = {file.path for shard in plan.shards for file in shard.files}
    return plan.is_older(UNOPENED, now) or not all(map(_there(archive), sorted(files)))


def _there(archive: Archive) -> Callable[[str], bool]:
    return lambda path: bool((archive.root / path).is_file())


def _refuse_other_archive(archive: Archive, plan: RepublishPlan) -> None:
    known = archive.identity()
    if plan.archive_id and known != plan.archive_id:
        raise ArchiveError(
            f"run {plan.key} is of the archive with id {plan.archive_id}, {archive.root} has id "
            f"{known or 'none'}; restore its identity.json from a copy, or name another run. "
            "Nothing more was sent"
        )


@dataclass
class Republish:
    """One run of a republish: its plan, and the steps that are left.

    Attributes:
        archive: Where the files are.
        cluster: Where the records go.
        run: Its folder.
        plan: What goes where.
        say: Takes lines of progress.
        request: What is asked for.
        replaced: The plan in whose place this one was made, as its run never opened.
        attempt: Number of the attempt that this one is; 0 before it has begun.
    """

    archive: Archive
    cluster: KafkaCluster
    run: RepublishRun
    plan: RepublishPlan
    say: Callable[[str], None]
    request: RepublishRequest
    replaced: RepublishPlan | None = None
    attempt: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """librdkafka's settings of the target cluster."""
        return self.cluster.config.for_librdkafka()

    def execute(self, engine: Engine, clock: Callable[[], datetime]) -> dict[str, Any]:
        """Send what wasn't sent yet, verify it, and write the receipt.

        Args:
            engine: Sends groups of jobs, or by Spark's own sink.
            clock: The time.

        Returns:
            The receipt, and `records_sent`: how many were sent by this attempt.

        Raises:
            ConfigError: When another run has begun to send the same since this one was planned.
            VerifyError: When the target doesn't hold the records as it should; says what.
            KafkaDrainError: Of the kind that says what is wrong; a retry of a transient one goes
                on where this one ended.
        """
        receipt = self.run.receipt()
        if receipt is not None:
            bound = Binding.of_receipt(receipt)
            refuse_other_target(self.cluster, bound, self.run.key, said="Nothing was sent")
            self._tell(f"sent and verified before, at {receipt['finished_at']}; nothing was sent")
            return receipt | {"records_sent": 0}
        if not self.plan.shards:
            # Without a receipt: what is drained and sealed later can still be sent.
            self._tell("no records are selected, nothing was sent")
            return self.plan.summary() | {"records_sent": 0}
        plan = self.run.write_plan(self.plan, instead_of=self.replaced)
        # Somebody else may have planned at the same moment.
        _refuse_other_request(self.run.key, plan.request, self.request)
        self._check_targets(plan)
        claim = None if self.run.is_opened else self._claim(plan)
        began = time.monotonic()
        attempt, before = 1, 0
        if plan.delivery == EXACTLY_ONCE:
            self.attempt = attempt = open_run(plan, self.run, self.settings, claim)
            before = self.progress(plan)
            if before:
                self._tell(f"attempt {attempt} goes on after {before:,} records")
            self._send(plan, engine, attempt, before)
        else:
            if self.run.is_opened:
                self._tell("WARNING an attempt before this one began to send; it is sent again")
            if claim is not None:
                claim.confirm()
            self.run.mark_opened({"plan": plan.sha256, "shards": len(plan.shards)})
            engine(plan, [], lambda: None)
        seconds = time.monotonic() - began
        # Verified before the receipt: until then a retry sends nothing, and verifies again.
        self._check_targets(plan)
        root = str(self.archive.root)
        jobs = [VerifyJob(root, plan.key, tp, self.settings) for tp in target_partitions(plan)]
        matches = engine.verify(plan, jobs, self._tell)
        verification, offset_map = summed_up(plan, matches)
        for line in verification.lines():
            self._tell(line)
        if not verification.gets_receipt(plan.delivery):
            raise VerifyError(
                f"run {plan.key}: the target doesn't hold what was sent, once each and in order: "
                f"lost {verification.lost:,}, twice {verification.twice:,}, out of order "
                f"{verification.out_of_order:,}. There is no receipt. Look for what else writes to "
                "the target or deletes from it, and restore into an empty topic"
            )
        self.run.write_offset_map(offset_map.to_bytes())
        receipt = self._seal(plan, clock, attempt, seconds, verification.to_dict())
        return receipt | {"records_sent": plan.records - before}

    def abort(self) -> None:
        """Abort the open transactions of this attempt, which was stopped; says so where it can't.

        Those of a later attempt are left alone.
        """
        plan = self.run.plan()
        if plan is None or not self.attempt or self.run.receipt() is not None:
            return
        try:
            fenced = abort_shards(plan, self.run, self.settings, self.attempt)
        except SupersededError as error:
            self._tell(f"{error}: nothing is left to abort")
        except KafkaDrainError as error:
            self._tell(f"open transactions end by their timeout of a minute: {error}")
        else:
            self._tell(f"open transactions of {fenced:,} shards were aborted")

    def progress(self, plan: RepublishPlan) -> int:
        """Return how many records were sent, as Kafka says."""
        ledger = Ledger(self.settings, waits=False)
        try:
            return self._sent(plan, ledger)
        finally:
            ledger.close()

    def _sent(self, plan: RepublishPlan, ledger: Ledger, timeout: float = TIMEOUT_SECONDS) -> int:
        found = ledger.read(plan.slots, timeout)
        return sum(at.records for at in found.values() if at is not None)

    def _send(self, plan: RepublishPlan, engine: Engine, attempt: int, before: int) -> None:
        ledger = Ledger(self.settings, waits=False)
        progress, what = Progress("records", plan.records - before), f"republish {plan.pipeline}"
        shown = progress.clock()

        is_quiet = False

        def tick() -> None:
            nonlocal shown, is_quiet
            if progress.clock() - shown < 2.0:
                return
            try:
                self.say(progress.line(what, self._sent(plan, ledger, timeout=5.0) - before))
                is_quiet = False
            except TransientError as error:
                # Those who send have patience of their own.
                if not is_quiet:
                    self._tell(f"the progress isn't known: {error}")
                is_quiet = True
            finally:
                shown = progress.clock()

        try:
            engine(plan, self._jobs(plan, attempt), tick)
            self.say(progress.line(what, self._sent(plan, ledger) - before))
        finally:
            ledger.close()

    def _jobs(self, plan: RepublishPlan, attempt: int) -> list[list[SendJob]]:
        """Return the jobs, largest first; the lives of a topic that was made again in turn."""
        sizes = {
            target.topic: int(self.cluster.topic_config(target.topic)["max.message.bytes"])
            for target in plan.targets
        }
        groups: dict[Any, list[SendJob]] = {}
        for chain in plan.chains:
            job = SendJob(
                root=str(self.archive.root),
                key=plan.transactional_name,
                plan=plan.sha256,
                attempt=attempt,
                attempts=plan.attempts,
                shards=chain,
                partitions=plan.target(chain[0].target_topic).partitions,
                transactions=plan.transactions,
                provenance=plan.provenance,
                settings=self.settings,
                largest_batch=sizes[chain[0].target_topic],
                records_per_second=self.request.records_per_second,
                bytes_per_second=self.request.bytes_per_second,
            )
            # All lives of a topic are in one chain, or in chains of their own.
            groups.setdefault(chain[0].source, []).append(job)
        return sorted(groups.values(), key=lambda jobs: -sum(job.records for job in jobs))

    def _claim(self, plan: RepublishPlan) -> Claim:
        """Claim that the run opens; an attempt before may have planned long ago, and sent nothing.

        Raises:
            ConfigError: When another run has begun to send the same.
            TopicError: When a target is a source that holds records.
        """
        check_sources(
            self.archive.snapshot(),
            self.cluster,
            [target.topic for target in plan.targets],
            is_asked=self.request.into_source,
            follows=plan.through is not None,
        )
        return claim_opening(self.archive.root, plan, repeat=self.request.repeat)

    def _check_targets(self, plan: RepublishPlan) -> None:
        """Refuse a target that was made again: what was sent to it before is gone.

        Raises:
            TopicError: Names it.
        """
        bound = Binding.of_plan(plan)
        refuse_other_target(self.cluster, bound, plan.key, said="Nothing more was sent")

    def _seal(
        self,
        plan: RepublishPlan,
        clock: Callable[[], datetime],
        attempts: int,
        seconds: float,
        verification: dict[str, Any] | None,
    ) -> dict[str, Any]:
        receipt = {
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
        self.run.write_receipt(receipt)
        return self.run.receipt() or receipt

    def _tell(self, line: str) -> None:
        self.say(f"republish {self.plan.pipeline}: {line}")
