"""Changes of a topic or of access that make records or their cluster less safe. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_drain.kafka.cluster_state import Acl, TopicState
from kafka_drain.kafka.defaults import DEFAULTS
from kafka_drain.kafka.keeping import AFTER, BEFORE, DIFFERENCE

#: Kafka's value for no limit.
_NO_LIMIT = -1

_REFUSES = "refuses records that it takes now"
_COMPACTS = "compacts records sooner"
#: Settings whose lower values are less safe, each with its effect.
_LOWER = {
    "min.insync.replicas": "acknowledges records that fewer replicas hold",
    "max.message.bytes": _REFUSES,
    "delete.retention.ms": "forgets deletions sooner",
    "min.compaction.lag.ms": _COMPACTS,
    "max.compaction.lag.ms": _COMPACTS,
    BEFORE: _REFUSES,
    AFTER: _REFUSES,
    DIFFERENCE: _REFUSES,
}
#: The same, where -1 means no limit.
_LIMITS = {
    "retention.ms": "deletes records that it keeps now",
    "retention.bytes": "deletes records that it keeps now",
}


def lowered_by(name: str, now: str | None, then: str) -> str:
    """Return the harm to a topic once a setting has another value; empty for none.

    Args:
        name: Name of the setting.
        now: Its value now; None if it isn't known.
        then: Its value afterwards.
    """
    if now is None or now == then:
        return ""
    if name == "unclean.leader.election.enable":
        return "may lose acknowledged records" if then == "true" else ""
    if name == "message.timestamp.type":
        return "replaces the timestamps of records" if then == "LogAppendTime" else ""
    if name == "cleanup.policy":
        more = sorted(_words(then) - _words(now))
        return f"removes records by {' and '.join(more)}" if more else ""
    if name in _LIMITS:
        return _LIMITS[name] if _limit(then) < _limit(now) else ""
    if name in _LOWER:
        return _LOWER[name] if int(then) < int(now) else ""
    return ""


def lost_defaults(topic: TopicState, brokers: Mapping[str, str]) -> dict[str, str]:
    """Return Kafka's defaults that a topic had, and that brokers replace by something less safe.

    Args:
        topic: The archived topic.
        brokers: What a topic inherits from the target's brokers.
    """
    return {
        name: default
        for name, default in DEFAULTS.items()
        if name not in topic.effective and lowered_by(name, default, brokers.get(name, default))
    }


def _limit(value: str) -> float:
    number = int(value)
    return float("inf") if number == _NO_LIMIT else number


def _words(value: str) -> set[str]:
    return {word.strip() for word in value.split(",") if word.strip()}


def opened_by(acl: Acl) -> str:
    """Return the access that an ACL opens beyond a user and a topic or group; empty for none."""
    if acl.permission != "allow":
        return ""
    if acl.principal == "User:*":
        return "allows everybody"
    if acl.resource == "cluster" and acl.operation in ("all", "alter", "cluster_action"):
        return "allows to change the whole cluster, ACLs included"
    if acl.resource == "cluster" and acl.operation == "alter_configs":
        return "allows to change the brokers' settings, and quotas"
    return ""
