"""Reason codes and findings."""

from __future__ import annotations

import json

from kafka_drain.findings import Finding, Reason, errors, summary
from tests.tables import each_of


def test_reason_codes_unique() -> None:
    """Each reason has a code of its own, its name in lower case: members aren't aliases."""
    codes = [reason.value for reason in Reason.__members__.values()]

    assert [name.lower() for name in Reason.__members__] == codes
    assert len(set(codes)) == len(codes)


@each_of("reason", list(Reason))
def test_reason_explained(reason: Reason) -> None:
    """Each reason is an error or a warning, and says what it means and what to do."""
    assert reason.severity in ("error", "warning")
    assert reason.meaning
    assert reason.remedy
    assert reason.meaning != reason.remedy
    assert str(reason) == reason.value
    assert Reason(reason.value) is reason


def test_reason_meanings_unique() -> None:
    """No two reasons mean the same."""
    assert len(Reason) == len({reason.meaning for reason in Reason})


def test_reason_warnings() -> None:
    """What readers ignore, what was repaired or accepted, what isn't told, notes, copies."""
    assert [r for r in Reason if r.severity == "warning"] == [
        Reason.FILE_REPLACED,
        Reason.FILE_ORPHAN,
        Reason.COPY_IGNORED,
        Reason.WINDOW_UNSEALED,
        Reason.OFFSET_EXPIRED,
        Reason.CONTENT_UNKNOWN,
        Reason.IDENTITY_UNTOLD,
        Reason.RECEIPT_FORGOTTEN,
        Reason.NOTE_UNREADABLE,
        Reason.COPY_DAMAGED,
        Reason.CLUSTER_STATE_DAMAGED,
        Reason.SCHEMA_SEAL_DAMAGED,
    ]


FINDINGS = [
    Finding(Reason.OFFSET_MISSING, "t-0", "[1, 2)"),
    Finding(Reason.FILE_ORPHAN, "a", ""),
    Finding(Reason.FILE_MISSING, "b", ""),
    Finding(Reason.OFFSET_MISSING, "t-1", "[3, 4)"),
]


def test_errors() -> None:
    """Warnings are left out, and the order stays."""
    assert [FINDINGS[0], FINDINGS[2], FINDINGS[3]] == errors(FINDINGS)


def test_summary() -> None:
    """Each code is counted, warnings as well; keys are plain text in order."""
    counted = summary(FINDINGS)

    assert counted == {"file_missing": 1, "file_orphan": 1, "offset_missing": 2}
    assert list(counted) == sorted(counted)
    assert {str} == {type(code) for code in counted}
    assert summary([]) == {}


def test_finding_text() -> None:
    """A finding is a line for people and a plain dict for a report."""
    assert str(FINDINGS[0]) == "offset_missing: t-0: [1, 2)"
    assert json.loads(json.dumps(FINDINGS[0].to_dict())) == {
        "reason": "offset_missing",
        "severity": "error",
        "where": "t-0",
        "detail": "[1, 2)",
    }
