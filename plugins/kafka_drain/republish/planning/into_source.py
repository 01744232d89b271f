"""Decide whether records may go into a topic that this archive drains and that may hold them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.errors import TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import is_other_cluster, is_other_topic
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.runs import list_runs

#: The flag that allows it, in words.
IN_WORDS = "say --into-source (into_source in Airflow)"


@dataclass(frozen=True)
class Standing:
    """The relation of a target topic to the archive.

    Attributes:
        same_cluster: Whether it is in the cluster that the archive was drained from.
        is_archived: Whether the archive holds records of a topic of this name.
        is_matched: Whether the archive's topic_pattern matches its name.
        exists: Whether it exists.
        is_same_incarnation: Whether it is, by its topic id, a topic that was drained and wasn't
            recreated.
        holds_records: Whether it has offsets that may hold records.
    """

    same_cluster: bool
    is_archived: bool
    is_matched: bool
    exists: bool
    is_same_incarnation: bool
    holds_records: bool


class Verdict(Enum):
    """The effect of a republish into a topic."""

    #: The topic isn't a source of the archive.
    ELSEWHERE = "elsewhere"
    #: The source is gone or empty: each restored record is in it once.
    RESTORES = "restores"
    #: The source holds records, and the user asked to add to them.
    ASKED = "asked"
    #: A drain will archive what is sent, as records of another topic.
    DRAINED = "drained"
    #: The source still holds the archived records.
    HELD = "held"
    #: The source was recreated and holds records.
    RECREATED = "recreated"
    #: A follower would send the records it has sent, over and over.
    FEEDS_ITSELF = "feeds itself"

    @property
    def is_refused(self) -> bool:
        """Return whether nothing may be sent."""
        return self in (Verdict.HELD, Verdict.RECREATED, Verdict.FEEDS_ITSELF)


def judge(standing: Standing, *, is_asked: bool, follows: bool) -> Verdict:
    """Judge a republish into one topic.

    Args:
        standing: The topic's relation to the archive.
        is_asked: Whether the user explicitly allowed sending into the source.
        follows: Whether the run is a follower's, which also sends what is archived later.
    """
    if not standing.same_cluster:
        return Verdict.ELSEWHERE
    if standing.is_archived:
        if follows and not is_asked:
            return Verdict.FEEDS_ITSELF
        if not (standing.exists and standing.holds_records):
            return Verdict.RESTORES
        if is_asked:
            return Verdict.ASKED
        return Verdict.HELD if standing.is_same_incarnation else Verdict.RECREATED
    if not standing.is_matched:
        return Verdict.ELSEWHERE
    return Verdict.FEEDS_ITSELF if follows and not is_asked else Verdict.DRAINED


def check_sources(
    snapshot: Snapshot,
    cluster: KafkaCluster,
    targets: Iterable[str],
    *,
    is_asked: bool,
    follows: bool,
) -> list[str]:
    """Check the target topics; refuse sources of the archive that hold records.

    Args:
        snapshot: The archive that holds the records.
        cluster: The cluster they go to.
        targets: The target topics' names.
        is_asked: Whether the user explicitly allowed sending into the source.
        follows: Whether the run is a follower's.

    Returns:
        Notes for the user to read before sending.

    Raises:
        TopicError: Names the topic, what it holds, and what to do.
    """
    if is_other_cluster(snapshot.document.cluster_id, cluster.cluster_id()):
        return []
    notes = []
    existing = cluster.existing(targets)
    for name in sorted(targets):
        standing, seen = _look(snapshot, cluster, name, exists=name in existing)
        verdict = judge(standing, is_asked=is_asked, follows=follows)
        if verdict is Verdict.FEEDS_ITSELF:
            raise TopicError(_feeds_itself(name))
        if verdict.is_refused:
            raise TopicError(_held(verdict, name, seen + _restored(snapshot, cluster, name)))
        if verdict is not Verdict.ELSEWHERE:
            notes.append(_note(verdict, name, seen))
    return notes


def _look(
    snapshot: Snapshot, cluster: KafkaCluster, name: str, *, exists: bool
) -> tuple[Standing, str]:
    """Return the standing of a topic of the archive's own cluster, and the observation."""
    document = snapshot.document
    pattern = document.source.get("topic_pattern")
    incarnations = {id for topic, id in snapshot.topic_incarnations() if topic == name}
    known = {document.topics[name]} if name in document.topics else set()
    is_archived = bool(incarnations or known)
    id, offsets = "", 0
    if exists and is_archived:
        topic = cluster.topics([name])[name]
        partitions = [TopicPartition(name, partition) for partition in topic.partitions]
        first, end = cluster.earliest(partitions), cluster.latest(partitions, "read_uncommitted")
        id, offsets = topic.id, sum(end[tp] - first[tp] for tp in partitions)
    standing = Standing(
        same_cluster=True,
        is_archived=is_archived,
        is_matched=pattern is not None and re.fullmatch(pattern, name) is not None,
        exists=exists,
        is_same_incarnation=bool(id)
        and any(not is_other_topic(counted, id) for counted in incarnations | known),
        holds_records=offsets > 0,
    )
    return standing, (f"holds {offsets:,} offsets" if exists else "doesn't exist")


def _restored(snapshot: Snapshot, cluster: KafkaCluster, name: str) -> str:
    """Return a text that names the runs of this archive that have restored part of a topic."""
    id = cluster.topics([name])[name].id
    receipts = {run.key: run.receipt() for run in list_runs(snapshot.root) if run.has_ended}
    parts = [
        key
        for key, receipt in receipts.items()
        if receipt
        and any(
            sent.get("target_topic_id") == id and sent["target_topic"] == name
            for sent in receipt["sent"]
        )
    ]
    if not parts:
        return ""
    return (
        f" (run {', '.join(parts)} restored part of it; if it holds nothing else, continue with "
        f"the next part: {IN_WORDS})"
    )


def _feeds_itself(name: str) -> str:
    return (
        f"topic {name} is drained into this archive, so each run would send what the previous one "
        f"sent. Name a target that isn't, or {IN_WORDS}. Nothing was sent"
    )


def _held(verdict: Verdict, name: str, seen: str) -> str:
    held = (
        "records of this archive: they would be duplicated, and drained again"
        if verdict is Verdict.HELD
        else "records, although it was recreated after it was archived: they would be mixed with "
        "the restored ones, and drained again"
    )
    return (
        f"topic {name} is a source of this archive and {seen}, which may be {held}. Name another "
        f"target topic, restore when the source is gone or empty, or {IN_WORDS}. Nothing was sent"
    )


def _note(verdict: Verdict, name: str, seen: str) -> str:
    if verdict is Verdict.DRAINED:
        return (
            f"WARNING topic {name} matches this archive's topic_pattern: a drain will also archive "
            "what is sent to it"
        )
    again = "a drain will archive what is sent to it once more"
    if verdict is Verdict.ASKED:
        return f"WARNING topic {name} is a source of this archive and {seen}, as requested: {again}"
    return f"topic {name} is a source of this archive and {seen}: it is restored, and {again}"
