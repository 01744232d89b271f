"""Whether an archive could be restored: each thing that decides, and what the sentence says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from itertools import combinations
from typing import Any

import pytest

from kafka_drain.archive.drill_status import DrillState, DrillStatus
from kafka_drain.archive.readiness import (
    Evidence,
    Readiness,
    judge_readiness,
    readiness_text,
    state_of,
)
from kafka_drain.archive.scrubs import OldestRead
from kafka_drain.findings import Reason

READY, UNKNOWN, NOT_READY = Readiness
NOW = datetime(2026, 1, 31, 14, tzinfo=timezone.utc)
DAY = timedelta(days=1)
OVERVIEW: Mapping[str, Any] = {
    "pipeline": "orders",
    "verdict": "complete",
    "validated_at": "2026-01-31T13:00:00+00:00",
    "findings": {},
    "unsealed_segments": 0,
    "lag": 7,
    "records": 1_500,
    "newest_record": "2026-01-31T12:59:03.250+00:00",
}


def drills(state: DrillState = DrillState.NEVER) -> DrillStatus:
    return DrillStatus(state, None, None, DAY, NOW)


def evidence(overview: Mapping[str, Any] | None = None, **changes: Any) -> Evidence:
    """What is known of a sealed archive that was found complete an hour ago."""
    known: dict[str, Any] = {
        "pipeline": "orders",
        "refused": "",
        "overview": OVERVIEW if overview is None else OVERVIEW | overview,
        "is_sealed": True,
        "unsealed": 0,
        "drills": drills(),
        "now": NOW,
        "max_age": DAY,
    }
    return Evidence(**known | changes)


def at(hours: float) -> str:
    """Some hours ago."""
    return (NOW - timedelta(hours=hours)).isoformat()


#: What keeps an archive from being ready, by name: evidence, state, and how the reason begins.
KEPT: dict[str, tuple[dict[str, Any], dict[str, Any], Readiness, str]] = {
    "refused": ({}, {"refused": "a file is gone"}, NOT_READY, "a file is gone"),
    "findings": (
        {"verdict": "findings", "findings": {"file_missing": 2}},
        {},
        NOT_READY,
        f"{Reason.FILE_MISSING.meaning} (file_missing, 2)",
    ),
    "drill": ({}, {"drills": drills(DrillState.FAILED)}, NOT_READY, "no drill has passed"),
    "old drill": ({}, {"drills": drills(DrillState.TOO_OLD)}, UNKNOWN, "no drill has passed"),
    "old": ({"validated_at": at(24.01)}, {}, UNKNOWN, "the last validation is 24 h 0 min ago, mo"),
    "future": ({"validated_at": at(-0.1)}, {}, UNKNOWN, "the last validation is 6 min 0 s ahead"),
    "empty": ({}, {"is_sealed": False}, UNKNOWN, "nothing is sealed"),
    "unsealed": ({"unsealed_segments": 3}, {}, UNKNOWN, "3 batches aren't sealed yet"),
    "drained since": ({}, {"unsealed": 2}, UNKNOWN, "2 files, drained since, aren't sealed yet"),
    "contents": ({"findings": {"content_unknown": 1}}, {}, UNKNOWN, "of some records only"),
    "not asked": ({"lag": None}, {}, UNKNOWN, "the last validation couldn't tell"),
    "not read": (
        {},
        {"read_again": OldestRead(38 * DAY, 30)},
        UNKNOWN,
        "sealed bytes weren't read for 38 days 0 h, more than 30 days 0 h",
    ),
}


#: Two values of one thing.
_SAME = [("drill", "old drill"), ("old", "future"), ("unsealed", "drained since")]


@pytest.mark.parametrize("name", KEPT)
def test_judge_readiness_each(name: str) -> None:
    """Each alone keeps an archive from being ready, and is said."""
    overview, changes, state, begins = KEPT[name]

    [(found, why)] = judge_readiness(evidence(overview, **changes))

    assert found is state
    assert why.startswith(begins)


@pytest.mark.parametrize(
    ("one", "other"), [pair for pair in combinations(KEPT, 2) if pair not in _SAME]
)
def test_judge_readiness_two(one: str, other: str) -> None:
    """The worse of two decides, and is said first; neither hides the other."""
    kept = [KEPT[one], KEPT[other]]
    overview = kept[0][0] | kept[1][0]
    if {one, other} == {"findings", "contents"}:
        overview["findings"] = {"file_missing": 2, "content_unknown": 1}
    found = judge_readiness(evidence(overview, **kept[0][1] | kept[1][1]))

    assert state_of(found) is (NOT_READY if NOT_READY in (kept[0][2], kept[1][2]) else UNKNOWN)
    assert [state for state, _ in found] == sorted(
        (state for state, _ in found), key=[NOT_READY, UNKNOWN].index
    )
    # Who is refused can't know whether anything is sealed.
    assert len(found) == (1 if (one, other) == ("refused", "empty") else 2)


@pytest.mark.parametrize(
    "overview",
    [
        {},
        {"validated_at": at(24)},
        # By a clock that is a little ahead.
        {"validated_at": at(-1 / 12)},
        {"findings": {"offset_expired": 4}},
        {"newest_record": None},
        {"lag": 0},
    ],
)
def test_judge_readiness_ready(overview: dict[str, Any]) -> None:
    """Nothing is said of an archive that is ready; warnings don't count."""
    assert judge_readiness(evidence(overview)) == []
    assert state_of([]) is READY


def test_judge_readiness_not_validated() -> None:
    """Without a validation of its own, nothing is known; what is seen now counts all the same."""
    never = evidence(overview=None)
    other = evidence({"pipeline": "payments", "verdict": "findings"})
    for known in (Evidence(**{**_fields(never), "overview": None}), other):
        assert [state for state, _ in judge_readiness(known)] == [UNKNOWN]
        refused = Evidence(**{**_fields(known), "refused": "a file is gone"})
        assert [state for state, _ in judge_readiness(refused)] == [NOT_READY, UNKNOWN]
    assert "is of 'payments'" in judge_readiness(other)[0][1]


def _fields(known: Evidence) -> dict[str, Any]:
    return {name: getattr(known, name) for name in Evidence.__slots__}


@pytest.mark.parametrize("findings", [{}, {"offset_expired": 1}, {"of_a_later_release": 1}])
def test_judge_readiness_incomplete(findings: dict[str, int]) -> None:
    """A verdict that isn't complete is never ready, whatever its findings are."""
    found = judge_readiness(evidence({"verdict": "findings", "findings": findings}))

    assert state_of(found) is NOT_READY


def test_readiness_text() -> None:
    """The sentence has the state, the reasons, how far the archive reaches, and drills."""
    assert readiness_text(evidence(), [], 750.0) == (
        "orders: ready: 1,500 records, the newest of 2026-01-31 12:59:03 UTC, validated 1 h 0 min "
        "ago; 7 offsets behind Kafka then; no drill has passed yet; a restore of everything takes "
        "about 12 min 30 s"
    )
    reasons = [(NOT_READY, "a"), (UNKNOWN, "b"), (UNKNOWN, "c"), (UNKNOWN, "d")]
    never = Evidence(**{**_fields(evidence()), "overview": None})
    assert readiness_text(never, reasons, None) == (
        "orders: not ready: a; b; c; and 1 more; no drill has passed yet"
    )


def test_readiness_read_again() -> None:
    """The sentence tells how old the oldest reading is, unless nobody knows or it is a reason."""
    for read_again, words in [
        (None, None),
        (OldestRead(28 * DAY, 30), "every sealed byte read within 28 days 0 h"),
        (OldestRead(None, 30), "it isn't known when its sealed bytes were last read"),
    ]:
        known = evidence(read_again=read_again)
        text = readiness_text(known, judge_readiness(known), None)
        assert (words or "") in text
        assert text.count("sealed byte") == (words is not None)
