"""Producers, and errors that no other try helps against; without a broker."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from kafka_drain.errors import ConfigError, KafkaDrainError, SourceRecordError
from kafka_drain.republish.sending.producer import (
    TRANSACTION_TIMEOUT_MS,
    ProducerLost,
    fenced_producer,
)
from kafka_drain.republish.sending.send_errors import explained, is_terminal


@pytest.mark.parametrize("waits", [1_000, "60000", 120_000, "300000"])
def test_fenced_producer_long_timeout(waits: int | str) -> None:
    """A connection may wait longer for an answer than a transaction may last."""
    settings = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": waits}

    # Nobody answers there; the producer itself is accepted.
    with pytest.raises(ProducerLost):
        fenced_producer(settings, "id", "t", 0.1)


@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (
            KafkaError.INVALID_TRANSACTION_TIMEOUT,
            ConfigError,
            f"transaction.max.timeout.ms to at least {TRANSACTION_TIMEOUT_MS},",
        ),
        (KafkaError._UNSUPPORTED_FEATURE, ConfigError, "at_least_once"),
        (KafkaError.INVALID_TIMESTAMP, SourceRecordError, "message.timestamp.before.max.ms"),
        (KafkaError.RECORD_LIST_TOO_LARGE, SourceRecordError, "segment.bytes"),
    ],
)
def test_explained_terminal(code: int, kind: type[KafkaDrainError], says: str) -> None:
    """What no retry helps against is said with what does, and promises nothing of a retry."""
    error = KafkaError(code, "why")

    found = explained(error, "x")

    assert is_terminal(error)
    assert type(found) is kind
    assert says in str(found)
    assert "a retry resumes" not in str(found)
