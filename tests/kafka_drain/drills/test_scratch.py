"""Scratch topics: names, settings, and what may be removed."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timezone
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillStarted
from kafka_drain.archive.drills import unfinished_drills
from kafka_drain.drills.scratch import Scratch, remove_leftovers, scratch_name, scratch_settings
from kafka_drain.errors import KafkaUnavailableError, TopicError
from kafka_drain.kafka.cluster import Topic
from kafka_drain.kafka.keeping import KEEPING
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.republish.planning.runs import RepublishRun
from tests.kafka_drain.republish.planning.test_previous_runs import note, plan_of

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
DRILL = "20260101T000000Z-00000001"
SETTINGS = TopicSettings(2, 1)


class Topics:
    """The topics of a cluster, by name, with their ids."""

    def __init__(self, **there: str) -> None:
        self.there = there
        self.fails_at = ""
        self.stuck: set[str] = set()

    def cluster_id(self) -> str:
        return "cluster-1"

    def existing(self, names: Collection[str]) -> set[str]:
        return {*names} & self.there.keys()

    def create_topic(self, name: str, settings: TopicSettings) -> None:
        if name == self.fails_at:
            raise TopicError("no room")
        self.there[name] = f"id of {name}"

    def topics(self, names: list[str]) -> dict[str, Topic]:
        return {name: Topic(name, self.there[name], (0,)) for name in names}

    def delete_topic(self, name: str, topic_id: str | None = None) -> bool:
        if name in self.stuck:
            raise KafkaUnavailableError("gone away")
        if name not in self.there or topic_id not in (None, self.there[name]):
            return False
        del self.there[name]
        return True


class Groups:
    """Consumer groups that were deleted."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def delete(self, group: str) -> None:
        self.deleted.append(group)


def scratch(archive: Archive, topics: Any, **changes: str) -> Scratch:
    """A drill that has made nothing yet."""
    started = {"drill": DRILL, "started_at": "now", "cluster_id": "cluster-1", "run": "run"}
    document = {"format_version": 1, "topics": {}, **started, **changes}
    return Scratch(archive, topics, DrillStarted.model_validate(document))


GROUPS: Any = Groups()


def test_scratch_name() -> None:
    """A name tells prefix, drill and topic; a name too long for Kafka is cut and distinct."""
    assert scratch_name("p", DRILL, "flights") == f"p.{DRILL}.flights"
    long = [scratch_name("p", DRILL, "t" * 240 + end) for end in "ab"]

    assert [len(name) for name in long] == [249, 249]
    assert long[0] != long[1]
    # The longest name that Kafka takes is whole.
    left = "t" * (249 - len(f"p.{DRILL}."))
    assert scratch_name("p", DRILL, left) == f"p.{DRILL}.{left}"


def test_scratch_settings() -> None:
    """A scratch topic takes whatever a restored one takes; the user's settings win over all."""
    source = TopicSettings(
        3,
        2,
        config={
            "max.message.bytes": "5",
            "compression.type": "zstd",
            "min.insync.replicas": "2",
            "cleanup.policy": "compact",
            "retention.ms": "1",
        },
    )
    found = scratch_settings(source, 2, {"max.message.bytes": "4"}, KEEPING)

    assert (found.partitions, found.replication_factor) == (3, 2)
    assert found.config == {**KEEPING, "compression.type": "zstd", "max.message.bytes": "4"}
    # A cluster that doesn't take any size.
    assert scratch_settings(source, 2, {}, {"retention.ms": "-1"}).config == {
        "max.message.bytes": "5",
        "compression.type": "zstd",
        "retention.ms": "-1",
    }
    assert scratch_settings(source, 9, {}, {}).partitions == 9
    # A cluster may have one broker only.
    assert scratch_settings(None, 4, {}, {}) == TopicSettings(4, 1)


def test_scratch(archive: Archive) -> None:
    """What a drill creates is noted with its ids, and removed; nothing else is."""
    topics: Any = Topics(flights="id of flights")
    made = scratch(archive, topics)
    made.create({"a": SETTINGS, "b": SETTINGS})
    [noted] = unfinished_drills(archive.root)

    assert noted.topics == {"a": "id of a", "b": "id of b"}
    assert made.remove(GROUPS, NOW) == []
    assert topics.there == {"flights": "id of flights"}
    assert unfinished_drills(archive.root) == []


def test_scratch_existing(archive: Archive) -> None:
    """A topic that exists is refused, and neither noted nor removed."""
    topics: Any = Topics(a="mine")
    made = scratch(archive, topics)
    with pytest.raises(TopicError, match="topic a exists, and this drill didn't create it"):
        made.create({"a": SETTINGS, "b": SETTINGS})

    assert made.remove(GROUPS, NOW) == []
    assert topics.there == {"a": "mine"}
    assert unfinished_drills(archive.root) == []


def test_scratch_recreated(archive: Archive) -> None:
    """A topic of the same name that somebody else has created since is left alone."""
    topics: Any = Topics()
    made = scratch(archive, topics)
    made.create({"a": SETTINGS})
    topics.there["a"] = "another"

    assert made.remove(GROUPS, NOW) == []
    assert topics.there == {"a": "another"}


def test_scratch_create_fails(archive: Archive) -> None:
    """If Kafka refuses one topic of several, the others are removed by their names."""
    topics: Any = Topics()
    topics.fails_at = "b"
    made = scratch(archive, topics)
    with pytest.raises(TopicError, match="no room"):
        made.create({"a": SETTINGS, "b": SETTINGS})

    [noted] = unfinished_drills(archive.root)
    assert noted.topics == {"a": "", "b": ""}
    assert made.remove(GROUPS, NOW) == []
    assert topics.there == {}


@pytest.mark.parametrize("stuck", [set(), {"a"}])
@pytest.mark.parametrize("is_done", [False, True])
def test_scratch_progress(archive: Archive, is_done: bool, stuck: set[str]) -> None:
    """The groups of a drill's run go with its topics, and nobody has to keep an unfinished one.

    While a topic is left, the run isn't given up.
    """
    topics: Any = Topics()
    groups: Any = Groups()
    made = scratch(archive, topics)
    made.create({"a": SETTINGS, "b": SETTINGS})
    plan = plan_of("run")
    note(archive.state, plan, is_done=is_done)
    topics.stuck = stuck

    assert made.remove(groups, NOW) == sorted(stuck)

    assert set(topics.there) == stuck
    assert groups.deleted == [plan.attempts.group, "g"]
    assert RepublishRun(archive.state, "run").is_abandoned is not (is_done or bool(stuck))
    assert len(unfinished_drills(archive.root)) == len(stuck)


def test_scratch_progress_unknown(archive: Archive) -> None:
    """The damaged plan of a drill's run, or groups that can't be deleted, keep no topic there."""

    class Refusing:
        def delete(self, group: str) -> None:
            raise KafkaUnavailableError("gone away")

    groups: Any = Refusing()
    for damaged in (False, True):
        topics: Any = Topics()
        made = scratch(archive, topics, run=f"run-{damaged}")
        made.create({"a": SETTINGS})
        note(archive.state, plan_of(f"run-{damaged}"), is_done=False)
        if damaged:
            path = RepublishRun(archive.state, "run-True").folder / "plan.json"
            path.write_bytes(b"{}")

        assert made.remove(groups, NOW) == []
        assert topics.there == {}
        assert unfinished_drills(archive.root) == []


def test_remove_leftovers(archive: Archive, said: list[str]) -> None:
    """A killed drill's topics are removed by the next one, whenever it was killed."""
    topics: Any = Topics(flights="id")
    # Killed before it knew the ids, and later.
    scratch(archive, topics)._note({"a": "", "b": ""})
    topics.there["a"] = "id of a"
    scratch(archive, topics, drill="20260102T000000Z-00000002").create({"c": SETTINGS})
    remove_leftovers(archive, topics, GROUPS, NOW)

    assert topics.there == {"flights": "id"}
    assert unfinished_drills(archive.root) == []
    assert [line.partition(": ")[2] for line in said] == ["removed what was left"] * 2


def test_remove_leftovers_later(archive: Archive, said: list[str]) -> None:
    """What can't be removed, or is in another cluster, stays noted."""
    topics: Any = Topics()
    scratch(archive, topics).create({"a": SETTINGS})
    scratch(archive, topics, drill="20260102T000000Z-00000002", cluster_id="other")._note({"b": ""})
    topics.stuck = {"a"}
    topics.there["b"] = "mine"
    remove_leftovers(archive, topics, GROUPS, NOW)

    assert len(unfinished_drills(archive.root)) == 2
    assert set(topics.there) == {"a", "b"}
    assert "could not remove a" in said[0]
    assert "in cluster other" in said[1]
