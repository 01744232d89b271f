"""What becomes of questions that librdkafka never answers."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException

from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.kafka import admin_answers
from kafka_drain.kafka import cluster as kafka_cluster
from kafka_drain.kafka.admin_answers import answer_of
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.error_codes import PASSING
from kafka_drain.offsets import TopicPartition

ORDERS = TopicPartition("orders", 0)


class FakeAdmin:
    """A client whose answers are given; the last one again and again."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = list(offsets)

    def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, Future[Any]]:
        offset = self._offsets.pop(0) if len(self._offsets) > 1 else self._offsets[0]
        futures: dict[Any, Future[Any]] = {tp: Future() for tp in wanted}
        for future in futures.values():
            future.set_result(SimpleNamespace(offset=offset))
        return futures

    def poll(self, _: float) -> int:
        return 0


class Clients:
    """The clients that a cluster makes, one after the other."""

    def __init__(self, *clients: Any) -> None:
        self._clients = list(clients)

    def __get__(self, *_: Any) -> Any:
        return self._clients.pop(0)


class StuckAdmin:
    """A client that waits for a broker which doesn't come back."""

    def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, Future[Any]]:
        return {tp: Future() for tp in wanted}

    def poll(self, _: float) -> int:
        return 0


def test_answer_of_request() -> None:
    """What the broker answered comes as it is, an error too."""
    answered: Future[int] = Future()
    answered.set_result(7)
    refused: Future[int] = Future()
    refused.set_exception(KafkaException(KafkaError(KafkaError.NOT_CONTROLLER)))

    assert answer_of(answered, 1) == 7
    with pytest.raises(KafkaException, match="NOT_CONTROLLER"):
        answer_of(refused, 1)


def test_cluster_client_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that never answers is an error that a retry may help; it is asked only once."""
    monkeypatch.setattr(admin_answers, "GRACE_SECONDS", 0.0)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 0.01)
    cluster.__dict__["_admin"] = StuckAdmin()

    with pytest.raises(KafkaUnavailableError, match="no response from Kafka at broker:9092"):
        cluster.latest([ORDERS], "read_uncommitted")
    assert "_admin" not in cluster.__dict__


def test_cluster_client_held() -> None:
    """A client that another thread forgets meanwhile isn't ended before it has answered."""
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 0.5)
    ended: list[str] = []

    class Answer(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            cluster.__dict__.pop("_admin", None)
            assert not ended
            return SimpleNamespace(offset=7)

    class Forgotten(FakeAdmin):
        def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, Future[Any]]:
            return {tp: Answer() for tp in wanted}

        def __del__(self) -> None:
            ended.append("client")

    cluster.__dict__["_admin"] = Forgotten(7)

    assert cluster.latest([ORDERS], "read_uncommitted") == {ORDERS: 7}
    assert ended == ["client"]


@pytest.mark.parametrize("code", sorted(PASSING))
def test_cluster_answer_passes(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is answered while a leader or a broker changes passes: a new client asks again."""
    refused, answered = FakeAdmin(0), FakeAdmin(1500)
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    monkeypatch.setattr(refused, "list_offsets", lambda wanted, **_: dict.fromkeys(wanted, future))
    monkeypatch.setattr(kafka_cluster, "BACKOFF_SECONDS", 0.0)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 5)
    monkeypatch.setattr(KafkaCluster, "_admin", Clients(refused, answered))

    assert cluster.latest([ORDERS], "read_uncommitted") == {ORDERS: 1500}


def test_cluster_offset_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset of -1001 is no offset: asked again, and never held for a log that got shorter."""
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 0.5)
    admin = FakeAdmin(OFFSET_INVALID, 1500)
    monkeypatch.setattr(KafkaCluster, "_admin", admin)

    assert cluster.latest([ORDERS], "read_uncommitted") == {ORDERS: 1500}
    monkeypatch.setattr(KafkaCluster, "_admin", FakeAdmin(OFFSET_INVALID))
    with pytest.raises(KafkaUnavailableError, match="no response from Kafka at broker:9092"):
        cluster.latest([ORDERS], "read_uncommitted")
