"""Answers about what the server can't read: it says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.archive.status import read_overview
from kafka_drain.errors import ArchiveError, ManifestInvalidError
from kafka_drain.pages.overview import ArchiveRow
from kafka_drain.proof.report import note_overview, write_report
from kafka_drain.proof.validation import validate_archive
from kafka_drain_airflow.pages import answers
from kafka_drain_airflow.pages.archives import Found
from kafka_drain_airflow.pages.database import Place
from kafka_drain_airflow.pages.rights import Rights
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


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What the page of an archive that was validated shows, by the argument's position."""
    archive = golden_copy(tmp_path / "archive")
    given: dict[str, Any] = {"root": archive.root}
    row = ArchiveRow("a", str(archive.root), "/dag", answers._archive_url("p"), overview={"a": 1})

    def page(row: ArchiveRow, history: Any, *_: Any) -> str:
        given.update(row=row, history=history, records=_[-1], placed=_[-3])
        return "the page"

    monkeypatch.setattr(answers, "_rows", lambda *_: [given.get("first", row)])
    monkeypatch.setattr(answers, "archives_of", lambda *_: {"p": Place(str(archive.root))})
    for name in ("groups_of", "dags_of"):
        monkeypatch.setattr(answers, name, lambda *_: {"a": set()})
    monkeypatch.setattr(answers, "working_on", lambda *_: {str(archive.root): []})
    for name in ("progress_of", "drains_of"):
        monkeypatch.setattr(answers, name, lambda *_: [])
    monkeypatch.setattr(answers, "placed_findings", lambda *_: "placed")
    monkeypatch.setattr(answers, "archive_page", page)
    return given


@pytest.mark.parametrize(
    ("error", "is_damaged"),
    [
        (ReceiptError("its hash is wrong"), True),
        (ManifestInvalidError("batch 7 is missing"), True),
        (ArchiveError("no access"), False),
        (OSError("no route to the store"), False),
    ],
)
@pytest.mark.parametrize("reads", ["opened", "placed_findings", "read_drills"])
def test_archive_unreadable(
    shown: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    reads: str,
    error: Exception,
    is_damaged: bool,
) -> None:
    """What of an archive can't be read is on its page, which says whether it is damage."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(answers, reads, fail)

    answer = answers.archive(None, "p", Rights(["p"], list), may_see_records=True)

    assert (answer.status, answer.content) == (200, "the page")
    row = shown["row"]
    assert row.problem == f"{shown['root']}: {error}"
    assert row.is_damaged is is_damaged
    # Whoever can't read an archive finds no records in it.
    assert shown["records"] == ""


@pytest.mark.parametrize("may_see_records", [True, False])
def test_archive_readable(shown: dict[str, Any], may_see_records: bool) -> None:
    """The page has what was sealed, and leads to records only whoever may see them."""
    answers.archive(None, "p", Rights(["p"], list), may_see_records=may_see_records)

    assert shown["row"].problem == ""
    assert len(shown["history"].runs) == 0
    assert shown["placed"] == "placed"
    assert bool(shown["records"]) is may_see_records
    assert shown["row"].reached.archive == str(shown["root"])


def test_archive_of_no_dag(shown: dict[str, Any]) -> None:
    """A page that isn't the DAG's own isn't shown under its name."""
    assert answers.archive(None, "other", Rights(["p"], list)).status == 404
