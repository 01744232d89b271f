"""The topic ids that Kafka has, and those that a drain saw when Spark had read."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka_drain.archive.documents import ReadFromDocument
from kafka_drain.archive.generation import Generation
from kafka_drain.errors import TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.topic_incarnations import made_again, other_incarnations


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
    document = ReadFromDocument(last_batch=seen.last_batch, topics=dict(seen.topics))
    document.write(generation.folder / "read_from.json")


def read_from(generation: Generation) -> ReadFrom | None:
    """Return the topic ids recorded by the newest drain that finished.

    Returns:
        None when there is no readable record: Kafka's current topic ids are decisive then.
    """
    found = ReadFromDocument.read_note(generation.folder / "read_from.json")
    return ReadFrom(found.last_batch, found.topics) if found else None


def topic_ids_now(cluster: KafkaCluster, names: Collection[str]) -> dict[str, str]:
    """Ask Kafka for the ids of the topics that exist.

    Raises:
        AuthorizationError: When describing a topic isn't permitted.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    return {name: topic.id for name, topic in cluster.topics(cluster.existing(names)).items()}


def refuse_other_incarnations(cluster: KafkaCluster, meant: Mapping[str, str], what: str) -> None:
    """Refuse Spark's batches unless their topics are still the expected ones.

    Args:
        cluster: The cluster it was read from.
        meant: The topics that were read, with their ids before the read.
        what: The consequence and what to do; ends the error message.

    Raises:
        TopicError: Names the topics of which another incarnation may have been read.
        KafkaUnavailableError: When Kafka doesn't respond.
    """
    now = topic_ids_now(cluster.counting(meant), meant)
    other = other_incarnations(meant, meant, {}, now)
    if other:
        raise TopicError(f"{made_again(other)}: {what}")
