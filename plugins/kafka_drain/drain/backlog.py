"""Measure the backlog of a pipeline's topics, and how soon Kafka may delete it.

A look at the archive gives the cursor; with that, a measurement asks Kafka alone, so that it can be
repeated by a process that can't read the archive.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from kafka_drain.archive.watermarks import Observations, read_observations
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.watch import Watch
from kafka_drain.drain.preflight import preflight
from kafka_drain.drain.urgency import Backlog
from kafka_drain.errors import ConfigError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition, from_spark_json, to_spark_json
from kafka_drain.storage.lease import SECONDS, find_lease

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Watched:
    """All that a measurement has to know of a pipeline.

    Attributes:
        pipeline: Its name.
        kafka_conn_id: Airflow connection of its cluster.
        isolation_level: `read_committed` or `read_uncommitted`.
        watch: Its limits.
        cursor: Start of the next drain. Drains only move it forward, so that an old one overstates
            what isn't drained.
        retention: `retention.ms` of each topic that deletes records by age.
        first: Kafka's first offsets at the last validation; empty if there was none.
        first_at: When that was, in seconds since 1970.
    """

    pipeline: str
    kafka_conn_id: str
    isolation_level: str
    watch: Watch
    cursor: Offsets
    retention: dict[str, int]
    first: Offsets
    first_at: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types."""
        return {
            "pipeline": self.pipeline,
            "kafka_conn_id": self.kafka_conn_id,
            "isolation_level": self.isolation_level,
            "watch": self.watch.model_dump(),
            "cursor": to_spark_json(self.cursor),
            "retention": self.retention,
            "first": to_spark_json(self.first),
            "first_at": self.first_at,
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> Watched:
        """Parse a document from `to_dict`."""
        offsets = {name: from_spark_json(document[name]) for name in ("cursor", "first")}
        return cls(**{**document, **offsets, "watch": Watch(**document["watch"])})


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a pipeline.

    Attributes:
        watched: The input for repeating the measurement.
        backlog: Offsets that aren't drained yet.
        busy: The drain that holds the archive's lease, in words; empty for none.
    """

    watched: Watched
    backlog: Backlog
    busy: str


def look(pipeline: Pipeline, cluster: KafkaCluster, now: datetime) -> Look:
    """Look at a pipeline's archive and topics; changes nothing.

    Raises:
        ConfigError: When the pipeline has no `watch`.
        KafkaDrainError: When a drain would raise it before it starts Spark.
    """
    if pipeline.watch is None:
        raise ConfigError(
            f"pipeline {pipeline.name!r} has no watch; add watch={{'hours_to_expiry': 12}}"
        )
    plan = preflight(pipeline, cluster, clock=lambda: now)
    first, first_at = _first(read_observations(plan.archive), plan.start)
    watched = Watched(
        pipeline=pipeline.name,
        kafka_conn_id=pipeline.kafka_conn_id,
        isolation_level=pipeline.isolation_level,
        watch=pipeline.watch,
        cursor=plan.start,
        retention=_retention(cluster, plan.topics),
        first=first,
        first_at=first_at,
    )
    lease = find_lease(plan.archive.root)
    is_held = lease is not None and lease.ends_at(timedelta(seconds=SECONDS)) > now
    busy = f"the archive is being written by {lease}" if is_held else ""
    return Look(watched, measure(cluster, watched, now), busy)


def measure(cluster: KafkaCluster, watched: Watched, now: datetime) -> Backlog:
    """Measure the backlog, by Kafka's answers alone.

    Raises:
        KafkaUnavailableError: When Kafka doesn't respond.
        TopicError: When a topic is gone.
    """
    cursor = watched.cursor
    first = cluster.earliest(cursor)
    end = cluster.latest(cursor, watched.isolation_level)
    start = {tp: max(cursor[tp], first[tp]) for tp in cursor}
    waiting = [tp for tp in cursor if end[tp] > start[tp]]
    # An open transaction may hide offsets that were drained with another isolation level.
    short = [tp for tp in cursor if end[tp] < cursor[tp]]
    whole = cluster.latest(short, "read_uncommitted") if short else {}
    return Backlog(
        lag=sum(end[tp] - start[tp] for tp in waiting),
        expired={tp: first[tp] - cursor[tp] for tp in cursor if first[tp] > cursor[tp]},
        expiring=_expiring(cluster, watched, {tp: (start[tp], end[tp]) for tp in waiting}, now),
        reached_in={
            tp: max(cursor[tp] - first[tp], 0) * seconds / (first[tp] - watched.first[tp])
            for tp in waiting
            if (seconds := now.timestamp() - watched.first_at) > 0
            and first[tp] > watched.first.get(tp, first[tp])
        },
        cut={tp: cursor[tp] - at for tp, at in whole.items() if at < cursor[tp]},
    )


def _expiring(
    cluster: KafkaCluster,
    watched: Watched,
    waiting: dict[TopicPartition, tuple[int, int]],
    now: datetime,
) -> Offsets:
    """Return by partition how many of the waiting offsets may be deleted soon because of their age.

    Kafka deletes whole segments, each when its newest record has the age. So this is the earliest
    time at which a record may be deleted; it may be kept for a segment longer.
    """
    hours = watched.watch.hours_to_expiry
    if hours is None:
        return {}
    at = int((now.timestamp() + hours * 3600) * 1000)
    times = {
        tp: time
        for tp in waiting
        if tp.topic in watched.retention and (time := at - watched.retention[tp.topic]) > 0
    }
    # The first record that isn't as old; -1 if all are.
    younger = cluster.at_times(times)
    old = {
        tp: (end if younger[tp] < 0 else min(younger[tp], end)) - start
        for tp, (start, end) in waiting.items()
        if tp in times
    }
    return {tp: offsets for tp, offsets in old.items() if offsets > 0}


def _retention(cluster: KafkaCluster, topics: Collection[str]) -> dict[str, int]:
    """Return `retention.ms` of the topics that delete records by age."""
    found = {}
    for name in sorted(topics):
        config = cluster.topic_config(name)
        kept = int(config.get("retention.ms", -1))
        if kept >= 0 and "delete" in config.get("cleanup.policy", "delete"):
            found[name] = kept
    return found


def _first(observed: Observations, cursor: Offsets) -> tuple[Offsets, float]:
    """Return Kafka's first offsets at the last validation, and its time."""
    at = max((seen.at for seen in observed.values()), default=0.0)
    newest = {tp: seen.earliest for tp, seen in observed.items() if seen.at == at}
    return {tp: newest[tp] for tp in cursor if tp in newest}, at
