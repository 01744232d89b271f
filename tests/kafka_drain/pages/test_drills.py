"""Drills on an archive's page."""

from __future__ import annotations

from datetime import datetime

import pytest

from kafka_drain.archive.history import History
from kafka_drain.pages.archive import archive_page
from kafka_drain.pages.drills import show_drills
from kafka_drain.pages.overview import ArchiveRow
from tests.kafka_drain.archive.test_drill_status import NOW, drill

ROW = ArchiveRow(name="flights", archive="/a", link="", page="", report="", overview=None)


def test_show_drills_none() -> None:
    """An archive without drills shows none."""
    assert show_drills([], NOW) is None


def test_show_drills() -> None:
    """The last drill that passed, its times, and a bar for each."""
    shown = show_drills([drill(3), drill(2, "failed"), drill(1)], NOW)
    assert shown is not None
    assert shown.trend is not None

    assert (shown.kind, shown.rto, shown.rpo) == ("good", "2 s", "1 min 0 s")
    assert [box.colour for box in shown.trend.drawing.boxes] == ["covered", "damaged", "covered"]
    assert shown.trend.drawing.boxes[1].words.endswith("failed: it broke")
    assert shown.passed.startswith("2026-01-30")


def test_show_drills_bars() -> None:
    """A bar says when its drill began, what it restored, and how it ended."""
    times = {"started_at": "2026-01-02T03:04:05+00:00", "finished_at": "2026-01-03T09:00:00+00:00"}
    lost = [
        {"step": "plan", "error": "E", "detail": detail, "transient": False}
        for detail in ("it broke", "so did this")
    ]
    newest = {"kind": "newest_hour", "from_time": None, "to_time": None, "seed": 1}
    drills = [
        drill(0, sample=newest, rto_seconds=90.4, **times),
        drill(0, "failed", sample=None, records=None, problems=lost, **times),
        drill(0, records=1, **times),
    ]

    shown = show_drills(drills, NOW)

    assert shown is not None
    assert shown.trend is not None
    at = "2026-01-02 03:04:05 UTC"
    assert [box.words.rpartition(at)[2] for box in shown.trend.drawing.boxes] == [
        ", newest hour, 5 records: passed in 1 min 30 s",
        ", no sample: failed: it broke",
        ", whole, 1 record: passed in 2 s",
    ]
    assert shown.passed == at
    assert "RTO of 3 drills" in shown.trend.caption


def test_show_drills_failed() -> None:
    """A drill that failed is shown as bad, beside the last one that passed."""
    shown = show_drills([drill(3), drill(1, "failed")], NOW)
    assert shown is not None

    assert shown.kind == "bad"
    assert shown.words.startswith("drill drill 1 failed: it broke")
    assert shown.passed


@pytest.mark.parametrize(("max_age_days", "kind"), [(None, "good"), (10, "good"), (2, "bad")])
def test_show_drills_too_old(max_age_days: int | None, kind: str) -> None:
    """A drill is too old by what the drill itself says."""
    shown = show_drills([drill(9, max_age_days=max_age_days)], NOW)
    assert shown is not None

    assert shown.kind == kind


def test_show_drills_too_old_beside_one_at_a_terminal() -> None:
    """A drill at a terminal, which says no age, doesn't let the pipeline's own age be forgotten."""
    shown = show_drills([drill(30, max_age_days=14), drill(20, max_age_days=None)], NOW)
    assert shown is not None

    assert shown.kind == "bad"
    assert shown.words.endswith("20 days 0 h ago, more than 14 days 0 h")


def page(*drills: object, now: datetime = NOW) -> str:
    """The archive's page."""
    return archive_page(ROW, History(), now, "receipts", drills=drills)  # type: ignore[arg-type]


def test_archive_page_drills() -> None:
    """The page has the drills' section, with everything escaped, only if there are drills."""
    problem = {"step": "plan", "error": "E", "detail": "<b>", "transient": False}

    assert "RTO" not in page()
    assert "last drill that passed" in page(drill(1))
    shown = page(drill(1, "failed", problems=[problem]))
    assert "Drill drill 1 failed: &lt;b&gt;" in shown
    assert "<b>" not in shown.partition("Drills")[2]
