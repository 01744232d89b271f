"""What becomes of questions that librdkafka never answers, or whose login is refused."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import OFFSET_INVALID, ConsumerGroupState, KafkaError, KafkaException

from kafka_drain.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    GroupError,
    KafkaDrainError,
    KafkaUnavailableError,
    TopicError,
)
from kafka_drain.kafka import admin as admin_module
from kafka_drain.kafka.admin import Admin, answer_of
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.cluster_changes import ClusterChanges
from kafka_drain.kafka.cluster_state import Acl
from kafka_drain.kafka.consumer_groups import ConsumerGroups
from kafka_drain.kafka.error_codes import PASSING, UNAVAILABLE
from kafka_drain.kafka.reaching import AddressAnswer, Reached
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.fake_admin import FakeAdmin, FakeClient
from tests.tables import each_of

ORDERS = TopicPartition("orders", 0)


@pytest.fixture(autouse=True)
def unreached(monkeypatch: pytest.MonkeyPatch) -> list[Reached]:
    """What the addresses say, to which nothing is sent: nothing, unless a test adds it."""
    reached: list[Reached] = []
    monkeypatch.setattr(admin_module, "reach", lambda *_: reached)
    return reached


class OffsetsClient:
    """A client whose answers are given; the last one again and again."""

    def __init__(self, *offsets: int) -> None:
        self._offsets = list(offsets)

    def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, Future[Any]]:
        offset = self._offsets.pop(0) if len(self._offsets) > 1 else self._offsets[0]
        futures: dict[Any, Future[Any]] = {tp: Future() for tp in wanted}
        for future in futures.values():
            future.set_result(SimpleNamespace(offset=offset, timestamp=-1))
        return futures

    def poll(self, _: float) -> int:
        return 0


class Clients:
    """The clients that a cluster makes, one after the other."""

    def __init__(self, *clients: Any) -> None:
        self._clients = list(clients)

    def __get__(self, *_: Any) -> Any:
        return self._clients.pop(0)


class StuckClient:
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
    monkeypatch.setattr(admin_module, "GRACE_SECONDS", 0.0)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 0.01)
    cluster.admin._client = cast(Any, StuckClient())

    with pytest.raises(KafkaUnavailableError, match="no response from Kafka at broker:9092"):
        cluster.latest([ORDERS], "read_uncommitted")
    assert cluster.admin._client is None


def test_cluster_client_held() -> None:
    """A client that another thread forgets meanwhile isn't ended before it has answered."""
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 0.5)
    ended: list[str] = []

    class Answer(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            cluster.admin._client = None
            assert not ended
            return SimpleNamespace(offset=7, timestamp=-1)

    class Forgotten(OffsetsClient):
        def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, Future[Any]]:
            return {tp: Answer() for tp in wanted}

        def __del__(self) -> None:
            ended.append("client")

    cluster.admin._client = cast(Any, Forgotten(7))

    assert cluster.latest([ORDERS], "read_uncommitted") == {ORDERS: 7}
    assert ended == ["client"]


@pytest.mark.parametrize("code", sorted(PASSING))
def test_cluster_answer_passes(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is answered while a leader or a broker changes passes: a new client asks again."""
    refused, answered = OffsetsClient(0), OffsetsClient(1500)
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code)))
    monkeypatch.setattr(refused, "list_offsets", lambda wanted, **_: dict.fromkeys(wanted, future))
    monkeypatch.setattr(admin_module, "BACKOFF_SECONDS", 0.0)
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 5)
    monkeypatch.setattr(Admin, "client", Clients(refused, answered))

    assert cluster.latest([ORDERS], "read_uncommitted") == {ORDERS: 1500}


def test_cluster_answer_without_reason() -> None:
    """A time that is in a segment of tiered storage which is gone names the partition."""

    class Failing(OffsetsClient):
        def list_offsets(self, wanted: Any, **_: Any) -> dict[Any, Future[Any]]:
            failed: Future[Any] = Future()
            failed.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN)))
            futures = super().list_offsets(wanted)
            return {tp: failed if tp.topic == "orders" else futures[tp] for tp in wanted}

    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 5)
    cluster.admin._client = cast(Any, Failing(7))
    other = TopicPartition("apples", 0)

    with pytest.raises(KafkaUnavailableError, match=r"an offset of orders-0; .*remote store"):
        cluster.at_times({ORDERS: 5, other: 5})
    assert cluster.at_times({other: 5}) == {other: 7}


def test_cluster_offset_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset of -1001 is no offset: asked again, and never held for a log that got shorter."""
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "broker:9092"}), 0.5)
    admin = OffsetsClient(OFFSET_INVALID, 1500)
    monkeypatch.setattr(Admin, "client", admin)

    assert cluster.latest([ORDERS], "read_uncommitted") == {ORDERS: 1500}
    monkeypatch.setattr(Admin, "client", OffsetsClient(OFFSET_INVALID))
    with pytest.raises(KafkaUnavailableError, match="no response from Kafka at broker:9092"):
        cluster.latest([ORDERS], "read_uncommitted")


@pytest.mark.parametrize(
    ("settings", "correct"),
    [
        ({"sasl.mechanism": "PLAIN"}, "sasl.username, sasl.password or sasl.mechanism"),
        (
            {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": "a.b"},
            "what the function in oauth_cb returns",
        ),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.kerberos.principal or sasl.kerberos.keytab"),
    ],
)
def test_login_refused(settings: dict[str, str], correct: str) -> None:
    """A refused login names what to correct for this kind of login."""
    admin = Admin(KafkaConfig({"bootstrap.servers": "k:1"} | settings))

    def refuse(_: Any) -> None:
        raise KafkaException(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "no"))

    admin._client = cast(Any, FakeClient(None))
    with pytest.raises(AuthenticationError) as raised:
        admin.ask(refuse)

    assert str(raised.value) == (
        f"logging in to Kafka at k:1 failed: no; correct {correct} in the Kafka connection"
    )


def of_cluster(admin: Admin) -> object:
    cluster = KafkaCluster(admin.config, admin.timeout)
    cluster.admin = admin
    return cluster.cluster_id()


def of_groups(admin: Admin) -> object:
    groups = ConsumerGroups(admin.config, admin.timeout)
    groups.admin = admin
    return groups.describe("g")


def by_changes(admin: Admin, change: str) -> object:
    cluster = KafkaCluster(admin.config, admin.timeout)
    cluster.admin = admin
    changes = ClusterChanges(cluster)
    if change == "acl":
        changes.add_acl(Acl("topic", "t", "literal", "User:a", "*", "read", "allow"))
    else:
        changes.set_topic_config("t", {"retention.ms": "-1"})
    return None


def add_acl(admin: Admin) -> object:
    return by_changes(admin, "acl")


def set_config(admin: Admin) -> object:
    return by_changes(admin, "config")


ASKS = [of_cluster, of_groups, add_acl, set_config]
ANSWER = SimpleNamespace(cluster_id="c", members=[], state=ConsumerGroupState.EMPTY)
#: What they name in messages.
ABOUT = {
    of_groups: "group g",
    add_acl: "the ACL ",
    set_config: "retention.ms=-1",
}


@each_of("ask", ASKS)
@each_of("code", sorted(UNAVAILABLE))
def test_ask_login_refused(
    code: int, ask: Callable[[Admin], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks, a refused login isn't taken for a broker that is away."""
    monkeypatch.setattr(admin_module, "BACKOFF_SECONDS", 0.01)
    client = FakeClient(ANSWER, *[code] * 9)
    admin = FakeAdmin(client, 0.01)
    client.reports = (admin.note_refusal, KafkaError(KafkaError._AUTHENTICATION, "no such user"))

    with pytest.raises(AuthenticationError, match="k:1 rejects the credentials: no such user; cor"):
        ask(admin)


@each_of("ask", ASKS)
@each_of("code", sorted(UNAVAILABLE))
def test_ask_silence(
    code: int, ask: Callable[[Admin], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks, silence is an error that a retry may help, and says what was asked about."""
    monkeypatch.setattr(admin_module, "BACKOFF_SECONDS", 0.01)
    admin = FakeAdmin(FakeClient(ANSWER, *[code] * 9), 0.01)

    about = f"about {ABOUT[ask]}" if ask in ABOUT else "from Kafka at k:1"
    with pytest.raises(KafkaUnavailableError, match=f"no response {about}"):
        ask(admin)


@each_of("ask", ASKS)
@each_of("code", sorted(PASSING | {KafkaError._TIMED_OUT}))
def test_ask_again(code: int, ask: Callable[[Admin], object], monkeypatch: Any) -> None:
    """Whoever asks, a transient error is followed by another attempt."""
    monkeypatch.setattr(admin_module, "BACKOFF_SECONDS", 0.0)
    client = FakeClient(ANSWER, code, code)

    ask(FakeAdmin(client, 5.0))

    assert client.asked == 3


@pytest.mark.parametrize(
    ("code", "cluster", "groups", "changes"),
    [
        (
            *(KafkaError.CLUSTER_AUTHORIZATION_FAILED, AuthorizationError),
            *(GroupError, AuthorizationError),
        ),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, *[AuthorizationError] * 3),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, *[AuthorizationError] * 3),
        (KafkaError.INVALID_CONFIG, TopicError, GroupError, TopicError),
        (KafkaError.SECURITY_DISABLED, TopicError, GroupError, TopicError),
        (KafkaError._INVALID_ARG, ConfigError, ConfigError, TopicError),
    ],
)
def test_ask_refused(
    code: int,
    cluster: type[KafkaDrainError],
    groups: type[KafkaDrainError],
    changes: type[KafkaDrainError],
) -> None:
    """What a broker refuses is asked once, and explained by whoever asks."""
    for ask, kind in zip(ASKS, (cluster, groups, changes, changes), strict=True):
        client = FakeClient(ANSWER, code)
        with pytest.raises(KafkaDrainError) as raised:
            ask(FakeAdmin(client, 5.0))

        assert type(raised.value) is kind
        assert client.asked == 1
        if ask in (add_acl, set_config):
            assert f"Kafka at k:1 refused {ABOUT[ask]}" in str(raised.value)


def test_refused_login_that_passed() -> None:
    """Who has been let in since a refusal isn't told of it when brokers are away later."""
    client = FakeClient(ANSWER)
    admin = FakeAdmin(client, 0.01)
    admin.note_refusal(KafkaError(KafkaError._AUTHENTICATION, "not yet"))
    of_cluster(admin)
    client._codes = [KafkaError._TRANSPORT]

    with pytest.raises(KafkaUnavailableError, match="no response from Kafka at k:1"):
        of_cluster(admin)


def test_refused_login_of_tls() -> None:
    """A certificate that fails is no login that fails, and no broker that is away."""
    client = FakeClient(ANSWER, KafkaError._TRANSPORT)
    admin = FakeAdmin(client, 0.01)
    client.reports = (admin.note_refusal, KafkaError(KafkaError._SSL, "expired"))

    with pytest.raises(KafkaUnavailableError, match="TLS with Kafka at k:1 failed: expired"):
        of_cluster(admin)


class Starting:
    """A new client, whose broker says something only after some requests.

    Attributes:
        errors: The codes of the requests' errors, one after the other; then it is answered.
        reports: What the connections report meanwhile.
    """

    def __init__(self, clock: list[float], *errors: int, cluster_id: str | None = "c") -> None:
        self._clock = clock
        self._cluster_id = cluster_id
        self.errors = list(errors)
        self.note: Any = None
        self.reports: int | None = None
        self.waits: list[float] = []
        self.described: list[float] = []

    def list_topics(self, *, timeout: float) -> Any:
        self.waits.append(timeout)
        if not self.errors:
            return SimpleNamespace(cluster_id=self._cluster_id)
        self._clock[0] += timeout
        raise KafkaException(KafkaError(self.errors.pop(0), "silence"))

    def describe_cluster(self, *, request_timeout: float) -> Future[Any]:
        self.described.append(request_timeout)
        future: Future[Any] = Future()
        future.set_result(None)
        return future

    def poll(self, _: float) -> int:
        if self.reports is not None:
            self.note(KafkaError(self.reports, "no such user"))
        return 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which only requests and pauses move."""
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    time = SimpleNamespace(monotonic=lambda: now[0], sleep=pause)
    monkeypatch.setattr(admin_module, "time", time)
    return now


def starting(monkeypatch: pytest.MonkeyPatch, *clients: Starting) -> None:
    """Let an admin get these clients, one after the other."""
    left = list(clients)

    def make(_: KafkaConfig, *, error_cb: Any) -> Starting:
        client = left.pop(0)
        client.note = error_cb
        return client

    monkeypatch.setattr(admin_module, "admin_client", make)


SILENT = KafkaError._TRANSPORT
CONFIG = KafkaConfig({"bootstrap.servers": "k:1"})


def test_client_waits_for_answer(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A new client is listened to for a while, and then used all the same: brokers may start."""
    late, silent = Starting(clock, SILENT), Starting(clock, *[SILENT] * 9)
    starting(monkeypatch, late, silent)

    assert cast(Any, Admin(CONFIG, 20).client) is late
    admin = Admin(CONFIG, 20)
    assert cast(Any, admin.client) is silent
    assert admin.client is admin.client

    assert late.waits == [0.25, 0.5]
    assert silent.waits == [0.25, 0.5, 1.0, 0.25]


def test_client_refused_early(
    clock: list[float], unreached: list[Reached], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused login is told after seconds, and without a look at the addresses."""
    client = Starting(clock, *[SILENT] * 9)
    client.reports = KafkaError._AUTHENTICATION
    starting(monkeypatch, client)
    monkeypatch.setattr(admin_module, "reach", None)

    with pytest.raises(AuthenticationError, match="k:1 rejects the credentials: no such user"):
        _ = Admin(CONFIG, 20).client

    assert clock[0] == admin_module.PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("lasting", "seconds", "says"),
    [
        (True, 20, r"no response from Kafka at k:1: "),
        (False, 2, r"no response from Kafka at k:1 within 2 s: silence"),
        (False, 1, r"no response from Kafka at k:1 within 1 s: silence"),
        (False, 20, None),
    ],
)
def test_client_hopeless(
    lasting: bool,
    seconds: float,
    says: str | None,
    clock: list[float],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What waiting doesn't mend, and what has taken all the time, is told at once; else it waits.

    The first time only: brokers that have answered once come back.
    """
    monkeypatch.setattr(admin_module, "is_lasting", lambda _: lasting)
    first, second, third = (Starting(clock, *[SILENT] * n) for n in (9, 0, 9))
    starting(monkeypatch, first, second, third)
    admin = Admin(CONFIG, seconds)

    if says is None:
        assert cast(Any, admin.client) is first
    else:
        with pytest.raises(KafkaUnavailableError, match=says):
            _ = admin.client
    for later in (second, third):
        admin._client = None
        assert cast(Any, admin.client) is later


def test_client_let_in_late(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal of the past is forgotten when a broker has let the client in."""
    client = Starting(clock, SILENT)
    client.reports = KafkaError._AUTHENTICATION
    starting(monkeypatch, client)
    admin = Admin(CONFIG, 20)

    assert cast(Any, admin.client) is client
    assert admin._refusals == {}


@pytest.mark.parametrize(("cluster_id", "describes"), [("c", True), ("", False), (None, False)])
def test_look_asks(
    cluster_id: str | None, describes: bool, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster without an id is never described, which would end this process.

    Each look asks again, with the client of the one before.
    """
    client = Starting(clock, cluster_id=cluster_id)
    starting(monkeypatch, client)
    admin = Admin(CONFIG, 20)

    assert [admin.look(), admin.look()] == [None, None]

    seconds = admin_module.LOOK_SECONDS
    assert client.described == ([seconds] * 2 if describes else [])
    assert client.waits == [0.25, *([] if describes else [seconds] * 2)]


@pytest.mark.parametrize(
    ("settings", "given", "found"),
    [
        ({}, None, admin_module.TIMEOUT_SECONDS),
        ({"socket.timeout.ms": "1500"}, None, 1.5),
        ({"socket.timeout.ms": "1500"}, 3.0, 3.0),
    ],
)
def test_timeout(settings: dict[str, str], given: float | None, found: float) -> None:
    """Whoever asks says how long it waits, or the connection does."""
    assert Admin(KafkaConfig({"bootstrap.servers": "k:1"} | settings), given).timeout == found


@pytest.mark.parametrize(
    ("code", "keeps"), [(KafkaError.INVALID_CONFIG, True), (KafkaError._TIMED_OUT, False)]
)
def test_ask_client_kept(
    code: int, keeps: bool, clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a client that may look for a broker that is gone is replaced."""
    client = Starting(clock)
    starting(monkeypatch, client, *[Starting(clock) for _ in range(200)])
    admin = Admin(CONFIG, 5)
    asked: list[Any] = []

    def question(found: Any) -> None:
        asked.append(found)
        raise KafkaException(KafkaError(code))

    with pytest.raises(KafkaDrainError):
        admin.ask(question)

    assert (len(asked) == 1, len({*map(id, asked)}) == 1) == (keeps, keeps)
    assert (cast(Any, admin._client) is client) is keeps


def test_admin_client_hears(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client tells its refused logins, and prints nothing of connections that fail."""
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(admin_module, "AdminClient", made.append)
    note = Admin(CONFIG).note_refusal

    admin_module.admin_client(CONFIG, error_cb=note)

    [settings] = made
    assert (settings["error_cb"], settings["log_level"]) == (note, 2)
    assert settings["bootstrap.servers"] == "k:1"


@pytest.mark.parametrize(
    ("code", "kind"), [(-1, KafkaUnavailableError), (401, AuthenticationError)]
)
def test_no_token(code: int, kind: type[KafkaDrainError]) -> None:
    """A token endpoint that doesn't answer may do so later; one that refuses the login won't."""
    client = FakeClient(ANSWER, KafkaError._TRANSPORT)
    admin = FakeAdmin(client, 0.01)
    said = (
        "Failed to acquire SASL OAUTHBEARER token: Failed to retrieve OIDC token from "
        f'"u": x ({code})'
    )
    client.reports = (admin.note_refusal, KafkaError(KafkaError._AUTHENTICATION, said))

    with pytest.raises(kind):
        of_cluster(admin)


def test_no_token_of_callback() -> None:
    """Where a function gets the tokens, what it needs is named."""
    settings = {
        "bootstrap.servers": "b-1.x.abc.c2.kafka.eu-west-1.amazonaws.com:9098",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
    }
    admin = Admin(KafkaConfig(settings))
    said = "Failed to acquire SASL OAUTHBEARER token: OAuth callback raised exception"
    admin.note_refusal(KafkaError(KafkaError._AUTHENTICATION, said))

    error = admin._silence([])

    assert isinstance(error, KafkaUnavailableError)
    assert "AWS credentials" in str(error)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({}, "the broker may want a login: set security.protocol to SASL_PLAINTEXT"),
        (
            {"sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p"},
            "PLAINTEXT sends no login: set security.protocol to SASL_PLAINTEXT",
        ),
        (
            {"security_protocol": "SSL"},
            "ssl.certificate.location, or a login: set security.protocol to SASL_SSL",
        ),
    ],
)
def test_silence_without_login(
    settings: dict[str, str], says: str, unreached: list[Reached]
) -> None:
    """A broker that tells everyone its versions, and nothing more, may want a login."""
    unreached.append(Reached("k:1", AddressAnswer.ANSWERS))
    admin = FakeAdmin(FakeClient(ANSWER, KafkaError._TRANSPORT), 0.01, **settings)

    with pytest.raises(KafkaUnavailableError, match=says):
        of_cluster(admin)


def test_silence_of_advertised_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers' addresses that Kafka gives, and that can't be reached from here, are told."""
    answers = {"k:1": AddressAnswer.ANSWERS, "kafka:9092": AddressAnswer.UNKNOWN_HOST}
    monkeypatch.setattr(
        admin_module,
        "reach",
        lambda servers, *_: [Reached(one, answers[one]) for one in servers.split(",")],
    )
    admin = FakeAdmin(FakeClient(ANSWER, KafkaError._TRANSPORT), 0.01)
    admin._brokers = ["kafka:9092"]

    with pytest.raises(KafkaUnavailableError, match=r"kafka:9092 has .*are running.*advertised\.l"):
        of_cluster(admin)
