"""The answer of a validation: what was written, what couldn't be, and the exit code."""

from __future__ import annotations

import json
import re
import shlex
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.report_answer import answer_report
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.errors import NotWritableError
from kafka_drain.findings import Finding, Reason
from kafka_drain.pages.commands import Reach
from kafka_drain.proof.report import Report
from kafka_drain.proof.report_text import report_ending, report_heading
from kafka_drain.proof.validation import validate_archive
from tests.core_calls import CoreCalls
from tests.kafka_drain.golden import sealed_copy

HERE = "kafka_drain.cli.commands.report_answer"
FULL = NotWritableError("the disk is full")
OPTIONS = Namespace(
    bootstrap_servers="k:1", kafka_config=None, master="local[*]", deploy_mode="client", json=True
)
REPORT: Any = SimpleNamespace(deep=False, all_findings=(), to_dict=lambda: {"verdict": "sound"})
SIGNER: Any = object()


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """An archive that can be written."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.write_report", "report-1")
    calls.replace(f"{HERE}.note_overview")
    calls.replace(f"{HERE}.sign_report", "evidence-1")
    return calls


@pytest.mark.parametrize(
    ("fails", "signer", "code", "told"),
    [
        (None, None, 0, {"report": "report-1"}),
        (None, SIGNER, 0, {"report": "report-1", "evidence": "evidence-1"}),
        # A report without the signature that was asked for.
        ("sign_report", SIGNER, 1, {"report": "report-1", "not_written": str(FULL)}),
        ("note_overview", SIGNER, 1, {"report": "report-1", "not_written": str(FULL)}),
        ("note_overview", None, 0, {"report": "report-1", "not_written": str(FULL)}),
        # Nothing could be written: the verdict counts.
        ("write_report", SIGNER, 0, {"report": None, "not_written": str(FULL)}),
    ],
)
def test_answer_report(
    core: CoreCalls,
    fails: str | None,
    signer: Any,
    code: int,
    told: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What couldn't be written is told; only a missing signature changes the exit code."""
    if fails:
        core.replace(f"{HERE}.{fails}", FULL)

    assert answer_report(OPTIONS, Archive.at("/a"), REPORT, signer=signer) == code

    assert json.loads(capsys.readouterr().out) == {"verdict": "sound", **told}
    assert ("sign_report" in core.given) is (signer is not None and fails in (None, "sign_report"))


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"writes": False, "unasked": "down"}, {"kafka_unavailable": "down"}),
        ({"unwritten": "read-only"}, {"not_written": "read-only"}),
    ],
)
def test_answer_report_unwritten(
    core: CoreCalls, how: dict[str, Any], told: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing may be written, nothing is, and no witness is told."""
    assert answer_report(OPTIONS, Archive.at("/a"), REPORT, signer=SIGNER, **how) == 0

    assert core.order == []
    assert json.loads(capsys.readouterr().out) == {"verdict": "sound", "report": None, **told}


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        (None, ["report: report-1", "evidence: evidence-1"]),
        ("sign_report", ["report: report-1", f"evidence: not written: {FULL}"]),
        ("write_report", [f"report and evidence: not written: {FULL}"]),
    ],
)
def test_answer_report_as_text(
    core: CoreCalls,
    fails: str | None,
    said: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What was written where is said after the report, and what wasn't is named."""
    core.replace(f"{HERE}.fits_screen", False)
    core.replace(f"{HERE}.report_lines", ["sound"])
    if fails:
        core.replace(f"{HERE}.{fails}", FULL)
    options = Namespace(**{**vars(OPTIONS), "json": False})
    archive = Archive.at("/a")

    answer_report(options, archive, REPORT, signer=SIGNER)

    assert capsys.readouterr().out.splitlines() == ["sound", *said]
    (where, report), named = core.given["write_report"]
    assert (where, report, named["reach"].archive) == (archive, REPORT, "/a")
    if fails is None:
        assert core.given["note_overview"][0] == (archive, REPORT, "report-1")
        assert core.given["sign_report"][0][:4] == (archive, REPORT, "report-1", SIGNER)


@pytest.fixture
def validated(tmp_path: Path) -> Report:
    """The report of an archive of 84 records, of which one file is missing."""
    archive = sealed_copy(tmp_path / "Ann's archive")
    next(Path(str(archive.root)).glob("generations/*/data/**/part-*")).unlink()
    return validate_archive(archive, None)


def test_answer_report_tables(
    core: CoreCalls,
    validated: Report,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On a screen, each partition and finding has a row, and each kind of finding its remedy."""
    monkeypatch.setenv("COLUMNS", "300")
    core.replace(f"{HERE}.fits_screen", True)
    options = Namespace(**{**vars(OPTIONS), "json": False})

    code = answer_report(options, Archive.at(validated.archive), validated)

    said = capsys.readouterr().out
    assert code == FAILED
    rows = [
        [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]
        for line in said.splitlines()
        if line.startswith(("│", "┃"))
    ]
    assert rows[0] == ["topic", "partition", "start", "end", "records", "gaps"]
    for number, row in enumerate(validated.partitions()):
        figures = [f"{row[name]:,}" for name in ("partition", "start", "end", "records")]
        assert rows[1 + number][:5] == [row["topic"], *figures]
    titles = rows.index(["finding", "where", "what was seen"])
    assert titles == 1 + len(validated.partitions())
    found = [[str(finding.reason), finding.where] for finding in validated.all_findings]
    assert "file_missing" in [reason for reason, _ in found]
    assert [row[:2] for row in rows[titles + 1 :]] == found
    # The command can be pasted: it has the archive and the brokers, on one line.
    [remedy] = [line for line in said.splitlines() if line.startswith("file_missing: ")]
    assert shlex.quote(validated.archive) in remedy
    assert "k:1" in remedy
    lines = [line for line in said.splitlines() if line]
    assert lines[: len(report_heading(validated))] == report_heading(validated)
    assert lines[-1] == "report: report-1"
    assert lines[-1 - len(report_ending(validated)) : -1] == report_ending(validated)


@pytest.mark.parametrize(
    ("reason", "code"), [(Reason.FILE_MISSING, FAILED), (Reason.FILE_REPLACED, OK)]
)
def test_answer_report_exits(core: CoreCalls, reason: Reason, code: int) -> None:
    """The exit code tells errors; a warning alone is a success."""
    report = SimpleNamespace(**vars(REPORT) | {"all_findings": [Finding(reason, "a", "b")]})

    assert answer_report(OPTIONS, Archive.at("/a"), report) == code  # type: ignore[arg-type]


def test_answer_report_reach(core: CoreCalls) -> None:
    """Commands in the report have the connection settings of this one."""
    given = {"kafka_config": "k.json", "master": "yarn", "deploy_mode": "cluster"}

    answer_report(Namespace(**{**vars(OPTIONS), **given}), Archive.at("/a"), REPORT)

    assert core.named("write_report")["reach"] == Reach("/a", "k:1", "k.json", "yarn", "cluster")
