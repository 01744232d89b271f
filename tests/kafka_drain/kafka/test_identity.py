"""Ids of topics and clusters, told or not."""

from __future__ import annotations

import pytest

from kafka_drain.errors import ArchiveError
from kafka_drain.kafka.identity import (
    NO_TOPIC_ID,
    cluster_text,
    counted_as,
    earlier_incarnations,
    is_other_cluster,
    is_other_topic,
    is_told,
    next_incarnation,
    refuse_other_cluster,
    topic_id_of,
    untold,
)

ID, OTHER = "t5b8mQzZSXO3pPqkqmBxNQ", "9Q2hXwZ8QGm3bqM3C1gQYg"


@pytest.mark.parametrize(
    ("known", "seen", "is_other"),
    [
        (ID, ID, False),
        (ID, OTHER, True),
        (f"{ID}~2", ID, False),
        (f"{ID}~2", OTHER, True),
        (f"{ID}~2", f"{ID}~3", False),
        # Unknown is neither the same nor another.
        (NO_TOPIC_ID, NO_TOPIC_ID, False),
        (NO_TOPIC_ID, ID, False),
        (ID, NO_TOPIC_ID, False),
        (f"{NO_TOPIC_ID}~2", ID, False),
        ("", ID, False),
    ],
)
def test_is_other_topic(known: str, seen: str, is_other: bool) -> None:
    """Only two ids that Kafka told can be different."""
    assert is_other_topic(known, seen) is is_other


@pytest.mark.parametrize(
    ("known", "seen", "is_other"),
    [
        ("a", "a", False),
        ("a", "b", True),
        ("", "b", False),
        ("a", "", False),
        ("None", "b", False),
        ("None", "", False),
    ],
)
def test_is_other_cluster(known: str, seen: str, is_other: bool) -> None:
    """Only two ids that Kafka told can be different; `None` was written for none."""
    assert is_other_cluster(known, seen) is is_other


@pytest.mark.parametrize(
    ("archived", "seen", "counted"),
    [
        (None, ID, ID),
        (ID, ID, ID),
        (f"{ID}~2", ID, f"{ID}~2"),
        (ID, OTHER, OTHER),
        (f"{ID}~2", OTHER, OTHER),
        # What was counted once isn't counted as another.
        (ID, f"{ID}~2", f"{ID}~2"),
        (NO_TOPIC_ID, NO_TOPIC_ID, NO_TOPIC_ID),
        (f"{NO_TOPIC_ID}~2", NO_TOPIC_ID, f"{NO_TOPIC_ID}~2"),
        # A cluster that was upgraded has ids, and its archives go on with none.
        (NO_TOPIC_ID, ID, NO_TOPIC_ID),
    ],
)
def test_counted_as(archived: str | None, seen: str, counted: str) -> None:
    """An archive goes on with its own id unless Kafka's is of another topic."""
    assert counted_as(archived, seen) == counted


def test_next_incarnation() -> None:
    """Each rewritten log gets the next number, and keeps Kafka's id."""
    second = next_incarnation(ID)

    assert second == f"{ID}~2"
    assert next_incarnation(second) == f"{ID}~3"
    assert topic_id_of(next_incarnation(second)) == ID
    assert is_told(second)
    assert not is_told(next_incarnation(NO_TOPIC_ID))


@pytest.mark.parametrize(
    ("counted", "earlier"),
    [(ID, []), (f"{ID}~2", [ID]), (f"{ID}~4", [f"{ID}~3", f"{ID}~2", ID])],
)
def test_earlier_incarnations(counted: str, earlier: list[str]) -> None:
    """All earlier incarnations are named, the newest first; the oldest has Kafka's own id."""
    assert earlier_incarnations(counted) == earlier


def test_refuse_other_cluster() -> None:
    """Another cluster is refused with its id and addresses; one that tells no id isn't."""
    named = {"bootstrap_servers": "k:1"}

    refuse_other_cluster("/a", "mine", named)
    refuse_other_cluster("/a", "mine", named | {"cluster_id": "mine"})
    with pytest.raises(ArchiveError, match=r"/a .* cluster mine, .* cluster its at k:1;"):
        refuse_other_cluster("/a", "mine", named | {"cluster_id": "its"})
    assert cluster_text(named) == cluster_text(named | {"cluster_id": ""}) == "k:1"


def test_untold() -> None:
    """What Kafka doesn't tell is said, once for all topics."""
    assert untold("cluster", {"a": ID, "b": f"{ID}~2"}) == []
    [five] = untold("cluster", {f"t{n}": NO_TOPIC_ID for n in (4, 3, 2, 1, 0)})
    assert "no topic id of t0, t1, t2, t3, t4: whether" in five
    [topics, cluster] = untold("", {"a": ID} | {f"t{n}": NO_TOPIC_ID for n in range(7)})
    assert "no topic id of t0, t1, t2, t3, t4 and 2 more" in topics
    assert "no cluster id" in cluster
