"""What a made-up cluster answers."""

from __future__ import annotations

from kafka_drain.kafka.cluster_state import (
    Acl,
    Broker,
    ClusterState,
    GroupOffset,
    GroupState,
    Part,
    PartOutcome,
    PartResult,
    ScramUser,
    Settings,
    TopicState,
)

SETTINGS = Settings(
    brokers=(Broker(1, "kafka", 9092, None),),
    topics=(
        TopicState("orders", "id-1", 2, 1, {"retention.ms": "-1"}, {"min.insync.replicas": "1"}),
    ),
    acls=(Acl("topic", "orders", "literal", "User:a", "*", "read", "allow"),),
    users=(ScramUser("a", "SCRAM-SHA-512", 4096),),
)


def group(offset: int) -> GroupState:
    """A group that has read up to an offset."""
    offsets = (GroupOffset("orders", 0, offset, None, ""),)
    return GroupState("billing", "classic", "empty", offsets)


def state(offset: int = 1, settings: Settings = SETTINGS, **outcomes: PartOutcome) -> ClusterState:
    """A cluster with one group; a part has another outcome than captured if one is given."""
    parts = {part: PartResult(outcomes.get(str(part), PartOutcome.CAPTURED), "") for part in Part}
    return ClusterState("cluster-1", parts, settings, (group(offset),))


CLUSTER = state()
