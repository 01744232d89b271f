"""What a report's lines mean: by the severity of findings and by the verdict."""

from __future__ import annotations

import pytest

from kafka_drain.findings import Finding, Reason
from kafka_drain.output import Level, level_of
from kafka_drain.pages.report import report_page
from kafka_drain.proof.report import Report
from kafka_drain.proof.report_text import report_lines
from tests.tables import each_of


@each_of("reason", Reason)
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


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ({"bootstrap_servers": "k:1", "cluster_id": "abc"}, "cluster abc at k:1"),
        ({"bootstrap_servers": "k:1"}, "k:1"),
    ],
)
def test_report_names_cluster(named: dict[str, str], said: str) -> None:
    """A report says in each form which cluster was asked, and nothing if none was."""
    report = Report("/archive", "flights")
    assert not any("Kafka" in line for line in report_lines(report))
    assert "Kafka: " not in report_page(report.to_dict())

    report.kafka = named

    assert f"Kafka: {said}" in report_lines(report)
    assert report.to_dict()["kafka"] == named
    assert f"Kafka: {said}" in report_page(report.to_dict())
