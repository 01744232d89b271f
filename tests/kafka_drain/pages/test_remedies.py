"""What a red page says: the sentence and the command that mends it."""

from __future__ import annotations

import html
import re
import shlex
from dataclasses import replace
from datetime import datetime, timezone
from functools import cache
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.history import History
from kafka_drain.archive.segment_overlaps import Hole
from kafka_drain.cli.main import parser
from kafka_drain.cli.options import options_from
from kafka_drain.drain.options import ValidateOptions
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.pages.archive import archive_page
from kafka_drain.pages.archive_status import LastRun, archive_status
from kafka_drain.pages.commands import Reach, pasteable
from kafka_drain.pages.finding_values import filled, values_of
from kafka_drain.pages.overview import ArchiveRow, Run, overview_page
from kafka_drain.pages.placing import place_findings
from kafka_drain.pages.remedies import EndedRun, remedies, standing_remedy
from kafka_drain.pages.report import report_page
from kafka_drain.pages.restores import ArchiveRestores, Restore, restores_page
from kafka_drain.proof.fingerprints import note_name
from kafka_drain.proof.report import Report
from kafka_drain.proof.sealed_files import unknown_contents
from kafka_drain.windows.reprocess.options import ReprocessOptions
from kafka_drain.windows.reprocess.plan import parse_cut
from tests.tables import each_of

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
ARCHIVE = "/data/flights of today"
REACHES = {
    "place only": Reach(ARCHIVE),
    "servers and master": Reach(
        ARCHIVE, "b1:9092,b2:9092", "", "sc://spark:15002/;use_ssl=true", "client", "http://r:8081"
    ),
    "file": Reach(ARCHIVE, "b1:9093", "kafka prod.json", "yarn", "cluster", notes=["Mind it"]),
    "hostile": Reach("/a; rm b", "b1:9092; rm c", "", "local[2] $(rm d)"),
}
OVERVIEW: dict[str, Any] = {
    "pipeline": "flights",
    "verdict": "findings",
    "validated_at": "2026-11-22T11:55:00+00:00",
    **dict.fromkeys(("files", "bytes", "records", "offsets", "partitions"), 0),
    **dict.fromkeys(("generations", "windows", "unsealed_segments"), 0),
    "findings": {},
    "gaps": {},
    "report": "reports/r.json",
    **dict.fromkeys(("sealed_at", "newest_record", "lag", "expires_at")),
}


def commands_of(page: str) -> list[list[str]]:
    """Return the commands that a page shows as code, in words as a shell splits them."""
    shown = map(html.unescape, re.findall("<code>(kafka-[^<]*)</code>", page))
    return [shlex.split(command) for command in shown]


HOLE = Hole("generations/0002", "generations/0001", "id", TopicPartition("t", 1), OffsetRange(3, 9))


def report_of(reason: Reason) -> dict[str, Any]:
    """Return a report with a finding, in the words of those that find it, and its gaps."""
    archive = Archive.at("/nowhere")
    gone = (GapReason.EXPIRED, GapReason.UNEXPLAINED)
    gaps = [Gap(TopicPartition("t", 1), OffsetRange(3, 7), why) for why in gone]
    found = Finding(reason, TopicPartition("t-x", 0), "d")
    if reason is Reason.SEGMENT_HOLE:
        found = HOLE.finding()
    if reason is Reason.CONTENT_UNKNOWN:
        found = Finding(reason, note_name(archive.generation(2), 7), "d")
    report = Report(ARCHIVE, "flights", findings=[found])
    report.add_gaps(gaps, {})
    return report.to_dict()


# Making it takes longer than using it a hundred times.
whole_parser = cache(parser)


def run_of(command: list[str], reach: Reach) -> Any:
    """Parse a command of a page as the command line does, and check that it can be carried out."""
    if command[0] != "kafka-drain":
        assert command[1:3] == ["--bootstrap-server", reach.servers or "HOST:PORT"]
        return None
    options = whole_parser().parse_args(command[1:])
    # As the command does at its start.
    options_from(options, ValidateOptions)
    if command[1] == "reprocess":
        assert parse_cut(options_from(options, ReprocessOptions), newest_generation=lambda: 1)
    named = options.archive if hasattr(options, "archive") else None
    assert named == reach.archive, command
    if command[1] in ("repair", "roll", "reprocess", "validate"):
        assert options.bootstrap_servers == (reach.servers or None)
        assert options.kafka_config == (reach.kafka_config or None)
    if command[1] in ("repair", "reprocess"):
        assert options.master == (reach.master or "local[*]")
        assert options.deploy_mode == reach.deploy_mode
    if command[1] == "capture-schemas":
        assert options.registry == (reach.registry or None)
    return options


@each_of("reach", REACHES.values())
@each_of("reason", Reason)
def test_page_commands_each_finding(reason: Reason, reach: Reach) -> None:
    """The page of each kind of finding says it in its own sentence, and its commands are whole."""
    overview = OVERVIEW | {"findings": {reason.value: 3}}
    row = ArchiveRow("flights", reach.archive, "/dag", overview=overview, reached=reach)
    placed = place_findings(report_of(reason), [])

    page = archive_page(row, History(), NOW, "/receipts", placed=placed)
    commands = commands_of(page)

    assert html.escape(reason.meaning[1:]).split("`")[0].replace("&#x27;", "&#39;") in page
    assert len(commands) == len(re.findall("`kafka-", f"{reason.meaning}{reason.remedy}"))
    for command in commands:
        run_of(command, reach)
    for note in reach.notes:
        assert note in page


@each_of("reason", Reason)
def test_report_commands_each_finding(reason: Reason) -> None:
    """The commands of a report are those of the archive's page."""
    reach = REACHES["servers and master"]
    report = report_of(reason)

    page = report_page(report, "r.json", reach)

    [one] = remedies({"findings": {reason.value: 1}}, reach, values_of(report))
    said = f"{one.meaning} {one.what_to_do}"
    wanted = [shlex.split(each) for each in re.findall("`(kafka-[^`]*)`", said)]
    assert commands_of(page) == wanted


@pytest.mark.parametrize(
    ("findings", "gaps", "code", "expected"),
    [
        ([], [(1, 3, "lost", False)], "offset_missing", "lost offsets: `X` drains them again"),
        ([], [(1, 3, "expired", True)], "offset_missing", "lost offsets: `X` drains them again"),
        ([], [(1, 3, "expired", False), (5, 6, "expired", False)], "offset_missing",
         "repair --acknowledge-expired t-x:0:1-3 --acknowledge-expired t-x:0:5-6 --apply`"),
        ([], [(1, 3, "unexplained", False)], "offset_unexplained", "expired t-x:0:1-3`"),
        ([HOLE.finding()], [(1, 3, "expired", False)], "segment_hole", "still has them"),
        ([Finding(Reason.STALLED, TopicPartition("t-x", 0), "d")], [], "stalled", "--topic t-x`"),
        ([Finding(Reason.CONTENT_UNKNOWN, "generations/0012/receipts",
                  "9 records of 2 sealed segments can't be verified: it isn't known what Spark "
                  "read; up to batch 31, 44, …")], [], "content_unknown", "--from-batch 12:31 "),
    ],
)  # fmt: skip
def test_filled(findings: list[Finding], gaps: list[Any], code: str, expected: str) -> None:
    """A command is given what the finding is about; what has nothing of it isn't said."""
    rows = [
        {"topic": "t-x", "partition": 0, "start": start, "end": end, "reason": reason,
         "acknowledged": acknowledged}
        for start, end, reason, acknowledged in gaps
    ]  # fmt: skip
    values = values_of({"findings": [each.to_dict() for each in findings], "gaps": rows})

    told = filled(Reason(code).remedy, values[code])  # type: ignore[call-arg]

    told = told.replace("kafka-drain repair --apply", "X")
    assert told == expected if expected.startswith("lost") else expected in told
    assert not re.search("[A-Z]{4,}", told)


def test_filled_unknown() -> None:
    """Without a report, the form of the values is said; no value can end a command."""
    remedy = Reason.OFFSET_MISSING.remedy

    assert filled(remedy, None) == remedy
    assert filled(remedy, ["a`b; c d"]).count("`") == remedy.count("`")


def test_unknown_contents_are_found() -> None:
    """The batch in the command is that of the finding's words."""
    receipt = SimpleNamespace(last_batch=31, files=[])
    generation = Archive.at("/nowhere").generation(12)
    found = unknown_contents(generation, [receipt, receipt])  # type: ignore[list-item]

    report = {"findings": [each.to_dict() for each in found]}
    assert values_of(report)["content_unknown"] == ["12:31"]


def test_restore_commands() -> None:
    """The command that gives a restore up can be pasted, whatever the run is called."""
    it = Restore("to it's topic", "to it's topic", "2026-11-22T10:00:00+00:00", is_opened=True)
    links = {"archives": "/archives", "home": ""}
    page = restores_page([ArchiveRestores("flights", "/page", ARCHIVE, [it])], NOW, links)

    [command] = [one for one in commands_of(page) if "--abandon" in one]
    assert run_of(command, Reach(ARCHIVE)).abandon == "to it's topic"


def test_remedies_order() -> None:
    """What makes an archive incomplete comes first; a reason of a newer release is told too."""
    findings = {"file_orphan": 1, "of_tomorrow": 2, "file_missing": 3}
    found = remedies({"findings": findings}, Reach("/a"))

    assert [one.code for one in found] == ["of_tomorrow", "file_missing", "file_orphan"]
    assert found[0].meaning == "unknown to this release"


def test_pages_count_offsets() -> None:
    """Findings about offsets are counted in offsets, by list and page; others in findings."""
    findings = {"offset_missing": 1, "file_missing": 2}
    overview = OVERVIEW | {"findings": findings, "missing": {"offset_missing": 1710}}
    row = ArchiveRow("flights", ARCHIVE, "/dag", overview=overview)

    page = archive_page(row, History(), NOW, "/receipts")

    assert "are in no committed file (1,710 offsets)" in page
    assert "a data file that doesn&#39;t exist (2 findings)" in page
    assert "are in no committed file (1,710 offsets)" in overview_page([row], NOW)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run `kafka-drain roll`", "run `kafka-drain roll /a`"),
        ("`kafka-drain repair --deep --apply`!", "`kafka-drain repair /a --deep --apply`!"),
        ("`kafka-drain files` and `repair`", "`kafka-drain files /a` and `repair`"),
        ("`kafka-drain roll /a`", "`kafka-drain roll /a`"),
        ("`kafka-drain drain` /b", "`kafka-drain drain` /b"),
        ("`kafka-x.sh a`", "`kafka-x.sh --bootstrap-server HOST:PORT a`"),
    ],
)
def test_pasteable(text: str, expected: str) -> None:
    """Only commands that work on an archive get one."""
    assert pasteable(text, Reach("/a")) == expected


def test_pasteable_of_a_hostile_name() -> None:
    """A path can't end the command, or start another one."""
    assert pasteable("`kafka-drain roll`", Reach("/a; rm b")) == "`kafka-drain roll '/a; rm b'`"
    assert "ARCHIVE" in pasteable("`kafka-drain roll`", Reach("/a`b"))


STATES: list[tuple[Any, ...]] = [
    *product((True, False), (True, False), (None, "complete", "findings"), LastRun, (True, False))
]


@each_of("is_readable, is_damaged, verdict, last, older", STATES)
def test_standing_remedy(
    is_readable: bool, is_damaged: bool, verdict: str | None, last: LastRun, older: bool
) -> None:
    """Each status that isn't good and has no findings says what to do, in whole commands."""
    status = archive_status(
        is_readable=is_readable,
        is_damaged=is_damaged and not is_readable,
        verdict=verdict,
        last=last,
        is_older=older,
        expires_soon=False,
        has_unknown=False,
    )
    runs = product(("", "manual__1"), ("", "it broke"), ("", "drain"), ("", "success", "failed"))
    for name, problem, task, validation in runs:
        for is_followed in (True, False):
            ended = EndedRun(name, problem, task, validation, is_followed)
            told = standing_remedy(status.words, Reach(ARCHIVE), ended)
            assert bool(told) is (status.words not in ("findings", "complete"))
            assert "above" not in told
            for command in re.findall("`(kafka-[^`]*)`", told):
                run_of(shlex.split(command), Reach(ARCHIVE))


def row_of(*runs: Run, verdict: str = "complete") -> ArchiveRow:
    overview = OVERVIEW | {"verdict": verdict}
    return ArchiveRow("flights", ARCHIVE, "/dag", overview=overview, runs=runs)


BEGAN, ENDED = "2026-11-22T11:56:00+00:00", "2026-11-22T11:57:00+00:00"


@pytest.mark.parametrize(
    ("run", "more", "words"),
    [
        # Backfills validate their own hours, so the archive's validation stays older.
        (Run("success", "", "/r", BEGAN, ENDED, True, "backfill__1", "success"), (),
         "<code>backfill__1</code> has ended. It proved its own hours only"),
        (Run("success", "", "/r", BEGAN, ENDED, False, "r1", "skipped"), (),
         "Clear its task that validates"),
        (Run("success", "", "/r", BEGAN, ENDED, False, "r1", ""), (),
         "<code>r1</code> has ended without one. Trigger a run, or run <code>kafka-drain val"),
        (Run("success", "", "/r", BEGAN, ENDED, False, "r1", "failed"),
         (Run("running", "", "/r2", ENDED),), "A run is under way, which validates when it"),
        (Run("failed", "", "/r", BEGAN, ENDED, False, "r1", "", "preflight", "no topic orders"), (),
         "<code>r1</code> says (preflight: no topic orders), and clear <code>preflight</code>"),
        (Run("failed", "", "/r", BEGAN, ENDED, False, "r1", "", "drain"), (),
         "(drain: failed, and its log says why)"),
        (Run("failed", "", "", BEGAN, ENDED, False, "r1", "", "drain", "unseen words"), (),
         "Read the log of that run, and clear the failed task"),
    ],
)  # fmt: skip
def test_page_of_run(run: Run, more: tuple[Run, ...], words: str) -> None:
    """The page says what to do about the run that there is, and shows why it failed."""
    row = row_of(run, *more)

    page = archive_page(row, History(), NOW, "/receipts")

    assert words in page
    assert "unseen words" not in page
    if run.problem and run.link:
        assert f"{run.task}: {run.problem}" in overview_page([row], NOW)


def test_page_of_run_with_commands() -> None:
    """A command that a task has named reaches Kafka as the page's own commands do."""
    reach = REACHES["servers and master"]
    for said in (f"run `kafka-drain roll {shlex.quote(ARCHIVE)} --rewritten`", "`kafka-drain roll"):
        run = Run("failed", "", "/r", BEGAN, ENDED, False, "r1", "", "drain", said)
        row = replace(row_of(run), reached=reach)

        commands = commands_of(archive_page(row, History(), NOW, "/receipts"))

        assert len(commands) == said.count("rewritten")
        for command in commands:
            options = run_of(command, reach)
            assert options.rewritten


def test_page_of_failed_validation() -> None:
    """The command of a validation's own error, which is whole, stays as it is."""
    reach = REACHES["servers and master"]
    [one] = remedies({"findings": {"file_missing": 1}}, reach)
    row = row_of(Run("failed", "", "/r", BEGAN, ENDED, False, "r1", "", "v", one.what_to_do))

    page = archive_page(replace(row, reached=reach), History(), NOW, "/receipts")

    [command] = commands_of(page)
    assert f"`{shlex.join(command)}`" in one.what_to_do


def test_page_damaged_document() -> None:
    """A damaged document is called damaged; nobody is sent to look for access."""
    row = ArchiveRow("flights", ARCHIVE, "/dag", problem="overview.json: bad", is_damaged=True)

    page = archive_page(row, History(), NOW, "/receipts")

    assert "overview.json: bad" in page
    assert "The server of these pages must be able to read" not in page
    assert f"kafka-drain validate {shlex.quote(ARCHIVE)}".replace("'", "&#39;") in page
    assert row.status(NOW).words == "damaged"


def test_page_damaged_receipt() -> None:
    """What the last validation has found of it is said, with what mends it."""
    overview = OVERVIEW | {"findings": {"receipt_corrupt": 1}}
    row = ArchiveRow("flights", ARCHIVE, "/dag", overview=overview, problem="a receipt: bad")

    pages = [
        archive_page(replace(row, is_damaged=is_damaged), History(), NOW, "/receipts")
        for is_damaged in (True, False)
    ]

    assert ["<code>receipt_corrupt</code>, 1 finding" in page for page in pages] == [True, False]
    wanted = ["kafka-drain", "repair", ARCHIVE, "--apply"]
    assert wanted in commands_of(pages[0])


def test_status_contents_unknown() -> None:
    """An archive isn't green if of some records only the offsets are proven."""
    overview = OVERVIEW | {"verdict": "complete", "findings": {"content_unknown": 1}}
    row = ArchiveRow("flights", ARCHIVE, "/dag", overview=overview)

    assert row.status(NOW).words == "complete, some contents unknown"
