"""What a sender costs while it waits for Kafka."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_drain.kafka.client_config import for_client
from kafka_drain.republish.sending import shard_sender as sending
from kafka_drain.republish.sending.pacing import Pacer
from kafka_drain.republish.sending.producer import SETTINGS, fenced_producer
from tests.brokers import broker_with_quota

pytestmark = pytest.mark.integration

#: What the broker takes of a sender in a second; at first it takes what eleven seconds allow
#: (quota.window.num). What it is sent then takes less than linger.ms.
BYTES_PER_SECOND, FIRST, BYTES = 2_000_000, 26_000_000, 5_000_000
RECORD = 1_100


@pytest.fixture
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a broker with a quota for senders."""
    folder = tmp_path_factory.mktemp("slow")
    quota = f"producer_byte_rate={BYTES_PER_SECOND}"
    with broker_with_quota(folder, quota, "--entity-default") as servers:
        yield servers


def queued(servers: str, topic: str, size: int) -> tuple[Producer, Pacer]:
    """Begin a transaction, and queue so many bytes, as many records at a time as a sender does."""
    settings = {"bootstrap.servers": servers}
    producer = fenced_producer(settings, topic, topic, 30.0, **{"batch.size": 1 << 20})
    pacer = Pacer(60.0)
    producer.begin_transaction()
    for number in range(1, size // RECORD + 1):
        producer.produce(topic, os.urandom(RECORD), partition=0)
        if number % sending.STEP == 0:
            pacer.queued(sending.STEP, sending.STEP * RECORD)
    return producer, pacer


def cost(servers: str, topic: str, size: int) -> tuple[float, float]:
    """Send a transaction; return the seconds of waiting for Kafka, and those of a processor."""
    producer, pacer = queued(servers, topic, size)
    began, used = time.monotonic(), time.process_time()
    sending._wait(producer, pacer, lambda: False)
    found = time.monotonic() - began, time.process_time() - used
    producer.commit_transaction(60)
    return found


def test_sender_without_linger(bootstrap_servers: str, make_topic: Any) -> None:
    """No record waits for linger.ms at the end of a transaction, whatever fills the last batch."""
    for steps in range(1, 5):
        size = steps * sending.STEP * RECORD
        producer, pacer = queued(bootstrap_servers, make_topic(partitions=1), size)

        began = time.monotonic()
        sending._wait(producer, pacer, lambda: False)
        producer.commit_transaction(60)

        assert time.monotonic() - began < SETTINGS["linger.ms"] / 1_000 - 1


def test_waiting_sender(slow: str) -> None:
    """Where Kafka takes its time, a sender waits for it, and doesn't spin.

    librdkafka's thread spins while it has records that have waited for longer than linger.ms.
    """
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient(for_client({"bootstrap.servers": slow}, {}))
    topics = ["first", "then"]
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in topics]).values():
        future.result(30)
    cost(slow, "first", FIRST)

    waited, used = cost(slow, "then", BYTES)

    assert 1 < waited < SETTINGS["linger.ms"] / 1_000
    assert used < waited / 5
