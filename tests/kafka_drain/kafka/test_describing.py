"""What a cluster's answers and errors come to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import ConfigEntry, ConfigSource

from kafka_drain.kafka.cluster_state import Outcome
from kafka_drain.kafka.describing import _topic_state, outcome_of


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Outcome.NOT_AUTHORISED),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Outcome.NOT_AUTHORISED),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Outcome.NOT_AUTHORISED),
        (KafkaError.UNSUPPORTED_VERSION, Outcome.UNSUPPORTED),
        (KafkaError._UNSUPPORTED_FEATURE, Outcome.UNSUPPORTED),
        (KafkaError.INVALID_REQUEST, Outcome.UNSUPPORTED),
        (KafkaError.SECURITY_DISABLED, Outcome.UNSUPPORTED),
        (KafkaError._TIMED_OUT, Outcome.UNANSWERED),
        (KafkaError._TRANSPORT, Outcome.UNANSWERED),
        (KafkaError.NOT_COORDINATOR, Outcome.UNANSWERED),
    ],
)
def test_outcome_of(code: int, outcome: Outcome) -> None:
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
