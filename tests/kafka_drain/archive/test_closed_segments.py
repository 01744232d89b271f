"""What maintenance puts together or deletes, where a repair has drained some files again."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.closed_segments import read_closed, together
from kafka_drain.maintenance.compact import plan_compactions
from kafka_drain.maintenance.compaction_plan import Compaction
from kafka_drain.maintenance.retention import plan_deletions
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.counting import calls_of
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
TARGET = 1 << 20
LATER = datetime(2030, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive without files yet."""
    return MadeArchive(tmp_path / "archive", {"flights": "id-1"})


def interval(hour: int) -> dict[str, Any]:
    """Return what the plan of an hour's window says."""
    hours = [f"2026-01-01T{n:02}:00:00+00:00" for n in (hour, hour + 1)]
    return {"interval": hours, "partition_by": ["topic"]}


def seal_hours(made: MadeArchive, hours: range) -> list[str]:
    """Seal windows of an hour each, ten offsets of both partitions; return their files."""
    return [
        file.path
        for hour in hours
        for file in made.seal_window(
            f"20260101T{hour:02}0000Z_20260101T{hour + 1:02}0000Z",
            {tp: dense(10 * hour, 10 * hour + 10) for tp in (P0, P1)},
            **interval(hour),
        )
    ]


def compactions(made: MadeArchive) -> list[Compaction]:
    return plan_compactions(
        made.archive.snapshot(), made.archive.snapshot().generations[:-1], TARGET
    )


def test_plan_compactions_repaired_window(made: MadeArchive) -> None:
    """What a repair has drained of a window is put together with what was sound."""
    files = seal_hours(made, range(3))
    [repaired] = made.seal_window("repair_1", {P0: dense(0, 10)}, files[:1])

    [found] = compactions(made)

    assert found.group.replaces == sorted([*files[1:], repaired.path])
    assert found.group.records == {P0: 30, P1: 30}
    assert found.group.ranges == {tp: [OffsetRange(0, 30)] for tp in (P0, P1)}


def test_plan_compactions_repaired_and_compacted(made: MadeArchive) -> None:
    """A window whose sound and repaired files are compacted isn't looked at again."""
    files = seal_hours(made, range(3))
    [repaired] = made.seal_window("repair_1", {P0: dense(0, 10)}, files[:1])
    whole = {tp: dense(0, 30) for tp in (P0, P1)}
    paths = [*files[1:], repaired.path]
    made.seal_window("compact_0001", whole, paths, partition_by=["topic"])
    later = seal_hours(made, range(3, 6))

    [found] = compactions(made)

    assert found.group.replaces == sorted(later)
    assert found.group.ranges == {tp: [OffsetRange(30, 60)] for tp in (P0, P1)}


def test_plan_compactions_repaired_reprocess(made: MadeArchive) -> None:
    """A reprocess' window that a repair has repaired is compacted with what was drained again."""
    old = [file.path for n in range(3) for file in made.seal({P0: dense(5 * n, 5 * n + 5)})]
    rows = {P0: dense(0, 5), P1: dense(0, 5)}
    made.open_generation()
    files = made.seal_window("reprocess_0001_0001", rows, old, partition_by=["topic"])
    halves = [{P0: dense(0, 2)}, {P0: dense(2, 5)}]
    repaired = [
        file.path
        for n, half in enumerate(halves)
        for file in made.seal_window(f"repair_{n}", half, [files[0].path])
    ]

    [found] = compactions(made)

    assert found.group.replaces == sorted([*repaired, files[1].path])


def test_plan_deletions_repaired_once(made: MadeArchive) -> None:
    """A repair's file is deleted once, however many generations are closed."""
    [lost] = made.seal({P0: dense(0, 10)})
    made.open_generation()
    [sound] = made.seal({P0: dense(10, 20)})
    made.open_generation()
    [repaired] = made.seal_window("repair_1", {P0: dense(0, 10)}, [lost.path])

    [deletion] = plan_deletions(
        made.archive.snapshot(), made.archive.snapshot().generations[:-1], 1, LATER
    )

    assert sorted(file.path for file in deletion.files) == sorted([sound.path, repaired.path])
    assert deletion.records == {P0: 20}


def test_plan_compactions_many_repaired(tmp_path: Path) -> None:
    """The work for a repaired file doesn't grow with the number of repairs."""

    def work(repairs: int) -> int:
        made = MadeArchive(tmp_path / str(repairs), {"flights": "id-1"})
        lost = [made.seal({P0: dense(10 * n, 10 * n + 10)})[0].path for n in range(repairs)]
        made.open_generation()
        for n, path in enumerate(lost):
            made.seal_window(f"repair_{n:03}", {P0: dense(10 * n, 10 * n + 10)}, [path])
        return calls_of(lambda: compactions(made))

    few, more, many = work(10), work(30), work(50)
    assert many - more < 1.03 * (more - few)


def test_plan_compactions_repaired_beside_rewritten_log(tmp_path: Path) -> None:
    """A repair's file of one topic counts, whichever incarnation of another its window has."""
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1", "trains": "id-2"})
    trains = TopicPartition("trains", 0)
    [earlier] = made.seal({trains: dense(0, 10)})
    before = dict(made.topic_ids)
    made.open_generation(trains="id-2~2")
    files = [
        file
        for n in range(4)
        for file in made.seal({P0: dense(10 * n, 10 * n + 10), trains: dense(5 * n, 5 * n + 5)})
    ]
    made.open_generation()
    made.topic_ids = before
    rows = {P0: dense(0, 10), trains: dense(0, 10)}
    repaired, _ = made.seal_window("repair_1", rows, [files[0].path, earlier.path], kind="repair")

    [found] = compactions(made)

    assert {file.path for file in found.files} == {
        repaired.path,
        *(file.path for file in files[1:]),
    }


def test_read_closed_repaired_of_two_topics(tmp_path: Path) -> None:
    """A repair's file of two topics isn't one of segments that count another of these."""
    trains = TopicPartition("trains", 0)
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1", "trains": "id-2"}, partition_by=())
    rows = {P0: dense(0, 10), trains: dense(0, 10)}
    [lost] = made.seal(rows)
    [repaired] = made.seal_window("repair_1", rows, [lost.path], kind="repair")
    made.open_generation(trains="id-3")
    later = {P0: dense(10, 20), trains: dense(0, 5)}
    [sound] = made.seal(later)
    made.open_generation()
    rows = {P0: dense(20, 30), trains: dense(5, 9)}
    [own] = made.seal_window("20260101T000000Z_20260101T010000Z", rows, **interval(0))
    [compacted] = made.seal_window("compact_0001", later, [sound.path], kind="compact")
    snapshot = made.archive.snapshot()

    closed = read_closed(snapshot, snapshot.generations[:-1])

    assert {segments.name: [file.path for file in segments.files] for segments in closed} == {
        "generation 1": [repaired.path],
        "1 windows": [own.path],
        "window compact_0001": [compacted.path],
    }
    assert [segments.is_compacted for segments in closed] == [False, False, True]


@pytest.mark.parametrize("trains", ["id-2", "id-3"])
def test_together(tmp_path: Path, trains: str) -> None:
    """Generations that share a repair's file are put together, unless one has another topic."""
    flights, other = TopicPartition("flights", 0), TopicPartition("trains", 0)
    made = MadeArchive(tmp_path / "archive", {"flights": "id-1", "trains": "id-2"})
    [first, _] = made.seal({flights: dense(0, 10), other: dense(0, 10)})
    made.open_generation()
    made.seal({flights: dense(10, 20)})
    made.open_generation(trains=trains)
    [last, _] = made.seal({flights: dense(20, 30), other: dense(10, 20)})
    made.open_generation()
    made.seal({flights: dense(30, 40)})
    made.open_generation()
    rows = {flights: {**dense(0, 10), **dense(20, 30)}}
    [repaired] = made.seal_window("repair_1", rows, [first.path, last.path], kind="repair")
    snapshot = made.archive.snapshot()
    closed = read_closed(snapshot, snapshot.generations[:-1])

    found = together(closed, [repaired.path])

    expected = [[0, 10, 20], [30]] if trains == "id-2" else [[0, 10], [20], [30]]
    starts = [[r.starts[flights] for r in segments.receipts] for segments in found]
    assert starts == expected
    paths = [file.path for file in found[0].files]
    assert len(paths) == len({*paths})
    assert together(closed, [first.path]) == closed
