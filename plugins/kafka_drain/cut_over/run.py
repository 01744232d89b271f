"""Take a step of a cut-over: act, look, decide, and note the observation."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.cluster_moments import MOMENTS, moment_at
from kafka_drain.archive.cut_overs import FOLDER, cut_over_names, read_cut_over, write_step
from kafka_drain.archive.documents import CutOverDocument, CutOverGroupRow, EndRow
from kafka_drain.archive.format import FORMAT_VERSION
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over.looking import (
    Mirror,
    active_groups,
    changes_of_target,
    look_at_mirror,
    look_at_source,
    misplaced_groups,
)
from kafka_drain.cut_over.request import CutOverRequest
from kafka_drain.cut_over.steps import (
    BACK,
    REQUIRED,
    Check,
    CutOverStep,
    StepObservation,
    is_handed_over,
    moved,
    problems,
    unready,
    way_back,
)
from kafka_drain.errors import (
    AuthorizationError,
    ConfigError,
    CutOverError,
    GroupError,
    GroupInUseError,
    KafkaDrainError,
    KafkaUnavailableError,
    LagError,
    TransientError,
)
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import Part, PartOutcome
from kafka_drain.kafka.consumer_groups import ConsumerGroups, offsets_of
from kafka_drain.kafka.identity import is_other_cluster
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import Level, Line, say
from kafka_drain.proof.cluster_capture import capture, describe_with, parts_before
from kafka_drain.republish.groups.applying import apply_plan, undo_all
from kafka_drain.republish.groups.archived import archived_offsets
from kafka_drain.republish.groups.group_records import GroupRecords, recorded_groups
from kafka_drain.republish.groups.planning import look_beside, plan_group, read_map
from kafka_drain.republish.groups.translation import TranslationPlan
from kafka_drain.republish.planning.binding import refuse_other_target
from kafka_drain.republish.planning.follow import follower_key, next_run, previous_binding, runs_of
from kafka_drain.republish.planning.runs import RepublishRun, run_key
from kafka_drain.republish.run import RepublishEngine, plan_republish, sign_run

if TYPE_CHECKING:
    from kafka_drain.evidence.signing import Signer

#: A run that was killed is finished first, and drains may seal more meanwhile.
PASSES = 3

#: Groups whose offsets are missing from a description, in its words.
_UNTOLD = re.compile(r": (not_authorised|unsupported|unanswered)$|^only the first ")

_SHOWN = 10

_SENDS = (CutOverStep.MIRROR, CutOverStep.LAST_MIRROR)


@dataclass
class CutOver:
    """A cut-over of an archive's topics to another cluster.

    Attributes:
        archive: The archive, through which the records move.
        source: The cluster that clients leave.
        target: The cluster that they move to.
        run: The run that takes the steps: one of Airflow's, or `terminal`.
        clock: Returns the current time.
        signer: Signs what the steps saw, and the mirror's runs; None for nobody.
        pause: Waits for a number of seconds; replaced in tests.
    """

    archive: Archive
    pipeline: Pipeline
    source: KafkaCluster
    target: KafkaCluster
    request: CutOverRequest
    run: str
    clock: Callable[[], datetime]
    signer: Signer | None = None
    pause: Callable[[float], None] = field(default=time.sleep, repr=False)

    @property
    def key(self) -> str:
        """Name of the cut-over's folder."""
        return run_key(self.request.run_name)

    @property
    def follower(self) -> str:
        """Prefix of the keys of the mirror's runs."""
        return follower_key(self.request.run_name)

    def history(self) -> list[CutOverDocument]:
        """Return the observations so far, oldest first."""
        return read_cut_over(self.archive.root, self.key)

    def take(self, step: CutOverStep, engine: RepublishEngine) -> CutOverDocument:
        """Take a step; taken again after it was killed or refused, it continues.

        Args:
            engine: Sends and verifies.

        Returns:
            Its observations, as they are in the archive.

        Raises:
            CutOverError: When the step doesn't pass; says why, and what to do. What it saw is in
                the archive.
            LagError: When the target still lacks too many records; a later try may pass.
            KafkaDrainError: A subclass that names the problem, when something can't be done or
                seen; nothing is noted, and the step can be taken again.
        """
        started = self.clock()
        source_id, target_id = self._clusters()
        history = self.history()
        done = _newest(history, CutOverStep.HAND_OVER)
        if done is not None and step is CutOverStep.HAND_OVER and is_handed_over(_taken(history)):
            self._tell(step, f"handed over at {done.finished_at}; nothing is done")
            # It may have been killed before it was signed.
            names = cut_over_names(self.archive.root, self.key)
            name = next(name for name in reversed(names) if name.endswith(f"-{step.value}.json"))
            self._sign(f"{FOLDER}/{self.key}/{name}", done)
            return done
        seen = StepObservation(
            unready=unready(step, _taken(history)),
            max_lag=self.request.max_lag,
        )
        # What a step does must not happen too early: groups, for example, would have old offsets.
        seen, ends, mirror, groups = self._act(step, seen, history, engine)
        found = problems(step, seen)
        document = self._document(
            step.value,
            started,
            (source_id, target_id),
            found,
            ends=ends,
            lag=sum(seen.undrained.values()),
            mirror=mirror,
            groups=groups,
            # Nothing was handed over yet.
            back=way_back(CutOverStep.VERIFY if found and step is CutOverStep.HAND_OVER else step),
        )
        if found:
            # Only the lag becomes less by itself.
            kind = LagError if step is CutOverStep.MIRROR and not seen.unready else CutOverError
            raise kind(f"{step.value}: {'. '.join(found)}. {'; '.join(document.back)}")
        return document

    def go_back(self, *, apply: bool) -> CutOverDocument | None:
        """Restore the groups' offsets in the target, and say which records stay there.

        Args:
            apply: Whether to do it, and not only to say it.

        Returns:
            The way back, as it is in the archive; None if it was only shown.

        A group that can't go back holds up no other one.

        Raises:
            CutOverError: When the hand-over has happened.
            ConfigError: When the groups were moved to another cluster.
            GroupError: When a group's consumers have committed in the target since.
            GroupInUseError: When they are active.
            AuthorizationError: When an ACL on a group is missing.
        """
        started, clusters = self.clock(), self._clusters()
        if is_handed_over(_taken(self.history())):
            raise CutOverError(f"{BACK}: {way_back(CutOverStep.HAND_OVER)[0]}. Nothing was changed")
        runs = runs_of(self.archive, self.follower)
        groups, notes = ConsumerGroups(self.target.config), list[str]()
        names = self._moved_names(runs)
        recorded = {name: [GroupRecords(run.folder, name) for run in runs] for name in names}
        for each in recorded.values():
            _refuse_other_cluster(each, clusters[1])
        failed: list[KafkaDrainError] = []
        for name, each in recorded.items():
            try:
                undone = undo_all(each, groups, name, apply=apply)
            except (AuthorizationError, GroupError, GroupInUseError) as error:
                failed.append(error)
                continue
            notes += [f"group {name}: {one.result}, {len(one.left):,} left" for one in undone]
        mirror = look_at_mirror(self.archive, self.follower)
        for topic, records_sent in sorted(_sent(mirror).items()):
            notes.append(f"topic {topic} keeps {records_sent:,} records at the target")
        back = way_back(CutOverStep.PRODUCERS_OFF)
        for line in [*notes, *back]:
            self._tell(BACK, line)
        if failed:
            raise _not_back(failed, len(recorded))
        if not apply:
            return None
        source = look_at_source(self.archive.snapshot(), self.pipeline, self.source)
        return self._document(
            BACK,
            started,
            clusters,
            [],
            ends=source.ends,
            lag=sum(source.undrained.values()),
            mirror=mirror,
            groups=None,
            notes=notes,
            back=back,
        )

    def _clusters(self) -> tuple[str, str]:
        source, target = self.source.cluster_id(), self.target.cluster_id()
        if source == target:
            raise ConfigError(
                f"source and target are both Kafka cluster {source}, expected two clusters; "
                "correct the target's connection"
            )
        return source, target

    def _act(
        self,
        step: CutOverStep,
        seen: StepObservation,
        history: list[CutOverDocument],
        engine: RepublishEngine,
    ) -> tuple[StepObservation, Mapping[TopicPartition, int], Mirror, list[CutOverGroupRow] | None]:
        """Act as far as a step's conditions allow, and look."""
        checks = REQUIRED[step]
        if step in _SENDS and not seen.unready:
            self._mirror(engine)
        source = look_at_source(self.archive.snapshot(), self.pipeline, self.source)
        since = source.ends
        if step is CutOverStep.PRODUCERS_OFF:
            self._tell(step, f"watching the source's ends for {self.request.quiet_seconds:g} s")
            self.pause(self.request.quiet_seconds)
            source = look_at_source(self.archive.snapshot(), self.pipeline, self.source)
        elif Check.SOURCE_QUIET in checks:
            since = _ends_of(history, CutOverStep.PRODUCERS_OFF) or since
        mirror = look_at_mirror(self.archive, self.follower)
        seen = replace(
            seen,
            lag=sum(source.undrained.values()) + mirror.lacks,
            undrained=source.undrained,
            moved=moved(since, source.ends),
            unsent=mirror.unsent,
            inexact=mirror.inexact,
        )
        groups = None
        if step is CutOverStep.GROUPS:
            names = self._described_names()
            seen = replace(seen, busy=tuple(active_groups(names, self.source, self.target)))
            if not problems(step, seen):
                groups = self._translate(names, mirror)
        elif Check.GROUPS_PLACED in checks:
            groups = _groups_of(history)
            names = [row.group for row in groups]
            follower, bound = self.follower, next_run(self.archive, self.follower)[1]
            refuse_other_target(
                self.target,
                previous_binding(self.archive, follower, bound),
                follower,
                said="Nothing was changed",
            )
            seen = replace(
                seen,
                changed=tuple(changes_of_target(self.target, mirror)),
                busy=tuple(active_groups(names, self.source, self.target)),
                misplaced=tuple(misplaced_groups(names, mirror.runs, self.source, self.target)),
            )
        return seen, source.ends, mirror, groups

    def _mirror(self, engine: RepublishEngine) -> None:
        """Send sealed records; a run that was killed is finished first."""
        for _ in range(PASSES):
            republish = plan_republish(
                self.archive, self.target, self.request.mirror, now=self.clock(), apply=True
            )
            republish.execute(engine, self.clock)
            if self.signer is not None and republish.run.has_ended:
                path = sign_run(self.archive, republish.run, self.signer, self.clock())
                say(f"cut-over {self.request.run_name}: evidence: {path}")
            if not look_at_mirror(self.archive, self.follower).unsent:
                return

    def _described_names(self) -> list[str]:
        """Describe the source's groups once more, and return those that move."""
        root, snapshot = self.archive.root, self.archive.snapshot()
        describe = describe_with(self.source.config, parts_before(root))
        # An older description doesn't tell of groups that are new since.
        if describe is not None and not capture(snapshot, describe, self.clock).is_current:
            raise KafkaUnavailableError(
                f"Kafka at {self.source.config.bootstrap_servers}, the source, didn't describe its "
                "groups; take step groups again. Nothing was changed"
            )
        names = self._names()
        if not names and moment_at(root, None, Part.GROUPS) is None:
            raise ConfigError(
                f"{root} has no offsets of consumer groups: no validation has noted them; add "
                "groups to the pipeline's describe_cluster, then drain and validate"
            )
        if not self.request.groups:
            _refuse_untold_groups(root)
        return names

    def _names(self) -> list[str]:
        """Return the groups that move: those that were named, or all that have offsets."""
        if self.request.groups:
            return list(self.request.groups)
        moment = moment_at(self.archive.root, None, Part.GROUPS)
        described = (moment.groups if moment is not None else None) or ()
        return sorted(group.name for group in described if group.offsets)

    def _moved_names(self, runs: Iterable[RepublishRun]) -> list[str]:
        """Return the groups that move, and those that were moved, which may be gone since."""
        found = {row.group for document in self.history() for row in document.groups or ()}
        if not self.request.groups:
            # A step that was killed has noted nothing else.
            found |= {name for run in runs for name in recorded_groups(run.folder)}
        return sorted({*self._names(), *found})

    def _translate(self, names: list[str], mirror: Mirror) -> list[CutOverGroupRow]:
        rows: list[CutOverGroupRow] = []
        groups = ConsumerGroups(self.target.config)
        if names and not mirror.runs:
            raise ConfigError(
                f"the mirror {self.request.run_name} has sent no record, so no group has a place "
                "in the target: nothing has to be moved. Create the topics as docs/recovery.md "
                "says, and start the clients there. Nothing was changed"
            )
        if not names:
            return rows
        run = mirror.runs[-1]
        offset_map = read_map(run)
        beside = look_beside(self.archive, run, offset_map, self.target)
        for name in names:
            records = GroupRecords(run.folder, name)
            plan = plan_group(
                self.archive,
                run,
                offset_map,
                self.target,
                groups,
                records,
                group=name,
                to_group=name,
                archived=archived_offsets(self.archive.root, name, None),
                apply=True,
                beside=beside,
            )
            _, record = apply_plan(plan, records, groups)
            _refuse_read_on(plan, groups)
            if record is None or record.sources != plan.committed:
                _note_place(plan, records, groups)
            self._tell(CutOverStep.GROUPS, f"{name}: {plan.summary()}")
            for note in plan.notes:
                self._tell(CutOverStep.GROUPS, f"{name}: {note}")
            rows.append(
                CutOverGroupRow(group=name, read_again=plan.read_again, offsets=_rows(plan.after))
            )
        return rows

    def _document(
        self,
        step: str,
        started: datetime,
        clusters: tuple[str, str],
        found: list[str],
        *,
        ends: Mapping[TopicPartition, int],
        lag: int,
        mirror: Mirror,
        groups: list[CutOverGroupRow] | None,
        back: list[str],
        notes: list[str] | None = None,
    ) -> CutOverDocument:
        finished = self.clock()
        content: dict[str, Any] = {
            "format_version": FORMAT_VERSION,
            "run_name": self.request.run_name,
            "step": step,
            "verdict": "refused" if found else "passed",
            "run": self.run,
            "started_at": started.isoformat(timespec="milliseconds"),
            "finished_at": finished.isoformat(timespec="milliseconds"),
            "source_cluster_id": clusters[0],
            "target_cluster_id": clusters[1],
            "ends": [row.content() for row in _rows(ends)],
            "lag": lag,
            "records": mirror.records,
            "runs": len(mirror.runs),
            "last_run": mirror.runs[-1].key if mirror.runs else None,
            "groups": None if groups is None else [row.content() for row in groups],
            "problems": found,
            "notes": notes or [],
            "back": back,
        }
        document = CutOverDocument.model_validate(content)
        where = write_step(self.archive.root, self.key, document, finished)
        level = Level.ERROR if found else Level.GOOD
        say(Line(f"cut-over {self.request.run_name}: {summary(document)}", level))
        for line in [*found, *back]:
            self._tell(step, line)
        self._tell(step, f"noted in {where}")
        self._sign(where, document)
        return document

    def _sign(self, where: str, document: CutOverDocument) -> None:
        """Sign a step's observation, as it is in the archive."""
        if self.signer is None:
            return
        # Not at the top: many cut-overs aren't signed.
        from kafka_drain.evidence.signing import sign

        name = where.removeprefix(f"{FOLDER}/").removesuffix(".json").replace("/", "-")
        said, now = document.content(), self.clock()
        path = sign(self.archive, self.signer, "cut-over", name, said, [where], now)
        self._tell(document.step, f"evidence: {path}")

    def _tell(self, step: str, line: str) -> None:
        name = step.value if isinstance(step, CutOverStep) else step
        say(f"cut-over {self.request.run_name}: {name}: {line}")


def _refuse_untold_groups(root: UPath) -> None:
    """Refuse to move all groups if the source hasn't told of all: some would be left behind.

    Raises:
        GroupError: Says what is missing.
    """
    newest = next(iter(MOMENTS.links(root)), None)
    if newest is None:
        return
    seen = newest.parts[Part.GROUPS]
    if seen.outcome is PartOutcome.OFF:
        return
    missing = [seen.detail or str(seen.outcome)]
    if seen.outcome is PartOutcome.CAPTURED:
        missing = [part for part in seen.detail.split("; ") if _UNTOLD.search(part)]
    if missing:
        raise GroupError(
            f"the source hasn't told the offsets of all groups ({'; '.join(missing[:_SHOWN])}): "
            "some would be left behind. Take step groups again, grant Describe on the groups, or "
            "name those that move (groups; --group). Nothing was changed"
        )


def _not_back(failed: Sequence[KafkaDrainError], groups: int) -> KafkaDrainError:
    """Return the error of a way back that some groups can't go: only what may pass is tried again.

    Args:
        failed: The error of each of them.
        groups: The number of all groups.
    """
    first = next((error for error in failed if not isinstance(error, TransientError)), failed[0])
    others = "" if len(failed) == groups else f" The other {groups - len(failed):,} aren't held up"
    return type(first)(
        f"{BACK}: {len(failed):,} of {groups:,} groups can't go back: "
        f"{'. '.join(map(str, failed))}.{others}"
    )


def _refuse_other_cluster(recorded: Iterable[GroupRecords], cluster_id: str) -> None:
    """Refuse to go back in another cluster than that of the groups, which may be the source.

    Raises:
        ConfigError: Names both.
    """
    for record in (record for records in recorded for record in records.all()):
        if not record.is_undone and is_other_cluster(record.cluster_id, cluster_id):
            raise ConfigError(
                f"the target is Kafka cluster {cluster_id}, expected {record.cluster_id}, where "
                f"group {record.group} was moved to; correct the target's connection "
                "(--to-bootstrap). Nothing was changed"
            )


def _refuse_read_on(plan: TranslationPlan, groups: ConsumerGroups) -> None:
    """Refuse a group that was translated before, and whose consumers have read in the target since.

    Raises:
        GroupError: Names its offsets, and how to set them.
    """
    now = offsets_of(groups.committed(plan.to_group, plan.after))
    moved = [
        f"{tp} is at {now.get(tp, 'no offset')}, expected {at}"
        for tp, at in sorted(plan.after.items())
        if now.get(tp) != at
    ]
    if moved:
        more = " …" if len(moved) > _SHOWN else ""
        raise GroupError(
            f"group {plan.to_group} has read in the target since its offsets were committed there: "
            f"{'; '.join(moved[:_SHOWN])}{more}. Nothing was changed; stop its consumers, set "
            "these offsets with kafka-consumer-groups.sh --reset-offsets at the target, then take "
            "step groups again"
        )


def _note_place(plan: TranslationPlan, records: GroupRecords, groups: ConsumerGroups) -> None:
    """Note the offsets of a group that had its place in the target before it was translated.

    It has no record yet, or one of other offsets in the source that lead to the same place.
    """
    before = groups.committed(plan.to_group, plan.after)
    if offsets_of(before) == plan.after:
        records.mark_applied(records.write(plan, before, group_existed=True))


def summary(document: CutOverDocument) -> str:
    """Return a step's observation in one line."""
    ends = sum(row.offset for row in document.ends)
    groups = "" if document.groups is None else f"; {len(document.groups):,} groups"
    return (
        f"{document.step} {document.verdict}: the source ends at {ends:,} offsets in "
        f"{len(document.ends):,} partitions, {document.lag:,} of them aren't sealed; the mirror "
        f"has sent and compared {document.records:,} records in {document.runs:,} runs{groups}"
    )


def _rows(offsets: Mapping[TopicPartition, int]) -> list[EndRow]:
    return [
        EndRow(topic=tp.topic, partition=tp.partition, offset=at)
        for tp, at in sorted(offsets.items())
    ]


def _taken(history: list[CutOverDocument]) -> list[tuple[str, bool]]:
    return [(document.step, document.verdict == "passed") for document in history]


def _newest(history: list[CutOverDocument], step: CutOverStep) -> CutOverDocument | None:
    return next((d for d in reversed(history) if d.step == step.value), None)


def _ends_of(history: list[CutOverDocument], step: CutOverStep) -> dict[TopicPartition, int]:
    document = _newest(history, step)
    rows = document.ends if document is not None else []
    return {TopicPartition(row.topic, row.partition): row.offset for row in rows}


def _groups_of(history: list[CutOverDocument]) -> list[CutOverGroupRow]:
    document = _newest(history, CutOverStep.GROUPS)
    return list((document.groups if document is not None else None) or [])


def _sent(mirror: Mirror) -> dict[str, int]:
    """Return the number of records that a mirror has sent, by target topic."""
    counts: dict[str, int] = {}
    for run in mirror.runs:
        receipt = run.receipt()
        for sent in receipt["sent"] if receipt else ():
            topic = sent["target_topic"]
            counts[topic] = counts.get(topic, 0) + sent["records"]
    return counts
