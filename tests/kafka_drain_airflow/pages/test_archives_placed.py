"""Where a page shows the findings of the last validation, whatever is left of its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.history import History, read_history
from kafka_drain.pages.placing import NOTHING, Placed
from kafka_drain.proof.report import note_overview, write_report
from kafka_drain.proof.validation import validate_archive
from kafka_drain_airflow.pages.archives import placed_findings
from tests.kafka_drain.golden import P1, sealed_copy


@dataclass
class Validated:
    """An archive that was validated after it had lost a file of P1."""

    archive: Archive
    overview: dict[str, Any]
    report: Path

    def placed(self, **changes: Any) -> Placed:
        """Return where a page shows the findings."""
        history = History()
        read_history(self.archive, history)
        return placed_findings(self.archive.root, self.overview | changes, history)


@pytest.fixture
def validated(tmp_path: Path) -> Validated:
    archive = sealed_copy(tmp_path / "archive")
    *_, receipt = archive.generation(1).receipts()
    [lost] = [f for f in receipt.files if {c.tp for c in f.contents} == {P1}]
    (tmp_path / "archive" / lost.path).unlink()
    report = validate_archive(archive, None)
    path = write_report(archive, report, "r")
    return Validated(archive, note_overview(archive, report, path), Path(path))


def test_placed_findings(validated: Validated) -> None:
    """What the report says is shown in its place."""
    *_, receipt = validated.archive.generation(1).receipts()

    assert validated.placed() == Placed(frozenset({(1, receipt.name, P1)}))


def gone(validated: Validated) -> dict[str, Any]:
    validated.report.unlink()
    return {}


def page_gone(validated: Validated) -> dict[str, Any]:
    validated.report.with_suffix(".html").unlink()
    return {}


def damaged(validated: Validated) -> dict[str, Any]:
    validated.report.write_text("{")
    return {}


def elsewhere(validated: Validated) -> dict[str, Any]:
    return {"report": "../other/reports/r.json"}


def unnamed(validated: Validated) -> dict[str, Any]:
    return {"report": None}


@pytest.mark.parametrize("loses", [gone, page_gone, damaged, elsewhere, unnamed])
def test_placed_findings_report_gone(
    loses: Callable[[Validated], dict[str, Any]], validated: Validated
) -> None:
    """Without its report, findings may be about any offset: no other place is green."""
    changes = loses(validated)

    assert validated.placed(**changes) == Placed(is_complete=False)
    # Warnings alone leave everything proven.
    assert validated.placed(**changes, verdict="complete") == Placed()


def test_placed_findings_none(validated: Validated) -> None:
    """Without findings, or before the first validation, there is nothing to be placed."""
    validated.report.unlink()

    assert validated.placed(findings={}) is NOTHING
    assert placed_findings(validated.archive.root, None, History()) is NOTHING


def test_placed_findings_of_complete(validated: Validated) -> None:
    """Of an archive that is complete, findings are warnings, and no place is damaged."""
    assert validated.placed(verdict="complete").damaged == frozenset()
