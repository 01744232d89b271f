"""Which files are too old, by their newest record's time, and what is sealed of those that go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.receipts import SealedContent
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import LockedError, ManifestInvalidError
from kafka_drain.gaps import GapReason
from kafka_drain.intervals import time_text
from kafka_drain.maintenance.approved import plan_text
from kafka_drain.maintenance.maintain import MaintenancePlan, plan_maintenance
from kafka_drain.maintenance.retention import (
    NAMED,
    Deletion,
    counted,
    drained_times,
    held_back,
    is_too_old,
    newest_in_future,
    plan_deletions,
    seal_deletions,
    without_locked,
)
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.windows.superseded_files import remove_superseded
from tests.kafka_drain.made_archive import EPOCH, NOW, MadeArchive
from tests.tables import each_of

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


@each_of("times", list(product(TIMES, repeat=2)))
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


DAY = 86_400_000
NOW_MS = BEFORE + 30 * DAY
#: Drained before what is too old, and after it.
LONG_AGO, LATELY = BEFORE - 5 * DAY, BEFORE + 5 * DAY


@pytest.mark.parametrize(
    ("newest", "max_future_days", "expected"),
    [
        # Without a bound, every date is believed.
        (NOW_MS * 1000, None, NOW_MS * 1000),
        (LONG_AGO, 1, LONG_AGO),
        (LONG_AGO - 1, 0, LONG_AGO - 1),
        (LONG_AGO + 1, 0, LONG_AGO),
        (LONG_AGO + DAY, 1, LONG_AGO + DAY),
        (LONG_AGO + DAY + 1, 1, LONG_AGO),
        (NOW_MS * 1000, 1, LONG_AGO),
        (NOW_MS, 100_000, NOW_MS),
        # No time stays none.
        (None, 0, None),
        (-1, 0, -1),
        (0, 0, 0),
    ],
)
def test_counted(newest: int | None, max_future_days: int | None, expected: int | None) -> None:
    """A date further behind the drain than the bound counts as the drain's, and no other does."""
    content = SealedContent.of(P0, 0, 9, 10, OLD, newest)

    [found] = counted([content], LONG_AGO, max_future_days)

    assert found == SealedContent.of(P0, 0, 9, 10, OLD, expected)


@pytest.mark.parametrize(
    ("times", "drained", "expected"),
    [
        ([], LONG_AGO, None),
        # It goes.
        ([OLD, OLD], LONG_AGO, None),
        # Dated after the drain, by whose time it were too old.
        ([OLD, BEFORE], LONG_AGO, 1),
        ([BEFORE + 1, BEFORE], LONG_AGO, 0),
        ([NOW_MS], BEFORE - 1, 0),
        # It is young by the drain, too.
        ([OLD, BEFORE], BEFORE, None),
        ([LATELY + 1], LATELY, None),
        # Not by a date: its records have no time.
        ([None], LONG_AGO, None),
        ([BEFORE, -1], LONG_AGO, None),
        # Later than now, whenever it was drained.
        ([OLD, NOW_MS], LATELY, None),
        ([OLD, NOW_MS + 1], LATELY, 1),
        ([NOW_MS + 1, -1], LATELY, 0),
    ],
)
def test_held_back(times: list[int | None], drained: int, expected: int | None) -> None:
    """A file is held back by a date later than now, or than its drain if that were too old."""
    contents = [SealedContent.of(P0, 0, 9, 10, 1, time) for time in times]

    found = held_back(contents, drained, BEFORE, NOW_MS)

    assert found == (None if expected is None else contents[expected])


def at(ms: int) -> str:
    """Return a time as receipts have it."""
    return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def test_drained_times(tmp_path: Path) -> None:
    """A file was drained before its receipt was sealed, by the latest clock up to then."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    times = [LONG_AGO, LATELY, LATELY - 1, NOW_MS]
    files = [made.seal({P0: {n: OLD}}, sealed_at=at(ms))[0] for n, ms in enumerate(times)]
    receipts = [
        replace(receipt, journal=n)
        for n, receipt in enumerate(made.archive.generation(1).receipts())
    ]

    found = drained_times(reversed(receipts))

    assert [found[file.path] for file in files] == [LONG_AGO, LATELY, LATELY, NOW_MS]


#: A producer has sent microseconds as milliseconds; of the archive's readers, Python ends in 9999.
FUTURE = BEFORE + 1_000_000 * DAY
LAYOUTS = [["topic"], ["topic", "date"]]


def made_with(tmp_path: Path, layout: list[str], drained: int, *times: int) -> MadeArchive:
    """Return an archive of one batch, with records of these times."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"}, partition_by=layout)
    made.seal({P0: dict(enumerate(times))}, sealed_at=at(drained))
    made.open_generation()
    return made


def planned(made: MadeArchive, now: datetime = NOW, **keys: Any) -> MaintenancePlan:
    """Plan maintenance that deletes what is older than 30 days."""
    keys = {"retention_days": 30, "max_generation_days": 10_000} | keys
    pipeline = Pipeline(name="made", topics=["t"], archive=str(made.root), **keys)
    return plan_maintenance(pipeline, clock=lambda: now)


def deleted(found: MaintenancePlan) -> set[str]:
    return {file.path for deletion in found.deletions for file in deletion.files}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_held_by_future(tmp_path: Path, layout: list[str]) -> None:
    """Without a bound, a date from the future keeps its file, which text and JSON name."""
    made = made_with(tmp_path, layout, LONG_AGO, OLD, FUTURE)
    *old, held = made.files()

    found = planned(made)

    assert deleted(found) == {file.path for file in old}
    [line] = found.held
    assert line.startswith(f"1 file with {held.records} record")
    assert "which retention_days can't delete" in line
    assert "(max_future_days bounds that)" in line
    assert line.endswith(f": {held.path} (t-0: {time_text(FUTURE)})")
    assert found.to_dict()["held"] == [line]
    assert found.lines()[-1].endswith(f"leaves {line}")
    assert line in plan_text(found)


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_max_future_days(tmp_path: Path, layout: list[str]) -> None:
    """With a bound, a date from the future counts as the drain's: nothing is held for ever."""
    made = made_with(tmp_path, layout, LONG_AGO, OLD, FUTURE)
    files = made.files()

    found = planned(made, max_future_days=1)

    assert deleted(found) == {file.path for file in files}
    assert not found.held
    [deletion] = found.deletions
    assert list(deletion.dated_later) == [files[-1].path]
    said = f"with records dated later: {files[-1].path} (t-0: {time_text(FUTURE)})"
    assert deletion.line().endswith(
        f"; of these, 1 file by the time of the drain (max_future_days), {said}"
    )
    assert said in plan_text(found)
    assert "| t-0 | 2 | dated or drained before 2025-12-02" in plan_text(found)
    figures = found.to_dict()
    assert (figures["deleted_files"], figures["deleted_files_dated_later"]) == (len(files), 1)
    # Not a millisecond before the drain is that old.
    early = planned(made, NOW - timedelta(days=5), max_future_days=1)
    assert files[-1].path not in deleted(early)
    assert not early.held


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_max_future_days_believed(tmp_path: Path, layout: list[str]) -> None:
    """A date within the bound counts, and what it keeps is named."""
    made = made_with(tmp_path, layout, LONG_AGO, OLD, YOUNG)
    *old, held = made.files()

    for days in (None, 6):
        found = planned(made, max_future_days=days)
        assert deleted(found) == {file.path for file in old}
        [line] = found.held
        assert f"{held.path} (t-0: {time_text(YOUNG)})" in line
    assert "(max_future_days is 6)" in line
    assert held.path in deleted(planned(made, max_future_days=5))


def test_held_by_future_several(tmp_path: Path) -> None:
    """Of many files, the first are named; number and records are those of all."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    files = [made.seal({P0: {2 * n: OLD, 2 * n + 1: FUTURE}})[0] for n in range(NAMED + 1)]
    made.open_generation()

    [line] = planned(made).held

    assert line.startswith("6 files with 12 records, ")
    assert [file.path in line for file in files] == [True] * NAMED + [False]
    assert line.endswith(" …")


def test_max_future_days_rewritten(tmp_path: Path) -> None:
    """What was rewritten counts from when that was sealed: never before its true drain."""
    made = made_with(tmp_path, ["topic"], LONG_AGO, OLD, FUTURE)
    [file] = made.files()
    [window] = made.seal_window(
        "compact_0001", {P0: {0: OLD, 1: FUTURE}}, [file.path], sealed_at=at(LATELY)
    )

    assert not planned(made, max_future_days=0).deletions
    later = planned(made, NOW + timedelta(days=5, milliseconds=1), max_future_days=0)
    assert deleted(later) == {window.path}


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
    told = {"run": "tests"} | changes
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
    assert remove_superseded(made.archive)["removed_files"] == 3
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
        seal_deletions(made.archive, deletions, run="tests")
