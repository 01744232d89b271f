"""Which offsets an archive holds already, and by which receipts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafka_drain.archive.coverage import Owned, read_owned
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.made_archive import MadeArchive, dense

P0, P1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": "id", "u": "id-u"}
HORIZON = {P0: 100, P1: 50, U0: 7}
#: Time of the record at offset 0, in milliseconds; each other's is a millisecond later.
FIRST_MS = 1_767_000_000_000


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """Offsets 10 to 49 of partition 0 in a closed generation, of 60 to 79 in the open one.

    Partition 1 was added to the topic later. A window holds 0 to 4, another 50 to 59.
    """
    made = MadeArchive(tmp_path / "archive", IDS)
    made.start_at({P0: 10})
    for at in (10, 20, 30, 40):
        made.seal({P0: dense(at, at + 10)})
    made.open_generation()
    made.start_at({P0: 60, P1: 3})
    made.seal({P0: dense(60, 70), P1: dense(3, 6)})
    made.seal({P0: dense(70, 80), P1: dense(6, 9)})
    made.seal_window("first", {P0: dense(0, 5)})
    made.seal_window("second", {P0: dense(50, 60)})
    return made


def owned(made: MadeArchive, **ids: str) -> Owned:
    """Ask for all partitions, with the topics' ids or others."""
    return read_owned(made.archive.snapshot(), IDS | ids, HORIZON)


def test_read_owned(made: MadeArchive) -> None:
    """Closed generations own what they sealed, the open one all up to the horizon."""
    found = owned(made)

    assert found.ranges == {P0: [R(0, 5), R(10, 100)], P1: [R(3, 50)], U0: [R(0, 7)]}
    assert found.sealed == {P0: 80, P1: 9, U0: 0}
    assert [generation.number for generation in found.generations] == [1, 2]
    assert [receipt.window for receipt in found.windows] == ["first", "second"]


def test_read_owned_left_out(made: MadeArchive) -> None:
    """A partition that the open generation leaves out goes on where an earlier one has ended."""
    made.open_generation()
    made.start_at({P0: 80})

    found = owned(made)

    assert found.ranges == {P0: [R(0, 5), R(10, 100)], P1: [R(3, 50)], U0: [R(0, 7)]}
    assert found.sealed == {P0: 80, P1: 9, U0: 0}


def test_read_owned_behind_horizon(made: MadeArchive) -> None:
    """A horizon before the open generation's start takes nothing of it."""
    found = read_owned(made.archive.snapshot(), IDS, {P0: 55})

    assert found.ranges == {P0: [R(0, 5), R(10, 60)]}


def test_read_owned_nothing_sealed(tmp_path: Path) -> None:
    """A generation without receipts owns from its start on what is there."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.start_at({P0: 4})
    found = owned(made)

    assert found.ranges == {P0: [R(4, 100)], P1: [R(0, 50)], U0: [R(0, 7)]}
    assert found.sealed == {P0: 4, P1: 0, U0: 0}
    assert found.receipts_of({P0: [R(0, 100)]}) == []


def test_read_owned_topic_made_again(made: MadeArchive) -> None:
    """Under another id nothing of the topic counts; other topics' offsets do."""
    found = owned(made, t="id-2")

    assert found.ranges == {P0: [], P1: [], U0: [R(0, 7)]}
    assert found.sealed == {U0: 0}
    assert found.windows == []
    made.open_generation(t="id-2")
    made.start_at({P0: 0})
    made.seal({P0: dense(0, 3)})
    found = owned(made, t="id-2")
    assert (found.ranges[P0], found.sealed[P0]) == ([R(0, 100)], 3)
    assert found.receipts_of({P0: [R(0, 3)]}) == ["generations/0003/receipts/000000000000.json"]


def test_read_owned_window_alone(tmp_path: Path) -> None:
    """A window's partition counts also where no generation has it; one without receipt doesn't."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal_window("first", {P1: dense(2, 4)})
    made.seal_window("second", {P1: dense(6, 8)})
    (made.root / "windows/second/receipt.json").unlink()

    found = read_owned(made.archive.snapshot(), IDS, {P0: 9})

    assert found.ranges == {P0: [R(0, 9)], P1: [R(2, 4)]}
    assert [receipt.window for receipt in found.windows] == ["first"]


def receipt(generation: int, batch: int) -> str:
    return f"generations/{generation:04d}/receipts/{batch:012d}.json"


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        ({P0: [R(10, 20)]}, [receipt(1, 0)]),
        ({P0: [R(19, 20)]}, [receipt(1, 0)]),
        ({P0: [R(20, 21)]}, [receipt(1, 1)]),
        ({P0: [R(19, 21)]}, [receipt(1, 0), receipt(1, 1)]),
        # Of many, the first and the last.
        ({P0: [R(10, 40)]}, [receipt(1, 0), receipt(1, 2)]),
        ({P0: [R(10, 50)]}, [receipt(1, 0), receipt(1, 3)]),
        ({P0: [R(15, 16), R(45, 46)]}, [receipt(1, 0), receipt(1, 3)]),
        ({P0: [R(0, 5)]}, ["windows/first/receipt.json"]),
        ({P0: [R(5, 10)]}, []),
        ({P0: [R(45, 65)]}, [receipt(1, 3), receipt(2, 0), "windows/second/receipt.json"]),
        ({P0: [R(80, 100)]}, []),
        ({P1: [R(8, 9)]}, [receipt(2, 1)]),
        ({U0: [R(0, 7)]}, []),
        ({}, []),
    ],
)
def test_receipts_of(
    made: MadeArchive, wanted: dict[TopicPartition, list[OffsetRange]], names: list[str]
) -> None:
    """The receipts that prove some offsets are named, generations' first."""
    assert owned(made).receipts_of(wanted) == names


def first_timestamp(found: Owned, tp: TopicPartition, offset: int) -> int | None:
    """Return the lowest time of the segment that holds an offset."""
    return next((part.first_timestamp for _, part in found.receipts_at(tp, offset)), None)


@pytest.mark.parametrize(
    ("tp", "offset", "segment"),
    [
        (P0, 0, 0),
        (P0, 4, 0),
        (P0, 5, None),
        (P0, 10, 10),
        (P0, 19, 10),
        (P0, 20, 20),
        (P0, 49, 40),
        (P0, 50, 50),
        (P0, 60, 60),
        (P0, 79, 70),
        (P0, 80, None),
        (P1, 2, None),
        (P1, 3, 3),
        (P1, 8, 6),
        (U0, 0, None),
    ],
)
def test_first_timestamp(
    made: MadeArchive, tp: TopicPartition, offset: int, segment: int | None
) -> None:
    """The lowest time of the segment that holds an offset; of none, where none does."""
    expected = None if segment is None else FIRST_MS + segment

    assert first_timestamp(owned(made), tp, offset) == expected


def test_first_timestamp_of_added_partition(tmp_path: Path) -> None:
    """A partition that was added to the topic later is found behind the segments before that."""
    made = MadeArchive(tmp_path / "archive", IDS)
    for at in (0, 10, 20):
        made.seal({P0: dense(at, at + 10)})
    made.seal({P1: dense(0, 3)})

    assert first_timestamp(owned(made), P1, 0) == FIRST_MS


@pytest.mark.parametrize(
    ("start", "end", "names"),
    [
        (10, 11, [receipt(1, 0)]),
        (19, 20, [receipt(1, 0)]),
        (19, 21, [receipt(1, 0), receipt(1, 1)]),
        (5, 10, [receipt(2, 0), receipt(2, 1)]),
        (4, 5, [receipt(2, 0), "windows/first/receipt.json"]),
        (49, 51, [receipt(1, 3), "windows/second/receipt.json"]),
        (80, 90, []),
    ],
)
def test_receipts_between(made: MadeArchive, start: int, end: int, names: list[str]) -> None:
    """Named are the receipts of segments with records of a time; the end isn't part of it."""
    # Partition 1's records are of the first milliseconds.
    assert owned(made).receipts_between(FIRST_MS + start, FIRST_MS + end) == names


def test_receipts_between_without_times(tmp_path: Path) -> None:
    """A segment whose records have no time is of none."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal({P0: {0: None}})

    assert owned(made).receipts_between(0, 1 << 60) == []


@pytest.fixture
def rewritten(tmp_path: Path) -> MadeArchive:
    """Offsets 5 to 19 of two partitions, and another incarnation from 13 on of the first one.

    A window of the earlier incarnation holds 0 to 4 of each, one of the other 20 to 24 of each.
    """
    made = MadeArchive(tmp_path / "archive", IDS)
    made.start_at({P0: 5, P1: 5})
    made.seal({P0: dense(5, 20, FIRST_MS), P1: dense(5, 20, FIRST_MS)})
    made.seal_window("first", {P0: dense(0, 5), P1: dense(0, 5)})
    made.open_generation(t="id~2")
    made.start_at({P0: 13, P1: 20})
    return made


def test_read_owned_rewritten_log(rewritten: MadeArchive) -> None:
    """What an earlier incarnation has before the rewritten offset is still the log's."""
    snapshot = rewritten.archive.snapshot()

    found = read_owned(snapshot, IDS | {"t": "id~2"}, {P0: 13, P1: 20})
    earlier = read_owned(snapshot, IDS, {P0: 30, P1: 30})

    assert found.ranges == {P0: [R(0, 13)], P1: [R(0, 20)]}
    assert found.sealed == {P0: 13, P1: 20}
    assert earlier.ranges == {P0: [R(0, 20)], P1: [R(0, 20)]}


def test_read_owned_cut_off_elsewhere(rewritten: MadeArchive) -> None:
    """A receipt of rewritten records proves nothing about those that have their offsets now."""
    found = read_owned(rewritten.archive.snapshot(), IDS | {"t": "id~2"}, {P0: 20, P1: 20})
    receipt = "generations/0001/receipts/000000000000.json"

    assert found.receipts_of({P0: [R(12, 16)]}) == [receipt]
    assert found.receipts_of({P0: [R(13, 16)]}) == []
    assert found.receipts_of({P1: [R(13, 16)]}) == [receipt]
    assert found.receipts_of({P0: [R(0, 3)]}) == ["windows/first/receipt.json"]
    assert first_timestamp(found, P0, 12) == FIRST_MS + 5
    assert first_timestamp(found, P0, 13) is None
    assert first_timestamp(found, P1, 13) == FIRST_MS + 5
