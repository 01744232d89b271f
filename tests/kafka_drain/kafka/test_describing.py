"""What a cluster's answers and errors come to."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    ConfigEntry,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
)

from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster_state import Acl, Part, PartOutcome
from kafka_drain.kafka.describing import ClusterDescriber, _topic_state, outcome_of


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, PartOutcome.NOT_AUTHORISED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, PartOutcome.NOT_AUTHORISED),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, PartOutcome.NOT_AUTHORISED),
        (KafkaError.UNSUPPORTED_VERSION, PartOutcome.UNSUPPORTED),
        (KafkaError._UNSUPPORTED_FEATURE, PartOutcome.UNSUPPORTED),
        (KafkaError.INVALID_REQUEST, PartOutcome.UNSUPPORTED),
        (KafkaError.SECURITY_DISABLED, PartOutcome.UNSUPPORTED),
        (KafkaError._TIMED_OUT, PartOutcome.UNANSWERED),
        (KafkaError._TRANSPORT, PartOutcome.UNANSWERED),
        (KafkaError.NOT_COORDINATOR, PartOutcome.UNANSWERED),
    ],
)
def test_outcome_of(code: int, outcome: PartOutcome) -> None:
    """Missing rights and missing requests are told from a broker that doesn't answer."""
    assert outcome_of(code) == outcome


def test_topic_state_config() -> None:
    """What is set on the topic and by brokers is kept apart; defaults and secrets are left out."""
    own, static = ConfigSource.DYNAMIC_TOPIC_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
    entries = [
        ConfigEntry("retention.ms", "5", own.value),
        ConfigEntry("cleanup.policy", "compact", own.value),
        ConfigEntry("min.insync.replicas", "2", static.value),
        ConfigEntry("max.message.bytes", "9", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value),
        ConfigEntry("segment.bytes", "7", ConfigSource.DEFAULT_CONFIG.value, is_default=True),
        ConfigEntry("secret", "x", own.value, is_sensitive=True),
        ConfigEntry("none", None, own.value),
    ]
    partition = SimpleNamespace(replicas=[1, 2])
    described = SimpleNamespace(topic_id="id", partitions=[partition, SimpleNamespace(replicas=[])])

    found = _topic_state("orders", described, entries)

    assert [*found.config.items()] == [("cleanup.policy", "compact"), ("retention.ms", "5")]
    assert found.inherited == {"max.message.bytes": "9", "min.insync.replicas": "2"}
    assert (found.partitions, found.replication_factor, found.id) == (2, 2, "id")


def answered(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(answer)
    return future


class AclsOnly:
    """A cluster with an ACL on a topic and one on a group."""

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(cluster_id="c")

    def describe_cluster(self, **_: object) -> Future[Any]:
        allowed = [AclOperation.DESCRIBE]
        return answered(SimpleNamespace(cluster_id="c", authorized_operations=allowed))

    def describe_acls(self, *_: object, **__: object) -> Future[Any]:
        allows = (AclOperation.READ, AclPermissionType.ALLOW)
        return answered(
            [
                AclBinding(kind, name, ResourcePatternType.LITERAL, "User:a", "*", *allows)
                for kind, name in ((ResourceType.TOPIC, "t"), (ResourceType.GROUP, "g"))
            ]
        )


@pytest.mark.parametrize(
    ("about", "expected", "detail"),
    [
        (None, {"t"}, "without those on groups, which weren't captured"),
        (lambda acl: acl.is_about(["t"], ["g"]), {"t", "g"}, ""),
        (lambda acl: acl.is_about([], ["g"]), {"g"}, ""),
    ],
)
def test_describe_acls(
    about: Callable[[Acl], bool] | None, expected: set[str], detail: str
) -> None:
    """Without the groups it isn't known which ACLs on groups count, unless that is said."""
    describer = ClusterDescriber(KafkaConfig({"bootstrap.servers": "x:1"}))
    describer.__dict__["_admin"] = AclsOnly()

    found = describer.describe(["t"], [Part.ACLS], about)

    assert {acl.name for acl in found.settings.acls or ()} == expected
    assert (found.parts[Part.ACLS].outcome, found.parts[Part.ACLS].detail) == (
        PartOutcome.CAPTURED,
        detail,
    )
