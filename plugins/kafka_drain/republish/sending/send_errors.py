"""Translate Kafka's errors while sending: the refusal, and whether a retry would help."""

from __future__ import annotations

from confluent_kafka import KafkaError

from kafka_drain.errors import (
    AuthorizationError,
    ConfigError,
    DeliveryError,
    KafkaDrainError,
    KafkaUnavailableError,
    SourceRecordError,
    TopicError,
)
from kafka_drain.kafka.error_codes import UNAVAILABLE

_NEEDS = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE and DESCRIBE on TransactionalId "
    "kafka-drain-republish- (prefixed)",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on Group kafka-drain-republish- (prefixed)",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "WRITE, READ and DESCRIBE on the target topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IDEMPOTENT_WRITE on the cluster",
}
_REFUSED = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise the target topic's max.message.bytes",
    KafkaError.INVALID_MSG_SIZE: "raise the target topic's max.message.bytes",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise the target topic's segment.bytes",
    KafkaError.INVALID_TIMESTAMP: "raise the target topic's message.timestamp.before.max.ms and "
    "message.timestamp.after.max.ms",
    KafkaError.INVALID_RECORD: "check the target topic's cleanup.policy (compact requires keys) "
    "and message.timestamp settings",
    KafkaError.POLICY_VIOLATION: "check the cluster's policies",
}
_UNABLE = {
    # TRANSACTION_TIMEOUT_MS of producer.py, which needs these errors.
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "raise the brokers' transaction.max.timeout.ms to at "
    "least 60000, which is how long a republish's transaction may last",
    KafkaError._UNSUPPORTED_FEATURE: "exactly_once needs a cluster with transactions; delivery "
    "at_least_once doesn't",
}


def is_terminal(error: KafkaError) -> bool:
    """Return whether the same call will keep failing until something is changed."""
    return error.code() in _NEEDS or error.code() in _REFUSED or error.code() in _UNABLE


def explained(error: KafkaError, what: str) -> KafkaDrainError:
    """Return the kafka-drain error for one of Kafka's.

    Args:
        error: Kafka's error.
        what: The operation, as text for the message.
    """
    code = error.code()
    if code in _NEEDS:
        return AuthorizationError(
            f"{what}: Kafka refused it ({error.str()}); expected the ACL {_NEEDS[code]}; add it"
        )
    if code in _REFUSED:
        return SourceRecordError(
            f"{what}: Kafka refused a record ({error.str()}); {_REFUSED[code]}"
        )
    if code in _UNABLE:
        return ConfigError(f"{what}: Kafka can't do it ({error.str()}); {_UNABLE[code]}")
    if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
        return TopicError(
            f"{what}: the topic no longer exists ({error.str()}); expected the one that the plan "
            "names; it was deleted during the run"
        )
    if code in UNAVAILABLE:
        return KafkaUnavailableError(
            f"{what}: no answer from Kafka ({error.str()}); a retry resumes where this one stopped"
        )
    return DeliveryError(
        f"{what}: {error.name()}: {error.str()}; a retry resumes where this one stopped"
    )
