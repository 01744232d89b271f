"""What a cluster's answers become, without a cluster."""

from __future__ import annotations

import gc
import weakref
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_drain.errors import ArchiveError, MachineError, TopicError
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import refuse_other_cluster
from kafka_drain.kafka.topics import MAX_MESSAGE_BYTES
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.fake_admin import FakeAdmin


class Named(KafkaCluster):
    """A cluster that has two topics, and lists no internal one."""

    def topic_names(self) -> set[str]:
        """Return the topics."""
        return {"orders", "orders-eu"}


@pytest.fixture
def named() -> Named:
    """The cluster; nothing is asked of a broker."""
    return Named(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}))


def test_matching_whole_names(named: Named) -> None:
    """A pattern matches whole names."""
    assert named.matching("orders") == ["orders"]


@pytest.mark.parametrize(
    ("pattern", "remedy"),
    [
        ("payments.*", "create the topics or correct the pattern"),
        ("__consumer_.*", "name __consumer_offsets in topics or assign: a pattern matches no"),
        ("__.*state", "name __share_group_state and __transaction_state in topics or assign"),
    ],
)
def test_matching_nothing(named: Named, pattern: str, remedy: str) -> None:
    """Internal topics are the reason where a pattern would match them alone."""
    with pytest.raises(TopicError) as caught:
        named.matching(pattern)

    assert f"matches no topic at 127.0.0.1:1; {remedy}" in str(caught.value)


def test_client_freed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dropped cluster's client is freed by whoever drops it, not by the garbage collector."""
    monkeypatch.setattr("kafka_drain.kafka.admin.PATIENCE_SECONDS", 0.1)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}), 10)
    assert cluster.admin.client is cluster.admin.client
    gone = weakref.ref(cluster)

    gc.disable()
    try:
        del cluster
        assert gone() is None
    finally:
        gc.enable()


def test_kerberos_not_built_in() -> None:
    """Confluent-kafka's wheels have no Kerberos: it is said how to get one that has."""
    config = KafkaConfig({"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_SSL"})

    with pytest.raises(MachineError, match=r"No provider for SASL mechanism GSSAPI.*--no-binary"):
        KafkaCluster(config).cluster_id()


def test_cluster_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which cluster it is, is said when it is first known; nothing is asked for that alone."""
    said: list[str] = []
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "k:1"}), tell=said.append)
    listed = SimpleNamespace(cluster_id="abc", topics={})
    monkeypatch.setattr(cluster.admin, "ask", lambda _: listed)
    assert cluster.named() == {"bootstrap_servers": "k:1"}
    counting = cluster.counting({"orders": "1"})

    assert (counting.topic_names(), cluster.cluster_id()) == ([], "abc")

    assert said == ["Kafka: cluster abc at k:1"]
    assert cluster.named() == counting.asked() == {"bootstrap_servers": "k:1", "cluster_id": "abc"}
    refuse_other_cluster("/a", "abc", cluster.named())
    with pytest.raises(ArchiveError, match=r"from Kafka cluster xyz, .* cluster abc at k:1"):
        refuse_other_cluster("/a", "xyz", cluster.named())


class Told(KafkaCluster):
    """A cluster that tells only some settings of a topic, as other vendors' do."""

    told: ClassVar[dict[str, str | None]] = {}
    refuses: ClassVar[int | None] = None

    def __init__(self) -> None:
        super().__init__(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}), 0.1)
        cast(Any, self).admin = SimpleNamespace(ask=self._ask)

    def _ask(self, question: Any) -> Any:
        return question(self)

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(cluster_id="c", brokers={1: None}, topics={"t": None})

    def describe_topics(self, *_: Any, **__: Any) -> dict[str, Future[Any]]:
        return {"t": done(SimpleNamespace(partitions=[SimpleNamespace(replicas=[1])]))}

    def describe_configs(self, asked: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        if self.refuses is not None:
            raise TopicError("Kafka at 127.0.0.1:1 responded: not here")
        entries = {
            name: SimpleNamespace(name=name, value=value, source=1)
            for name, value in self.told.items()
        }
        return {each: done(entries) for each in asked}


def done(value: Any) -> Future[Any]:
    """Return an answer."""
    future: Future[Any] = Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize(
    ("told", "largest", "compacted", "retention"),
    [
        ({}, MAX_MESSAGE_BYTES, None, None),
        ({"max.message.bytes": None, "retention.ms": None}, MAX_MESSAGE_BYTES, None, None),
        ({"max.message.bytes": "9", "cleanup.policy": "compact", "x": None}, 9, True, None),
        ({"retention.ms": "5", "cleanup.policy": "delete"}, MAX_MESSAGE_BYTES, False, 5),
    ],
)
def test_topic_settings_not_told(
    monkeypatch: pytest.MonkeyPatch,
    told: dict[str, str | None],
    largest: int,
    compacted: bool | None,
    retention: int | None,
) -> None:
    """A setting that isn't told, or without a value, ends no drain."""
    monkeypatch.setattr(Told, "told", told)

    found = Told().topic_settings("t")

    assert (found.max_message_bytes, found.compacted) == (largest, compacted)
    assert found.retention_ms == retention
    assert Told().topic_config("t") == {k: v for k, v in told.items() if v is not None}


def test_broker_config_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Managed clusters needn't describe their brokers."""
    monkeypatch.setattr(Told, "refuses", 1)

    assert Told().broker_config() == {}


class NotYet(Told):
    """A cluster whose leaders don't know a topic's partition at first."""

    def __init__(self, partitions: int, unknown: int) -> None:
        super().__init__()
        cast(Any, self).admin = FakeAdmin(cast(Any, self), 5)
        self._partitions, self._unknown = partitions, unknown

    def list_topics(self, **_: Any) -> Any:
        topic = SimpleNamespace(partitions=dict.fromkeys(range(self._partitions)))
        return SimpleNamespace(cluster_id="c", topics={"t": topic} if self._partitions else {})

    def list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        answers = {each: done(SimpleNamespace(offset=7, timestamp=-1)) for each in asked}
        if self._unknown:
            self._unknown -= 1
            unknown: Future[Any] = Future()
            unknown.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
            answers[next(iter(asked))] = unknown
        return answers

    def poll(self, _: float) -> int:
        return 0


def test_offsets_not_known_yet() -> None:
    """A listed partition that its leader doesn't know yet is asked for again; others are gone."""
    tp = TopicPartition("t", 0)

    assert NotYet(1, unknown=2).earliest([tp]) == {tp: 7}
    for partitions in (0, 1):
        with pytest.raises(TopicError):
            NotYet(partitions, unknown=99).earliest([TopicPartition("t", partitions)])
