"""What lies between segments isn't shown as held: in no figure, line, document or drawing."""

from __future__ import annotations

from pathlib import Path

from kafka_drain.archive.documents import ReportDocument
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.pages.report import report_page
from kafka_drain.proof.report import Report
from kafka_drain.proof.report_text import report_lines
from tests.kafka_drain.made_archive import MadeArchive, dense

P0 = TopicPartition("t", 0)


def report_of(folder: Path, *windows: tuple[int, int]) -> Report:
    """Return the report of an archive that was drained from 300 to 400, with some windows."""
    made = MadeArchive(folder / "archive", {"t": "id"})
    made.seal({P0: dense(300, 400)})
    for number, (start, end) in enumerate(windows):
        made.seal_window(f"window_{number}", {P0: dense(start, end)})
    report = Report(str(made.root), "made")
    generation = made.archive.generation(1)
    report.add_sealed(generation, generation.last_receipt(), 1)
    for window in made.archive.snapshot().windows:
        report.add_window(window.key, window.receipt)
    return report


def test_report_not_archived(tmp_path: Path) -> None:
    """Offsets are the union of what segments drained; the rest is named in each form."""
    report = report_of(tmp_path, (0, 100), (150, 160))

    [row] = report.partitions()
    document = report.to_dict()
    lines = report_lines(report)
    page = report_page(document, "report.json")

    assert (report.records, report.offsets, report.complete) == (210, 210, True)
    assert [r.not_archived for r in report.rows.values()] == [
        [OffsetRange(100, 150), OffsetRange(160, 300)]
    ]
    assert row["gaps"] == {"not_archived": 190}
    assert lines[2] == ("  t-0: offsets [0, 400), 210 records, gaps: 190 not archived")
    assert lines[-2].startswith("not archived: [100, 150), [160, 300) of t-0, between what was")
    assert "190 offsets between them were never archived" in page
    assert 'class="not_archived"' in page
    ReportDocument.model_validate(document)


def test_report_all_archived(tmp_path: Path) -> None:
    """Windows up to the first generation leave nothing between."""
    report = report_of(tmp_path, (0, 100), (100, 300))

    assert report.partitions()[0]["gaps"] == {}
    assert not any("not archived" in line for line in report_lines(report))


def test_report_lines_many_ranges(tmp_path: Path) -> None:
    """Of many ranges, the first three are named and the others counted."""
    report = report_of(tmp_path, (0, 10), (20, 30), (40, 50), (60, 70), (80, 90))

    assert "[10, 20), [30, 40), [50, 60) of t-0 and 2 more ranges, " in report_lines(report)[-2]
