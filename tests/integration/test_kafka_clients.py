"""Clients of a real broker: what librdkafka does with their first requests."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import TopicPartition

pytestmark = pytest.mark.integration


def test_latest_as_first_request(bootstrap_servers: str, make_topic: Callable[..., str]) -> None:
    """A new client that is asked for offsets at first doesn't take seconds to find their leaders.

    Asked while it connects, librdkafka looks for the leaders again after one or three seconds.
    """
    topic = make_topic(partitions=1)
    took = []
    for _ in range(10):
        cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))
        begun = time.monotonic()
        tp = TopicPartition(topic, 0)
        assert cluster.latest([tp], "read_committed") == {tp: 0}
        took.append(time.monotonic() - begun)

    assert sorted(took)[5] < 0.9, took
