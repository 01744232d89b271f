"""Which files are too old, by their newest record's time, and what is sealed of those that go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.receipts import SealedContent
from kafka_drain.errors import LockedError, ManifestInvalidError
from kafka_drain.gaps import GapReason
from kafka_drain.intervals import time_text
from kafka_drain.maintenance.retention import (
    Deletion,
    held_by_future,
    is_too_old,
    newest_in_future,
    plan_deletions,
    seal_deletions,
    without_locked,
)
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.superseded_files import remove_superseded
from tests.kafka_drain.made_archive import EPOCH, NOW, MadeArchive

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
U0 = TopicPartition("u", 0)
BEFORE = int((NOW - timedelta(days=30) - EPOCH).total_seconds() * 1000)
OLD, YOUNG = BEFORE - 86_400_000, BEFORE + 86_400_000

#: Newest times of a partition's records, and whether they are too old.
TIMES = [
    (OLD, True),
    (BEFORE - 1, True),
    (BEFORE, False),
    (YOUNG, False),
    # The start of 1970 is a time.
    (0, True),
    # A record that its producer has given no time.
    (-1, False),
    (None, False),
]


@pytest.mark.parametrize("times", list(product(TIMES, repeat=2)))
def test_is_too_old(times: Sequence[tuple[int | None, bool]]) -> None:
    """A file goes only when the newest records of all its partitions are too old."""
    contents = [SealedContent.of(P0, 0, 9, 10, OLD, time) for time, _ in times]

    assert is_too_old(contents, BEFORE) is all(is_old for _, is_old in times)


@pytest.mark.parametrize(
    ("times", "expected"),
    [([], None), ([OLD], None), ([None, -1], None), ([10, OLD], None), ([BEFORE + 1, OLD], 0)],
)
def test_newest_in_future(times: list[int | None], expected: int | None) -> None:
    """A file is held back by a record that is dated later than now, not by one of now."""
    contents = [SealedContent.of(P0, 0, 9, 10, 1, time) for time in times]

    found = newest_in_future(contents, BEFORE)

    assert found == (None if expected is None else contents[expected])


def test_held_by_future(tmp_path: Path) -> None:
    """A file that one record from the future keeps is named, with that record's time."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    future = BEFORE + 32 * 86_400_000
    [file] = made.seal({P0: dict(enumerate([OLD, future]))})
    snapshot = made.archive.snapshot()

    (line,) = held_by_future(snapshot, snapshot.generations, NOW)

    assert file.path in line
    assert line.startswith("1 file with 2 records, which retention_days can't delete")
    assert f"(t-0: {time_text(future)})" in line
    assert not held_by_future(snapshot, snapshot.generations, NOW + timedelta(days=3))


def test_is_too_old_empty() -> None:
    """A file without records has no age."""
    assert not is_too_old([], BEFORE)


@pytest.mark.parametrize(
    ("times", "goes"),
    [
        ([OLD, OLD], True),
        ([OLD, YOUNG], False),
        ([-1, -1], False),
        ([-1, OLD], True),
        ([None, None], False),
    ],
)
def test_plan_deletions(tmp_path: Path, times: list[int | None], goes: bool) -> None:
    """A file goes when its newest record is too old; one whose records have no time stays."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    [file] = made.seal({P0: dict(enumerate(times))})

    found = plan(made)

    assert [f.path for deletion in found for f in deletion.files] == [file.path] * goes


@pytest.mark.parametrize(("newest", "goes"), [(OLD, True), (YOUNG, False), (-1, False)])
def test_plan_deletions_of_several_partitions(tmp_path: Path, newest: int, goes: bool) -> None:
    """A file of an old and a young partition stays."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    [file] = made.seal({P0: {0: OLD}, P1: {0: newest}}, together=True)

    assert [f.path for d in plan(made) for f in d.files] == [file.path] * goes


def test_plan_deletions_by_topic_ids(tmp_path: Path) -> None:
    """Files are deleted together when they count in the same offsets: of the same topics' ids."""
    made = MadeArchive(tmp_path / "archive", {"t": "id", "u": "id-u"})
    old, of_u = made.seal({P0: {0: OLD}, U0: {0: OLD}})
    made.open_generation(t="id-2")
    made.seal({P0: {0: OLD}})

    found = plan(made, closed=2)

    assert [(d.topic_ids, d.before_ms) for d in found] == [
        ({"t": "id", "u": "id-u"}, BEFORE),
        ({"t": "id-2"}, BEFORE),
    ]
    assert {f.path for f in found[0].files} == {old.path, of_u.path}
    assert found[0].bytes == old.bytes + of_u.bytes
    assert found[0].records == {P0: 1, U0: 1}
    assert found[0].line() == (
        f"2 files, {old.bytes + of_u.bytes:,} bytes, 2 records, all before 2025-12-02T00:00:00.000Z"
    )


@pytest.mark.parametrize("locked", list(product((False, True), repeat=3)))
def test_without_locked(tmp_path: Path, locked: tuple[bool, ...]) -> None:
    """Locked files are left out, a deletion of which nothing is left too; the rest is as it was."""
    made = MadeArchive(tmp_path / "archive", {"t": "1", "u": "2"})
    files = [*made.seal({P0: {0: OLD}}), *made.seal({P0: {1: OLD}}), *made.seal({U0: {0: OLD}})]
    deletions = [Deletion(files[:2], {"t": "1"}, BEFORE), Deletion(files[2:], {"u": "2"}, BEFORE)]
    kept = [file.path for file, is_locked in zip(files, locked, strict=True) if is_locked]

    found, left = without_locked(deletions, {*kept, "another"})

    assert left == kept
    free = [[file for file in each.files if file.path not in kept] for each in deletions]
    assert [(each.files, each.topic_ids, each.before_ms) for each in found] == [
        (some, ids, BEFORE)
        for some, ids in zip(free, ({"t": "1"}, {"u": "2"}), strict=True)
        if some
    ]


def plan(made: MadeArchive, closed: int = 1) -> list[Deletion]:
    """Plan what is older than 30 days."""
    return plan_deletions(
        made.archive.snapshot(), made.archive.snapshot().generations[:closed], 30, NOW
    )


def run(made: MadeArchive, **changes: Any) -> list[str]:
    """Seal what goes, and return the names of the windows."""
    told = {"run": "tests", "say": print} | changes
    return [str(r.window) for r in seal_deletions(made.archive, plan(made), **told)]


def test_seal_deletions(tmp_path: Path) -> None:
    """The window says which offsets, files and records go; readers leave the files out then."""
    made = MadeArchive(tmp_path / "archive", {"t": "id", "u": "id-u"})
    # Offsets 2 and 4 are in no file.
    [sparse] = made.seal({P0: {0: OLD, 1: OLD, 3: OLD, 5: OLD}})
    first, second = made.seal({P0: {6: OLD}, P1: {7: OLD, 8: OLD}})
    [young] = made.seal({P1: {9: YOUNG}})
    files = [sparse, first, second]

    assert run(made) == ["retention_0001"]

    [window] = made.archive.snapshot().windows
    receipt, document = window.receipt, window.plan.content()
    gone = sorted(file.path for file in files)
    assert [(part.tp, part.range, part.gaps) for part in receipt.partitions] == [
        (tp, r, {GapReason.DELETED: (r,)})
        for tp, r in (
            (P0, OffsetRange(0, 2)),
            (P0, OffsetRange(3, 4)),
            (P0, OffsetRange(5, 7)),
            (P1, OffsetRange(7, 9)),
        )
    ]
    assert list(receipt.replaces) == document["replaces"] == gone
    assert (receipt.pipeline, receipt.cluster_id, receipt.topics, receipt.files) == (
        "made",
        "cluster-1",
        {"t": "id"},
        (),
    )
    assert receipt.sealed_at >= document["opened_at"]
    assert {name: document[name] for name in ("format", "partition_by", "before")} == {
        "format": "parquet",
        "partition_by": [],
        "before": "2025-12-02T00:00:00.000Z",
    }
    assert [(row["partition"], row["start"], row["end"]) for row in document["ranges"]] == [
        (0, 0, 2),
        (0, 3, 4),
        (0, 5, 7),
        (1, 7, 9),
    ]
    assert document["replaced"] == {
        "files": 3,
        "bytes": sum(file.bytes for file in files),
        "records": [
            {"topic": "t", "partition": 0, "records": 5},
            {"topic": "t", "partition": 1, "records": 2},
        ],
    }
    # Sealed, not deleted yet; and planned no more.
    assert all((made.root / file.path).is_file() for file in [*files, young])
    assert plan(made) == []
    assert remove_superseded(made.archive, print)["removed_files"] == 3
    assert (made.root / young.path).is_file()


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"PAR1")])
def test_seal_deletions_unreadable(tmp_path: Path, damage: Any) -> None:
    """A file whose offsets only its bytes tell has to be readable; nothing is sealed."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    [file] = made.seal({P0: {0: OLD, 2: OLD}})
    damage(Path(str(made.root / file.path)))

    with pytest.raises(ManifestInvalidError, match=rf"{file.path} can't be read \(.+\); run"):
        run(made)

    assert made.archive.snapshot().windows == ()


def test_seal_deletions_taken(tmp_path: Path) -> None:
    """Where another window has taken the place of a file meanwhile, nothing is sealed."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    [file] = made.seal({P0: {0: OLD}})
    deletions = plan(made)
    made.seal_window("compact_0001", {P0: {0: OLD}}, [file.path])

    with pytest.raises(
        LockedError, match="window retention_0002: window compact_0001 has replaced"
    ):
        seal_deletions(made.archive, deletions, run="tests", say=print)
