"""An archive drained with read_uncommitted: records of aborted transactions belong to it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.findings import errors, summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.repair_plan import plan_repair
from tests.kafka_drain.golden import END, P0, add_batch, golden_cluster, golden_copy, note_batch

R = OffsetRange
UNCOMMITTED = "read_uncommitted"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """The golden archive, drained with read_uncommitted and sealed; [44, 46) were aborted."""
    archive = golden_copy(tmp_path / "archive")
    path = Path(str(archive.root)) / "archive.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"isolation_level": UNCOMMITTED}))

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        return [
            Gap(tp, R(o, o + 1), GapReason.ABORTED if 44 <= o < 46 else GapReason.LOST)
            for tp, ranges in asked.items()
            for r in ranges
            for o in range(r.start, r.end)
        ]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)
    assert validate_archive(archive, golden_cluster()).receipts_written == 3
    return archive


def test_validate_uncommitted_sealed_lost(archive: Archive) -> None:
    """A sealed file that is lost is drained again, with the records of aborted transactions."""
    [lost, _] = add_batch(archive.generation(1), 14, END, 50)
    assert validate_archive(archive, golden_cluster()).receipts_written == 1
    lost.unlink()

    report = validate_archive(archive, golden_cluster())
    plan = plan_repair(archive, report)

    assert plan.left == []
    assert plan.ranges == {P0: [R(END, 50)]}
    assert plan.replaces == [str(lost.relative_to(str(archive.root)))]


def test_validate_uncommitted_unsealed(archive: Archive) -> None:
    """Nor is a batch sealed of whose records the aborted ones are missing."""
    add_batch(archive.generation(1), 14, END, 44)
    checkpoint = Path(str(archive.generation(1).checkpoint)) / "offsets" / "14"
    checkpoint.write_text('v1\n{}\n{"flights":{"0":46,"1":44}}')

    report = validate_archive(archive, golden_cluster())

    assert summary(errors(report.findings)) == {"offset_missing": 2}
    assert report.receipts_written == 0


def test_validate_uncommitted_read_committed(archive: Archive) -> None:
    """A batch that was drained before the pipeline changed its isolation holds all that it read."""
    paths = add_batch(archive.generation(1), 14, END, 44)
    checkpoint = Path(str(archive.generation(1).checkpoint)) / "offsets" / "14"
    checkpoint.write_text('v1\n{}\n{"flights":{"0":46,"1":46}}')
    note_batch(archive.generation(1), 14, paths, END, 46)

    report = validate_archive(archive, golden_cluster())

    assert errors(report.findings) == []
    assert report.receipts_written == 1
