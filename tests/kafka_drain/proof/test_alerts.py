"""What somebody is told of after a validation."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillDocument
from kafka_drain.archive.drill_status import DrillStatus
from kafka_drain.archive.status import make_overview, write_overview
from kafka_drain.findings import Finding, Reason
from kafka_drain.proof.alerts import alerts_of, last_overview, unread_drills
from tests.kafka_drain.archive.test_drill_status import NOW as DRILLED
from tests.kafka_drain.archive.test_drill_status import drill
from tests.kafka_drain.archive.test_status import REPORT
from tests.tables import each_of

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


@each_of("reason", list(Reason))
def test_alerts_of_findings(reason: Reason) -> None:
    """Whatever makes an archive incomplete is told, and what stands still; other warnings not."""
    found = alerts_of([Finding(reason, "flights-0", "seen")], {}, NOW)

    kinds = [alert["kind"] for alert in found]
    if reason in (Reason.OFFSET_MISSING, Reason.OFFSET_UNEXPLAINED):
        assert kinds == ["LOST"]
    elif reason is Reason.STALLED:
        assert kinds == ["STALLED"]
    else:
        assert kinds == (["DAMAGED"] if reason.severity == "error" else [])
    assert all("flights-0" in alert["message"] for alert in found)


@pytest.mark.parametrize(
    ("hours", "words"),
    [(-1, "of them now"), (0, "of them now"), (23.5, "of them in 23 h 30 min"), (24, None)],
)
def test_alerts_of_expiry(hours: float, words: str | None) -> None:
    """What Kafka may delete within a day is told, with the time that is left."""
    expires_at = (NOW + timedelta(hours=hours)).isoformat()

    found = alerts_of([], {"expires_at": expires_at, "lag": 1_200}, NOW)

    if words is None:
        assert found == []
    else:
        [alert] = found
        assert alert["kind"] == "EXPIRING"
        assert "1,200 offsets" in alert["message"]
        assert words in alert["message"]


def test_alerts_of_expiry_unknown_lag() -> None:
    """Where some of what waits can't be counted, what expires is told all the same."""
    [alert] = alerts_of([], {"expires_at": NOW.isoformat(), "lag": None}, NOW)

    assert alert["message"].startswith("some offsets aren't drained yet, and Kafka may delete")


def test_last_overview(archive: Archive) -> None:
    """What the last validation knew counts if it can be read and is of this pipeline."""
    path = Path(str(archive.root)) / "overview.json"
    assert last_overview(archive) == {}
    own = make_overview(REPORT | {"pipeline": "golden"}, None, {}, {}, "r.json")

    write_overview(archive.root, own)
    assert last_overview(archive) == own
    write_overview(archive.root, own | {"pipeline": "other"})
    assert last_overview(archive) == {}
    path.write_text("{}")
    assert last_overview(archive) == {}
    path.unlink()
    path.mkdir()
    assert last_overview(archive) == {}


def test_unread_drills() -> None:
    """That drills can't be read is told, with the reason."""
    assert unread_drills(None) == []
    [alert] = unread_drills(OSError("no space left"))
    assert (alert["kind"], "no space left" in alert["message"]) == ("DRILL", True)


def test_alerts_of_nothing() -> None:
    """A complete archive that nothing threatens is nobody's concern."""
    assert alerts_of([], {"expires_at": None, "lag": 5}, NOW) == []


@pytest.mark.parametrize(
    ("drills", "words"),
    [
        ([], "no drill has passed yet"),
        ([drill(9)], "9 days 0 h ago, more than 7 days"),
        ([drill(1, "failed")], "it broke"),
        ([drill(1)], None),
    ],
)
def test_alerts_of_drills(drills: list[DrillDocument], words: str | None) -> None:
    """Drills that failed, are too old, or never passed are told; others aren't."""
    status = DrillStatus.of(drills, timedelta(days=7), DRILLED)
    found = alerts_of([], {}, NOW, status)

    assert [alert["kind"] for alert in found] == ([] if words is None else ["DRILL"])
    assert all(str(words) in alert["message"] for alert in found)
