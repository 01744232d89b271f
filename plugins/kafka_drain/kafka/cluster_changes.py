"""Changes of a cluster that a recovery makes; none deletes anything."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)

from kafka_drain.errors import AuthorizationError, KafkaDrainError, TopicError
from kafka_drain.kafka.admin import answer_of
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_state import Acl

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    # librdkafka's name for Kafka's resource type CLUSTER.
    "cluster": ResourceType.BROKER,
}


class ClusterChanges:
    """Adds ACLs and sets configuration; each change may be made again.

    Raises:
        AuthorizationError: From every method, when this user may not do that.
        TopicError: From every method, when Kafka refuses otherwise.
        KafkaUnavailableError: From every method, when the brokers don't respond in time.
        AuthenticationError: From every method, when they refuse the login.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._admin = cluster.admin

    def add_acl(self, acl: Acl) -> None:
        """Add an ACL; one that exists stays."""
        binding = AclBinding(
            _RESOURCES[acl.resource],
            acl.name,
            ResourcePatternType[acl.pattern.upper()],
            acl.principal,
            acl.host,
            AclOperation[acl.operation.upper()],
            AclPermissionType[acl.permission.upper()],
        )
        timeout = self._admin.timeout
        self._make(
            f"the ACL {acl}",
            lambda client: client.create_acls([binding], request_timeout=timeout)[binding],
        )

    def set_topic_config(self, topic: str, values: Mapping[str, str | None]) -> None:
        """Set some configuration values of a topic, all or none; the others stay.

        Args:
            values: The values by name; None for the brokers' own.
        """
        self._alter(topic, values, is_asked_only=False)

    def refused_values(self, topic: str, values: Mapping[str, str]) -> dict[str, str]:
        """Ask Kafka which values it would refuse for a topic; changes nothing.

        Returns:
            Its words, by name.
        """
        refused = {}
        for name, value in values.items():
            try:
                self._alter(topic, {name: value}, is_asked_only=True)
            except TopicError as error:
                refused[name] = str(error)
        return refused

    def _alter(self, topic: str, values: Mapping[str, str | None], *, is_asked_only: bool) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            if value is not None
            # The value of a deletion is ignored, but has to be text.
            else ConfigEntry(name, "", incremental_operation=AlterConfigOpType.DELETE)
            for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        timeout = self._admin.timeout
        listed = ", ".join(f"{name}={'' if v is None else v}" for name, v in values.items())
        self._make(
            f"{listed} of topic {topic}",
            lambda client: client.incremental_alter_configs(
                [resource], request_timeout=timeout, validate_only=is_asked_only
            )[resource],
        )

    def _make(self, what: str, change: Callable[[AdminClient], Future[Any]]) -> None:
        def explain(refused: KafkaError) -> KafkaDrainError:
            text = f"Kafka at {self._admin.config.bootstrap_servers} refused {what}: "
            text += refused.str()
            if refused.name().endswith("AUTHORIZATION_FAILED"):
                return AuthorizationError(
                    f"{text}; this user lacks Alter on the cluster (ACLs) or AlterConfigs on the "
                    "topic; add the ACL, then apply again"
                )
            return TopicError(f"{text}; set it by hand, or leave it out")

        self._admin.ask(
            lambda client: answer_of(change(client), self._admin.timeout), explain, what
        )
