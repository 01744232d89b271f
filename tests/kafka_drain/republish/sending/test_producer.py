"""Producers, and errors that no other try helps against; without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_drain.errors import (
    AuthorizationError,
    ConfigError,
    KafkaDrainError,
    SourceRecordError,
)
from kafka_drain.republish.sending import producer as module
from kafka_drain.republish.sending.producer import (
    COMMIT_SECONDS,
    TRANSACTION_TIMEOUT_MS,
    ProducerLost,
    commit,
    fenced_producer,
    repeat,
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


class Made:
    """A producer that notes what it is made with and asked for."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.asked: list[Any] = []

    def list_topics(self, topic: str, timeout: float) -> None:
        self.asked.append(("list", topic, timeout))

    def init_transactions(self, timeout: float) -> None:
        self.asked.append(("init", timeout))


def test_fenced_producer_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A producer has a connection's settings, those that sending needs, and the sender's own."""
    monkeypatch.setattr(module, "Producer", Made)
    given = {"bootstrap.servers": "k:1", "socket.timeout.ms": "5000"}

    made: Any = fenced_producer(given, "id", "t", 7.0, **{"linger.ms": 3})

    wanted = {"bootstrap.servers": "k:1", "transactional.id": "id", "enable.idempotence": True}
    assert made.settings.items() >= wanted.items()
    assert made.settings["linger.ms"] == 3
    assert int(made.settings["socket.timeout.ms"]) == 5000
    # What isn't acknowledged fails before the transaction times out.
    assert made.settings["message.timeout.ms"] < made.settings["transaction.timeout.ms"]
    # The broker, and not the client, says which records are too large.
    assert made.settings["message.max.bytes"] == 1_000_000_000
    # It connects before it asks for the id, which would otherwise take half a second longer.
    assert made.asked == [("list", "t", 7.0), ("init", 7.0)]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time; each pause takes ten seconds."""
    now = [0.0]

    def pause(_: float) -> None:
        now[0] += 10

    time = SimpleNamespace(monotonic=lambda: now[0], sleep=pause)
    monkeypatch.setattr(module, "time", time)
    return now


def failing(error: KafkaError, times: int) -> Any:
    """Return a call that fails so many times, and then returns how often it was called."""
    calls: list[None] = []

    def call(*_: object) -> int:
        calls.append(None)
        if len(calls) <= times:
            raise KafkaException(error)
        return len(calls)

    return call


RETRIABLE = KafkaError(KafkaError._TIMED_OUT, "slow", retriable=True)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no", retriable=True)


def test_repeat(clock: list[float]) -> None:
    """A call that may help later is repeated until its deadline."""
    assert repeat(failing(RETRIABLE, 3), "x") == 4

    begun = clock[0]
    with pytest.raises(ProducerLost, match="slow"):
        repeat(failing(RETRIABLE, 99), "x", 30)
    assert clock[0] == begun + 30


def test_repeat_in_vain(clock: list[float]) -> None:
    """What no repetition helps against is said at once."""
    with pytest.raises(ProducerLost):
        repeat(failing(KafkaError(KafkaError._FENCED, "newer", fatal=True), 1), "x")
    with pytest.raises(AuthorizationError, match=r"^x: Kafka refused"):
        repeat(failing(DENIED, 1), "x")

    assert clock[0] == 0


def test_commit_deadline(clock: list[float]) -> None:
    """A commit is waited for until its transaction has timed out, and no longer."""
    producer: Any = SimpleNamespace(commit_transaction=failing(RETRIABLE, 99))

    with pytest.raises(ProducerLost):
        commit(producer)

    assert TRANSACTION_TIMEOUT_MS / 1000 <= clock[0] <= COMMIT_SECONDS
