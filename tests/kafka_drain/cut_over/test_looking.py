"""What a cut-over sees of the source, the mirror, the target and the groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over import looking as module
from kafka_drain.cut_over.looking import (
    active_groups,
    changes_of_target,
    look_at_source,
    misplaced_groups,
)
from kafka_drain.errors import ArchiveError, TopicError
from kafka_drain.kafka.consumer_groups import Committed, Member
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.groups.group_records import GroupRecords
from kafka_drain.republish.planning.follow import next_run
from kafka_drain.republish.verifying.offset_map import Block, OffsetMap, PartitionMap
from tests.kafka_drain.cut_over.mirrored import C0, FOLLOWER, T0, Move
from tests.kafka_drain.fake_cluster import Log
from tests.kafka_drain.made_archive import dense

C1, T1 = TopicPartition("copy", 1), TopicPartition("t", 1)


@pytest.fixture
def move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Move:
    """Ten records that the mirror hasn't sent yet."""
    move = Move.make(tmp_path)
    monkeypatch.setattr(module, "ConsumerGroups", move.groups_of)
    return move


def looked(move: Move) -> module.Source:
    pipeline = Pipeline(name="made", topics=["t"], archive=str(move.made.root))
    return look_at_source(move.made.archive.snapshot(), pipeline, move.source)  # type: ignore[arg-type]


def test_look_at_source_open_transaction(move: Move) -> None:
    """What is behind an open transaction belongs to the source: it has to be drained too."""
    move.end_at(move.source, T0, end=13, stable=10)

    seen = looked(move)

    assert seen.ends == {T0: 13}
    assert seen.undrained == {T0: 3}


def test_look_at_source_new_generation(move: Move) -> None:
    """In a generation without receipts, drains are sealed up to where it starts."""
    move.made.open_generation()
    move.made.start_at({T0: 8})
    assert looked(move).undrained == {T0: 2}

    move.made.seal({T0: dense(8, 10)})
    assert looked(move).undrained == {}


def test_look_at_source_partition_never_drained(move: Move) -> None:
    """Of a partition that no drain has read, all that the source still has is missing."""
    move.source.logs[TopicPartition("t", 1)] = Log(first=3, end=7)

    assert looked(move).undrained == {TopicPartition("t", 1): 4}


def test_look_at_source_recreated(move: Move) -> None:
    """A topic that was made again since, and another cluster, are refused."""
    move.source.topic_ids = {"t": "id-2"}
    with pytest.raises(TopicError, match="t"):
        looked(move)
    move.source.id = "another"
    with pytest.raises(ArchiveError, match="leads to cluster another"):
        looked(move)


def test_look_at_mirror_unsent(move: Move) -> None:
    """Sealed files count as unsent until a run that has ended has sent them."""
    assert move.mirrored().unsent == 1
    first = move.mirror()
    seen = move.mirrored()
    assert ([run.key for run in seen.runs], seen.records, seen.unsent) == ([first.key], 10, 0)

    move.made.seal({T0: dense(10, 15)})
    started, _ = next_run(move.made.archive, FOLLOWER)
    started.folder.mkdir(parents=True)
    seen = move.mirrored()
    assert ([run.key for run in seen.runs], seen.records, seen.unsent) == ([first.key], 10, 1)

    second = move.mirror()
    seen = move.mirrored()
    assert [run.key for run in seen.runs] == [first.key, second.key]
    assert (seen.records, seen.unsent, seen.inexact, seen.foreign) == (15, 0, (), {})


def test_look_at_mirror_inexact(move: Move) -> None:
    """A run that wasn't compared, or not with success, isn't exact; nor is one with guests."""
    inexact = move.mirror(is_exact=False, foreign=2)
    move.made.seal({T0: dense(10, 15)})
    guests = move.mirror(foreign=3)
    move.made.seal({T0: dense(15, 18)})
    uncompared = move.mirror(is_compared=False)

    seen = move.mirrored()

    assert (seen.inexact, seen.foreign) == ((inexact.key, uncompared.key), {guests.key: 3})


def kept(move: Move) -> None:
    """The target is as the mirror has left it."""


def deleted_first(move: Move) -> None:
    move.end_at(move.target, C0, first=1)


def deleted_all(move: Move) -> None:
    move.end_at(move.target, C0, first=15)


def truncated(move: Move) -> None:
    move.end_at(move.target, C0, end=14)


def added(move: Move) -> None:
    move.end_at(move.target, C0, end=17)


def added_elsewhere(move: Move) -> None:
    move.end_at(move.target, C1, end=1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (kept, []),
        (deleted_first, ["copy-0 begins at 1, the mirror's first record is 0"]),
        (deleted_all, ["copy-0 begins at 15, the mirror's first record is 0"]),
        (truncated, ["copy-0 ends at 14, the mirror's last record is 14"]),
        (added, ["copy-0 has 2 records after the mirror's last one"]),
        (added_elsewhere, ["copy-1 has 1 records after the mirror's last one"]),
    ],
)
def test_changes_of_target(changes: Callable[[Move], None], said: list[str], move: Move) -> None:
    """Records that were deleted or added since the mirror's first run are seen, wherever."""
    move.mirror()
    move.made.seal({T0: dense(10, 15)})
    move.mirror()

    changes(move)

    assert changes_of_target(move.target, move.mirrored()) == said  # type: ignore[arg-type]


def test_changes_of_target_commit_marker(move: Move) -> None:
    """A commit's own offset after the last record is no record."""
    move.mirror()
    move.target.contents = lambda tp, span: []
    move.end_at(move.target, C0, end=11)

    assert changes_of_target(move.target, move.mirrored()) == []  # type: ignore[arg-type]


def test_changes_of_target_among_the_mirrors(move: Move) -> None:
    """Records of others between the mirror's own, which its comparison has found, count."""
    run = move.mirror(foreign=3)

    [said] = changes_of_target(move.target, move.mirrored())  # type: ignore[arg-type]

    assert said == f"{run.key}: 3 records of others"


@pytest.mark.parametrize("where", ["source", "target"])
def test_active_groups(where: str, move: Move) -> None:
    """A consumer counts in either cluster; a group without members, or that is gone, doesn't."""
    clusters: Any = (move.source, move.target)
    move.at(move.source).offsets["g"] = {T0: Committed(4)}
    assert active_groups(["g", "h"], *clusters) == []

    move.at(getattr(move, where)).members["h"] = (Member("c", "/10.0.0.1"),)

    [said] = active_groups(["g", "h"], *clusters)
    assert said.startswith("group h is STABLE with 1 member")
    assert said.endswith(f"at the {where}")


def misplaced(move: Move, *names: str) -> list[str]:
    clusters: Any = (move.source, move.target)
    return misplaced_groups(names or ("g",), move.mirrored().runs, *clusters)


def test_misplaced_groups(move: Move) -> None:
    """A group that is where it was translated is in its place; one that has moved isn't."""
    move.translate(move.mirror(), at=4)
    assert misplaced(move) == []

    move.at(move.source).offsets["g"] = {T0: Committed(5)}
    assert misplaced(move) == ["group g is at 5 of t-0 at the source, it was translated with 4"]
    move.at(move.source).offsets["g"] = {T0: Committed(4)}
    move.at(move.target).offsets["g"] = {}
    assert misplaced(move) == [
        "group g is at no offset of copy-0 at the target, it was translated with 4"
    ]


def test_misplaced_groups_untranslated(move: Move) -> None:
    """A group of which nothing was committed, or all was undone, wasn't translated."""
    run = move.mirror()
    assert misplaced(move) == ["group g wasn't translated"]
    started = move.translate(run, is_applied=False)
    assert misplaced(move) == ["group g wasn't translated"]
    records = GroupRecords(run.folder, "g")
    records.mark_undone(started)
    applied = move.translate(run)
    assert misplaced(move, "g", "h") == ["group h wasn't translated"]
    records.mark_undone(applied)
    assert misplaced(move) == ["group g wasn't translated"]


def test_misplaced_groups_newest_run(move: Move) -> None:
    """What a later run's translation says is what counts."""
    move.translate(move.mirror(), at=4)
    move.made.seal({T0: dense(10, 15)})
    move.translate(move.mirror(), at=12)

    assert misplaced(move) == []


@pytest.mark.parametrize("others", [0, 3])
def test_changes_of_target_between_runs(others: int, move: Move) -> None:
    """Records of others after one run and before the next are seen; a commit's offset is none."""
    move.mirror()
    move.made.seal({T0: dense(10, 15)})
    last = move.mirror(behind=4)
    move.target.contents = lambda tp, span: [
        {"topic": tp.topic, "partition": tp.partition, "offset": at}
        for at in range(span.start, min(span.end, move.target.logs[tp].end))
        if tp == C0 and not 10 <= at < 14 - others
    ]

    said = changes_of_target(move.target, move.mirrored())  # type: ignore[arg-type]

    assert said == [f"copy-0 has 3 records of others before run {last.key}"][:others]


def test_changes_of_target_several_sources(move: Move) -> None:
    """Where several partitions lead to one, its first record may be of any of them."""
    run = move.mirror()
    plan = run.require_plan()
    maps = (
        # The writer of the first partition was the slower one.
        PartitionMap(T0, "id-1", C0, (Block(0, 10, 4, 14, 10),)),
        PartitionMap(T1, "id-1", C0, (Block(0, 4, 0, 4, 4),)),
    )
    run.write_offset_map(OffsetMap(plan.key, "made", "target", maps).to_bytes())
    move.end_at(move.target, C0, end=14)
    assert changes_of_target(move.target, move.mirrored()) == []  # type: ignore[arg-type]

    move.end_at(move.target, C0, first=3)

    [said] = changes_of_target(move.target, move.mirrored())  # type: ignore[arg-type]
    assert said == "copy-0 begins at 3, the mirror's first record is 0"


def test_misplaced_groups_first_commit(move: Move) -> None:
    """A partition that the group had no offset in counts, too, of the topics that were mirrored."""
    elsewhere = TopicPartition("elsewhere", 0)
    move.source.logs |= {T1: Log(end=9), elsewhere: Log(end=9)}
    move.translate(move.mirror(), at=4)
    move.at(move.source).offsets["g"][elsewhere] = Committed(1)
    assert misplaced(move) == []

    move.at(move.source).offsets["g"][T1] = Committed(5)

    assert misplaced(move) == [
        "group g is at 5 of t-1 at the source, it was translated without an offset there"
    ]


def test_changes_of_target_replica_behind(move: Move, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that ends before what its leader has told isn't taken for one without records."""
    move.mirror()
    move.made.seal({T0: dense(10, 15)})
    move.mirror(behind=4)
    asked: list[Any] = []
    ask = move.target.single_records

    def told(offsets: Any, level: str, ends: Any = None) -> Any:
        asked.append(ends)
        return ask(offsets, level, ends)

    monkeypatch.setattr(move.target, "single_records", told)

    changes_of_target(move.target, move.mirrored())  # type: ignore[arg-type]

    assert asked[-1] == {C0: 14}
