"""Whether drills are as they should be: every combination of what decides."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_drain.archive.documents import DrillDocument
from kafka_drain.archive.drill_status import DrillState, DrillStatus, judge_drills

DAY = timedelta(days=1)
NOW = datetime(2026, 1, 31, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("newest", "age", "max_age", "expected"),
    [
        (None, None, None, DrillState.NEVER),
        (None, None, DAY, DrillState.NEVER),
        ("failed", None, None, DrillState.FAILED),
        ("failed", None, DAY, DrillState.FAILED),
        ("failed", 2 * DAY, None, DrillState.FAILED),
        ("failed", 2 * DAY, DAY, DrillState.FAILED),
        ("failed", DAY, DAY, DrillState.FAILED),
        ("passed", 2 * DAY, None, DrillState.OK),
        ("passed", 2 * DAY, DAY, DrillState.TOO_OLD),
        ("passed", DAY + timedelta(seconds=1), DAY, DrillState.TOO_OLD),
        ("passed", DAY, DAY, DrillState.OK),
        ("passed", timedelta(), DAY, DrillState.OK),
        # By a clock that was ahead.
        ("passed", -DAY, DAY, DrillState.OK),
    ],
)
def test_judge_drills(
    newest: str | None, age: timedelta | None, max_age: timedelta | None, expected: DrillState
) -> None:
    """A failure is worse than none, and none than one too long ago."""
    assert judge_drills(newest, age, max_age) is expected


def drill(days_ago: float, verdict: str = "passed", **changes: Any) -> DrillDocument:
    """A drill so many days ago."""
    at = (NOW - timedelta(days=days_ago)).isoformat()
    problem = {"step": "restore", "error": "E", "detail": "it broke", "transient": False}
    document: dict[str, Any] = {
        "format_version": 1,
        "drill": f"drill {days_ago}",
        "pipeline": "flights",
        "verdict": verdict,
        "started_at": at,
        "finished_at": at,
        "sample": {"kind": "whole", "from_time": None, "to_time": None, "seed": 1},
        "cluster_id": "cluster-1",
        "topics": {"flights": "scratch"},
        "records": 5,
        "rto_seconds": 1.5 if verdict == "passed" else None,
        "rpo_seconds": 60.0,
        "newest_record": at,
        "drained_through": at,
        "verification": {"lost": 0},
        "decoded": None,
        "problems": [] if verdict == "passed" else [problem],
        "left": [],
        "max_age_days": 14,
    }
    return DrillDocument.model_validate(document | changes)


@pytest.mark.parametrize(
    ("drills", "state", "words"),
    [
        ([], "never", "no drill has passed yet"),
        ([drill(3)], "ok", "the last drill that passed was 3 d"),
        ([drill(9)], "too_old", "the last drill that passed was 9 d.* ago, more than 7 d"),
        ([drill(9), drill(1, "failed")], "failed", "drill 1 failed: it broke; the last .* 9 d"),
        ([drill(2, "failed")], "failed", "drill 2 failed: it broke; no drill has passed yet"),
        ([drill(2, "failed", problems=[])], "failed", "see its result; no drill has passed yet"),
        ([drill(2, "failed"), drill(1)], "ok", "the last drill that passed was 24 h"),
        # By a clock that was ahead: what came after it sorts before it.
        ([drill(9), drill(-99)], "too_old", "the last drill that passed was 9 d"),
        ([drill(1), drill(-99, "failed")], "failed", "drill -99 failed: it broke"),
        ([drill(1, "failed"), drill(-99)], "failed", "drill 1 failed: it broke; the last"),
        ([drill(-99)], "ok", "the last drill that passed was"),
        ([drill(-100, "failed")], "failed", "drill -100 failed"),
    ],
)
def test_drill_status(drills: list[DrillDocument], state: str, words: str) -> None:
    """The status names what failed, and when a drill last passed."""
    status = DrillStatus.of(drills, 7 * DAY, NOW)

    assert status.state.value == state
    assert re.search(words, status.words), status.words
    assert (status.age is None) == (status.passed is None)


@pytest.mark.parametrize(
    ("earlier", "later", "state"), [(14, 7, "too_old"), (7, 14, "ok"), (7, None, "too_old")]
)
def test_drill_status_of_their_own(earlier: int, later: int | None, state: str) -> None:
    """The age limit in force is that of the newest drill that names one."""
    drills = [drill(10, max_age_days=earlier), drill(9, max_age_days=later)]

    assert DrillStatus.of_their_own(drills, NOW).state.value == state
