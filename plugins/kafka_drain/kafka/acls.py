"""Kafka ACL checks: a job that lacks an ACL is refused before its first record."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from kafka_drain.errors import AuthorizationError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.logins import Login

#: Operations of a drain on its topics, by Kafka's ACL names.
DRAINED = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
#: Operations of a republish on its targets; it reads the sent records back.
TARGET = ("WRITE", "READ", "DESCRIBE", "DESCRIBE_CONFIGS")


#: IAM's actions for operations, as Amazon MSK names them.
_OF_IAM = {
    "ALTER_CONFIGS": "AlterTopicDynamicConfiguration",
    "CREATE": "CreateTopic",
    "DELETE": "DeleteTopic",
    "DESCRIBE": "DescribeTopic",
    "DESCRIBE_CONFIGS": "DescribeTopicDynamicConfiguration",
    "READ": "ReadData",
    "WRITE": "WriteData",
}


def require_access(
    config: KafkaConfig, topic: str, allowed: Collection[str] | None, needed: Sequence[str]
) -> None:
    """Check that a user has the required permissions on a topic.

    Args:
        config: The user's connection.
        allowed: The operations that Kafka allows: all of them without an authorizer; None if the
            broker doesn't report them (KIP-430, Kafka 2.3), in which case nothing is checked.
        needed: The required operations.

    Raises:
        AuthorizationError: When an operation isn't allowed; names the topic, the operations, and
            the command that adds the ACLs.
    """
    if allowed is None:
        return
    missing = [operation for operation in needed if operation not in allowed]
    if missing:
        raise missing_acls(config, topic, missing)


def missing_acls(config: KafkaConfig, topic: str, operations: Sequence[str]) -> AuthorizationError:
    """Return the error for a user who lacks permissions on a topic."""
    if {"READ", "WRITE"} & set(operations):
        # Kafka implicitly allows DESCRIBE with either of these.
        operations = [operation for operation in operations if operation != "DESCRIBE"]
    user = str(config.settings.get("sasl.username") or "")
    # In the notation of kafka-acls.sh, such as `DescribeConfigs`.
    named = " ".join(f"--operation {each.title().replace('_', '')}" for each in operations)
    seen = (
        f"{f'user {user}' if user else 'this user'} may not {' and '.join(operations)} on topic "
        f"{topic}"
    )
    if config.login is Login.MSK_IAM:
        # ACLs of Kafka's don't apply to it.
        actions = ", ".join(f"kafka-cluster:{_OF_IAM[each]}" for each in operations)
        return AuthorizationError(
            f"{seen}; allow {actions} on it in the IAM policy of these AWS credentials"
        )
    login = "" if config.protocol == "plaintext" else ' --command-config "${CLIENT_PROPERTIES:?}"'
    return AuthorizationError(
        f"{seen}; add the ACL{'s' if len(operations) > 1 else ''}: kafka-acls.sh "
        f"--bootstrap-server {shlex.quote(config.bootstrap_servers)} --add --allow-principal "
        f"{shlex.quote(f'User:{user}') if user else 'User:…'} {named} --topic "
        f"{shlex.quote(topic)}{login}"
    )
