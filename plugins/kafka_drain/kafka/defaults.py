"""Settings that no topic names: Kafka's defaults, and what its brokers set. Opens nothing.

A description of a cluster has what topics and brokers set, and so not what was Kafka's default.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_drain.kafka.keeping import BEFORE, DIFFERENCE

_ANY_TIME = str((1 << 63) - 1)

#: Kafka's defaults of the settings by which a topic loses or refuses records, as its documentation
#: has them ("Topic Configs", from 2.5 on). That of `message.timestamp.after.max.ms`, which has
#: changed in 4.0 (KIP-1030), isn't known of a cluster.
DEFAULTS: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": _ANY_TIME,
    "max.message.bytes": "1048588",
    BEFORE: _ANY_TIME,
    DIFFERENCE: _ANY_TIME,
    "message.timestamp.type": "CreateTime",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    # Nothing judges it, but the file that Kafka comes with sets it to its default.
    "segment.bytes": "1073741824",
    "unclean.leader.election.enable": "false",
}

#: The brokers' names of settings, where they aren't `log.` and the topics' name.
_OF_BROKERS = {
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


def inherited_from(broker: Mapping[str, str]) -> dict[str, str]:
    """Return what a topic inherits from a broker, of the settings whose defaults are known.

    Args:
        broker: The broker's settings; empty if it doesn't tell them.
    """
    if not broker:
        return {}
    theirs = {name: _OF_BROKERS.get(name, f"log.{name}") for name in DEFAULTS}
    told = {name: broker[there] for name, there in theirs.items() if there in broker}
    return {**told, "retention.ms": str(retention_of(broker))}


def retention_of(broker: Mapping[str, str]) -> int:
    """Return the `retention.ms` that a topic inherits; a broker has three settings for it."""
    units = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}
    told = {f"log.retention.{unit}": factor for unit, factor in units.items()}
    # The first one that is set counts.
    found = (int(broker[name]) * factor for name, factor in told.items() if name in broker)
    return next(found, int(DEFAULTS["retention.ms"]))
