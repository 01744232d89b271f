"""Scratch topics: their names and settings, and their removal by a drill's notes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import DrillStarted
from kafka_drain.archive.drills import forget_started, unfinished_drills, write_started
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.errors import KafkaDrainError, TopicError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from kafka_drain.kafka.identity import is_other_cluster
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.output import Level, Line, say
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.planning.targets import LONGEST_NAME
from kafka_drain.storage.paths import exists

#: Settings of the source that a restore depends on; a scratch topic gets no other. A cluster may
#: refuse to take records of any size.
_LIKE_SOURCE = ("max.message.bytes", "compression.type")


def scratch_name(prefix: str, drill: str, topic: str) -> str:
    """Return the name of a topic's scratch topic, which no other drill uses.

    A name that Kafka wouldn't take is cut and made distinct by a hash.
    """
    name = f"{prefix}.{drill}.{topic}"
    if len(name) <= LONGEST_NAME:
        return name
    digest = hashlib.sha256(topic.encode()).hexdigest()[:16]
    return f"{name[: LONGEST_NAME - 17]}.{digest}"


def scratch_settings(
    known: TopicSettings | None,
    partitions: int,
    config: Mapping[str, str],
    keeping: Mapping[str, str],
) -> TopicSettings:
    """Return the settings of a scratch topic.

    Args:
        known: Settings of the source topic; None if the archive doesn't have them.
        partitions: Number of partitions that the records need.
        config: Settings that the user gives; they win.
        keeping: Settings with which a topic takes and keeps restored records.
    """
    source = known or TopicSettings(partitions, replication_factor=1)
    like = {name: source.config[name] for name in _LIKE_SOURCE if name in source.config}
    return replace(
        source, partitions=max(source.partitions, partitions), config={**like, **keeping, **config}
    )


def refuse_drained(snapshot: Snapshot, cluster_id: str, names: Iterable[str]) -> None:
    """Refuse scratch topics that the archive's own pipeline would drain.

    A drain that sees one would archive its records, and the next ones are refused once it is gone.

    Args:
        cluster_id: The cluster that gets the topics.
        names: Their names.

    Raises:
        TopicError: Names one of them, and the pattern that it matches.
    """
    pattern = snapshot.document.source.get("topic_pattern")
    if pattern is None or is_other_cluster(snapshot.document.cluster_id, cluster_id):
        return
    for name in names:
        if re.fullmatch(pattern, name):
            raise TopicError(
                f"the archive's topic_pattern {pattern!r} matches the scratch topic {name}: a "
                "drain would archive it, and drains would be refused once it is gone. Drill to "
                "another cluster, or choose a prefix that the pattern doesn't match. Nothing was "
                "created or sent"
            )


@dataclass
class Scratch:
    """The scratch topics of one drill.

    Attributes:
        archive: The archive, which holds the note of what the drill makes.
        cluster: The cluster that the topics are in.
        started: That note.
    """

    archive: Archive
    cluster: KafkaCluster
    started: DrillStarted

    def create(self, settings: Mapping[str, TopicSettings]) -> None:
        """Create the topics, after noting that they will be created.

        Raises:
            TopicError: When one exists already, or Kafka refuses; the existing one is left alone.
        """
        there = sorted(self.cluster.existing(settings.keys()))
        if there:
            raise TopicError(
                f"topic {', '.join(there)} exists, and this drill didn't create it; choose another "
                "prefix. Nothing was created or sent"
            )
        self._note(dict.fromkeys(settings, ""))
        for name, each in settings.items():
            self.cluster.create_topic(name, each)
        ids = {name: topic.id for name, topic in self.cluster.topics(list(settings)).items()}
        self._note(ids)

    def _note(self, topics: Mapping[str, str]) -> None:
        self.started = self.started.model_copy(update={"topics": dict(topics)})
        write_started(self.archive.state, self.started)

    def remove(self, groups: ConsumerGroups, now: datetime) -> list[str]:
        """Remove the topics and the progress of the drill's republish; return the leftovers.

        Only topics that the drill noted: by their ids, or by their names, which have the drill's
        random digits, if it was killed before it knew the ids.
        """
        left = []
        for name, topic_id in self.started.topics.items():
            try:
                self.cluster.delete_topic(name, topic_id or None)
            except KafkaDrainError:
                left.append(name)
        run = RepublishRun(self.archive.state, self.started.run)
        _remove_progress(run, groups)
        if not left:
            if exists(run.folder) and not run.has_ended:
                # Maintenance may remove its files: nobody will resume it.
                run.abandon(now)
            forget_started(self.archive.state, self.started.drill)
        return left


def _remove_progress(run: RepublishRun, groups: ConsumerGroups) -> None:
    """Remove the groups that hold a run's progress; Kafka forgets the rest with their topic."""
    with suppress(KafkaDrainError):
        plan = run.plan()
        for slot in [plan.attempts, *plan.slots] if plan is not None and plan.shards else []:
            groups.delete(slot.group)


def remove_leftovers(
    archive: Archive, cluster: KafkaCluster, groups: ConsumerGroups, now: datetime
) -> None:
    """Remove leftovers of killed drills from a cluster; the caller must hold the drills' lease."""
    cluster_id = cluster.cluster_id()
    for started in unfinished_drills(archive.state):
        if is_other_cluster(started.cluster_id, cluster_id):
            say(
                f"drill {started.drill} may have left topics in cluster {started.cluster_id}; a "
                "drill to that cluster removes them"
            )
            continue
        left = Scratch(archive, cluster, started).remove(groups, now)
        what = f"could not remove {', '.join(left)}" if left else "removed what was left"
        say(Line(f"drill {started.drill}: {what}", Level.WARNING if left else Level.PLAIN))
