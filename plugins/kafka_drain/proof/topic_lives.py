"""Whether what Spark read is of the topic that the archive means, or of one made again since.

A topic that is deleted and made again gets another id, and ids never come back: one that is the
same before Spark's read and after it was the same throughout. So the drain asks again when Spark
has ended, and leaves what it saw; validation seals no batch of which nobody can say it.
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
    """Which life of a topic Spark has read."""

    SAME = "same"
    OTHER = "other"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return str(self.value)


def life_of(meant: str | None, after_read: str | None, now: str | None) -> Life:
    """Say which life of a topic was read, after a drain whose preflight saw the one that is meant.

    Args:
        meant: The id that the archive has; None when it has none.
        after_read: The id that the topic had when Spark had read; None when nobody has asked.
        now: The id that it has; None when there is no such topic any more.
    """
    if meant is None:
        return Life.UNKNOWN
    if after_read is not None:
        return Life.SAME if after_read == meant else Life.OTHER
    # It may have been made again before it was read, or after that.
    return Life.SAME if now == meant else Life.UNKNOWN


@dataclass(frozen=True, slots=True)
class ReadFrom:
    """What a drain saw when Spark had read.

    Attributes:
        last_batch: The last batch that was read by then.
        topics: Topic ids by topic.
    """

    last_batch: int
    topics: Mapping[str, str]


def write_read_from(generation: Generation, seen: ReadFrom) -> None:
    """Leave what a drain saw when Spark had read."""
    document = {"last_batch": seen.last_batch, "topics": dict(seen.topics)}
    write_document(generation.folder / "read_from.json", document)


def read_from(generation: Generation) -> ReadFrom | None:
    """Return what the newest drain that came to its end saw.

    Returns:
        None when there was none, or what it left can't be read: what Kafka says now decides then.
    """
    found = read_note(generation.folder / "read_from.json", "last_batch", "topics")
    if found is None:
        return None
    last_batch, topics = found["last_batch"], found["topics"]
    if type(last_batch) is not int or not isinstance(topics, dict):
        return None
    return ReadFrom(last_batch, topics)


def topic_ids_now(cluster: KafkaCluster, names: Collection[str]) -> dict[str, str]:
    """Ask Kafka for the ids of those topics that exist.

    Raises:
        AuthorizationError: When a topic may not be described.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    # The list leaves out internal topics, which aren't made again.
    listed = {name for name in names if name.startswith("__")}.union(cluster.topic_names())
    there = cluster.topics(set(names) & listed)
    return {name: topic.id for name, topic in there.items()}


def other_lives(
    meant: Mapping[str, str],
    names: Collection[str],
    after_read: Mapping[str, str | None],
    now: Mapping[str, str],
) -> list[str]:
    """Say of which topics another life may have been read, each with the ids that were seen.

    Args:
        meant: The ids that the archive has.
        names: The topics that were read.
        after_read: The ids when Spark had read, where a drain has asked.
        now: The ids of those that exist.
    """
    found = []
    for name in sorted(names):
        seen = after_read.get(name)
        if life_of(meant.get(name), seen, now.get(name)) == Life.SAME:
            continue
        is_there = seen or now.get(name)
        what = f"has topic id {is_there}" if is_there else "doesn't exist any more"
        found.append(f"{name} {what}, the archive has {meant.get(name)}")
    return found


def refuse_other_lives(cluster: KafkaCluster, meant: Mapping[str, str], what: str) -> None:
    """Refuse what Spark has read, unless its topics are still those that were meant.

    Args:
        cluster: Where it was read from.
        meant: The topics that were read, with their ids before it.
        what: What isn't sealed then, for people.

    Raises:
        TopicError: Says of which topics another life may have been read, and what to do.
        KafkaUnavailableError: When Kafka doesn't answer.
    """
    other = other_lives(meant, meant, {}, topic_ids_now(cluster, meant))
    if other:
        raise TopicError(f"{made_again(other)}: {what}")


def made_again(other: Collection[str]) -> str:
    """Say in words what happened to topics of which another life may have been read."""
    return (
        f"a topic was deleted or made again while it was drained: {'; '.join(other)}. What Spark "
        "read may be of another topic than the archive's"
    )
