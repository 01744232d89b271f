"""Check whether Spark read the archive's topic, or a later incarnation of it with the same name.

A topic that is deleted and recreated gets a new id, and ids are never reused: a topic with the same
id before and after Spark's read was the same topic throughout. The drain therefore asks again when
Spark has finished and records the ids; validation doesn't seal a batch whose topic is in doubt.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from kafka_drain.archive.generation import Generation
from kafka_drain.errors import TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.storage.json_files import read_note, write_document

__all__ = [
    "Life",
    "ReadFrom",
    "life_of",
    "made_again",
    "other_lives",
    "read_from",
    "refuse_other_lives",
    "topic_ids_now",
    "write_read_from",
]


class Life(str, Enum):
    """Which incarnation of a topic Spark has read."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return str(self.value)


def life_of(meant: str | None, after_read: str | None, now: str | None) -> Life:
    """Return which incarnation of a topic was read, given that preflight saw the expected one.

    Args:
        meant: The topic id in the archive; None when it has none.
        after_read: The topic id after Spark had read; None when no drain recorded it.
        now: The current topic id; None when the topic no longer exists.
    """
    if meant is None:
        return Life.UNKNOWN
    if after_read is not None:
        return Life.SAME if after_read == meant else Life.OTHER
    # It may have been recreated before or after it was read.
    return Life.SAME if now == meant else Life.UNKNOWN


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """The topic ids that a drain saw after Spark had read.

    Attributes:
        last_batch: The last batch that had been read by then.
        topics: Topic ids by topic.
    """

    last_batch: int
    topics: Mapping[str, str]


def write_read_from(generation: Generation, seen: ReadFrom) -> None:
    """Record the topic ids that a drain saw after Spark had read."""
    document = {"last_batch": seen.last_batch, "topics": dict(seen.topics)}
    write_document(generation.folder / "read_from.json", document)


def read_from(generation: Generation) -> ReadFrom | None:
    """Return the topic ids recorded by the newest drain that finished.

    Returns:
        None when there is no readable record: Kafka's current topic ids are decisive then.
    """
    found = read_note(generation.folder / "read_from.json", "last_batch", "topics")
    if found is None:
        return None
    last_batch, topics = found["last_batch"], found["topics"]
    if type(last_batch) is not int or not isinstance(topics, dict):
        return None
    return ReadFrom(last_batch, topics)


def topic_ids_now(cluster: KafkaCluster, names: Collection[str]) -> dict[str, str]:
    """Ask Kafka for the ids of the topics that exist.

    Raises:
        AuthorizationError: When describing a topic isn't permitted.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    # The list leaves out internal topics, which aren't recreated.
    listed = {name for name in names if name.startswith("__")}.union(cluster.topic_names())
    there = cluster.topics(set(names) & listed)
    return {name: topic.id for name, topic in there.items()}


def other_lives(
    meant: Mapping[str, str],
    names: Collection[str],
    after_read: Mapping[str, str | None],
    now: Mapping[str, str],
) -> list[str]:
    """Describe the topics of which another incarnation may have been read, with the ids seen.

    Args:
        meant: The topic ids in the archive.
        names: The topics that were read.
        after_read: The topic ids after Spark had read, as far as a drain recorded them.
        now: The current ids of the topics that exist.
    """
    found = []
    for name in sorted(names):
        seen = after_read.get(name)
        if life_of(meant.get(name), seen, now.get(name)) == Life.SAME:
            continue
        is_there = seen or now.get(name)
        what = f"has topic id {is_there}" if is_there else "no longer exists"
        found.append(f"{name} {what}, the archive has {meant.get(name)}")
    return found


def refuse_other_lives(cluster: KafkaCluster, meant: Mapping[str, str], what: str) -> None:
    """Refuse what Spark has read unless its topics are still the expected ones.

    Args:
        cluster: The cluster it was read from.
        meant: The topics that were read, with their ids before the read.
        what: The consequence and what to do; ends the error message.

    Raises:
        TopicError: Names the topics of which another incarnation may have been read.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    other = other_lives(meant, meant, {}, topic_ids_now(cluster, meant))
    if other:
        raise TopicError(f"{made_again(other)}: {what}")


def made_again(other: Collection[str]) -> str:
    """Describe what happened to topics of which another incarnation may have been read."""
    return (
        f"a topic was deleted or recreated while it was being drained: {'; '.join(other)}. Spark "
        "may have read a different topic than the archive's"
    )
