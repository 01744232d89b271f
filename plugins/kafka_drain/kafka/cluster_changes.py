"""Changes of a cluster that a recovery makes; none deletes anything."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException
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

from kafka_drain.errors import AuthorizationError, TopicError
from kafka_drain.kafka.admin_answers import answer_of
from kafka_drain.kafka.client_config import for_client
from kafka_drain.kafka.cluster import TIMEOUT_SECONDS, KafkaCluster
from kafka_drain.kafka.cluster_state import Acl

_RESOURCES = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    # librdkafka's name for Kafka's resource type CLUSTER.
    "cluster": ResourceType.BROKER,
}


class ClusterChanges:
    """Adds ACLs and sets configuration.

    Raises:
        AuthorizationError: From every method, when this user may not do that.
        TopicError: From every method, when Kafka refuses otherwise.
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self._servers = cluster.config.bootstrap_servers
        self._admin = AdminClient(for_client(cluster.config.for_librdkafka(), {"log_level": 2}))

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
        futures = self._admin.create_acls([binding], request_timeout=TIMEOUT_SECONDS)
        self._wait(futures[binding], f"the ACL {acl}")

    def set_topic_config(self, topic: str, name: str, value: str) -> None:
        """Set one configuration value of a topic; the others stay."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        futures = self._admin.incremental_alter_configs([resource], request_timeout=TIMEOUT_SECONDS)
        self._wait(futures[resource], f"{name}={value} of topic {topic}")

    def _wait(self, future: object, what: str) -> None:
        try:
            answer_of(future, TIMEOUT_SECONDS)  # type: ignore[arg-type]
        except KafkaException as error:
            refused: KafkaError = error.args[0]
            text = f"Kafka at {self._servers} refused {what}: {refused.str()}"
            if refused.name().endswith("AUTHORIZATION_FAILED"):
                raise AuthorizationError(
                    f"{text}; this user lacks Alter on the cluster (ACLs) or AlterConfigs on the "
                    "topic; add the ACL, then apply again"
                ) from error
            raise TopicError(f"{text}; set it by hand, or leave it out") from error
