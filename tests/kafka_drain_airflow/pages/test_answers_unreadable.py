"""Answers about what the server can't read: it says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kafka_drain.archive.status import read_overview
from kafka_drain.proof.report import note_overview, write_report
from kafka_drain.proof.validation import validate_archive
from kafka_drain_airflow.pages import answers
from kafka_drain_airflow.pages.archives import Found
from tests.kafka_drain.golden import golden_cluster, golden_copy


@pytest.mark.parametrize("damage", ["folder", "link to nothing", "link to itself"])
def test_answers_unreadable(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A receipt, or a report, that can't be read is a page with the reason, not an error."""
    archive = golden_copy(tmp_path / "archive")
    report = validate_archive(archive, golden_cluster())
    note_overview(archive, report, write_report(archive, report))
    place = SimpleNamespace(archive=str(archive.root), name="golden", conn_id="")
    monkeypatch.setattr(answers, "archives_of", lambda *_: {"p": place})
    monkeypatch.setattr(answers, "opened", lambda _: archive.root)
    monkeypatch.setattr(answers, "find", lambda _: Found(read_overview(archive.root)))
    monkeypatch.setattr(answers, "page_url", lambda path: path)
    [document] = (tmp_path / "archive" / "reports").glob("*.json")
    receipt = min((tmp_path / "archive" / "generations" / "0001" / "receipts").iterdir())
    for path in (document, receipt):
        path.unlink()
        if damage == "folder":
            path.mkdir()
        else:
            path.symlink_to("none" if damage == "link to nothing" else path.name)

    for found in (
        answers.receipt(None, "p", 1, receipt.name),
        answers.receipt_page(None, "p", 1, receipt.name),
        answers.newest_report(None, "p", as_json=True),
    ):
        assert found.status == 404
        said = str(found.content).lower()
        assert receipt.name in said or document.name.lower() in said
