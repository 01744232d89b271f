"""The list of archives: which needs attention, which is green, and what is said of each."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.pages import overview as module
from kafka_drain.pages.overview import (
    ArchiveRow,
    Doing,
    LastValidation,
    Run,
    overview_page,
    shown_task,
    verdict_text,
)
from tests.kafka_drain.pages.looks import look_of
from tests.kafka_drain.pages.test_remedies import OVERVIEW
from tests.tables import each_of

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
COMPLETE = OVERVIEW | {"verdict": "complete", "records": 2, "bytes": 3}
ROW = ArchiveRow("flights", "/a", "/dag", overview=COMPLETE)
#: The archive was validated at 11:55.
BEFORE, SINCE = "2026-11-22T11:54:00+00:00", "2026-11-22T11:56:00+00:00"
LATER = "2026-11-22T11:57:00+00:00"


def run(state: str, began: str, ended: str, *, was_validated: bool = False) -> Run:
    return Run(state, "", "/r", began, ended, was_validated)


@each_of(
    ("runs", "words"),
    [
        ((), "complete"),
        ((run("success", BEFORE, BEFORE),), "complete"),
        ((run("success", BEFORE, SINCE),), "was complete, not validated since"),
        ((run("success", BEFORE, SINCE, was_validated=True),), "complete"),
        ((run("success", SINCE, SINCE, was_validated=True),), "was complete, not validated since"),
        ((run("failed", BEFORE, SINCE),), "was complete, last run failed"),
        ((run("failed", BEFORE, BEFORE),), "complete"),
        # What is unknown may be later.
        ((run("success", "", ""),), "was complete, not validated since"),
        ((run("failed", "", ""), run("success", BEFORE, BEFORE)), "complete"),
        ((run("failed", BEFORE, BEFORE), run("success", BEFORE, BEFORE)), "complete"),
        # A backfill's run proves its window; a drain has failed beside it.
        (
            (run("failed", SINCE, SINCE), run("success", BEFORE, LATER, was_validated=True)),
            "was complete, last run failed",
        ),
        (
            (run("success", BEFORE, SINCE), run("success", BEFORE, LATER, was_validated=True)),
            "was complete, not validated since",
        ),
        ((run("success", BEFORE, BEFORE), run("running", SINCE, "")), "complete"),
        ((run("failed", BEFORE, SINCE), run("queued", "", "")), "was complete, last run failed"),
    ],
)
def test_status_of_runs(runs: tuple[Run, ...], words: str) -> None:
    """An archive is as complete as its validation proves, after what was drained since."""
    assert replace(ROW, runs=runs).status(NOW).words == words


@each_of(
    ("changes", "words", "kind"),
    [
        ({}, "complete", "good"),
        ({"overview": COMPLETE | {"verdict": "findings"}}, "findings", "bad"),
        ({"overview": None}, "not validated", "quiet"),
        ({"problem": "no access"}, "unreadable", "bad"),
        ({"problem": "overview.json: bad", "is_damaged": True}, "damaged", "bad"),
        (
            {"overview": COMPLETE | {"findings": {"content_unknown": 1}}},
            "complete, some contents unknown",
            "warning",
        ),
    ],
)
def test_status(changes: dict[str, Any], words: str, kind: str) -> None:
    """What can't be read, or was never validated, is never called complete."""
    row = replace(ROW, **changes)

    assert (row.status(NOW).words, row.status(NOW).kind) == (words, kind)


@each_of(
    ("runs", "words"),
    [
        ((), "complete, by a clock ahead"),
        ((run("running", BEFORE, ""),), "complete, by a clock ahead"),
        ((run("success", BEFORE, SINCE, was_validated=True),), "complete, by a clock ahead"),
        ((run("failed", SINCE, LATER),), "was complete, last run failed"),
    ],
)
def test_status_of_a_clock_ahead(runs: tuple[Run, ...], words: str) -> None:
    """A validation that is dated ahead of now covers no run, as it can't be said which it does."""
    ahead = COMPLETE | {"validated_at": "2027-11-22T11:55:00+00:00"}

    status = replace(ROW, overview=ahead, runs=runs).status(NOW)

    assert (status.words, status.kind) == (words, "warning")
    near = replace(ROW, overview=COMPLETE | {"validated_at": "2026-11-22T12:04:00+00:00"})
    assert near.status(NOW).kind == "good"


@each_of(
    ("expires_at", "is_urgent"),
    [
        (None, False),
        ("2026-11-23T12:00:00+00:00", False),
        ("2026-11-23T11:59:59+00:00", True),
        ("2026-11-22T11:00:00+00:00", True),
    ],
)
def test_status_expires_soon(expires_at: str | None, is_urgent: bool) -> None:
    """Within a day before Kafka may delete records that aren't drained, it needs attention."""
    row = replace(ROW, overview=COMPLETE | {"expires_at": expires_at})

    assert row.status(NOW).is_urgent is is_urgent


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The values that the page's template gets."""
    monkeypatch.setattr(module, "render", lambda _, **values: values)
    return overview_page


def named(name: str, **changes: Any) -> ArchiveRow:
    look = look_of(changes.get("overview", COMPLETE))
    return replace(ROW, name=name, **{"looked": look, **changes})


def test_overview_page_order(shown: Any) -> None:
    """Archives that need attention come first: findings, then what can't be read; then by name."""
    rows = [
        named("c"),
        named("a"),
        named("d", problem="no access"),
        named("b", overview=COMPLETE | {"verdict": "findings"}),
        named("e", overview=None),
    ]

    page = shown(rows, NOW)

    assert [line.row.name for line in page["lines"]] == ["b", "d", "e", "a", "c"]
    assert page["headline"] == page["verdict"] == "5 archives: 1 not ready, 2 unknown, 2 ready"
    assert page["held"] == "8 records in 12 bytes"
    assert page["verdict_class"] == "verdict findings"
    assert [line.why for line in page["lines"] if line.row.problem] == ["no access"]


def test_overview_page_headline(shown: Any) -> None:
    """The list is green only if each archive is, and they are still when it is shown."""
    empty = shown([], NOW)
    assert (empty["headline"], empty["now"]) == ("No archives", NOW.isoformat())
    green = shown([named("a"), named("b")], NOW)
    assert (green["headline"], green["verdict_class"]) == (
        "2 archives: 2 ready",
        "verdict",
    )
    later = shown([named("a"), named("b")], NOW + timedelta(days=1))
    assert (later["headline"], later["verdict_class"]) == ("2 archives: 2 unknown", "verdict late")
    waiting = shown([named("a"), named("b", overview=None)], NOW)
    assert waiting["headline"] == "2 archives: 1 unknown, 1 ready"
    assert waiting["verdict_class"] == "verdict late"


@each_of(
    ("findings", "first", "verdict", "badge"),
    [
        ({}, "", "Findings", ""),
        # Warnings alone don't make an archive incomplete.
        ({"file_replaced": 1}, "", "Findings", ""),
        ({"file_missing": 2}, "MISSING", "Not complete: MISSING", "file_missing: COUNTED"),
        (
            {"file_missing": 2, "file_changed": 1},
            "MISSING, and 1 other kind of finding",
            "Not complete: MISSING; CHANGED",
            "file_missing: COUNTED, file_changed: COUNTED",
        ),
        (
            {"file_missing": 2, "file_changed": 1, "offset_missing": 3},
            "MISSING, and 2 other kinds of finding",
            "Not complete: MISSING; CHANGED; and 1 other kind of finding",
            "file_missing: COUNTED, file_changed: COUNTED, offset_missing: COUNTED",
        ),
    ],
)
def test_overview_page_findings(
    findings: dict[str, int],
    first: str,
    verdict: str,
    badge: str,
    shown: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list says why an archive is incomplete; the verdict says a little more."""
    meanings = {"file_missing": "MISSING", "file_changed": "CHANGED", "offset_missing": "LOST"}

    def remedies(overview: Any, reach: Any) -> list[Any]:
        assert reach == ROW.reach
        return [
            SimpleNamespace(
                code=code,
                meaning=meanings.get(code, "OTHER"),
                counted="COUNTED",
                is_error=code in meanings,
            )
            for code in overview["findings"]
        ]

    monkeypatch.setattr(module, "remedies", remedies)
    row = named("a", overview=COMPLETE | {"verdict": "findings", "findings": findings})
    [line] = shown([row], NOW)["lines"]

    assert line.why.replace(" (COUNTED)", "") == first
    assert verdict_text(row, NOW).replace(" (COUNTED)", "") == verdict
    assert line.badge.title == badge


def test_overview_page_unreadable(shown: Any) -> None:
    """Of an archive that can't be read, it is said why, and not what was found before."""
    row = named("a", problem="no access", overview=COMPLETE | {"verdict": "findings"})

    [line] = shown([row], NOW)["lines"]

    assert (line.why, line.badge.title) == ("no access", "no access")
    assert verdict_text(row, NOW) == "no access"


@pytest.mark.parametrize("state", ["running", "queued"])
def test_last_run_followed(state: str) -> None:
    """The last run is the one that has ended; it says if another one follows it."""
    failed = Run("failed", "", "/r", BEFORE, SINCE, False, "r1", "", "drain", "it broke")
    after = run(state, SINCE, "")

    assert replace(ROW, runs=(failed, after)).last.is_followed
    assert not replace(ROW, runs=(failed,)).last.is_followed
    assert replace(ROW, runs=(after,)).last.is_followed
    assert replace(ROW, runs=(failed, after)).last.name == "r1"


def test_overview_page_never_validated(shown: Any) -> None:
    """Nothing is shown as seen of an archive without a validation."""
    page = shown([named("a"), named("b", overview=None)], NOW)

    assert [line.seen is None for line in page["lines"]] == [True, False]


def test_overview_page_hidden_run(shown: Any) -> None:
    """A run that a user may not see tells how the archive stands, and nothing of itself."""
    failed = Run("failed", "", "", BEFORE, SINCE, False, "r1", "", "drain", "secret")
    row = named("a", runs=(failed,))

    [line] = shown([row], NOW)["lines"]

    assert line.status.words == "was complete, last run failed"
    assert row.shown_runs == []
    assert "secret" not in line.why
    [line] = shown([named("a", runs=(replace(failed, link="/r"),))], NOW)["lines"]
    assert "secret" in line.why


@each_of(
    ("changes", "name", "expected"),
    [
        ({"lag": None}, "behind", "unknown"),
        ({"lag": 0}, "behind", "0 offsets"),
        ({"lag": 1}, "behind", "1 offset"),
        ({"gaps": {}}, "gaps", ("none", "")),
        ({"gaps": {"control": 2}}, "gaps", ("2 control", "quiet")),
        ({"gaps": {"not_archived": 1, "control": 2}}, "gaps",
         ("1 not archived, 2 control", "warning")),
        ({"gaps": {"not_archived": 1, "lost": 2}}, "gaps", ("1 not archived, 2 lost", "bad")),
        # One that is lost among many harmless ones.
        ({"gaps": {"control": 9, "lost": 1}}, "gaps", ("9 control, 1 lost", "bad")),
        ({"expires_at": None}, "deletes", ("none known", "quiet")),
        ({"expires_at": "2026-11-22T12:00:00+00:00"}, "deletes", ("now", "bad badge")),
        ({"expires_at": "2026-11-22T14:00:00+00:00"}, "deletes", ("in 2 h", "warning")),
        ({"expires_at": "2026-11-25T12:00:00+00:00"}, "deletes", ("in 3 days", "")),
        ({"newest_record": None}, "newest", ("unknown", "")),
        ({"newest_record": "2026-11-22T12:07:00+00:00"}, "newest", ("in 7 min", "")),
    ],
)  # fmt: skip
def test_seen(changes: dict[str, Any], name: str, expected: Any) -> None:
    """What isn't known is called that; what is lost, or about to be, has a colour."""
    found: Any = getattr(LastValidation.of(COMPLETE | changes, NOW), name)

    assert (found if isinstance(found, str) else (found.words, found.kind)) == expected


def doing(state: str, done: int | None = None) -> Doing:
    return Doing("d", f"{state} {done}", state, "/r", {} if done is None else {"done": done})


@each_of(
    ("tasks", "place"),
    [
        ([doing("success", 3), doing("running"), doing("queued", 1)], 1),
        ([doing("success", 3), doing("up_for_retry", 2), doing("failed")], 1),
        ([doing("success", 3), doing("failed"), doing("queued")], 1),
        ([doing("success", 3), doing("success", 4), doing("success")], 1),
        ([doing("running"), doing("running", 1)], 1),
    ],
)
def test_shown_task(tasks: list[Doing], place: int) -> None:
    """Of a run, its running task is shown, else one tried again or failed, else the last."""
    assert shown_task(tasks) is tasks[place]


def test_shown_task_none() -> None:
    """A run of which nothing is known shows no task."""
    assert shown_task([doing("success"), doing("queued")]) is None
