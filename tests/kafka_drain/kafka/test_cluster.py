"""What a cluster's answers become, without a cluster."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import OFFSET_INVALID, IsolationLevel, KafkaError, KafkaException
from confluent_kafka.admin import ConfigSource, OffsetSpec

from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.errors import (
    ArchiveError,
    AuthorizationError,
    KafkaUnavailableError,
    MachineError,
    TopicError,
)
from kafka_drain.kafka import cluster as module
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster, Topic
from kafka_drain.kafka.identity import NO_TOPIC_ID, next_incarnation, refuse_other_cluster
from kafka_drain.kafka.topics import MAX_MESSAGE_BYTES, TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
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
    refuses: ClassVar[type[Exception] | None] = None

    def __init__(self) -> None:
        super().__init__(KafkaConfig({"bootstrap.servers": "127.0.0.1:1"}), 0.1)
        cast(Any, self).admin = SimpleNamespace(ask=self._ask)

    def _ask(self, question: Any) -> Any:
        return question(self)

    def list_topics(self, **_: Any) -> Any:
        return SimpleNamespace(cluster_id="c", brokers={1: None}, topics={"t": None})

    def describe_topics(self, *_: Any, **__: Any) -> dict[str, Future[Any]]:
        return {"t": done(SimpleNamespace(partitions=[SimpleNamespace(id=0, replicas=[1])]))}

    def describe_configs(self, asked: list[Any], **_: Any) -> dict[Any, Future[Any]]:
        if self.refuses is not None:
            raise self.refuses("Kafka at 127.0.0.1:1 responded: not here")
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
        ({"retention.ms": "5", "cleanup.policy": "compact"}, MAX_MESSAGE_BYTES, True, None),
        ({"retention.ms": "0", "cleanup.policy": "compact,delete"}, MAX_MESSAGE_BYTES, True, 0),
        ({"retention.ms": "5"}, MAX_MESSAGE_BYTES, None, 5),
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


@pytest.mark.parametrize("error", [TopicError, AuthorizationError])
def test_broker_config_refused(error: type[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
    """Managed clusters needn't describe their brokers."""
    monkeypatch.setattr(Told, "refuses", error)

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


def failed(code: int) -> Future[Any]:
    """Return an error as an answer."""
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    return future


class Gap(NotYet):
    """A cluster whose broker doesn't list a partition between others."""

    def list_topics(self, **_: Any) -> Any:
        topic = SimpleNamespace(partitions={0: None, 2: None})
        return SimpleNamespace(cluster_id="c", topics={"t": topic})

    def list_offsets(self, asked: dict[Any, Any], **_: Any) -> dict[Any, Future[Any]]:
        if not self._unknown:
            return super().list_offsets(asked)
        self._unknown -= 1
        return {each: failed(KafkaError._UNKNOWN_PARTITION) for each in asked}


@pytest.mark.parametrize(("partition", "is_there"), [(1, True), (3, False)])
def test_offsets_not_listed(partition: int, is_there: bool) -> None:
    """A partition between listed ones exists, and is asked for again; one behind them doesn't."""
    tp = TopicPartition("t", partition)

    with nullcontext() if is_there else pytest.raises(TopicError):
        assert Gap(3, unknown=2).earliest([tp]) == {tp: 7}


ID = "AAAAAAAAAAAAAAAAAAAAAQ"
#: The longest wait for an answer.
SECONDS = 7.0


class Broker:
    """Answers for a topic `t` of two partitions, and notes what it is asked to change.

    Attributes:
        errors: The codes with which the next questions fail, by method.
        listed: What it lists the next times of the topic; the last one for ever.
    """

    def __init__(self, *listed: Any) -> None:
        self.errors: dict[str, list[int]] = {}
        self.listed = list(listed) or [SERVED]
        self.asked: list[tuple[Any, ...]] = []
        self.ends: list[int] = [7]
        self.replicas = (1, 2)
        self.others = ""
        self.tells = True
        self.waits = list[float]()
        self.allowed = ("DESCRIBE", "DELETE")
        self.configs = list[dict[str, str]]()

    def poll(self, _: float) -> int:
        return 0

    def list_topics(self, **how: Any) -> Any:
        assert how["timeout"] == SECONDS
        topic = self.listed.pop(0) if len(self.listed) > 1 else self.listed[0]
        topics = {} if topic is None else {"t": topic}
        topics |= dict.fromkeys([*INTERNAL_TOPICS, *self.others])
        return SimpleNamespace(cluster_id="c", brokers={3: None, 2: None}, topics=topics)

    def _answer(self, method: str, value: Any) -> Future[Any]:
        codes = self.errors.get(method)
        return failed(codes.pop(0)) if codes else done(value)

    def describe_topics(self, asked: Any, **how: Any) -> dict[str, Future[Any]]:
        partitions = [
            SimpleNamespace(id=number, replicas=self.replicas[:number]) for number in (2, 1)
        ]
        assert how["request_timeout"] == SECONDS
        names = self.allowed if how.get("include_authorized_operations") else ()
        may = [SimpleNamespace(name=name) for name in names] if self.tells else None
        described = SimpleNamespace(
            partitions=partitions, topic_id=ID if self.tells else None, authorized_operations=may
        )
        return {"t": self._answer("describe", described)}

    def create_topics(self, asked: list[Any], **how: Any) -> dict[str, Future[Any]]:
        [topic] = asked
        assert how["request_timeout"] == SECONDS
        is_asked_only = how.get("validate_only", False)
        self.asked.append((topic.num_partitions, topic.replication_factor, is_asked_only))
        self.configs.append(topic.config)
        return {topic.topic: self._answer("create", None)}

    def delete_topics(self, names: list[str], **how: Any) -> dict[str, Future[Any]]:
        assert how["request_timeout"] == SECONDS
        self.asked.append(("delete", *names))
        return {name: self._answer("delete", None) for name in names}

    def describe_configs(self, asked: list[Any], **how: Any) -> dict[Any, Future[Any]]:
        assert how["request_timeout"] == SECONDS
        [resource] = asked
        self.asked.append((resource.restype.name, resource.name))
        entries = {
            name: SimpleNamespace(name=name, value=value, source=source)
            for name, value, source in (
                ("cleanup.policy", "delete", ConfigSource.DYNAMIC_TOPIC_CONFIG.value),
                ("retention.ms", "-1", ConfigSource.DYNAMIC_BROKER_CONFIG.value),
            )
        }
        return {resource: self._answer("config", entries)}

    def list_offsets(
        self, asked: dict[Any, Any], *, isolation_level: Any = None, **how: Any
    ) -> dict[Any, Future[Any]]:
        self.asked.append(
            (isolation_level, sorted({type(spec).__name__ for spec in asked.values()}))
        )
        self.waits.append(how["request_timeout"])
        at = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        answer = SimpleNamespace(offset=at, timestamp=at * 10)
        return {each: self._answer("offsets", answer) for each in asked}


def listed_as(*leaders: int, error: Any = None) -> Any:
    """A topic as brokers list it."""
    partitions = {number: SimpleNamespace(leader=leader) for number, leader in enumerate(leaders)}
    return SimpleNamespace(error=error, partitions=partitions)


SERVED = listed_as(1, 0)


@pytest.fixture
def cluster_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Broker], KafkaCluster]:
    """Returns a cluster with one broker that answers; each pause of the client takes a second."""
    clock = [0.0]

    def pause(_: float) -> None:
        clock[0] += 1

    time = SimpleNamespace(monotonic=lambda: clock[0], sleep=pause)
    monkeypatch.setattr("kafka_drain.kafka.cluster.time", time)
    monkeypatch.setattr("kafka_drain.kafka.admin.time", time)

    def make(broker: Broker) -> KafkaCluster:
        made = KafkaCluster(KafkaConfig({"bootstrap.servers": "k:1"}), SECONDS)
        cast(Any, made).admin = FakeAdmin(cast(Any, broker), SECONDS)
        return made

    return make


ClusterOf = Callable[[Broker], KafkaCluster]
UNKNOWN, DENIED = KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_topics(cluster_of: ClusterOf) -> None:
    """A topic is described with all partitions in order, and as an archive counts it.

    The broker doesn't list the first one, as one that has just started may not.
    """
    cluster = cluster_of(Broker())

    assert cluster.topics(["t"]) == {"t": Topic("t", ID, (0, 1, 2))}
    assert cluster.ids_of(["t"]) == {"t": ID}
    assert (cluster.topics([]), cluster.ids_of([])) == ({}, {})
    again = next_incarnation(ID)
    assert cluster.counting({"t": again}).ids_of(["t"]) == {"t": again}
    # The cluster itself goes on with Kafka's id, which another topic's doesn't replace.
    assert cluster.ids_of(["t"]) == cluster.counting({"t": OTHER_ID}).ids_of(["t"]) == {"t": ID}


def test_topics_not_told(cluster_of: ClusterOf) -> None:
    """A broker that tells neither an id nor what is allowed refuses nothing."""
    broker = Broker()
    broker.tells = False

    assert cluster_of(broker).topics(["t"], ["READ"]) == {"t": Topic("t", NO_TOPIC_ID, (0, 1, 2))}


@pytest.mark.parametrize(
    ("codes", "needed", "error", "says"),
    [
        ([DENIED], "READ", AuthorizationError, "may not READ on topic t; .*--operation Read"),
        ([], "READ", AuthorizationError, "may not READ on topic t; .*--operation Read"),
        ([KafkaError.TOPIC_EXCEPTION], "DESCRIBE", TopicError, "k:1 responded"),
        ([UNKNOWN] * 9, "DESCRIBE", TopicError, "t doesn't exist at k:1; there are topics: t;"),
    ],
)
def test_topics_refused(
    codes: list[int], needed: str, error: type[Exception], says: str, cluster_of: ClusterOf
) -> None:
    """A missing permission isn't a missing topic, and names the operations."""
    broker = Broker()
    broker.errors["describe"] = codes

    with pytest.raises(error, match=says) as caught:
        cluster_of(broker).topics(["t"], [needed])

    assert type(caught.value) is error


@pytest.mark.parametrize(("others", "end"), [("ihgfedcba", "i, t"), ("jihgfedcba", "i, j …")])
def test_topic_names(others: str, end: str, cluster_of: ClusterOf) -> None:
    """Kafka's own topics are no topics; a message names the first ten of the others."""
    broker = Broker()
    broker.others = others
    broker.errors["describe"] = [UNKNOWN] * 9
    cluster = cluster_of(broker)

    assert cluster.topic_names() == sorted([*others, "t"])
    with pytest.raises(TopicError, match=f"there are topics: a, b, .*, {end}; create"):
        cluster.topics(["t"])


def test_topics_not_known_yet(cluster_of: ClusterOf) -> None:
    """A topic that is listed is asked for again; one that isn't, at once isn't there."""
    broker = Broker()
    broker.errors["describe"] = [UNKNOWN, UNKNOWN]
    assert cluster_of(broker).topics(["t"]).keys() == {"t"}

    broker = Broker(None)
    broker.errors["describe"] = [UNKNOWN]
    with pytest.raises(TopicError, match="t doesn't exist at k:1; there are no topics; create it"):
        cluster_of(broker).topics(["t"])


def test_topic_settings(cluster_of: ClusterOf) -> None:
    """A topic's own settings are taken over, those of its brokers aren't."""
    found = cluster_of(Broker()).topic_settings("t")

    assert (found.partitions, found.replication_factor) == (3, 2)
    assert found.config == {"cleanup.policy": "delete"}
    assert found.retention_ms is None


@pytest.mark.parametrize(("codes", "passes"), [([3] * 2, True), ([3] * 9, False)])
def test_topic_config_not_known_yet(codes: list[int], passes: bool, cluster_of: ClusterOf) -> None:
    """A broker that doesn't know a listed topic yet is asked again, for some time."""
    broker = Broker()
    broker.errors["config"] = codes

    with nullcontext() if passes else pytest.raises(TopicError):
        assert cluster_of(broker).topic_config("t")["retention.ms"] == "-1"


def test_topic_config_not_listed(cluster_of: ClusterOf) -> None:
    """A topic that isn't listed isn't waited for."""
    broker = Broker(None)
    broker.errors["config"] = [UNKNOWN]

    with pytest.raises(TopicError):
        cluster_of(broker).topic_config("t")


def test_broker_config(cluster_of: ClusterOf) -> None:
    """One of the brokers that there are is asked."""
    broker = Broker()

    assert cluster_of(broker).broker_config() == {"cleanup.policy": "delete", "retention.ms": "-1"}
    assert broker.asked == [("BROKER", "2")]


@pytest.mark.parametrize(
    "listed",
    [[], [None], [listed_as()], [listed_as(1, 0, error="x")], [listed_as(0, -1), listed_as(-1, 0)]],
)
@pytest.mark.parametrize("is_new", [True, False])
def test_create_topic(is_new: bool, listed: list[Any], cluster_of: ClusterOf) -> None:
    """A topic has as many replicas as there are brokers at most, and is served in the end."""
    broker = Broker(SERVED, *listed, SERVED, SERVED)
    broker.errors["create"] = [] if is_new else [KafkaError.TOPIC_ALREADY_EXISTS]

    settings = TopicSettings(4, 3, config={"retention.ms": "-1"})
    assert cluster_of(broker).create_topic("t", settings) is is_new

    assert (broker.asked, broker.configs) == ([(4, 2, False)], [{"retention.ms": "-1"}])
    assert broker.listed == [SERVED]


def test_create_topic_fails(cluster_of: ClusterOf) -> None:
    """What Kafka refuses isn't there already; what nobody serves isn't ready."""
    broker = Broker()
    broker.errors["create"] = [KafkaError.POLICY_VIOLATION]
    with pytest.raises(TopicError, match="k:1 responded"):
        cluster_of(broker).create_topic("t", TopicSettings(4, 1))
    with pytest.raises(KafkaUnavailableError, match="t was created, but k:1 doesn't serve"):
        cluster_of(Broker(listed_as(0, -1))).create_topic("t", TopicSettings(4, 1))


def test_check_new_topic(cluster_of: ClusterOf) -> None:
    """Kafka is only asked whether it would create the topic."""
    broker = Broker()

    cluster_of(broker).check_new_topic("t", TopicSettings(4, 1))
    assert cluster_of(broker).refused_settings("t", TopicSettings(4, 1)) == {}

    assert broker.asked == [(4, 1, True)] * 2


@pytest.mark.parametrize(
    ("refused", "found"),
    [
        ({"a"}, {"a": "no a"}),
        ({"a", "b"}, {"a": "no a", "b": "no b"}),
        ({"a", ""}, {}),
        (set[str](), {}),
    ],
)
def test_refused_settings(
    refused: set[str], found: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each setting is asked for alone, if the topic would be created without any."""

    def check(_: KafkaCluster, name: str, settings: TopicSettings) -> None:
        assert (name, settings.partitions) == ("t", 4)
        for setting in sorted(refused & {"", *settings.config}):
            raise TopicError(f"Kafka at k:1 responded: no {setting}")

    monkeypatch.setattr(KafkaCluster, "check_new_topic", check)
    settings = TopicSettings(4, 1, config={"a": "1", "b": "2"})

    assert Told().refused_settings("t", settings) == found


OTHER_ID = "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.mark.parametrize(
    ("topic_id", "codes", "gone"),
    [
        (None, {}, True),
        (ID, {}, True),
        # Somebody else was faster.
        (ID, {"delete": [UNKNOWN]}, True),
        (OTHER_ID, {}, False),
        (None, {"describe": [UNKNOWN]}, False),
    ],
)
def test_delete_topic(
    topic_id: str | None, codes: dict[str, list[int]], gone: bool, cluster_of: ClusterOf
) -> None:
    """Only the topic with the id is deleted, and its end is waited for."""
    broker = Broker(SERVED, SERVED, None)
    broker.errors = codes

    assert cluster_of(broker).delete_topic("t", topic_id) is gone

    assert broker.asked == ([("delete", "t")] if gone else [])
    assert len(broker.listed) == (1 if gone else 3)


def test_delete_topic_not_allowed(cluster_of: ClusterOf) -> None:
    """A user who may not delete a topic is told which ACL is missing; nothing is sent."""
    broker = Broker()
    broker.allowed = ("DESCRIBE",)

    with pytest.raises(AuthorizationError, match=r"may not DELETE on topic t; .*--operation Del"):
        cluster_of(broker).delete_topic("t")

    assert broker.asked == []


def test_topics_needs_describe(cluster_of: ClusterOf) -> None:
    """Who asks for no operation needs to describe the topic."""
    broker = Broker()
    broker.allowed = ("DELETE",)

    with pytest.raises(AuthorizationError, match="may not DESCRIBE on topic t"):
        cluster_of(broker).topics(["t"])


def test_delete_topic_fails(cluster_of: ClusterOf) -> None:
    """A deletion that Kafka refuses, or doesn't carry out, isn't one."""
    broker = Broker()
    broker.errors["delete"] = [KafkaError.POLICY_VIOLATION]
    with pytest.raises(TopicError, match="k:1 responded"):
        cluster_of(broker).delete_topic("t")
    with pytest.raises(KafkaUnavailableError, match="t is still there 7 s after"):
        cluster_of(Broker()).delete_topic("t")


T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_latest(cluster_of: ClusterOf) -> None:
    """Ends are asked for as the reader sees them; an answer without an offset isn't one."""
    broker = Broker()
    broker.ends = [OFFSET_INVALID, 7]
    cluster = cluster_of(broker)

    assert cluster.latest([T0, T1], "read_committed") == {T0: 7, T1: 7}
    assert cluster.latest([T0], "read_uncommitted") == {T0: 7}
    assert cluster.earliest([T0]) == {T0: 7}
    assert cluster.earliest([]) == {}

    # The first attempt is short.
    assert broker.waits == [5, SECONDS, 5, 5]
    committed, uncommitted = IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED
    assert [level for level, _ in broker.asked] == [committed] * 2 + [uncommitted] * 2
    specs: Any = OffsetSpec
    kinds = [type(spec).__name__ for spec in (specs.latest(), specs.earliest())]
    assert [kind for _, [kind] in broker.asked] == [kinds[0]] * 3 + [kinds[1]]


def test_at_times(monkeypatch: pytest.MonkeyPatch, cluster_of: ClusterOf) -> None:
    """Each partition is looked up at its own time; none before 1970, which means something else."""
    asked = list[int]()

    class Spec:
        @staticmethod
        def for_timestamp(at: int) -> int:
            asked.append(at)
            return at

    broker = Broker()
    monkeypatch.setattr("kafka_drain.kafka.cluster.OffsetSpec", Spec)
    monkeypatch.setattr(
        broker,
        "list_offsets",
        lambda wanted, isolation_level, **_: {
            each: done(SimpleNamespace(offset=at + 1, timestamp=at + 2))
            for each, at in wanted.items()
            # Also a record whose transaction is open has a time.
            if isolation_level == IsolationLevel.READ_UNCOMMITTED
        },
    )
    cluster = cluster_of(broker)

    assert cluster.at_times({T0: 5, T1: -2}) == {T0: 6, T1: 1}
    assert cluster.first_since({T0: 5, T1: 5}) == {T0: (6, 7), T1: (6, 7)}
    assert sorted(asked) == [0, 5, 5]


def test_earliest_short_timeout() -> None:
    """A timeout shorter than the usual first attempt is kept."""
    broker = Broker()
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "k:1"}), 3)
    cast(Any, cluster).admin = FakeAdmin(cast(Any, broker), 3)

    cluster.earliest([T0])

    assert broker.waits == [3]


def test_offsets_without_reason(cluster_of: ClusterOf) -> None:
    """A broker that says nothing of its reason is told with the partition; a retry can help."""
    broker = Broker()
    broker.errors["offsets"] = [KafkaError.UNKNOWN]

    with pytest.raises(KafkaUnavailableError, match=r"asked for an offset of t-0; .*try again$"):
        cluster_of(broker).earliest([T0])


def test_offsets_negative(cluster_of: ClusterOf) -> None:
    """What a service tells as an end isn't taken for an offset if it is none, as -1 is."""
    broker = Broker()
    broker.ends = [-1]

    with pytest.raises(KafkaUnavailableError, match=r"tells -1 as .* of t-0; .*try again$"):
        cluster_of(broker).earliest([T0])
    with pytest.raises(KafkaUnavailableError, match=r"tells -1 as"):
        cluster_of(broker).latest([T0], "read_committed")
    assert cluster_of(broker).at_times({T0: 5}) == {T0: -1}


@pytest.mark.parametrize(
    ("span", "read"), [((0, 99), (3, 7)), ((4, 5), (4, 5)), ((7, 9), None), ((0, 3), None)]
)
def test_records(
    span: tuple[int, int], read: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what Kafka still holds is read, and nothing is waited for."""
    asked = list[Any]()
    monkeypatch.setattr(KafkaCluster, "earliest", lambda _, tps: dict.fromkeys(tps, 3))
    monkeypatch.setattr(
        KafkaCluster,
        "latest",
        lambda _, tps, level: dict.fromkeys(tps, {"read_committed": 7}[level]),
    )

    def reading(*given: Any) -> Iterator[str]:
        asked.append(given)
        yield "x"

    monkeypatch.setattr("kafka_drain.kafka.cluster.read_records", reading)
    cluster = Told()

    found = list(cluster.records(T0, OffsetRange(*span), "read_committed"))

    given = [(cluster.config, T0, OffsetRange(*read), "read_committed")] if read else []
    assert (found, asked) == (["x"] * len(given), given)


def test_single_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single records are read as asked for, uncommitted ones too unless told otherwise."""
    asked = list[Any]()
    for name in ("read_single_records", "read_times", "sample_records"):
        monkeypatch.setattr(module, name, lambda *given, name=name: asked.append((name, *given)))
    cluster, at, ends, places = Told(), {T0: 5}, {T0: 9}, [{T0: 1}, {T0: 2}]

    cluster.single_records(at)
    cluster.single_records(at, "read_committed", ends)
    cluster.times_from(at, 3, ends)
    cluster.sample_records(places)

    assert asked == [
        ("read_single_records", cluster.config, at, "read_uncommitted", {}),
        ("read_single_records", cluster.config, at, "read_committed", ends),
        ("read_times", cluster.config, at, 3, ends),
        ("sample_records", cluster.config, places),
    ]


def test_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is named to the caller, and watched for outages under its addresses."""
    looks, said = dict[str, Any](), list[str]()
    monkeypatch.setattr(module, "watch", looks.__setitem__)

    cluster = module.watched(KafkaConfig({"bootstrap.servers": "k:1"}), said.append)
    listed = SimpleNamespace(cluster_id="abc", topics={})
    cast(Any, cluster).admin = SimpleNamespace(ask=lambda _: listed)
    cluster.cluster_id()

    assert looks == {"Kafka at k:1": cluster.look}
    assert said == ["Kafka: cluster abc at k:1"]


def test_create_topic_hidden(cluster_of: ClusterOf) -> None:
    """Who may not describe a new topic is told so."""
    broker = Broker(None)
    broker.errors["describe"] = [DENIED]

    with pytest.raises(AuthorizationError, match="DESCRIBE on topic t"):
        cluster_of(broker).create_topic("t", TopicSettings(4, 1))


@pytest.mark.parametrize(
    ("listed", "errors", "expected"),
    [
        (SERVED, [], {"t"}),
        (None, [], {"t"}),
        (None, [UNKNOWN], set()),
        (None, [DENIED], None),
    ],
)
def test_existing(
    listed: Any, errors: list[int], expected: set[str] | None, cluster_of: ClusterOf
) -> None:
    """A topic that isn't listed is asked for by name: this user may not be allowed to see it."""
    broker = Broker(listed)
    broker.errors["describe"] = [*errors]
    cluster = cluster_of(broker)

    with nullcontext() if expected is not None else pytest.raises(AuthorizationError):
        assert cluster.existing(["t"]) == expected
