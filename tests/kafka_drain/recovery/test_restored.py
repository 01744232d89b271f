"""Which runs have restored a topic: the newest that counts, of the target's topic as it is now."""

from __future__ import annotations

from dataclasses import replace

from kafka_drain.kafka.cluster_state import TopicState
from kafka_drain.recovery.restored import Restored, SentTo
from tests.tables import each_of

THERE = TopicState("copy", "id", 1, 1, {}, {})
#: A run that has sent topic a to topic copy, and has finished; another one; one that goes on.
FIRST = SentTo("first", "a", "copy", "id", is_verified=True)
SECOND = replace(FIRST, run="second")
ON = replace(FIRST, run="on", is_verified=False)
ALSO_ON = replace(ON, run="also on")
#: To a topic of that name that is gone, of another topic, and to another topic.
GONE = replace(FIRST, run="gone", topic_id="older")
OF_B = replace(FIRST, run="of b", source="b")
ELSEWHERE = replace(FIRST, run="elsewhere", topic="other", topic_id="other id")


@each_of(
    ("sent", "is_verified", "verified_by"),
    [
        ([], False, ""),
        ([FIRST], True, "first"),
        ([FIRST, SECOND], True, "second"),
        # Its settings are set back only when nobody sends to it any more.
        ([FIRST, ON], False, "first"),
        ([ON, FIRST], False, "first"),
        ([ON], False, ""),
        ([GONE], False, ""),
        ([FIRST, GONE], True, "first"),
        ([FIRST, replace(ON, topic_id="older")], True, "first"),
        ([FIRST, OF_B], True, "of b"),
        ([ELSEWHERE], False, ""),
        ([FIRST, replace(ELSEWHERE, is_verified=False)], True, "first"),
        # A cluster may tell no ids.
        ([replace(ELSEWHERE, topic_id="")], False, ""),
        ([FIRST, replace(ELSEWHERE, is_verified=False, topic_id="")], True, "first"),
    ],
)
def test_restored_topic(sent: list[SentTo], is_verified: bool, verified_by: str) -> None:
    """A topic is restored if all that was sent to it, as it is now, is verified."""
    restored = Restored(sent)

    assert restored.is_verified(THERE) is is_verified
    assert restored.verified_by(THERE) == verified_by


@each_of(
    ("sent", "newest", "unfinished"),
    [
        ([], None, None),
        ([FIRST], "first", None),
        ([FIRST, SECOND], "second", None),
        ([ON], None, "on"),
        ([ON, ALSO_ON], None, "also on"),
        ([FIRST, ON, SECOND], "second", "on"),
        ([FIRST, GONE], "first", None),
        ([GONE], None, None),
        ([OF_B], None, None),
        # Wherever its records are.
        ([FIRST, ELSEWHERE], "elsewhere", None),
        ([FIRST, replace(ELSEWHERE, topic="unknown")], "first", None),
    ],
)
def test_restored_source(sent: list[SentTo], newest: str | None, unfinished: str | None) -> None:
    """A group is translated with the newest run that has sent its topic's records."""
    restored, ids = Restored(sent), {"copy": "id", "other": "other id"}

    assert restored.newest_run("a", ids) == newest
    begun = restored.unfinished_run("a", ids)
    assert (begun.run if begun else None) == unfinished
