"""Changes of a cluster, as they are asked for; without a broker."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ResourcePatternType,
    ResourceType,
)

from kafka_drain.errors import AuthorizationError, TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_changes import ClusterChanges
from kafka_drain.kafka.cluster_state import Acl
from tests.kafka_drain.fake_admin import FakeAdmin

SECONDS = 7.0


class Broker:
    """Refuses some names, and notes what it is asked for.

    Attributes:
        refused: The code for each name.
        asked: What was asked for, and whether it was to be done.
    """

    def __init__(self, **refused: int) -> None:
        self.refused = refused
        self.asked: list[tuple[Any, bool]] = []

    def poll(self, _: float) -> int:
        return 0

    def _answer(self, *names: str) -> Future[Any]:
        future: Future[Any] = Future()
        if codes := [self.refused[name] for name in names if name in self.refused]:
            future.set_exception(KafkaException(KafkaError(codes[0], "why")))
        else:
            future.set_result(None)
        return future

    def create_acls(self, bindings: list[Any], *, request_timeout: float) -> dict[Any, Any]:
        assert request_timeout == SECONDS
        self.asked.append((bindings, True))
        return {each: self._answer(each.name) for each in bindings}

    def incremental_alter_configs(
        self, resources: list[Any], *, request_timeout: float, validate_only: bool
    ) -> dict[Any, Any]:
        assert request_timeout == SECONDS
        [resource] = resources
        assert (resource.restype, resource.name) == (ResourceType.TOPIC, "t")
        entries = {
            each.name: None
            if each.incremental_operation is AlterConfigOpType.DELETE
            else (each.incremental_operation, each.value)
            for each in resource.incremental_configs
        }
        self.asked.append((entries, not validate_only))
        return {resource: self._answer(*entries)}


def changes_of(broker: Broker) -> ClusterChanges:
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "k:1"}), SECONDS)
    cast(Any, cluster).admin = FakeAdmin(cast(Any, broker), SECONDS)
    return ClusterChanges(cluster)


@pytest.mark.parametrize(
    ("acl", "binding"),
    [
        (
            Acl("topic", "t", "prefixed", "User:a", "h", "read", "deny"),
            AclBinding(
                *(ResourceType.TOPIC, "t", ResourcePatternType.PREFIXED, "User:a", "h"),
                *(AclOperation.READ, AclPermissionType.DENY),
            ),
        ),
        (
            Acl("group", "g", "literal", "User:b", "*", "describe_configs", "allow"),
            AclBinding(
                *(ResourceType.GROUP, "g", ResourcePatternType.LITERAL, "User:b", "*"),
                *(AclOperation.DESCRIBE_CONFIGS, AclPermissionType.ALLOW),
            ),
        ),
        (
            Acl("cluster", "kafka-cluster", "literal", "User:c", "*", "all", "allow"),
            AclBinding(
                *(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, "User:c"),
                *("*", AclOperation.ALL, AclPermissionType.ALLOW),
            ),
        ),
    ],
)
def test_add_acl(acl: Acl, binding: AclBinding) -> None:
    """An ACL is added with all that it said."""
    broker = Broker()

    changes_of(broker).add_acl(acl)

    assert broker.asked == [([binding], True)]


def test_set_topic_config() -> None:
    """All values are set by one request; the brokers' own take the place of one without a value."""
    broker = Broker()

    changes_of(broker).set_topic_config("t", {"a": "1", "b": None})

    assert broker.asked == [({"a": (AlterConfigOpType.SET, "1"), "b": None}, True)]


def test_refused_values() -> None:
    """Each value is only asked for, alone."""
    broker = Broker(b=KafkaError.INVALID_CONFIG)

    found = changes_of(broker).refused_values("t", {"a": "1", "b": "2", "c": "3"})

    assert found.keys() == {"b"}
    assert "k:1 refused b=2 of topic t: why" in found["b"]
    assert [(list(entries), done) for entries, done in broker.asked] == [
        (["a"], False),
        (["b"], False),
        (["c"], False),
    ]


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, AuthorizationError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
        (KafkaError.SECURITY_DISABLED, TopicError),
    ],
)
def test_refused(code: int, error: type[Exception]) -> None:
    """A missing permission isn't a value that Kafka refuses."""
    changes = changes_of(Broker(t=code, a=code))

    with pytest.raises(error, match=r"refused the ACL .*: why; ") as caught:
        changes.add_acl(Acl("topic", "t", "literal", "User:a", "*", "read", "allow"))
    assert type(caught.value) is error
    with pytest.raises(error, match="refused a= of topic t: why; ") as caught:
        changes.set_topic_config("t", {"a": None})
    assert type(caught.value) is error
    if error is AuthorizationError:
        with pytest.raises(AuthorizationError):
            changes.refused_values("t", {"a": "1"})
