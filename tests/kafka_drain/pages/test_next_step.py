"""What an archive's page says to do first."""

from __future__ import annotations

from typing import Any

from kafka_drain.pages.commands import Reach
from kafka_drain.pages.next_step import next_step
from kafka_drain.pages.remedies import remedies
from tests.kafka_drain.archive.test_drill_status import drill
from tests.kafka_drain.pages.looks import look_of
from tests.kafka_drain.pages.test_remedies import NOW, OVERVIEW
from tests.tables import each_of


@each_of(
    ("overview", "seen", "standing", "begins"),
    [
        ({}, {}, "", ""),
        # What the last validation found says best what mends it.
        ({"findings": {"file_missing": 1}}, {"refused": "gone"}, "S", "restore the file"),
        ({}, {"refused": "gone"}, "S", "`kafka-drain validate /a` says what is missing"),
        ({}, {"drills": [drill(1, "failed")]}, "S", "S"),
        ({}, {"drills": [drill(1, "failed")]}, "", "Mend what the drill says"),
        ({"findings": {"content_unknown": 1}}, {}, "", "the warning stays"),
        ({"findings": {"content_unknown": 1}}, {"unsealed": 1}, "", "Trigger a run, or run `kaf"),
        ({"validated_at": "2026-11-20T11:55:00+00:00"}, {}, "", "Trigger a run, or run `kaf"),
        ({}, {"problem": "no access"}, "S", "S"),
        ({}, {"problem": "no access"}, "", ""),
    ],
)
def test_next_step(
    overview: dict[str, Any], seen: dict[str, Any], standing: str, begins: str
) -> None:
    """Of all that could be done, the page says first what helps first; nothing if that is right."""
    reach = Reach("/a")
    known = OVERVIEW | {"verdict": "complete"} | overview
    if "file_missing" in known["findings"]:
        known["verdict"] = "findings"
    judged = look_of(known, **seen).judge(NOW)

    step = next_step(judged, remedies(known, reach), standing, reach)

    assert step.startswith(begins)
    assert bool(step) is bool(begins)
