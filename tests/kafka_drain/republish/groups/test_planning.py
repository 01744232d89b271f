"""What a plan of a group's offsets needs to know of a republish, and of the runs beside it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.cluster_documents import Moment
from kafka_drain.errors import ArchiveError, ConfigError, TopicError
from kafka_drain.kafka.consumer_groups import Committed, Member
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups import planning
from kafka_drain.republish.groups.archived import ArchivedOffsets
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.groups.planning import (
    find_run,
    plan_group,
    read_map,
    refuse_rewritten,
)
from kafka_drain.republish.groups.translation import TranslationPlan
from kafka_drain.republish.planning.follow import follower_key
from kafka_drain.republish.planning.previous_runs import sent
from kafka_drain.republish.planning.runs import RepublishRun, drill_run, run_key
from kafka_drain.republish.planning.shards import ProgressSlot
from kafka_drain.republish.verifying.offset_map import (
    Block,
    OffsetMap,
    PartitionMap,
    started_map,
)
from tests.kafka_drain.cut_over.mirrored import EXACT, FakeGroups
from tests.kafka_drain.fake_cluster import FakeCluster, Log
from tests.kafka_drain.made_archive import MadeArchive, dense
from tests.kafka_drain.republish.planning.test_plan import OTHERS
from tests.kafka_drain.republish.planning.test_previous_runs import note, plan_of
from tests.kafka_drain.republish.receipts import receipt_of

#: Kafka isn't asked before the runs are known.
NOBODY: Any = None

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
COPY, COPY_1 = TopicPartition("copy", 0), TopicPartition("copy", 1)
B0 = TopicPartition("b", 0)
COPY_B, COPY_B1 = TopicPartition("copy-b", 0), TopicPartition("copy-b", 1)
FOLLOWER = follower_key("mirror")


@pytest.mark.parametrize("is_done", [True, False])
@pytest.mark.parametrize("lost", ["chosen", "other"])
def test_plan_group_plan_lost(lost: str, is_done: bool, tmp_path: Path) -> None:
    """Records of a run whose plan is missing could be skipped: refused, naming the plan."""
    root = UPath(tmp_path)
    note(root, plan_of("chosen", 0, 10), is_done=True)
    note(root, plan_of("other", 10, 20), is_done=is_done)
    run = RepublishRun(root, "chosen")
    (root / "republish" / lost / "plan.json").unlink()

    with pytest.raises(ArchiveError, match=rf"{lost}/plan\.json is missing"):
        plan_group(
            Archive(root),
            run,
            started_map(plan_of("chosen", 0, 10)),
            *(NOBODY, NOBODY, NOBODY),
            group="g",
            to_group="g",
        )


@pytest.mark.parametrize(
    ("ids", "is_refused"),
    [
        (["id"], False),
        (["id~2"], False),
        (["id", "id~2"], True),
        (["id~2", "id~3"], True),
        (["old", "id"], False),
        (["old", "id", "id~2"], True),
    ],
)
def test_refuse_rewritten(ids: list[str], is_refused: bool) -> None:
    """Incarnations of a rewritten log have the same offsets; those of a recreated topic don't."""
    parts = [
        PartitionMap(A0, topic_id, COPY, (Block(0, 5, at, at + 5, 5),))
        for at, topic_id in zip((0, 5, 10), ids, strict=False)
    ]
    other = PartitionMap(A1, "id", COPY_1, (Block(0, 5, 0, 5, 5),))
    found = OffsetMap("run", "p", "cluster", (*parts, other))

    if is_refused:
        with pytest.raises(ConfigError, match=r"log of a-0 was rewritten after it was archived"):
            refuse_rewritten(found)
    else:
        refuse_rewritten(found)


class Moved:
    """An archive of topic a, whose run has sent offsets 10 to 19 of a-0 to another cluster."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> None:
        self.made = MadeArchive(folder / "archive", {"a": "id"}, cluster_id="home")
        self.plan = plan_of("now", 10, 20, cluster_id="away", **changes)
        self.run, self.offset_map = RepublishRun(self.made.root, "now"), started_map(self.plan)
        note(self.made.root, self.plan, is_done=True)
        self.source = FakeCluster(
            {A0: Log(end=25), A1: Log(end=3)}, id="home", topic_ids={"a": "id"}
        )
        self.target = FakeCluster(
            {COPY: Log(end=10), COPY_1: Log(end=4)}, id="away", topic_ids={"copy": "copy-id"}
        )
        self.groups = {"home": FakeGroups(), "away": FakeGroups()}
        self.groups["home"].offsets["g"] = {A0: Committed(14, "time"), A1: Committed(3)}
        monkeypatch.setattr(planning, "ConsumerGroups", lambda _: self.groups["home"])

    def translate(self, **asked: Any) -> TranslationPlan:
        """Plan the group's offsets."""
        source: Any = self.source
        target: Any = self.target
        groups: Any = self.groups["away"]
        return plan_group(
            self.made.archive,
            self.run,
            self.offset_map,
            target,
            groups,
            GroupRecords(self.run.folder, "g"),
            **{"group": "g", "to_group": "g", "source": source} | asked,
        )


@pytest.fixture
def moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Moved:
    """The archive, both clusters and the group."""
    return Moved(tmp_path, monkeypatch)


def test_plan_group(moved: Moved) -> None:
    """What the group has committed in the source is what is translated."""
    plan = moved.translate()

    assert plan.committed == {A0: 14, A1: 3}
    # Nobody knows where the run's records are, and the other partition got none of the group's.
    assert plan.after == {COPY: 0, COPY_1: 0}
    assert "a-0: lag of 5: offsets 20 to 24" in "\n".join(plan.notes)


def test_plan_group_other_source(moved: Moved) -> None:
    """Offsets of another cluster than the drained one say nothing of the archive's records."""
    moved.source.id = "elsewhere"

    with pytest.raises(ConfigError, match="is cluster elsewhere, expected the drained"):
        moved.translate()


def test_plan_group_source_recreated(moved: Moved) -> None:
    """Nor do those of a topic that was made again."""
    moved.source.topic_ids["a"] = "again"

    with pytest.raises(TopicError, match=r"topic a was recreated after it was drained \(id again"):
        moved.translate()


def test_plan_group_archived_recreated(moved: Moved) -> None:
    """Nor those that were noted when the topic had been made again."""
    moment = Moment(
        number=1, previous=None, cluster_id="home", asked_at="", answered_at="noon",
        parts={}, groups=None, settings=None,
    )  # fmt: skip
    archived = ArchivedOffsets(moment, {A0: 14}, {"a": "id"})
    assert moved.translate(archived=archived).committed == {A0: 14}

    with pytest.raises(TopicError, match="topic a had id again at noon, but the run read a-0 of"):
        moved.translate(archived=replace(archived, topic_ids={"a": "again"}))


def test_plan_group_target_recreated(moved: Moved) -> None:
    """Nothing is committed in a topic that isn't the one that was sent to."""
    moved.target.topic_ids["copy"] = "again"

    with pytest.raises(TopicError, match=r"topic copy has id again .*, expected id copy-id"):
        moved.translate()


@pytest.mark.parametrize("members", ["home", "away"])
@pytest.mark.parametrize("apply", [False, True])
def test_plan_group_in_use(moved: Moved, members: str, apply: bool) -> None:
    """Consumers that still run are named: where they read on, and where they would overwrite."""
    moved.groups[members].members["g"] = (Member("c", "/h"),)

    notes = "\n".join(moved.translate(apply=apply).notes)

    assert ("in the source; records that it reads from now on" in notes) is (members == "home")
    assert ("stop it before you --apply" in notes) is (members == "away" and not apply)


@pytest.mark.parametrize("first", [0, 3, 4])
def test_plan_group_untouched(moved: Moved, first: int) -> None:
    """A partition that got no record is continued where the run began, or its first record is."""
    moved.target.logs[COPY_1] = Log(first=first, end=4)

    assert moved.translate().after[COPY_1] == first


def test_plan_group_records_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that left records out, be it another one, is none that a group can go on in."""
    change = {**OTHERS["change"], "dropped": 3}
    chosen = Moved(tmp_path / "1", monkeypatch, change=change)
    with pytest.raises(ConfigError, match=r"run now left out 3 records"):
        chosen.translate()

    moved = Moved(tmp_path / "2", monkeypatch)
    other = plan_of("other", 0, 10, cluster_id="away", change=change)
    note(moved.made.root, other, is_done=True)
    with pytest.raises(ConfigError, match=r"run other left out 3 records"):
        moved.translate()


def test_plan_group_beside_planned(moved: Moved) -> None:
    """A run that was only planned has sent nothing, and doesn't count."""
    other = plan_of("other", 0, 10, cluster_id="away")
    RepublishRun(moved.made.root, "other").write_plan(other)

    assert "other" not in "\n".join(moved.translate().notes)
    RepublishRun(moved.made.root, "other").mark_opened(other)
    assert "no map says where now, other put its records" in "\n".join(moved.translate().notes)


@pytest.mark.parametrize(("placement", "is_anywhere"), [("original", False), ("key", True)])
def test_plan_group_beside_other_placement(moved: Moved, placement: str, is_anywhere: bool) -> None:
    """Where one of several runs placed records by key, they may be in any partition."""
    moved.groups["home"].offsets["g"] = {A0: Committed(14)}
    other = plan_of("other", 0, 10, cluster_id="away", placement=placement)
    note(moved.made.root, other, is_done=True)

    assert (COPY_1 in moved.translate().after) is is_anywhere


@pytest.mark.parametrize(
    ("where", "is_refused"),
    [
        ({"cluster_id": "third"}, False),
        ({"target_id": "deleted-copy"}, False),
        ({"key": run_key(drill_run("20260101T000000Z-00000001")), "target_id": "scratch"}, False),
        ({}, True),
    ],
    ids=["cluster", "topic", "drill", "same"],
)
def test_plan_group_beside_damaged_plan(
    where: dict[str, Any], is_refused: bool, moved: Moved
) -> None:
    """The damaged plan of a run that has ended elsewhere stops no group: its receipt says where."""
    where = {"key": "other", "cluster_id": "away"} | where
    other = plan_of(where.pop("key"), 0, 10, **where)
    run = RepublishRun(moved.made.root, other.key)
    note(moved.made.root, other, is_done=False)
    told = {"cluster_id": other.cluster_id, "sent": sent(other)}
    for row in told["sent"]:
        row["target_topic_id"] = other.targets[0].id
    run.write_receipt(receipt_of(key=run.key, **told))
    before = moved.translate()
    (run.folder / "plan.json").write_bytes(b"{}")

    if is_refused:
        with pytest.raises(ArchiveError, match=r"plan\.json was changed .* restore it from a copy"):
            moved.translate()
    else:
        assert moved.translate().after == before.after


@pytest.mark.parametrize("is_done", [True, False])
def test_plan_group_beside_kept_elsewhere(is_done: bool, tmp_path: Path, moved: Moved) -> None:
    """With a folder for the runs' state, runs in the archive count, too: nothing is skipped."""
    older = plan_of("older", 0, 10, cluster_id="away")
    note(moved.made.root, older, is_done=is_done)
    if is_done:
        parts = (PartitionMap(A0, "id", COPY, (Block(0, 10, 0, 10, 10),)),)
        kept = OffsetMap("older", "made", "away", parts)
        older_run = RepublishRun(moved.made.root, "older")
        older_run.write_offset_map(kept.to_bytes())
        (older_run.folder / "receipt.json").unlink()
        older_run.write_receipt(
            receipt_of(
                key="older", cluster_id="away", sent=sent(older),
                verification={**EXACT, "records": 10},
            )
        )  # fmt: skip
    state = moved.made.archive.keeping_state_in(str(tmp_path / "state"))
    [target] = moved.plan.targets
    plan = replace(moved.plan, targets=(replace(target, start=(10, 0)),))
    moved.run = RepublishRun(state.state, "now")
    note(state.state, plan, is_done=True)
    parts = (PartitionMap(A0, "id", COPY, (Block(10, 20, 10, 20, 10),)),)
    moved.offset_map = OffsetMap("now", "made", "away", parts)
    moved.run.write_offset_map(moved.offset_map.to_bytes())
    (moved.run.folder / "receipt.json").unlink()
    moved.run.write_receipt(
        receipt_of(
            key="now", cluster_id="away", sent=sent(plan), verification={**EXACT, "records": 10}
        )
    )
    moved.target.logs[COPY] = Log(end=20)
    moved.groups["home"].offsets["g"] = {A0: Committed(4)}
    moved.made.archive = state
    shutil.rmtree(str(moved.made.root / "republish" / "now"))

    assert moved.translate().after[COPY] == (4 if is_done else 0)


def test_find_run_beside_drills(tmp_path: Path) -> None:
    """Without a name, the only run is found; those of drills don't count, as targets are gone."""
    archive = Archive(UPath(tmp_path))
    drills = [run_key(drill_run(f"2026010{day}T000000Z-0000000{day}")) for day in (1, 2)]
    for key in drills:
        RepublishRun(archive.root, key).write_offset_map(b"{}")
    with pytest.raises(ConfigError, match="runs with an offset map, newest last: none"):
        find_run(archive, None)
    RepublishRun(archive.root, "drill-of-mine").write_offset_map(b"{}")

    assert find_run(archive, None).key == "drill-of-mine"
    with pytest.raises(ConfigError, match="run 'nowhere' has no offset map"):
        find_run(archive, "nowhere")
    assert find_run(archive, drills[0]).key == drills[0]


class Mirrored(Moved):
    """A mirror of topics a and b, of whose two runs the last one had new records of a only."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.made = MadeArchive(folder / "mirrored", {"a": "id", "b": "b-id"}, cluster_id="home")
        through: Any = {"generations": {}, "windows": []}
        both, last = (
            plan_of(f"{FOLLOWER}.00000{number}", *span, cluster_id="away", through=through)
            for number, span in ((1, (0, 10)), (2, (10, 20)))
        )
        [of_a], [copy] = both.shards, both.targets
        of_b = replace(
            of_a, number=1, source=B0, topic_id="b-id", target_topic="copy-b",
            progress=ProgressSlot("g", COPY_B),
        )  # fmt: skip
        targets = (copy, replace(copy, topic="copy-b", id="copy-b-id"))
        both = replace(both, shards=(of_a, of_b), targets=targets)
        last = replace(last, targets=(replace(copy, start=(10, 0)),))
        maps = (
            PartitionMap(A0, "id", COPY, (Block(0, 10, 0, 10, 10),)),
            PartitionMap(B0, "b-id", COPY_B, (Block(0, 10, 0, 10, 10),)),
            PartitionMap(A0, "id", COPY, (Block(10, 20, 10, 20, 10),)),
        )
        for plan, parts in ((both, maps[:2]), (last, maps[2:])):
            note(self.made.root, plan, is_done=True)
            self.run = RepublishRun(self.made.root, plan.key)
            self.offset_map = OffsetMap(plan.key, "made", "away", parts)
            self.run.write_offset_map(self.offset_map.to_bytes())
            verification: Any = {**EXACT, "records": plan.records}
            (self.run.folder / "receipt.json").unlink()
            self.run.write_receipt(
                receipt_of(
                    key=plan.key, cluster_id="away", sent=sent(plan), through=through,
                    verification=verification,
                )
            )  # fmt: skip
        self.source.logs[B0] = Log(end=10)
        self.source.topic_ids["b"] = "b-id"
        self.target.logs |= {COPY: Log(end=20), COPY_B: Log(end=10), COPY_B1: Log()}
        self.target.topic_ids["copy-b"] = "copy-b-id"
        self.groups["home"].offsets["g"] = {A0: Committed(14), B0: Committed(3)}


@pytest.fixture
def mirrored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mirrored:
    """The mirror, and a group that has read some records of both topics."""
    return Mirrored(tmp_path, monkeypatch)


@pytest.mark.parametrize("number", [1, 2])
def test_plan_group_mirror_of_topics(mirrored: Mirrored, number: int) -> None:
    """Whichever run of a mirror is named, a group goes on in all of its topics."""
    mirrored.run = RepublishRun(mirrored.made.root, f"{FOLLOWER}.00000{number}")
    mirrored.offset_map = read_map(mirrored.run)

    plan = mirrored.translate()

    assert {tp: at for tp, at in plan.after.items() if tp.partition == 0} == {COPY: 14, COPY_B: 3}


def test_plan_group_mirror_of_another_topic(mirrored: Mirrored) -> None:
    """Nor is a group lost that has offsets only where the last run had nothing to send."""
    mirrored.groups["home"].offsets["g"] = {B0: Committed(3)}

    assert mirrored.translate().after == {COPY_B: 3}


@pytest.mark.parametrize("dropped", [0, 3])
@pytest.mark.parametrize("number", [2, 3])
def test_plan_group_mirror_sent_nothing(mirrored: Mirrored, number: int, dropped: int) -> None:
    """A run of a mirror that had nothing to send is in nobody's way, unless it left records out."""
    through: Any = {"generations": {}, "windows": []}
    change = {**OTHERS["change"], "dropped": dropped, "shards": []}
    key = f"{FOLLOWER}.000003"
    plan = plan_of(key, 0, 10, cluster_id="away", through=through, change=change)
    plan = replace(plan, shards=(), targets=())
    note(mirrored.made.root, plan, is_done=True)
    empty = RepublishRun(mirrored.made.root, key)
    empty.write_offset_map(OffsetMap(key, "made", "away", ()).to_bytes())
    mirrored.run = RepublishRun(mirrored.made.root, f"{FOLLOWER}.00000{number}")
    mirrored.offset_map = read_map(mirrored.run)

    if dropped:
        with pytest.raises(ConfigError, match=r"000003 left out 3 records"):
            mirrored.translate()
    else:
        assert mirrored.translate().after[COPY] == 14


@pytest.mark.parametrize("change", ["deleted", "recreated"])
def test_plan_group_mirror_topic_gone(mirrored: Mirrored, change: str) -> None:
    """A topic of a mirror that was deleted on purpose keeps no group from the others."""
    if change == "deleted":
        del mirrored.target.logs[COPY_B], mirrored.target.logs[COPY_B1]
    else:
        mirrored.target.topic_ids["copy-b"] = "made again"

    assert mirrored.translate().after[COPY] == 14
    assert COPY_B not in mirrored.translate().after


def test_plan_group_mirror_topics_grew(mirrored: Mirrored) -> None:
    """Partitions that were added since a topic's run count, too: nothing that arrives is skipped.

    The plan of the run knows nothing of them, whether it is the named one or another one's.
    """
    for source, copy in (("a", "copy"), ("b", "copy-b")):
        mirrored.source.logs[TopicPartition(source, 2)] = Log()
        mirrored.target.logs[TopicPartition(copy, 2)] = Log(first=3, end=5)
        mirrored.groups["home"].offsets["g"][TopicPartition(source, 2)] = Committed(0)

    plan = mirrored.translate()

    assert {tp: at for tp, at in plan.after.items() if tp.partition == 2} == {
        TopicPartition("copy", 2): 3,
        TopicPartition("copy-b", 2): 3,
    }


def test_plan_group_of_recreated_topic(moved: Moved) -> None:
    """Whichever run is named, offsets at the source are those of the topic that is there.

    Its older records were restored after the newer ones, and the run that did it is named.
    """
    moved.made = MadeArchive(moved.made.root.parent / "again", {"a": "old-id"}, cluster_id="home")
    moved.made.seal({A0: dense(0, 10)})
    moved.made.open_generation(a="id")
    moved.made.seal({A0: dense(0, 20)})
    for key, topic_id, end, at in (("newer", "id", 20, 0), ("older", "old-id", 10, 20)):
        plan = plan_of(key, 0, end, cluster_id="away", topic_id=topic_id)
        plan = replace(plan, created_at=f"2026-01-01T00:00:{at:02}.000Z")
        run = RepublishRun(moved.made.root, key)
        note(moved.made.root, plan, is_done=True)
        parts = (PartitionMap(A0, topic_id, COPY, (Block(0, end, at, at + end, end),)),)
        run.write_offset_map(OffsetMap(key, "made", "away", parts).to_bytes())
        (run.folder / "receipt.json").unlink()
        run.write_receipt(
            receipt_of(
                key=key, cluster_id="away", sent=sent(plan), verification={**EXACT, "records": end}
            )
        )
    moved.target.logs[COPY] = Log(end=30)
    moved.groups["home"].offsets["g"] = {A0: Committed(14)}
    afters = {}
    for key in ("newer", "older"):
        moved.run = RepublishRun(moved.made.root, key)
        moved.offset_map = read_map(moved.run)
        afters[key] = moved.translate().after[COPY]

    assert afters == {"newer": 14, "older": 14}


@pytest.mark.parametrize("change", ["deleted", "recreated"])
def test_plan_group_source_of_others_gone(mirrored: Mirrored, change: str) -> None:
    """What became of a source in which the group has no offset doesn't matter to it."""
    mirrored.groups["home"].offsets["g"] = {A0: Committed(14)}
    if change == "deleted":
        del mirrored.source.logs[B0]
    else:
        mirrored.source.topic_ids["b"] = "made again"

    assert mirrored.translate().after == {COPY: 14}


def test_plan_group_offsets_elsewhere(moved: Moved) -> None:
    """A group that has read other topics only is told which, as it may be the wrong one."""
    moved.groups["home"].offsets["g"] = {TopicPartition("elsewhere", 0): Committed(4)}

    with pytest.raises(ConfigError, match=r"elsewhere-0.*correct --group or --run"):
        moved.translate()


def test_plan_group_offsets_file(moved: Moved, tmp_path: Path) -> None:
    """With a file, the source isn't asked: it may be gone."""
    moved.groups["home"].offsets = {}
    path = tmp_path / "offsets.csv"
    path.write_text("g,a,0,13\nother,a,0,19\n")

    plan = moved.translate(offsets_file=str(path), source=NOBODY)

    assert plan.committed == {A0: 13}


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_plan_group_offsets_file_unreadable(
    moved: Moved, tmp_path: Path, content: bytes | None
) -> None:
    """A file that can't be read is refused, and said which."""
    path = tmp_path / "offsets.csv"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(ConfigError, match=r"offsets\.csv (can't be read: No such|isn't text)"):
        moved.translate(offsets_file=str(path))


def test_plan_group_all_compacted_away(moved: Moved) -> None:
    """A source of which the target has no record left is named: no offset there stands for it."""
    plan = plan_of("gone", 20, 30, cluster_id="away")
    [shard] = plan.shards
    other = replace(shard, number=1, source=A1, progress=ProgressSlot("g", COPY_1))
    plan = replace(plan, shards=(shard, other))
    moved.run = RepublishRun(moved.made.root, "gone")
    note(moved.made.root, plan, is_done=False)
    parts = (PartitionMap(A0, "id", COPY, (Block(20, 30, 0, 10, 10),)),)
    moved.offset_map = OffsetMap("gone", "made", "away", parts)
    moved.run.write_offset_map(moved.offset_map.to_bytes())
    moved.run.write_receipt(
        receipt_of(
            key="gone", cluster_id="away", sent=sent(plan), verification={**EXACT, "records": 20}
        )
    )

    notes = moved.translate().notes

    assert "the compacted target has no record left that run gone sent from a-1" in notes


@pytest.mark.parametrize("content", [None, b"{", b"{}", "other"])
def test_read_map_changed(tmp_path: Path, content: Any) -> None:
    """A map that was changed, removed or is another run's moves no group."""
    run = RepublishRun(UPath(tmp_path), "chosen")
    if content == "other":
        content = OffsetMap("other", "made", "away", ()).to_bytes()
    if content is not None:
        run.write_offset_map(content)

    with pytest.raises(ArchiveError, match=r"offset-map\.json was changed .* run verify again"):
        read_map(run)


def test_find_run_of_several(tmp_path: Path) -> None:
    """Among several, none is chosen for the user; they are listed, the newest last."""
    archive = Archive(UPath(tmp_path))
    for key, day in (("x", 2), ("y", 3), ("z", 1), ("no-map", 4)):
        run = RepublishRun(archive.root, key)
        run.write_plan(plan_of(key, created_at=f"2026-01-0{day}T00:00:00.000Z"))
        if key != "no-map":
            run.write_offset_map(b"{}")
    (archive.root / "republish" / "x" / "plan.json").write_bytes(b"{}")

    for name in (None, "no-map", "nowhere"):
        with pytest.raises(ConfigError, match=r"newest last: x, z, y; give one with --run"):
            find_run(archive, name)
    assert find_run(archive, "y").key == "y"
