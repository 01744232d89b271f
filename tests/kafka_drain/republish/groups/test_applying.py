"""A group's offsets are committed and put back whole, wherever that is killed."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.errors import ArchiveError, GroupError, GroupInUseError
from kafka_drain.kafka.consumer_groups import Committed, Member
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.applying import apply_plan, undo, undo_all
from kafka_drain.republish.groups.group_records import GroupRecords, recorded_groups
from kafka_drain.republish.groups.translation import Contribution, TranslationPlan
from tests.kafka_drain.cut_over.mirrored import FakeGroups
from tests.kafka_drain.unsure_store import unsure_store

S0, S1 = TopicPartition("source", 0), TopicPartition("source", 1)
T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("other", 0)
Offsets = dict[TopicPartition, Committed]


class KilledError(Exception):
    """Raised where a process is killed."""


class Groups(FakeGroups):
    """Group g in a cluster; a commit may be killed, before or after it counts.

    Attributes:
        killed: When the next commit is killed: "before" or "after"; empty if it isn't.
        commits: What was committed.
    """

    def __init__(self, held: Offsets, *, exists: bool = True) -> None:
        super().__init__()
        if exists:
            self.offsets["g"] = dict(held)
        self.killed = ""
        self.commits: list[Offsets] = []

    @property
    def held(self) -> Offsets:
        """What the group has committed."""
        return self.offsets.get("g", {})

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        if self.killed == "before":
            raise KilledError
        self.commits.append(dict(offsets))
        super().commit(group, offsets)
        if self.killed == "after":
            raise KilledError


def plan_of(*targets: tuple[TopicPartition, TopicPartition, int], metadata: str = "") -> Any:
    """Return a plan that commits an offset of each target partition."""
    rows = tuple(
        Contribution(source, at, target, at, at, "exact", metadata=metadata)
        for source, target, at in targets
    )
    committed = {source: at for source, _, at in targets}
    return TranslationPlan("run", "cluster", "g", "g", committed, rows)


PLAN = plan_of((S0, T0, 15), (S1, T1, 7))
#: What the plan commits.
AFTER: Offsets = {T0: Committed(15), T1: Committed(7)}
BEFORE: Offsets = {T0: Committed(3, "noted"), OTHER: Committed(9)}


@pytest.fixture
def records(tmp_path: Path) -> GroupRecords:
    """The group's records in a run's folder."""
    return GroupRecords(UPath(tmp_path), "g")


def test_apply(records: GroupRecords) -> None:
    """What is committed is the plan's, and an undo brings back all that was there before."""
    groups: Any = Groups(BEFORE)

    assert apply_plan(PLAN, records, groups)[0] == "applied"
    assert groups.held == BEFORE | AFTER
    assert apply_plan(PLAN, records, groups)[0] == "already applied"
    assert len(groups.commits) == 1

    assert undo(records, groups, "g", apply=False).result == "planned"
    assert groups.held == BEFORE | AFTER
    undone = undo(records, groups, "g", apply=True)
    # Kafka's clients can't delete a single offset.
    assert (undone.result, undone.left) == ("undone", [T1])
    assert groups.held == BEFORE | {T1: Committed(7)}
    assert undo(records, groups, "g", apply=True).result == "already undone"


def test_apply_store_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that doesn't say whether there are records isn't taken for one without them."""
    records = GroupRecords(unsure_store(monkeypatch, "/groups", OSError(errno.EBUSY, "busy")), "g")
    groups: Any = Groups(BEFORE)
    apply_plan(PLAN, records, groups)

    # The offsets before it are those that the group had, not those that it was given.
    assert apply_plan(PLAN, records, groups)[0] == "already applied"
    assert undo(records, groups, "g", apply=True).result == "undone"
    assert groups.held == BEFORE | {T1: Committed(7)}


@pytest.mark.parametrize("killed", ["before", "after"])
@pytest.mark.parametrize("before", [BEFORE, {}])
def test_apply_killed(records: GroupRecords, killed: str, before: Offsets) -> None:
    """Killed at its commit, an apply goes on with the offsets that it has noted, and is undone."""
    groups: Any = Groups(before, exists=bool(before))
    groups.killed = killed
    with pytest.raises(KilledError):
        apply_plan(PLAN, records, groups)
    groups.killed = ""

    apply_plan(PLAN, records, groups)

    assert groups.held == before | AFTER
    [record] = records.all()
    assert record.is_applied
    assert record.before == {tp: at for tp, at in before.items() if tp in AFTER}
    undo(records, groups, "g", apply=True)
    assert {tp: at for tp, at in groups.held.items() if tp != T1} == before


@pytest.mark.parametrize("killed", ["before", "after"])
def test_undo_killed(records: GroupRecords, killed: str) -> None:
    """Killed at its commit, an undo isn't done; it goes on."""
    groups: Any = Groups(BEFORE)
    apply_plan(PLAN, records, groups)
    groups.killed = killed
    with pytest.raises(KilledError):
        undo(records, groups, "g", apply=True)
    groups.killed = ""

    assert undo(records, groups, "g", apply=True).result == "undone"

    assert groups.held == BEFORE | {T1: Committed(7)}


@pytest.mark.parametrize("others", [{}, {OTHER: Committed(9)}])
def test_undo_group_of_apply(records: GroupRecords, others: Offsets) -> None:
    """A group that apply has made goes, unless it has offsets of others by then."""
    groups: Any = Groups({}, exists=False)
    apply_plan(PLAN, records, groups)
    groups.offsets["g"] |= others

    undone = undo(records, groups, "g", apply=True)

    assert ("g" in groups.offsets) is bool(others)
    assert undone.left == ([T0, T1] if others else [])
    assert groups.held == (AFTER | others if others else {})


@pytest.mark.parametrize("apply", [False, True])
def test_undo_in_use(records: GroupRecords, apply: bool) -> None:
    """While the group has consumers, which would overwrite it, nothing is applied or undone."""
    groups: Any = Groups(BEFORE)
    apply_plan(PLAN, records, groups)
    groups.members = {"g": (Member("c", "/h"),)}

    with pytest.raises(GroupInUseError, match="--undo"):
        undo(records, groups, "g", apply=apply)
    with pytest.raises(GroupInUseError, match="--apply"):
        apply_plan(plan_of((S0, T0, 99)), records, groups)

    assert groups.held == BEFORE | AFTER


@pytest.mark.parametrize("apply", [False, True])
def test_undo_moved(records: GroupRecords, apply: bool) -> None:
    """What the group has read since isn't taken back, and a dry run doesn't promise it."""
    groups: Any = Groups(BEFORE)
    apply_plan(PLAN, records, groups)
    groups.offsets["g"][T0] = Committed(16)

    with pytest.raises(GroupError, match=r"t-0 is at 16.*Nothing was changed"):
        undo(records, groups, "g", apply=apply)

    assert groups.held[T0] == Committed(16)


def test_apply_again_later(records: GroupRecords) -> None:
    """A group that has read on isn't set back; one that was set back by others is left to them."""
    groups: Any = Groups(BEFORE)
    apply_plan(PLAN, records, groups)

    groups.offsets["g"][T0] = Committed(99)
    assert apply_plan(PLAN, records, groups)[0] == "already applied"
    assert groups.held[T0] == Committed(99)
    groups.offsets["g"][T0] = Committed(5)
    with pytest.raises(GroupError, match=r"was applied at.*--reset-offsets") as raised:
        apply_plan(PLAN, records, groups)
    # That would be refused.
    assert "--undo" not in str(raised.value)

    assert groups.held[T0] == Committed(5)
    assert len(groups.commits) == 1
    groups.offsets["g"] |= AFTER
    assert apply_plan(PLAN, records, groups)[0] == "already applied"
    # Back where it was, it can be undone.
    groups.offsets["g"][T0] = BEFORE[T0]
    with pytest.raises(GroupError, match="undo it"):
        apply_plan(PLAN, records, groups)
    assert undo(records, groups, "g", apply=True).result == "undone"
    assert apply_plan(PLAN, records, groups)[0] == "applied"


def test_apply_another_plan(records: GroupRecords) -> None:
    """Another plan has a record of its own: each undo brings back what was before that apply."""
    groups: Any = Groups(BEFORE)
    apply_plan(PLAN, records, groups)
    apply_plan(plan_of((S0, T0, 30), (S1, T1, 7)), records, groups)
    assert groups.commits[1] == {T0: Committed(30)}

    undo(records, groups, "g", apply=True)
    assert groups.held == BEFORE | AFTER
    undo(records, groups, "g", apply=True)
    assert groups.held == BEFORE | {T1: Committed(7)}


def test_apply_metadata(records: GroupRecords) -> None:
    """Metadata is committed with its offset; where both are there already, nothing is."""
    groups: Any = Groups({T0: Committed(15, "other")})
    plan = plan_of((S0, T0, 15), metadata="time")

    assert apply_plan(plan, records, groups)[0] == "applied"
    assert groups.held == {T0: Committed(15, "time")}
    assert apply_plan(plan, records, groups)[0] == "already applied"
    undo(records, groups, "g", apply=True)
    assert groups.held == {T0: Committed(15, "other")}


def test_undo_nothing(records: GroupRecords) -> None:
    """Without an apply there is nothing to undo."""
    groups: Any = Groups(BEFORE)

    with pytest.raises(GroupError, match="nothing was applied to group g"):
        undo(records, groups, "g", apply=True)


def test_undo_record_of_other_group(tmp_path: Path) -> None:
    """A record that was put in another group's place isn't undone: that group stays as it is."""
    groups: Any = Groups(BEFORE)
    groups.offsets["h"] = {T0: Committed(4)}
    own, others = (GroupRecords(UPath(tmp_path), name) for name in "gh")
    apply_plan(PLAN, own, groups)
    plan = TranslationPlan("run", "cluster", "h", "h", PLAN.committed, PLAN.rows)
    apply_plan(plan, others, groups)
    before = {name: dict(held) for name, held in groups.offsets.items()}
    [path], [other] = ([record.path for record in each.all()] for each in (own, others))
    content = path.read_bytes()
    path.write_bytes(other.read_bytes())
    other.write_bytes(content)

    for records, name in ((own, "g"), (others, "h")):
        with pytest.raises(ArchiveError, match=rf"{name}-.*json is of group .*, expected '{name}'"):
            undo(records, groups, name, apply=True)

    assert groups.offsets == before


def test_undo_record_lost(tmp_path: Path) -> None:
    """A record that is missing beside its end isn't taken for none: an older one isn't undone."""
    groups: Any = Groups(BEFORE)
    records = GroupRecords(UPath(tmp_path), "g")
    apply_plan(plan_of((S0, T0, 5)), records, groups)
    apply_plan(plan_of((S1, T1, 7)), records, groups)
    held = dict(groups.held)
    newest = records.all()[-1]
    newest.path.unlink()

    assert recorded_groups(UPath(tmp_path)) == ["g"]
    for apply in (False, True):
        with pytest.raises(ArchiveError, match=rf"{newest.path.name} is missing.* from a copy"):
            undo(records, groups, "g", apply=apply)

    assert groups.held == held


@pytest.mark.parametrize("name", ["g" * 180, "g" * 249, "订单消费者组" * 6, "a/" * 80, "ж" * 5000])
def test_apply_long_name(name: str, tmp_path: Path) -> None:
    """A group's name may be longer than that of a file can be; another one's isn't taken for it."""
    groups: Any = FakeGroups()
    records, other = (GroupRecords(UPath(tmp_path), each) for each in (name, f"{name}."))
    plan = replace(PLAN, group=name, to_group=name)

    assert apply_plan(plan, records, groups)[0] == "applied"
    assert recorded_groups(UPath(tmp_path)) == [name]
    assert other.all() == []
    apply_plan(replace(PLAN, group=f"{name}.", to_group=f"{name}."), other, groups)
    assert recorded_groups(UPath(tmp_path)) == [name, f"{name}."]

    assert undo(records, groups, name, apply=True).result == "undone"
    assert groups.offsets == {f"{name}.": AFTER}


def test_records_of_long_name_of_older_release(tmp_path: Path) -> None:
    """A record of an older release, whose name has the whole group, is found all the same."""
    name = "g" * 181
    groups: Any = FakeGroups()
    plan = replace(PLAN, group=name, to_group=name)
    apply_plan(plan, GroupRecords(UPath(tmp_path), name), groups)
    for path in (tmp_path / "groups").iterdir():
        path.rename(path.with_name(name + path.name[180:]))

    assert recorded_groups(UPath(tmp_path)) == [name]
    assert apply_plan(plan, GroupRecords(UPath(tmp_path), name), groups)[0] == "already applied"
    assert undo(GroupRecords(UPath(tmp_path), name), groups, name, apply=True).result == "undone"


def test_apply_there_already(records: GroupRecords) -> None:
    """What the group has committed by itself is left, with nothing recorded to be undone."""
    groups: Any = Groups(BEFORE | AFTER)

    assert apply_plan(PLAN, records, groups) == ("already applied", None)

    assert (groups.commits, records.all()) == ([], [])


@pytest.mark.parametrize("apply", [False, True])
def test_undo_all(apply: bool, tmp_path: Path) -> None:
    """All applies of all runs are undone, the newest first; a dry run says the same of each."""
    groups: Any = Groups({}, exists=False)
    first, second = (GroupRecords(UPath(tmp_path) / name, "g") for name in ("a", "b"))
    apply_plan(plan_of((S0, T0, 15)), first, groups)
    apply_plan(plan_of((S0, T0, 20)), first, groups)
    apply_plan(plan_of((S0, T0, 30), (S1, T1, 7)), second, groups)

    undone = undo_all([first, second], groups, "g", apply=apply)

    assert [dict(each.back) for each in undone] == [
        {T0: Committed(20)},
        {T0: Committed(15)},
        {},
    ]
    assert {each.result for each in undone} == {"undone" if apply else "planned"}
    # The group has nothing but what the applies gave it, so it goes with the first of them.
    assert undone[-1].left == []
    assert groups.held == ({} if apply else {T0: Committed(30), T1: Committed(7)})
    assert [each.is_undone for each in (*first.all(), *second.all())] == [apply] * 3
    again = undo_all([first, second], groups, "g", apply=apply)
    assert len(again) == (0 if apply else 3)


def test_undo_group_of_others(records: GroupRecords) -> None:
    """A group that was there before an apply stays, even if it had no offsets."""
    groups: Any = Groups({})
    apply_plan(PLAN, records, groups)

    assert undo(records, groups, "g", apply=True).left == [T0, T1]

    assert groups.held == AFTER


def test_undo_again_of_moved(records: GroupRecords) -> None:
    """What an undo has left behind is named as long as it is there."""
    groups: Any = Groups(BEFORE)
    apply_plan(PLAN, records, groups)
    undo(records, groups, "g", apply=True)
    assert undo(records, groups, "g", apply=True).left == [T1]

    groups.offsets["g"][T1] = Committed(8)

    assert undo(records, groups, "g", apply=True).left == []


def test_undo_commits_what_differs(records: GroupRecords) -> None:
    """An undo commits only offsets that differ."""
    groups: Any = Groups({T0: Committed(3), T1: Committed(7)})
    apply_plan(PLAN, records, groups)

    undo(records, groups, "g", apply=True)

    assert groups.commits == [{T0: Committed(15)}, {T0: Committed(3)}]


def test_apply_killed_and_moved(records: GroupRecords) -> None:
    """An apply that was killed is refused if the group has read on since."""
    groups: Any = Groups(BEFORE)
    groups.killed = "after"
    with pytest.raises(KilledError):
        apply_plan(PLAN, records, groups)
    groups.killed = ""
    groups.offsets["g"][T0] = Committed(99)

    with pytest.raises(GroupError, match=r"was started at .*, but t-0 is at 99"):
        apply_plan(PLAN, records, groups)

    assert groups.held[T0] == Committed(99)


def test_apply_idle_first(records: GroupRecords, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets before an apply are read after the group's members are gone."""
    groups: Any = Groups(BEFORE)
    idle = groups.idle

    def commits_last(*given: Any) -> Any:
        groups.offsets["g"][T0] = Committed(4)
        return idle(*given)

    monkeypatch.setattr(groups, "idle", commits_last)

    _, record = apply_plan(PLAN, records, groups)

    assert record is not None
    assert record.before[T0] == Committed(4)
