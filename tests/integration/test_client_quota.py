"""A broker's quota for a pipeline's consumers, which it knows by their client id."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.validation import validate_archive
from tests.brokers import broker_with_quota

pytestmark = pytest.mark.integration

#: What the broker sends to the pipeline in a second; at first it sends what ten seconds allow
#: (quota.window.num). Of what a topic holds, the rest takes six seconds more.
BYTES_PER_SECOND, BYTES, LEAST_SECONDS = 100_000, 1_600_000, 4.0
RECORD = 1_000
NOON = 1_357_041_600_000


@pytest.fixture(scope="module")
def bootstrap_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with a quota for the consumers of pipeline `limited`."""
    folder = tmp_path_factory.mktemp("quota")
    quota = f"consumer_byte_rate={BYTES_PER_SECOND}"
    with broker_with_quota(folder, quota, "--entity-name", "kafka-drain-limited") as servers:
        yield servers


@pytest.fixture(scope="module")
def cluster(bootstrap_servers: str) -> KafkaCluster:
    """The same broker, as the product sees it."""
    return KafkaCluster(KafkaConfig({"bootstrap.servers": bootstrap_servers}))


def test_drain_within_quota(
    make_topic: Any, send: Any, drain: Any, cluster: KafkaCluster, tmp_path: Path
) -> None:
    """A quota for a pipeline's client id slows its executors down; all is exact."""
    topic = make_topic(partitions=2)
    for partition in (0, 1):
        rows = [(b"k", os.urandom(RECORD), None, NOON) for _ in range(BYTES // RECORD // 2)]
        send(topic, rows, partition)
    seconds = []

    for name in ("warm-up", "free", "limited"):
        folder = str(tmp_path / name)
        began = time.monotonic()
        drain(Pipeline(name=name, topics=[topic], archive=folder))
        seconds.append(time.monotonic() - began)
        assert validate_archive(Archive.at(folder), cluster).complete

    _, free, limited = seconds
    assert limited - free > LEAST_SECONDS
