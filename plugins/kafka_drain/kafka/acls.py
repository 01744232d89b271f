"""What Kafka's ACLs have to allow: a job that lacks one is refused before its first record."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from kafka_drain.errors import AuthorizationError
from kafka_drain.kafka.client_config import KafkaConfig

__all__ = ["DRAINED", "TARGET", "missing_acls", "require_access"]

#: What a drain does with its topics, as Kafka's ACL operations.
DRAINED = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
#: What a republish does with its targets: it reads back what it has sent.
TARGET = ("WRITE", "READ", "DESCRIBE", "DESCRIBE_CONFIGS")


def require_access(
    config: KafkaConfig, topic: str, allowed: Collection[str] | None, needed: Sequence[str]
) -> None:
    """Check what a user may do with a topic.

    Args:
        config: Whose login it is.
        topic: The topic.
        allowed: The operations that Kafka allows: all, where it has no authorizer; None where the
            broker doesn't tell (KIP-430 came with Kafka 2.3), and there is nothing to check.
        needed: Those that have to be.

    Raises:
        AuthorizationError: When one isn't allowed; names topic and operations, and the command that
            allows them.
    """
    if allowed is None:
        return
    missing = [operation for operation in needed if operation not in allowed]
    if missing:
        raise missing_acls(config, topic, missing)


def missing_acls(config: KafkaConfig, topic: str, operations: Sequence[str]) -> AuthorizationError:
    """Return the error of a user who may not do something with a topic."""
    if {"READ", "WRITE"} & set(operations):
        # Kafka lets whoever may do these describe the topic as well.
        operations = [operation for operation in operations if operation != "DESCRIBE"]
    user = str(config.settings.get("sasl.username") or "")
    named = " ".join(f"--operation {_as_written(operation)}" for operation in operations)
    return AuthorizationError(
        f"{f'user {user}' if user else 'this user'} may not {' and '.join(operations)} on topic "
        f"{topic}; add the ACL{'s' if len(operations) > 1 else ''}: kafka-acls.sh "
        f"--bootstrap-server {config.bootstrap_servers} --add --allow-principal "
        f"{shlex.quote(f'User:{user}') if user else 'User:…'} {named} --topic {shlex.quote(topic)}"
    )


def _as_written(operation: str) -> str:
    """Return an operation as kafka-acls.sh takes it, such as `DescribeConfigs`."""
    return operation.title().replace("_", "")
