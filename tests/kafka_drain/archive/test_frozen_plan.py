"""Whether a frozen plan may be carried out, and how it is shown."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest

from kafka_drain.archive.frozen_plan import (
    CHARACTERS,
    ROWS,
    FrozenPlan,
    PlanDecision,
    PlanState,
    bullets,
    decide,
    expiry,
    files_changed,
    lifetime,
    table,
)
from kafka_drain.errors import ConfigError, PlanChangedError, TerminalError
from kafka_drain.storage.sealed_json import SealError, check_seal
from tests.tables import each_of

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
NEW, STARTED, DONE = PlanState.NEW, PlanState.STARTED, PlanState.DONE

#: Own, state, expired, changed, and the decision; None is either.
RULES: list[tuple[bool, PlanState | None, bool | None, bool | None, PlanDecision]] = [
    (False, None, None, None, PlanDecision.REFUSE_OTHER),
    (True, DONE, None, None, PlanDecision.DO_NOTHING),
    (True, STARTED, None, None, PlanDecision.RESUME),
    (True, NEW, True, None, PlanDecision.REFUSE_EXPIRED),
    (True, NEW, False, True, PlanDecision.REFUSE_CHANGED),
    (True, NEW, False, False, PlanDecision.RUN),
]


def frozen(**changes: Any) -> FrozenPlan:
    """A plan made at noon, for an hour."""
    created_at, expires_at = expiry(NOW, timedelta(hours=1))
    plan = FrozenPlan(
        kind="republish",
        pipeline="flights",
        archive_id="a1",
        created_at=created_at,
        expires_at=expires_at,
        asked={"target_topic": "copy"},
        seen={"records": 84},
        text="### 84 records",
    )
    plan = replace(plan, **changes)
    return replace(plan, sha256=check_seal(plan.to_bytes()))


@each_of("own", [False, True])
@each_of("state", list(PlanState))
@each_of("expired", [False, True])
@each_of("changed", [False, True])
def test_decide(own: bool, state: PlanState, expired: bool, changed: bool) -> None:
    """Every combination has exactly one decision, and only a new, own, same one in time runs."""
    case = (own, state, expired, changed)
    [expected] = {
        decision
        for *rule, decision in RULES
        if all(wanted in (None, is_now) for wanted, is_now in zip(rule, case, strict=True))
    }

    assert decide(state, is_own=own, is_expired=expired, is_changed=changed) is expected


HERE: dict[str, Any] = {"kind": "republish", "pipeline": "flights", "archive_id": "a1", "now": NOW}


@pytest.mark.parametrize(
    ("state", "changes", "decision"),
    [
        (NEW, [], PlanDecision.RUN),
        (STARTED, ["2 files were replaced"], PlanDecision.RESUME),
        (DONE, ["2 files were replaced"], PlanDecision.DO_NOTHING),
    ],
)
def test_proceed(state: PlanState, changes: list[str], decision: PlanDecision) -> None:
    """What isn't refused is told apart."""
    assert frozen().proceed(state, **HERE, changes=changes) is decision


@pytest.mark.parametrize(
    ("here", "changes", "said"),
    [
        (
            {"kind": "maintain"},
            [],
            "it is a republish of pipeline flights in archive a1, but this ",
        ),
        ({"pipeline": "other"}, [], "but this is a republish of other in archive a1"),
        ({"archive_id": "a2"}, [], "but this is a republish of flights in archive a2"),
        ({"archive_id": None}, [], "in archive without an id"),
        ({"now": NOW + timedelta(hours=1)}, [], "it had to be started by 2026-01-01T13:00:00.000"),
        ({}, ["a was recreated", "b grew"], "since it was made, a was recreated; b grew"),
    ],
)
def test_proceed_refused(here: dict[str, Any], changes: list[str], said: str) -> None:
    """The error says what is different, and no retry can help."""
    with pytest.raises(PlanChangedError, match=r"Nothing was done; make a new plan") as refused:
        frozen().proceed(NEW, **(HERE | here), changes=changes)

    assert said in str(refused.value)
    assert isinstance(refused.value, TerminalError)


@pytest.mark.parametrize(("minutes", "expired"), [(0, False), (59, False), (60, True), (61, True)])
def test_is_expired(minutes: int, expired: bool) -> None:
    """A plan may be started before it expires, not at that moment."""
    assert frozen().is_expired(NOW + timedelta(minutes=minutes)) is expired


def test_id_is_of_content() -> None:
    """The id has the kind, the time and the hash: other content has another id."""
    plan = frozen()

    assert plan.id == f"republish-20260101T120000Z-{plan.sha256[:16]}"
    assert frozen(seen={"records": 85}).id != plan.id
    assert frozen(text="### 85 records").id != plan.id
    assert frozen(expires_at="2027-01-01T00:00:00+00:00").id != plan.id


def test_summary() -> None:
    """Whoever approves it gets its id, its end and its text."""
    plan = frozen()

    assert plan.summary() == {
        "plan_id": plan.id,
        "expires_at": "2026-01-01T13:00:00.000+00:00",
        "approval": "### 84 records",
    }


def test_to_bytes_read_again() -> None:
    """A plan is read as it was written, and a changed byte is noticed."""
    plan = frozen()

    assert FrozenPlan.parse(plan.to_bytes()) == plan
    with pytest.raises(SealError):
        FrozenPlan.parse(plan.to_bytes().replace(b"84", b"85"))


@pytest.mark.parametrize("hours", [0, -1, 720.1, float("nan")])
def test_lifetime_refused(hours: float) -> None:
    """A plan lives for some time, and not for ever."""
    with pytest.raises(ConfigError, match="accepted: up to 720"):
        lifetime(hours)


def test_lifetime() -> None:
    """Parts of an hour count."""
    assert lifetime(0.5) == timedelta(minutes=30)
    assert lifetime(720) == timedelta(days=30)


def test_table_bounded() -> None:
    """A table has a bound on rows and on a cell, whatever there is to show."""
    text = table(("a", "b"), [("x" * 10_000, number) for number in range(5_000)])

    assert len(text) < ROWS * (CHARACTERS + 50)
    assert text.endswith(f"\n\nand {5_000 - ROWS:,} more")
    assert table(("a",), [("x",)]) == "| a |\n| --- |\n| x |"
    assert table(("a", "b"), [("x", 1)]).splitlines()[-1] == "| x | 1 |"
    assert "more" not in table(("a",), [("x",)] * ROWS)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (1_234_567, "1,234,567"),
        ("a|b", "a\\|b"),
        ("a\\|b", "a\\\\\\|b"),
        ("two\nlines", "two lines"),
        ("<script>alert(1)</script>", "&lt;script>alert(1)&lt;/script>"),
        ("x" * CHARACTERS, "x" * CHARACTERS),
        ("x" * (CHARACTERS + 1), "x" * (CHARACTERS - 2) + " …"),
    ],
)
def test_table_cell(value: object, cell: str) -> None:
    """No value ends its cell or its row, and none is markup."""
    assert table(("a",), [(value,)]).splitlines()[-1] == f"| {cell} |"


def test_files_changed() -> None:
    """One is named, and the number is in words that fit it."""
    assert files_changed({"b"}) == "1 file was replaced or removed, such as b"
    assert files_changed(["b", "a"]) == "2 files were replaced or removed, such as a"


def test_bullets_bounded() -> None:
    """A list has a bound too."""
    lines = bullets([str(number) for number in range(ROWS + 7)]).splitlines()

    assert (len(lines), lines[0], lines[-1]) == (ROWS + 1, "- 0", "- and 7 more")
    assert "more" not in bullets(["one"] * ROWS)
    assert bullets(["one"]) == "- one"
    assert bullets([]) == ""


def test_decide_is_total() -> None:
    """The table has a row for each combination."""
    cases = list(product([False, True], PlanState, [False, True], [False, True]))

    assert len(cases) == 24
    assert {decide(s, is_own=o, is_expired=e, is_changed=c) for o, s, e, c in cases} == set(
        PlanDecision
    )
