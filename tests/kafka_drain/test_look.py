"""What was seen of an archive is judged when it is shown."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from kafka_drain.archive.readiness import Readiness
from kafka_drain.look import MAX_AGE, Judged
from tests.kafka_drain.pages.looks import look_of
from tests.kafka_drain.pages.test_remedies import OVERVIEW

#: The archive was validated five minutes before.
NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)
COMPLETE = OVERVIEW | {"verdict": "complete"}


def test_judge_grows_old() -> None:
    """The same look is ready now, and says nothing once the validation is too old."""
    look = look_of(COMPLETE)

    assert look.judge(NOW).state is Readiness.READY
    assert look.judge(NOW - timedelta(minutes=5) + MAX_AGE).state is Readiness.READY
    assert look.judge(NOW + MAX_AGE).state is Readiness.UNKNOWN
    assert look.judge(NOW, timedelta(minutes=4)).state is Readiness.UNKNOWN


def test_judged_text() -> None:
    """A page that shows name and state elsewhere has the rest, or only the worst of it."""
    ready = look_of(COMPLETE).judge(NOW)
    assert ready.sentence == f"flights: ready: {ready.text}"
    assert ready.short == "0 records, validated 5 min 0 s ago"

    two = look_of(COMPLETE, refused="a.parquet is gone. Do this", unsealed=2).judge(NOW)
    assert two.short == "a.parquet is gone; and 1 more"
    assert two.text.startswith("a.parquet is gone. Do this; 2 files, drained since, aren't sealed")


def test_judged_unread() -> None:
    """Of what can't be read nothing is known, unless it is damaged."""
    for is_damaged, words in ((False, "unknown"), (True, "not ready")):
        judged = Judged.unread("orders", "no access", is_damaged=is_damaged)
        assert judged.sentence == f"orders: {words}: no access"
        assert (judged.text, judged.short, judged.pipeline) == ("no access", "no access", None)
