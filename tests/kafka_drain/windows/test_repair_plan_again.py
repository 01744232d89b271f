"""A window that a repair has sealed is damaged itself, and repaired by another one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.window import Window
from kafka_drain.findings import errors, summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.identity import next_incarnation
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.log_tails import archived_tails
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.repair_plan import plan_repair
from kafka_drain.windows.roll import _void, plan_roll, roll
from tests.kafka_drain.golden import (
    END,
    P0,
    P1,
    add_batch,
    golden_cluster,
    note_batch,
    row,
    seal_repair,
    sealed_copy,
)

ROWS = [row(P0, offset) for offset in range(END, 50)]


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("is_there", [False, True], ids=["gone", "cut"])
def test_repair_of_repair(
    tmp_path: Path, is_there: bool, is_closed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second window stands for the first one's file alone: for one file there is one window."""
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)
    archive = sealed_copy(tmp_path / "archive")
    lost = seal_next(archive)
    name = str(lost.relative_to(str(archive.root)))
    damage(lost, is_there)
    first = seal_repair(archive, "repair_1", ROWS, [name])
    assert errors(validate_archive(archive, golden_cluster()).findings) == []
    if is_closed:
        roll(plan_roll(archive, golden_cluster()))
    first.unlink()

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert "offset_missing" in summary(errors(report.findings))
        assert report.receipts_written == 0
    plan = plan_repair(archive, report)

    assert plan.replaces == [str(first.relative_to(str(archive.root)))]
    assert {tp: [(r.start, r.end) for r in ranges] for tp, ranges in plan.ranges.items()} == {
        P0: [(END, 50)]
    }
    seal_repair(archive, "repair_2", ROWS, plan.replaces)
    for _ in range(2):
        assert errors(validate_archive(archive, golden_cluster(), deep=True).findings) == []


def test_repair_of_repair_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other files of a damaged window hold is there: nobody gets it twice."""
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)
    archive = sealed_copy(tmp_path / "archive")
    lost = seal_next(archive)
    lost.unlink()
    first = seal_repair(
        archive, "repair_1", ROWS, [str(lost.relative_to(str(archive.root)))], files=2
    )
    first.unlink()
    half = (END + 50) // 2

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert {(g.tp, g.range, g.reason) for g in report.gaps if not g.harmless} == {
            (P0, OffsetRange(END, half), GapReason.LOST)
        }
    plan = plan_repair(archive, report)

    assert plan.replaces == [str(first.relative_to(str(archive.root)))]
    assert plan.ranges == {P0: [OffsetRange(END, half)]}
    seal_repair(archive, "repair_2", ROWS[: half - END], plan.replaces)
    for _ in range(2):
        assert errors(validate_archive(archive, golden_cluster(), deep=True).findings) == []


def test_repair_of_earlier_incarnation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a later incarnation goes on, Kafka has its records, and nobody gets them twice."""
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)
    archive = sealed_copy(tmp_path / "archive")
    lost = seal_next(archive)
    plan = plan_roll(archive, golden_cluster())
    topics = {P0.topic: next_incarnation(plan.topic_ids[P0.topic])}
    roll(replace(plan, starting_offsets={P0: 45, P1: 50}, topic_ids=topics))
    lost.unlink()

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert {(g.tp, g.range, g.reason) for g in report.gaps if not g.harmless} == {
            (P0, OffsetRange(END, 45), GapReason.LOST),
            (P0, OffsetRange(45, 50), GapReason.EXPIRED),
        }
    refused = plan_repair(archive, report)
    accepted = {P0: [OffsetRange(45, 50)]}
    report = validate_archive(archive, golden_cluster(), acknowledged=accepted)
    repair = plan_repair(archive, report)

    assert (refused.ranges, refused.replaces) == ({}, [])
    assert repair.ranges == {P0: [OffsetRange(END, 45)]}
    assert repair.replaces == [str(lost.relative_to(str(archive.root)))]


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_tails_of_repaired_batch(tmp_path: Path, is_closed: bool) -> None:
    """A record that only a repair's window has is the newest one that Kafka's log is held against.

    If the log is cut right there and grows again, the next drain would start behind other records.
    """
    archive = sealed_copy(tmp_path / "archive")
    paths = add_batch(archive.generation(1), 14, END, 50)
    note_batch(archive.generation(1), 14, paths, END, 50)
    paths[0].unlink()
    window = seal_repair(archive, "repair_1", ROWS, [str(paths[0].relative_to(str(archive.root)))])
    assert validate_archive(archive, golden_cluster()).receipts_written == 1
    if is_closed:
        roll(plan_roll(archive, golden_cluster()))

    found = archived_tails(archive.snapshot(), [P0, P1])
    window.unlink()
    unread = archived_tails(archive.snapshot(), [P0, P1])

    assert (found[P0].offset, found[P1].offset) == (49, 49)
    assert found[P0].hash is not None
    # Nor is it taken for the same if its file can't be read.
    assert (unread[P0].offset, unread[P0].hash) == (49, None)


def test_repair_of_removed_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a receipt leaves to a window that is gone is lost, until another window has it."""
    monkeypatch.setattr(gap_explanation, "classify_gaps", all_lost)
    archive = sealed_copy(tmp_path / "archive")
    paths = add_batch(archive.generation(1), 14, END, 50)
    note_batch(archive.generation(1), 14, paths, END, 50)
    paths[0].unlink()
    seal_repair(archive, "repair_1", ROWS, [str(paths[0].relative_to(str(archive.root)))])
    assert validate_archive(archive, golden_cluster()).receipts_written == 1
    roll(plan_roll(archive, golden_cluster()))
    _void(archive, Window(archive.root, "repair_1"))

    for _ in range(2):
        report = validate_archive(archive, golden_cluster())
        assert {(g.tp, g.range, g.reason) for g in report.gaps if not g.harmless} == {
            (P0, OffsetRange(END, 50), GapReason.LOST)
        }
        assert not report.complete
    plan = plan_repair(archive, report)

    assert (plan.ranges, plan.replaces) == ({P0: [OffsetRange(END, 50)]}, [])
    seal_repair(archive, "repair_2", ROWS, [])
    for _ in range(2):
        assert errors(validate_archive(archive, golden_cluster(), deep=True).findings) == []


def all_lost(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
    """Kafka still holds whatever it is asked for."""
    return [Gap(tp, r, GapReason.LOST) for tp, ranges in asked.items() for r in ranges]


def seal_next(archive: Archive) -> Path:
    """Seal a batch more; return its file of partition 0."""
    paths = add_batch(archive.generation(1), 14, END, 50)
    note_batch(archive.generation(1), 14, paths, END, 50)
    assert validate_archive(archive, golden_cluster()).receipts_written == 1
    return paths[0]


def damage(path: Path, is_there: bool) -> None:
    """Take a file away, or half of it."""
    if is_there:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
