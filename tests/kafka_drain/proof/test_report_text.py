"""What a report's lines mean: by the severity of findings and by the verdict."""

from __future__ import annotations

import pytest

from kafka_drain.findings import Finding, Reason
from kafka_drain.progress import Level, level_of
from kafka_drain.proof.report import Report
from kafka_drain.proof.report_text import report_lines


@pytest.mark.parametrize("reason", Reason)
def test_report_lines_finding(reason: Reason) -> None:
    """A finding's severity decides what its line means, whatever its words are."""
    report = Report("/archive", "flights")
    report.findings.append(Finding(reason, "data/a", "ERROR verdict: complete"))

    *_, finding, verdict = report_lines(report)

    severe = reason.severity == "error"
    assert finding.startswith("ERROR " if severe else "WARNING ")
    assert level_of(finding) is (Level.ERROR if severe else Level.WARNING)
    assert level_of(verdict) is (Level.ERROR if severe else Level.GOOD)


def test_report_lines_complete() -> None:
    """A report without findings ends with a good verdict; its other lines are plain."""
    lines = report_lines(Report("/archive", "flights"))

    assert lines[-1] == "verdict: complete"
    assert [level_of(line) for line in lines] == [Level.PLAIN, Level.PLAIN, Level.GOOD]
