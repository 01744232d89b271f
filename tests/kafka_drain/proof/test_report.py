"""The figures of a report, its file, and the error for what it has found."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kafka_drain.errors import ManifestInvalidError
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.report import Report, raise_findings, write_report
from tests.kafka_drain.drained import held
from tests.kafka_drain.made_archive import MadeArchive, dense

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
IDS = {"t": "id"}


@pytest.fixture
def made(tmp_path: Path) -> MadeArchive:
    """An archive with two segments of one generation."""
    made = MadeArchive(tmp_path / "archive", IDS)
    made.seal({A: dense(5, 10), B: dense(0, 3)})
    hidden = Gap(A, OffsetRange(20, 22), GapReason.CONTROL)
    made.seal({A: dense(10, 20), B: dense(3, 4)}, gaps=[hidden])
    return made


@pytest.fixture
def report(made: MadeArchive) -> Report:
    """A report that has the sealed segments."""
    report = Report(str(made.root), "made")
    generation = made.archive.generation(1)
    report.add_sealed(generation, generation.last_receipt(), 2)
    return report


def rows(report: Report) -> dict[TopicPartition, tuple[int, int, int, dict[str, int]]]:
    """Return start, end, records and gaps of each partition."""
    return {
        TopicPartition(row["topic"], row["partition"]): (
            *(row["start"], row["end"], row["records"]),
            row["gaps"],
        )
        for row in report.partitions()
    }


def test_report_sealed(made: MadeArchive, report: Report) -> None:
    """Figures of sealed segments are those of all receipts up to the newest, by partition."""
    sizes = [file.bytes for file in made.files()]

    assert rows(report) == {A: (5, 22, 15, {"control": 2}), B: (0, 4, 4, {})}
    assert (report.files, report.bytes, report.receipts) == (4, sum(sizes), 2)
    assert (report.records, report.offsets) == (19, 21)
    assert report.generations == [{"generation": 1, "files": 4, "bytes": sum(sizes), "records": 19}]
    generation = made.archive.generation(2)
    report.add_sealed(generation, None, 0)
    assert (report.files, report.receipts) == (4, 2)
    assert report.generations[1] == {"generation": 2, "files": 0, "bytes": 0, "records": 0}


def test_report_new(made: MadeArchive, report: Report) -> None:
    """What isn't sealed yet counts with its offsets, its files, and what is missing of it."""
    before = report.files, report.bytes, report.generations[0]["bytes"]
    parts = [
        Segment(2, 2, {A: OffsetRange(22, 30)}),
        Segment(3, 4, {A: OffsetRange(30, 33), B: OffsetRange(4, 6)}),
    ]
    files = [held(A, "x", [22, 23, 24]), held(B, "y", [4, 5])]
    gaps = [Gap(A, OffsetRange(25, 33), GapReason.LOST)]

    report.add_new(made.archive.generation(1), IDS, parts, files, gaps, (3, 700))

    assert rows(report) == {
        A: (5, 33, 18, {"control": 2, "lost": 8}),
        B: (0, 6, 6, {}),
    }
    assert report.gaps == gaps
    assert report.rows[(A, "id")].missing == gaps
    assert report.segments == parts
    assert (report.files, report.bytes) == (before[0] + 3, before[1] + 700)
    [generation] = report.generations
    assert (generation["files"], generation["bytes"]) == (7, before[2] + 700)
    assert generation["records"] == 24
    assert [(b["first"], b["last"], b["offsets"], b["records"]) for b in report.batches] == [
        (2, 2, 8, None),
        (3, 4, 5, None),
    ]
    summary = report.summary()
    assert summary["receipts"] == {"total": 2, "written": 0, "unsealed": 2}
    report.receipts_written = 1
    assert report.summary()["receipts"] == {"total": 3, "written": 1, "unsealed": 1}


def test_report_new_unknown_offsets(made: MadeArchive, report: Report) -> None:
    """Where it isn't known what was drained, the offsets in the files count."""
    report.add_new(made.archive.generation(1), IDS, [], [held(A, "x", [22, 29])], [], (1, 9))

    assert rows(report)[A] == (5, 30, 17, {"control": 2})
    assert report.offsets == 29


def test_report_damaged(made: MadeArchive, report: Report) -> None:
    """Records of damaged files don't count."""
    receipt = made.archive.generation(1).last_receipt()
    assert receipt is not None

    report.add_damaged([(receipt.files[0], receipt)])

    assert rows(report)[A][2] == 5
    assert report.records == 9
    assert report.damaged == [(receipt.files[0], receipt)]


def test_report_windows(made: MadeArchive, report: Report) -> None:
    """A window's records count; those of intact files that it replaces don't count twice."""
    [old] = made.seal_window("backfill", {A: dense(0, 5)})
    [new] = made.seal_window("compact", {A: dense(0, 5)}, [old.path])
    made.seal_window("gone", {}, [new.path], deleted={A: OffsetRange(0, 5)})
    first, second, third = (
        window.receipt
        for window in sorted(made.archive.snapshot().windows, key=lambda window: window.key)
    )
    files, size = report.files, report.bytes

    report.add_window("backfill", first)
    assert rows(report)[A] == (0, 22, 20, {"control": 2})
    assert (report.files, report.bytes) == (files + 1, size + old.bytes)
    counted = {"topic": "t", "partition": 0, "records": 5}
    report.add_window("compact", second, {"files": 1, "bytes": old.bytes, "records": [counted]})
    assert rows(report)[A] == (0, 22, 20, {"control": 2})
    assert (report.files, report.bytes) == (files + 1, size + new.bytes)
    report.add_window("gone", third, {"files": 1, "bytes": new.bytes, "records": [counted]})
    assert rows(report)[A] == (0, 22, 15, {"control": 2, "deleted": 5})
    assert (report.files, report.bytes) == (files, size)
    assert [(w["name"], w["records"], w["offsets"], w["replaces"]) for w in report.windows] == [
        ("backfill", 5, 5, []),
        ("compact", 5, 5, []),
        ("gone", 0, 5, []),
    ]
    assert report.replaced == {old.path, new.path}


def test_report_batches(made: MadeArchive, report: Report) -> None:
    """The chart has each receipt's figures, oldest first."""
    receipts = [*made.archive.generation(1).receipts()]

    report.add_batches(receipts)

    assert report.to_dict()["batches"] == [
        {
            "generation": 1,
            "first": receipt.last_batch,
            "last": receipt.last_batch,
            "offsets": offsets,
            "records": records,
            "files": len(receipt.files),
            "bytes": sum(file.bytes for file in receipt.files),
            "sealed_at": receipt.sealed_at,
        }
        for receipt, offsets, records in zip(receipts, (8, 13), (8, 11), strict=True)
    ]


def test_raise_findings(report: Report) -> None:
    """An error counts each reason, names the first findings, and says where all of them are."""
    raise_findings(report, "/r.json")
    report.findings = [Finding(Reason.FILE_ORPHAN, "warned", "ignored")]
    raise_findings(report, "/r.json")
    report.findings += [Finding(Reason.FILE_MISSING, f"file {n}", "gone") for n in range(6)]
    report.findings += [Finding(Reason.RECEIPT_HOLE, "receipts", "hole")]

    with pytest.raises(ManifestInvalidError) as told:
        raise_findings(report, "/r.json")

    text = str(told.value)
    assert f"{report.archive} is not complete: file_missing 6, receipt_hole 1" in text
    assert [n for n in range(6) if f"file {n}: gone" in text] == [0, 1, 2, 3, 4]
    assert "and 2 more" in text
    assert "warned" not in text
    assert "/r.json" in text
    assert (report.complete, report.summary()["verdict"]) == (False, "findings")


def test_write_report_run_of_its_own(made: MadeArchive, report: Report) -> None:
    """No run writes over another one's report, also if only characters differ that no file has."""
    ends = ("東京", "大阪", "a b", "a/b", "a_b", "a b" * 60, "a/b" * 60)

    paths = {write_report(made.archive, report, f"manual__{end}") for end in ends}

    assert len(paths) == len(ends)
    assert write_report(made.archive, report, "manual__東京") in paths


def test_write_report_names(made: MadeArchive, report: Report) -> None:
    """A run's name is no path; without a name, the report is named by the time."""
    folder = Path(str(made.root)) / "reports"

    path = write_report(made.archive, report, "scheduled__2026-01-01T00:00:00+00:00")

    assert path == str(folder / "scheduled__2026-01-01T00_00_00_00_00.json")
    assert json.loads(Path(path).read_text()) == report.to_dict()
    assert "made" in Path(path).with_suffix(".html").read_text()
    other = Path(write_report(made.archive, report, "../x y"))
    assert (other.parent, other.name) == (folder, ".._x_y-46c740c677b0.json")
    before = datetime.now(timezone.utc).replace(microsecond=0)
    name = Path(write_report(made.archive, report)).name
    at = datetime.strptime(name, "validate_%Y%m%dT%H%M%SZ.json").replace(tzinfo=timezone.utc)
    assert before <= at <= datetime.now(timezone.utc)
