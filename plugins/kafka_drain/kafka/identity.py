"""The identity of a cluster, a topic and its log, and its limits. Opens nothing.

Kafka gives topics ids since release 2.8; brokers before that, and compatible services, answer with
zeros, and some have no cluster id. That is no id: two of them aren't the same.

An archive counts a topic by its id. If a topic's log was rewritten, though Kafka has the same id,
the archive goes on with another incarnation: the id and a number, such as `…~2`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_drain.errors import ArchiveError

#: Topic id in answers of a broker without topic ids (`Uuid.ZERO_UUID`).
NO_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAA"

#: Values of earlier releases for a cluster without an id.
_NO_CLUSTER_ID = ("", "None")

_INCARNATION = "~"


@dataclass(frozen=True, slots=True)
class SeenRecord:
    """A record as Kafka has it.

    Attributes:
        hashes: Its xxHash64 as in fingerprints, in hexadecimal: with its headers, and without.
        leader_epoch: The epoch of the leader that appended it; None if Kafka doesn't say.
    """

    offset: int
    hashes: frozenset[str]
    leader_epoch: int | None


def topic_id_of(counted: str) -> str:
    """Return the id that Kafka gave a topic, without the number of its incarnation."""
    return counted.partition(_INCARNATION)[0]


def is_told(topic_id: str) -> bool:
    """Return whether Kafka has told a topic's id."""
    return topic_id_of(topic_id) not in ("", NO_TOPIC_ID)


def is_other_topic(known: str, seen: str) -> bool:
    """Return whether two ids are of different topics; False if that can't be told.

    Args:
        known: An id, with or without an incarnation.
        seen: The id that Kafka gives now.
    """
    return is_told(known) and is_told(seen) and topic_id_of(known) != topic_id_of(seen)


def is_other_cluster(known: str, seen: str) -> bool:
    """Return whether two ids are of different clusters; False if that can't be told."""
    return is_told_cluster(known) and is_told_cluster(seen) and known != seen


def is_told_cluster(cluster_id: str) -> bool:
    """Return whether Kafka has told a cluster's id."""
    return cluster_id not in _NO_CLUSTER_ID


def counted_as(archived: str | None, seen: str) -> str:
    """Return the id by which an archive counts a topic that Kafka has.

    Args:
        archived: The id of the topic in the archive; None if it doesn't know the topic.
        seen: The id that Kafka gives, or that an archive has counted it by already.
    """
    if archived is None or _INCARNATION in seen or is_other_topic(archived, seen):
        return seen
    return archived


def earlier_incarnations(counted: str) -> list[str]:
    """Return the ids by which an archive counted a topic before, from the newest back."""
    topic_id, _, number = counted.partition(_INCARNATION)
    numbers = range(int(number or 1) - 1, 0, -1)
    return [f"{topic_id}{_INCARNATION}{n}" if n > 1 else topic_id for n in numbers]


def next_incarnation(archived: str) -> str:
    """Return the id by which an archive counts a topic after its log was rewritten."""
    topic_id, _, number = archived.partition(_INCARNATION)
    return f"{topic_id}{_INCARNATION}{int(number or 1) + 1}"


def untold(cluster_id: str, topics: Mapping[str, str]) -> list[str]:
    """Name the ids that Kafka doesn't tell, and the changes that therefore go unnoticed.

    Args:
        cluster_id: The cluster's id.
        topics: Topic ids by topic.
    """
    lines = []
    names = sorted(name for name, topic_id in topics.items() if not is_told(topic_id))
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        lines.append(
            f"Kafka tells no topic id of {shown}: whether a topic was deleted and recreated can't "
            "be proven, only its newest archived record is compared. Kafka has topic ids since "
            "release 2.8"
        )
    if not is_told_cluster(cluster_id):
        lines.append(
            "Kafka tells no cluster id: whether it is the cluster of before can't be proven"
        )
    return lines


def cluster_text(named: Mapping[str, str]) -> str:
    """Return in words which cluster it is.

    Args:
        named: Its addresses, and its id if it told one; see `KafkaCluster.named`.
    """
    known, servers = named.get("cluster_id"), named["bootstrap_servers"]
    return f"cluster {known} at {servers}" if known else servers


def refuse_other_cluster(root: object, archived: str, named: Mapping[str, str]) -> None:
    """Refuse another cluster than the one that an archive was drained from.

    Args:
        archived: The id that the archive has.
        named: Addresses and id of the cluster that the connection leads to.

    Raises:
        ArchiveError: Names both.
    """
    if is_other_cluster(archived, named.get("cluster_id", "")):
        raise ArchiveError(
            f"{root} was drained from Kafka cluster {archived}, but the connection leads to "
            f"{cluster_text(named)}; correct the connection"
        )
