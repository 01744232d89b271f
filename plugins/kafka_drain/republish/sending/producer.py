"""Transactional producers: how one is made, and what becomes of Kafka's errors.

`KafkaError` says what helps: `retriable` the same call again, `txn_requires_abort` an abort, and
anything else a new producer (librdkafka's INTRODUCTION.md, "Transactional Producer").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_drain.republish.planning.shards import PREFIX
from kafka_drain.republish.sending.errors import explained, is_terminal

__all__ = [
    "SETTINGS",
    "TRANSACTION_TIMEOUT_MS",
    "ProducerLost",
    "fenced_producer",
    "repeat",
    "shard_transactional_id",
]

T = TypeVar("T")

#: After so long the coordinator aborts a transaction whose producer is gone. Until then consumers
#: with read_committed wait behind it.
TRANSACTION_TIMEOUT_MS = 60_000

SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "message.timeout.ms": 45_000,
    "linger.ms": 50,
    "retry.backoff.ms": 20,
    # What is too large is for the broker to say, who knows its size after compression.
    "message.max.bytes": 1_000_000_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 64 << 10,
    # A transaction fails as a whole when one record does: reports of success say nothing new.
    "delivery.report.only.error": True,
    "log_level": 2,
}


class ProducerLost(Exception):
    """Raised when a producer can't go on: a new one has to be made, and the progress read again.

    Attributes:
        error: Kafka's reason.
    """

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


def shard_transactional_id(key: str, number: int) -> str:
    """Return the transactional id of a shard: the same for every attempt of its run."""
    return f"{PREFIX}{key}-{number}"


def fenced_producer(
    settings: Mapping[str, Any], transactional_id: str, topic: str, timeout: float, **more: Any
) -> Producer:
    """Make a producer; producers of older attempts can no longer commit, theirs is decided.

    Args:
        settings: librdkafka's settings of the cluster.
        transactional_id: Whose producers are fenced.
        topic: A topic that it will send to.
        timeout: How long each try may take, in seconds.
        more: Settings of this producer.

    Raises:
        ProducerLost: When Kafka didn't answer; another try may help.
        KafkaDrainError: When Kafka refuses.
    """
    producer = Producer({**settings, **SETTINGS, **more, "transactional.id": transactional_id})
    what = f"transactional id {transactional_id}"
    # Connected first: where librdkafka asks for the id while it still connects, it waits for half
    # a second before it asks again (a timer of its own).
    repeat(lambda: producer.list_topics(topic, timeout=timeout), what)
    repeat(lambda: producer.init_transactions(timeout), what)
    return producer


def repeat(call: Callable[[], T], what: str, seconds: float = 120.0) -> T:
    """Make a transactional call, again while Kafka says that this may help.

    Raises:
        ProducerLost: When it doesn't.
        KafkaDrainError: When Kafka refuses.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            return call()
        except KafkaException as raised:
            error = raised.args[0]
            if is_terminal(error):
                raise explained(error, what) from raised
            if not error.retriable() or time.monotonic() >= deadline:
                raise ProducerLost(error) from raised
        time.sleep(0.1)
