"""A cut-over's steps: what each does, in which order, what it refuses, notes and restores."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kafka_drain.archive.cluster_moments import note_moment
from kafka_drain.archive.cut_overs import cut_over_names
from kafka_drain.cut_over import looking
from kafka_drain.cut_over import run as module
from kafka_drain.cut_over.steps import CutOverStep
from kafka_drain.errors import (
    AuthorizationError,
    ConfigError,
    CutOverError,
    GroupError,
    GroupInUseError,
    KafkaDrainError,
    KafkaUnavailableError,
    LagError,
    TopicError,
)
from kafka_drain.evidence.keys import SigningKey
from kafka_drain.evidence.signing import Signer
from kafka_drain.evidence.statement import Statement
from kafka_drain.evidence.verifying import verify_evidence
from kafka_drain.kafka.cluster_state import (
    ClusterState,
    GroupOffset,
    GroupState,
    Part,
    PartOutcome,
    PartResult,
    Settings,
)
from kafka_drain.kafka.consumer_groups import Committed, ConsumerGroups, Member
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.applying import apply_plan, undo
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.planning.follow import next_run
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.runs import RepublishRun
from tests.kafka_drain.cut_over.mirrored import C0, FOLLOWER, T0, Move, Offsets, nobody
from tests.kafka_drain.made_archive import MadeArchive, dense


class Mirror:
    """Takes the place of the mirror's republish: each run sends what is sealed."""

    def __init__(self, move: Move) -> None:
        self.move = move
        self.runs: list[RepublishRun] = []
        self.asked: list[RepublishRequest] = []
        self.sends: Callable[[], RepublishRun] = move.mirror

    def planned(self, archive: Any, cluster: Any, request: Any, *, now: Any, apply: bool) -> Any:
        assert (archive, cluster) == (self.move.made.archive, self.move.target)
        assert apply
        self.asked.append(request)
        return self

    def execute(self, engine: object, clock: object) -> None:
        assert engine is nobody
        self.runs.append(self.sends())

    @property
    def run(self) -> RepublishRun:
        return self.runs[-1]


@pytest.fixture
def move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Move:
    """Ten records that the mirror hasn't sent yet; group g has read four of them."""
    move = Move.make(tmp_path)
    for each in (looking, module):
        monkeypatch.setattr(each, "ConsumerGroups", move.groups_of)
    monkeypatch.setattr(module, "describe_with", lambda *_: None)
    monkeypatch.setattr(module, "archived_offsets", lambda *_: None)
    monkeypatch.setattr(module, "plan_group", translation)
    move.at(move.source).offsets["g"] = {T0: Committed(4)}
    return move


def translation(archive: Any, run: RepublishRun, *_: Any, group: str, **more: Any) -> Any:
    """Take the place of the plan of a group's translation: its offsets are equal in the target."""
    return Move.translation(run, at=4, group=group)


@pytest.fixture
def mirror(move: Move, monkeypatch: pytest.MonkeyPatch) -> Mirror:
    mirror = Mirror(move)
    monkeypatch.setattr(module, "plan_republish", mirror.planned)
    return mirror


def refused(
    move: Move, step: CutOverStep, error: type[Exception] = CutOverError, **request: Any
) -> str:
    """Take a step that is refused and noted as that; return why."""
    with pytest.raises(error) as raised:
        move.take(step, **request)
    newest = move.cut_over().history()[-1]
    assert (newest.step, newest.verdict) == (step.value, "refused")
    assert all(problem in str(raised.value) for problem in newest.problems)
    assert type(raised.value) is error
    return str(raised.value)


def test_take_all_steps(move: Move, mirror: Mirror) -> None:
    """Taken in order, all steps pass; the mirror sends everything, and the group has its offset."""
    move.through(CutOverStep.HAND_OVER)

    assert [document.step for document in move.cut_over().history()] == [
        s.value for s in CutOverStep
    ]
    assert mirror.asked[0] == move.cut_over().request.mirror
    assert move.at(move.target).offsets == {"g": {C0: Committed(4)}}
    assert move.at(move.source).offsets == {"g": {T0: Committed(4)}}
    newest = move.cut_over().history()[-1]
    assert (newest.source_cluster_id, newest.target_cluster_id) == ("cluster-1", "target")
    assert (newest.records, newest.lag, newest.problems) == (10, 0, [])
    assert (newest.run, newest.run_name) == ("tests", "move")
    assert (newest.runs, newest.last_run) == (len(mirror.runs), mirror.runs[-1].key)
    assert [(row.topic, row.partition, row.offset) for row in newest.ends] == [("t", 0, 10)]
    # The source was watched in one step only, for as long as was asked.
    assert move.paused == [5]
    assert newest.groups is not None
    assert [row.group for row in newest.groups] == ["g"]


def test_take_same_cluster(move: Move, mirror: Mirror) -> None:
    """A cluster isn't moved to itself."""
    move.target.id = move.source.id

    with pytest.raises(ConfigError, match="expected two clusters"):
        move.take(CutOverStep.MIRROR)

    assert (mirror.asked, move.cut_over().history()) == ([], [])


@pytest.mark.parametrize("step", [step for step in CutOverStep if step is not CutOverStep.MIRROR])
def test_take_too_early(step: CutOverStep, move: Move, mirror: Mirror) -> None:
    """A step before its turn does nothing but note that it was refused."""
    before = dict(move.target.logs)

    assert "step mirror has to pass first" in refused(move, step)

    assert mirror.asked == []
    assert move.target.logs == before
    assert move.at(move.target).offsets == {}


def test_take_mirror_lags(move: Move, mirror: Mirror) -> None:
    """As many offsets as allowed may be missing; of one more it is said that it may pass later."""
    move.end_at(move.source, T0, end=12)
    assert move.take(CutOverStep.MIRROR).lag == 2
    move.end_at(move.source, T0, end=13)

    said = refused(move, CutOverStep.MIRROR, LagError)

    assert "lacks 3 offsets, expected at most 2" in said
    assert move.cut_over().history()[-1].lag == 3


def test_take_mirror_handed_over(move: Move, mirror: Mirror) -> None:
    """What can't pass by itself isn't told as lag; nothing more is sent."""
    move.through(CutOverStep.HAND_OVER)
    sent = len(mirror.runs)
    move.made.seal({T0: dense(10, 15)})

    assert "handed over" in refused(move, CutOverStep.MIRROR, CutOverError)

    assert len(mirror.runs) == sent


def test_take_hand_over_again(move: Move, mirror: Mirror, said: list[str]) -> None:
    """A hand-over that has happened isn't done again, whatever the target has by now."""
    move.through(CutOverStep.HAND_OVER)
    history = move.cut_over().history()
    move.end_at(move.target, C0, end=99)

    assert move.take(CutOverStep.HAND_OVER) == history[-1]

    assert move.cut_over().history() == history
    assert "nothing is done" in said[-1]


def evidence(move: Move, kind: str) -> dict[str, Statement]:
    """What was signed, by the name of its file."""
    assert move.signer is not None
    keys = {move.signer.key.public.id: move.signer.key.public}
    folder = Path(str(move.made.root)) / "evidence" / kind
    return {
        path.stem: verify_evidence(path.name, path.read_bytes(), keys).statement
        for path in sorted(folder.glob("*.json"))
    }


def test_take_signed(move: Move, mirror: Mirror, tmp_path: Path) -> None:
    """Each step and each run of the mirror is signed, with the files that it is about."""
    move.signer = Signer(SigningKey.create(tmp_path / "key"))
    move.through(CutOverStep.HAND_OVER)

    signed, cut_over = evidence(move, "cut-over"), move.cut_over()
    names = cut_over_names(move.made.root, cut_over.key)
    assert [each.document for each in signed.values()] == [
        document.content() for document in cut_over.history()
    ]
    assert [[*each.files] for each in signed.values()] == [
        [f"cut-over/{cut_over.key}/{name}"] for name in names
    ]
    assert [*evidence(move, "republish")] == [run.key for run in move.mirrored().runs]
    # A hand-over that was killed before it was signed: taken again, it only is.
    Path(str(move.made.root), "evidence", "cut-over", f"{[*signed][-1]}.json").unlink()
    move.take(CutOverStep.HAND_OVER)
    again = evidence(move, "cut-over")
    assert [(name, each.document, each.files) for name, each in again.items()] == [
        (name, each.document, each.files) for name, each in signed.items()
    ]


def test_take_mirror_unfinished_signed(move: Move, mirror: Mirror, tmp_path: Path) -> None:
    """Of a run of the mirror without a receipt, nothing is signed; the step is refused."""
    move.signer = Signer(SigningKey.create(tmp_path / "key"))
    mirror.sends = lambda: next_run(move.made.archive, FOLLOWER)[0]

    assert "lacks 10 offsets" in refused(move, CutOverStep.MIRROR, LagError)

    assert evidence(move, "republish") == {}
    assert len(evidence(move, "cut-over")) == 1


@pytest.mark.parametrize(("sealed", "passes"), [(2, True), (3, False)])
def test_take_mirror_while_drains_go_on(
    sealed: int, passes: bool, move: Move, mirror: Mirror
) -> None:
    """What a drain seals meanwhile is sent in the same step, but not for ever: the rest is lag."""

    def sends() -> RepublishRun:
        run = move.mirror()
        end = move.sent
        move.made.seal({T0: dense(end, end + sealed)})
        move.end_at(move.source, T0, end=end + sealed)
        return run

    mirror.sends = sends
    if passes:
        assert move.take(CutOverStep.MIRROR).verdict == "passed"
    else:
        said = refused(move, CutOverStep.MIRROR, LagError)
        assert "lacks 3 offsets, expected at most 2" in said
    assert len(mirror.runs) == module.PASSES
    assert (move.mirrored().unsent, move.mirrored().lacks) == (1, sealed)

    mirror.runs.clear()
    mirror.sends = move.mirror
    assert move.take(CutOverStep.MIRROR).verdict == "passed"
    assert len(mirror.runs) == 1


def test_take_mirror_after_kill(move: Move, mirror: Mirror) -> None:
    """A run that was killed is finished first; what was sealed since goes with the next one."""

    def finishes() -> RepublishRun:
        mirror.sends = move.mirror
        run = move.mirror()
        move.made.seal({T0: dense(10, 12)})
        move.end_at(move.source, T0, end=12)
        return run

    mirror.sends = finishes

    seen = move.take(CutOverStep.MIRROR)

    assert (seen.records, seen.runs, move.mirrored().unsent) == (12, 2, 0)


def test_take_last_mirror_inexact(move: Move, mirror: Mirror) -> None:
    """The last mirror passes only if all that was sent was compared with success."""
    move.through(CutOverStep.LAST_DRAIN)
    move.made.seal({T0: dense(10, 12)})
    move.end_at(move.source, T0, end=12)
    move.take(CutOverStep.PRODUCERS_OFF)
    move.take(CutOverStep.LAST_DRAIN)
    mirror.sends = lambda: move.mirror(is_exact=False, lost=1)

    said = refused(move, CutOverStep.LAST_MIRROR)

    assert f"run {mirror.runs[-1].key} isn't exact" in said
    assert move.mirrored().unsent == 0


@pytest.mark.parametrize("change", [1, -1])
def test_take_producers_off_moving(move: Move, mirror: Mirror, change: int) -> None:
    """The source's ends are compared over the time that it is watched for."""
    move.through(CutOverStep.MIRROR)
    asked: list[float] = []

    def meanwhile() -> None:
        asked.append(move.source.logs[T0].end)
        move.end_at(move.source, T0, end=10 + change)

    move.meanwhile = meanwhile
    assert f"t-0: {change}" in refused(move, CutOverStep.PRODUCERS_OFF)
    move.meanwhile = lambda: None

    assert move.take(CutOverStep.PRODUCERS_OFF).ends[0].offset == 10 + change
    assert asked == [10]


def test_take_producer_comes_back(move: Move, mirror: Mirror) -> None:
    """From then on, each step compares with the ends of when the producers were off."""
    move.through(CutOverStep.PRODUCERS_OFF)
    # Drained and sealed, and so not missing: only the end tells of the producer.
    move.made.seal({T0: dense(10, 11)})
    move.end_at(move.source, T0, end=11)

    for _ in range(2):
        said = refused(move, CutOverStep.LAST_DRAIN)
        assert "t-0: 1" in said
        assert "turn them off" in said

    for step in (CutOverStep.PRODUCERS_OFF, CutOverStep.LAST_DRAIN, CutOverStep.LAST_MIRROR):
        assert move.take(step).verdict == "passed"
    move.end_at(move.source, T0, end=12)
    assert "t-0: 1" in refused(move, CutOverStep.GROUPS)
    assert move.at(move.target).offsets == {}


def test_take_last_drain_undrained(move: Move, mirror: Mirror) -> None:
    """The last drain passes once receipts cover all that the source has."""
    move.end_at(move.source, T0, end=12)
    move.through(CutOverStep.PRODUCERS_OFF)
    assert "t-0: 2" in refused(move, CutOverStep.LAST_DRAIN)

    move.made.seal({T0: dense(10, 12)})

    assert move.take(CutOverStep.LAST_DRAIN).verdict == "passed"


@pytest.mark.parametrize("where", ["source", "target"])
def test_take_groups_busy(where: str, move: Move, mirror: Mirror) -> None:
    """While a consumer is active, in either cluster, no offset is committed."""
    move.through(CutOverStep.LAST_MIRROR)
    groups = move.at(getattr(move, where))
    groups.members["g"] = (Member("c", "/10.0.0.1"),)

    assert f"at the {where}: stop these consumers" in refused(move, CutOverStep.GROUPS)

    assert move.at(move.target).offsets == {}
    assert move.cut_over().history()[-1].groups is None
    groups.members = {}
    [row] = move.take(CutOverStep.GROUPS).groups or []
    assert (row.group, [each.offset for each in row.offsets]) == ("g", [4])


def test_take_groups_unknown(move: Move, mirror: Mirror) -> None:
    """Without named groups, and without any moment that has them, nothing is handed over."""
    move.through(CutOverStep.LAST_MIRROR)

    with pytest.raises(ConfigError, match="has no offsets of consumer groups"):
        move.take(CutOverStep.GROUPS, groups=())


def deletes(move: Move) -> None:
    move.end_at(move.target, C0, first=3)


def adds(move: Move) -> None:
    move.end_at(move.target, C0, end=11)


def reads_on(move: Move) -> None:
    move.at(move.source).offsets["g"] = {T0: Committed(5)}


def resets(move: Move) -> None:
    move.at(move.target).offsets["g"] = {C0: Committed(0)}


def joins(move: Move) -> None:
    move.at(move.target).members["g"] = (Member("c", "/10.0.0.1"),)


def produces(move: Move) -> None:
    move.end_at(move.source, T0, end=11)


def seals(move: Move) -> None:
    move.made.seal({T0: dense(10, 12)})


@pytest.mark.parametrize("step", [CutOverStep.VERIFY, CutOverStep.HAND_OVER])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (deletes, "copy-0 begins at 3, the mirror's first record is 0"),
        (adds, "copy-0 has 1 records after the mirror's last one"),
        (reads_on, "group g is at 5 of t-0 at the source"),
        (resets, "group g is at 0 of copy-0 at the target"),
        (joins, "group g is STABLE"),
        (produces, "the source's ends have moved"),
        (seals, "1 sealed files weren't sent"),
    ],
)
def test_take_verify_changed(
    step: CutOverStep, changes: Callable[[Move], None], words: str, move: Move, mirror: Mirror
) -> None:
    """What changes in either cluster after the groups have moved is seen, up to the hand-over."""
    move.through(CutOverStep.GROUPS if step is CutOverStep.VERIFY else CutOverStep.VERIFY)
    sent = len(mirror.runs)

    changes(move)

    assert words in refused(move, step)
    assert len(mirror.runs) == sent


def test_take_verify_changed_for_good(move: Move, mirror: Mirror) -> None:
    """An attempt that continues where others wrote is refused again: which one isn't, is said."""
    move.through(CutOverStep.GROUPS)
    adds(move)

    said = refused(move, CutOverStep.VERIFY)

    assert "the next attempt needs another run_name" in said
    assert "continues there, unless the target has changed" in said


def test_take_hand_over_refused(move: Move, mirror: Mirror) -> None:
    """A hand-over that was refused has handed nothing over: there is a way back."""
    move.through(CutOverStep.VERIFY)
    adds(move)
    refused(move, CutOverStep.HAND_OVER)

    back = move.cut_over().history()[-1].back

    assert any("--back --apply" in line for line in back)
    assert move.cut_over().go_back(apply=True) is not None


def test_take_verify_recreated(move: Move, mirror: Mirror) -> None:
    """A target topic that was made again isn't the one that was sent to; nothing is noted."""
    move.through(CutOverStep.GROUPS)
    count = len(move.cut_over().history())
    move.target.topic_ids = {"copy": "another"}

    with pytest.raises(TopicError, match="recreated"):
        move.take(CutOverStep.VERIFY)

    assert len(move.cut_over().history()) == count


def test_take_cluster_down(move: Move, mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that can't look notes nothing, and can be taken again."""
    move.through(CutOverStep.MIRROR)

    def down() -> str:
        raise KafkaUnavailableError("no response from Kafka")

    with monkeypatch.context() as patch:
        patch.setattr(move.target, "cluster_id", down)
        with pytest.raises(KafkaUnavailableError):
            move.take(CutOverStep.PRODUCERS_OFF)

    assert len(move.cut_over().history()) == 1
    assert move.take(CutOverStep.PRODUCERS_OFF).verdict == "passed"


@pytest.mark.parametrize("apply", [False, True])
def test_go_back(apply: bool, move: Move, mirror: Mirror) -> None:
    """Only with apply, the target's group gets back what it had; the source is left alone."""
    move.through(CutOverStep.GROUPS)
    count = len(move.cut_over().history())
    move.now = move.now.replace(second=1)

    back = move.cut_over().go_back(apply=apply)

    history = move.cut_over().history()
    assert move.at(move.source).offsets == {"g": {T0: Committed(4)}}
    assert bool(move.at(move.target).offsets.get("g")) is not apply
    assert (back is not None, len(history)) == (apply, count + apply)
    if back is not None:
        assert (back.step, back.verdict, history[-1]) == ("back", "passed", back)
        assert "topic copy keeps 10 records at the target" in back.notes
        assert any(note.startswith("group g: undone") for note in back.notes)
        assert "step mirror has to pass first" in refused(move, CutOverStep.PRODUCERS_OFF)


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([AuthorizationError("add the ACL")], AuthorizationError),
        ([GroupInUseError("it is read")], GroupInUseError),
        ([GroupInUseError("it is read"), GroupError("it has moved")], GroupError),
    ],
)
def test_go_back_refused(
    errors: list[KafkaDrainError],
    expected: type[KafkaDrainError],
    move: Move,
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A group that can't go back holds up no other; a retry follows if it can help each of them."""
    sent, groups = move.mirror(), [f"{number}" for number in range(len(errors))]
    for group in (*groups, "g"):
        move.translate(sent, group=group)
    delete, count = move.at(move.target).delete, len(move.cut_over().history())
    refusals = dict(zip(groups, errors, strict=True))

    def refuses(group: str) -> None:
        if error := refusals.get(group):
            raise error
        delete(group)

    monkeypatch.setattr(move.at(move.target), "delete", refuses)

    with pytest.raises(expected, match=f"{len(errors)} of {len(errors) + 1} groups") as raised:
        move.cut_over(groups=(*groups, "g")).go_back(apply=True)

    assert all(str(error) in str(raised.value) for error in errors)
    assert "The other 1 aren't held up" in str(raised.value)
    assert sorted(move.at(move.target).offsets) == groups
    assert len(move.cut_over().history()) == count
    refusals.clear()
    assert move.cut_over(groups=(*groups, "g")).go_back(apply=True) is not None
    assert move.at(move.target).offsets == {}


def test_go_back_of_several_runs(move: Move, mirror: Mirror) -> None:
    """What was translated by earlier runs of the mirror is undone too, newest first."""
    move.translate(move.mirror(), at=4)
    move.made.seal({T0: dense(10, 15)})
    move.translate(move.mirror(), at=4)

    move.cut_over().go_back(apply=True)

    assert not move.at(move.target).offsets.get("g")
    for run in move.mirrored().runs:
        assert looking.newest_record([run], "g") is None


def test_go_back_of_several_runs_shown(move: Move, mirror: Mirror, said: list[str]) -> None:
    """The way back is shown, too, if a group was translated again by a later run."""
    move.translate(move.mirror(), at=4)
    move.made.seal({T0: dense(10, 15)})
    later = move.mirror()
    records, plan = GroupRecords(later.folder, "g"), move.translation(later, at=12)
    before = move.at(move.target).offsets["g"]
    records.mark_applied(records.write(plan, before, group_existed=True))
    move.at(move.target).offsets["g"] = {C0: Committed(12)}

    assert move.cut_over().go_back(apply=False) is None

    assert move.at(move.target).offsets["g"] == {C0: Committed(12)}
    move.cut_over().go_back(apply=True)
    assert not move.at(move.target).offsets.get("g")


@pytest.mark.parametrize("is_killed", [False, True])
def test_go_back_of_several_runs_new_partition(is_killed: bool, move: Move, mirror: Mirror) -> None:
    """A group that the first translation created is deleted, whatever a later one has added."""
    move.translate(move.mirror(), at=4)
    move.made.seal({T0: dense(10, 15)})
    later = move.mirror()
    plan = move.translation(later, at=4)
    plan.after = {C0: 4, TopicPartition("copy", 1): 0}
    records, there = GroupRecords(later.folder, "g"), cast(ConsumerGroups, move.at(move.target))
    apply_plan(plan, records, there)
    if is_killed:
        undo(records, there, "g", apply=True)

    move.cut_over().go_back(apply=True)

    assert move.at(move.target).offsets == {}


@pytest.mark.parametrize("there", [{}, {C0: Committed(4)}])
def test_go_back_other_target(there: Offsets, move: Move, mirror: Mirror) -> None:
    """In another cluster than that of the groups, such as the source, nothing is undone."""
    move.through(CutOverStep.GROUPS)
    groups, moved = move.at(move.target), move.at(move.target).offsets
    move.target.id, groups.offsets = "another", {"g": dict(there)} if there else {}
    held = dict(groups.offsets)

    for apply in (False, True):
        with pytest.raises(ConfigError, match="is Kafka cluster another, expected target"):
            move.cut_over().go_back(apply=apply)

    assert groups.offsets == held
    move.target.id, groups.offsets = "target", moved
    move.cut_over().go_back(apply=True)
    assert groups.offsets == {}


def test_take_groups_without_runs(move: Move, mirror: Mirror, tmp_path: Path) -> None:
    """Without any record, no run of the mirror says where groups go on: refused."""
    move.made = MadeArchive(tmp_path / "empty", {"t": "id-1"})
    move.made.start_at({T0: 10})
    move.end_at(move.source, T0, first=10)
    mirror.sends = lambda: None  # type: ignore[assignment, return-value]
    move.through(CutOverStep.LAST_MIRROR)

    with pytest.raises(ConfigError, match="has sent no record"):
        move.take(CutOverStep.GROUPS)

    # Nor is there a group that would need one.
    described(move, names=())
    assert move.take(CutOverStep.GROUPS, groups=()).groups == []


def test_take_groups_asks(
    move: Move, mirror: Mirror, monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    """Groups are those of the source, and are placed in the target by the newest run's map."""
    described(move)
    move.take(CutOverStep.MIRROR)
    move.made.seal({T0: dense(10, 15)})
    move.end_at(move.source, T0, end=15)
    move.through(CutOverStep.LAST_MIRROR)
    asked: list[Any] = []

    def planned(*given: Any, **named: Any) -> Any:
        asked.append((given, named))
        return Move.translation(given[1], at=4, group=named["group"])

    def describe(*given: Any) -> None:
        asked.append(given)

    monkeypatch.setattr(module, "parts_before", lambda _: ["groups"])
    monkeypatch.setattr(module, "describe_with", describe)
    monkeypatch.setattr(module, "archived_offsets", lambda _, *of: of)
    monkeypatch.setattr(module, "plan_group", planned)
    monkeypatch.setattr(module, "look_beside", lambda _, run, *__: run.key)
    move.take(CutOverStep.GROUPS, groups=())

    newest = move.mirrored().runs[-1]
    assert len(move.mirrored().runs) > 1
    config, (given, named) = asked
    assert config == (move.source.config, ["groups"])
    archive, run, offset_map, target, groups, records = given
    assert (archive, run.key, target) == (move.made.archive, newest.key, move.target)
    assert offset_map.run == newest.key
    assert groups is move.at(move.target)
    assert named == {
        "group": "g",
        "to_group": "g",
        "archived": ("g", None),
        "apply": True,
        "beside": newest.key,
    }
    assert records.newest_open() is not None
    assert any("groups: g: planned" in line for line in said)
    assert any("groups: g: a note" in line for line in said)


@pytest.mark.parametrize("groups", [(), ("h",)])
def test_go_back_group_no_longer_described(
    groups: tuple[str, ...], move: Move, mirror: Mirror
) -> None:
    """Each group that was moved goes back, also if the source or the request no longer has it."""
    described(move)
    move.through(CutOverStep.LAST_MIRROR)
    move.take(CutOverStep.GROUPS, groups=("g",) if groups else ())
    assert move.at(move.target).offsets["g"]
    described(move, names=())

    back = move.cut_over(groups=groups).go_back(apply=True)

    assert move.at(move.target).offsets == {}
    assert back is not None
    assert any(note.startswith("group g: undone") for note in back.notes)


def test_go_back_group_of_killed_step(move: Move, mirror: Mirror) -> None:
    """Of all groups, one goes back that a killed step has moved, and that has expired since."""
    described(move)
    move.through(CutOverStep.LAST_MIRROR)
    move.translate(move.mirrored().runs[-1])
    described(move, names=())

    move.cut_over(groups=()).go_back(apply=True)

    assert move.at(move.target).offsets == {}


def test_go_back_committed_since(move: Move, mirror: Mirror) -> None:
    """If the group has read on in the target, its offsets there aren't taken from it."""
    move.through(CutOverStep.GROUPS)
    move.at(move.target).offsets["g"] = {C0: Committed(7)}

    with pytest.raises(GroupError, match="copy-0 is at 7"):
        move.cut_over().go_back(apply=True)

    assert move.at(move.target).offsets["g"] == {C0: Committed(7)}


def test_go_back_in_use(move: Move, mirror: Mirror) -> None:
    """Nor if its consumers are active."""
    move.through(CutOverStep.GROUPS)
    move.at(move.target).members["g"] = (Member("c", "/10.0.0.1"),)

    with pytest.raises(GroupInUseError):
        move.cut_over().go_back(apply=True)


def test_go_back_handed_over(move: Move, mirror: Mirror) -> None:
    """After the hand-over there is no way back: what producers send isn't in the source."""
    move.through(CutOverStep.HAND_OVER)

    for apply in (False, True):
        with pytest.raises(CutOverError, match="no way back by this tool"):
            move.cut_over().go_back(apply=apply)

    assert move.at(move.target).offsets["g"] == {C0: Committed(4)}


def test_take_groups_again_same_place(
    move: Move, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that has committed behind a marker since goes on at the same record: noted anew."""
    move.through(CutOverStep.GROUPS)
    move.at(move.source).offsets["g"] = {T0: Committed(5)}
    assert "at 5 of t-0 at the source" in refused(move, CutOverStep.VERIFY)

    def same_place(archive: Any, run: RepublishRun, *_: Any, group: str, **more: Any) -> Any:
        plan = Move.translation(run, at=4, group=group)
        plan.committed = {T0: 5}
        return plan

    monkeypatch.setattr(module, "plan_group", same_place)
    move.take(CutOverStep.GROUPS)

    assert move.take(CutOverStep.VERIFY).verdict == "passed"
    move.cut_over().go_back(apply=True)
    assert move.at(move.target).offsets == {}


def test_take_groups_already_there(move: Move, mirror: Mirror) -> None:
    """A group that is at its new offsets already is in its place."""
    move.through(CutOverStep.LAST_MIRROR)
    move.at(move.target).offsets["g"] = {C0: Committed(4)}
    move.take(CutOverStep.GROUPS)

    assert move.take(CutOverStep.VERIFY).verdict == "passed"
    move.cut_over().go_back(apply=True)
    assert move.at(move.target).offsets == {"g": {C0: Committed(4)}}


def test_take_groups_read_on_at_target(move: Move, mirror: Mirror) -> None:
    """A group whose consumer has read in the target isn't in its place: the way out is told."""
    move.through(CutOverStep.GROUPS)
    move.at(move.target).offsets["g"] = {C0: Committed(6)}
    assert "g is at 6 of copy-0 at the target, it was" in refused(move, CutOverStep.VERIFY)

    with pytest.raises(GroupError, match=r"copy-0 is at 6, expected 4.*--reset-offsets"):
        move.take(CutOverStep.GROUPS)

    assert move.at(move.target).offsets["g"] == {C0: Committed(6)}
    move.at(move.target).offsets["g"] = {C0: Committed(4)}
    move.take(CutOverStep.GROUPS)
    assert move.take(CutOverStep.VERIFY).verdict == "passed"


def told(
    detail: str = "",
    outcome: PartOutcome = PartOutcome.CAPTURED,
    names: tuple[str, ...] = ("g",),
) -> ClusterState:
    """The source's answer: its groups, and what is missing."""
    parts = {part: PartResult(PartOutcome.CAPTURED, "") for part in Part}
    parts[Part.GROUPS] = PartResult(outcome, detail)
    offsets = (GroupOffset("t", 0, 4, None, ""),)
    groups = tuple(GroupState(name, "classic", "empty", offsets) for name in names)
    return ClusterState(
        "cluster-1", parts, Settings(), groups if outcome is PartOutcome.CAPTURED else None
    )


def described(move: Move, *answer: Any, **more: Any) -> None:
    """Describe the source."""
    text = move.now.isoformat(timespec="milliseconds")
    note_moment(move.made.root, told(*answer, **more), asked_at=text, answered_at=text)


@pytest.mark.parametrize(
    ("detail", "outcome"),
    [
        ("a: unanswered; only groups that this user may describe", PartOutcome.CAPTURED),
        ("a: not_authorised", PartOutcome.CAPTURED),
        ("only the first 1,000 of the cluster's groups by name", PartOutcome.CAPTURED),
        ("_TIMED_OUT", PartOutcome.UNANSWERED),
    ],
)
def test_take_groups_not_all_described(
    detail: str, outcome: PartOutcome, move: Move, mirror: Mirror
) -> None:
    """If all groups are to move, and the source didn't tell of all, none is left behind unseen."""
    described(move)
    move.through(CutOverStep.LAST_MIRROR)
    described(move, detail, outcome)

    with pytest.raises(GroupError, match=re.escape(detail.partition(";")[0])):
        move.take(CutOverStep.GROUPS, groups=())

    assert move.at(move.target).offsets == {}
    described(move, "only groups that this user may describe")
    assert move.take(CutOverStep.GROUPS, groups=()).verdict == "passed"


@pytest.mark.parametrize("groups", [(), ("g",)])
def test_take_groups_source_silent(
    groups: tuple[str, ...], move: Move, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the source doesn't answer, an older description doesn't say which groups there are now."""
    described(move)
    move.through(CutOverStep.LAST_MIRROR)
    count = len(move.cut_over().history())
    answer = ClusterState("", {}, Settings(), None)
    monkeypatch.setattr(module, "describe_with", lambda *_: lambda topics: answer)

    with pytest.raises(KafkaUnavailableError, match="Nothing was changed"):
        move.take(CutOverStep.GROUPS, groups=groups)

    assert move.at(move.target).offsets == {}
    assert len(move.cut_over().history()) == count
    answer = told(names=("g", "new"))
    taken = move.take(CutOverStep.GROUPS, groups=groups).groups or []
    assert [row.group for row in taken] == list(groups or ("g", "new"))


def test_take_groups_reads_runs_once(
    move: Move, mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many groups move, the mirror's runs are read once."""
    move.at(move.source).offsets["h"] = {T0: Committed(4)}
    looks: list[Any] = []
    monkeypatch.setattr(module, "look_beside", lambda *given: looks.append(given))
    described(move, names=("g", "h"))
    move.through(CutOverStep.LAST_MIRROR)
    move.take(CutOverStep.GROUPS, groups=("g", "h"))

    assert len(looks) == 1
