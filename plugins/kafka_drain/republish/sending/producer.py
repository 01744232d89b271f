"""Create transactional producers, and handle Kafka's errors.

`KafkaError` says what helps: for `retriable` the same call again, for `txn_requires_abort` an
abort, and otherwise a new producer (librdkafka's INTRODUCTION.md, "Transactional Producer").
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Producer

from kafka_drain.kafka.client_config import for_client
from kafka_drain.republish.planning.shards import PREFIX
from kafka_drain.republish.sending.send_errors import explained, is_terminal

T = TypeVar("T")

#: Time after which the coordinator aborts a transaction whose producer is gone. Until then,
#: read_committed consumers can't read past it.
TRANSACTION_TIMEOUT_MS = 60_000

SETTINGS: dict[str, Any] = {
    "enable.idempotence": True,
    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
    "message.timeout.ms": 45_000,
    # While a batch of a partition is on its way, librdkafka's thread spins if other records have
    # waited for longer than that. Full batches don't wait for it.
    "linger.ms": 5_000,
    "retry.backoff.ms": 20,
    # Let the broker decide which records are too large, as it sees the size after compression.
    "message.max.bytes": 1_000_000_000,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 500_000,
    "queue.buffering.max.kbytes": 64 << 10,
    # A transaction fails as a whole if one record does, so reports of success add no information.
    "delivery.report.only.error": True,
    "log_level": 2,
}


#: Time for a commit, and of each call for it. The transaction has timed out by then, unless it is
#: decided; librdkafka itself would wait for the coordinator for ever.
COMMIT_SECONDS, COMMIT_CALL_SECONDS = 60.0, 15.0


class ProducerLost(Exception):
    """Raised when a producer can't continue: create a new one, and read the progress again.

    Attributes:
        error: Kafka's reason.
    """

    def __init__(self, error: KafkaError) -> None:
        super().__init__(error.str())
        self.error = error


def shard_transactional_id(key: str, number: int) -> str:
    """Return the transactional id of a shard, which is the same for all attempts of its run."""
    return f"{PREFIX}{key}-{number}"


def fenced_producer(
    settings: Mapping[str, Any], transactional_id: str, topic: str, timeout: float, **more: Any
) -> Producer:
    """Create a producer; producers of older attempts can't commit afterwards.

    Transactions that they left open are decided.

    Args:
        settings: librdkafka settings for the cluster.
        transactional_id: The transactional id whose producers are fenced.
        topic: A topic that it will send to.
        timeout: Timeout of each try, in seconds.
        more: Additional settings of this producer.

    Raises:
        ProducerLost: When Kafka didn't answer; another try may help.
        KafkaDrainError: When Kafka refuses.
    """
    own = {**SETTINGS, **_within_transaction(settings), **more}
    own["transactional.id"] = transactional_id
    producer = Producer(for_client(settings, own))
    what = f"transactional id {transactional_id}"
    # Connect first: if librdkafka requests the id while it is still connecting, it waits for half a
    # second before it requests it again (an internal timer).
    repeat(lambda: producer.list_topics(topic, timeout=timeout), what)
    repeat(lambda: producer.init_transactions(timeout), what)
    return producer


def _within_transaction(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection's time for an answer, if a transaction wouldn't outlast it.

    librdkafka refuses to make such a producer.
    """
    name, most = "socket.timeout.ms", SETTINGS["transaction.timeout.ms"]
    return {name: most} if int(settings.get(name, 0)) > most else {}


def commit(producer: Producer) -> None:
    """Commit the open transaction: wait for all acknowledgements, and fail if one is missing.

    Raises:
        ProducerLost: When a repetition doesn't help, or the coordinator doesn't answer in time:
            whether it was committed is then unknown.
        KafkaDrainError: When Kafka refuses.
    """
    repeat(
        lambda: producer.commit_transaction(COMMIT_CALL_SECONDS),
        "commit_transaction",
        COMMIT_SECONDS,
    )


def repeat(call: Callable[[], T], what: str, seconds: float = 120.0) -> T:
    """Make a transactional call, and repeat it as long as Kafka says that this may help.

    Raises:
        ProducerLost: When a repetition doesn't help.
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
