"""Requests through librdkafka's AdminClient: retried while errors are transient, and explained."""

from __future__ import annotations

import concurrent.futures
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from kafka_drain.config.checks import integer
from kafka_drain.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    KafkaDrainError,
    KafkaUnavailableError,
    MachineError,
    TopicError,
)
from kafka_drain.kafka.client_config import KafkaConfig, for_client
from kafka_drain.kafka.error_codes import PASSING, UNAVAILABLE
from kafka_drain.kafka.logins import Login
from kafka_drain.kafka.reaching import (
    STEP_SECONDS,
    AddressAnswer,
    Reached,
    is_lasting,
    reach,
    reasons,
    remedy,
)

T = TypeVar("T")

#: Time in seconds beyond its own timeout after which a request counts as unanswered.
GRACE_SECONDS = 1.0

TIMEOUT_SECONDS = 20.0

BACKOFF_SECONDS = 0.2

#: Time that a first contact has before it is taken for hopeless.
PATIENCE_SECONDS = 2.0

#: Time until a new client is asked about its connections for the first time; then twice that.
_LISTEN_SECONDS = 0.25

#: Longest wait for Kafka's answer to a look.
LOOK_SECONDS = 3.0

#: librdkafka's words where no token was had, and nobody refused the login: HTTP's 4xx would.
_NO_TOKEN = re.compile(
    r"Failed to retrieve (OIDC|JWT) token from .*\((?!4\d\d\))-?\d+\)\s*$"
    r"|OAuth callback raised exception",
    re.DOTALL,
)

_SASL = "sasl.username, sasl.password or sasl.mechanism"
#: The settings to correct when a login is refused.
_CORRECT = {
    Login.KERBEROS: "sasl.kerberos.principal or sasl.kerberos.keytab",
    Login.OIDC: "the client's id, its secret, the scope or the token endpoint",
    Login.ASSERTION: "the assertion, the scope or the token endpoint",
    Login.UNSECURED: "sasl.oauthbearer.config",
    Login.MSK_IAM: "this machine's AWS credentials, their rights in IAM, or oauth_cb",
    Login.GOOGLE: "the application default credentials here, their rights, or oauth_cb",
    Login.CALLBACK: "what the function in oauth_cb returns",
}


def admin_client(config: KafkaConfig, **own: Any) -> AdminClient:
    """Return a client for requests; nothing is sent yet.

    Args:
        config: Connection settings.
        own: The client's own settings; see `for_client`.

    Raises:
        KafkaException: When librdkafka refuses the settings.
        KafkaDrainError: As `for_client` does.
    """
    # librdkafka prints refused connections to stderr; the raised error already reports them.
    return AdminClient(for_client(config.for_librdkafka(), {"log_level": 2, **own}))


class Admin:
    """A cluster's client for requests, replaced by a new one while brokers come and go.

    Attributes:
        config: Connection settings.
        timeout: Longest wait for a response, in seconds.
    """

    def __init__(self, config: KafkaConfig, timeout_seconds: float | None = None) -> None:
        """Set up access to a cluster; nothing is sent yet.

        Args:
            config: Connection settings.
            timeout_seconds: Longest wait for a response; None for the connection's
                socket.timeout.ms, or 20 s.

        Raises:
            ConfigError: When socket.timeout.ms isn't a number.
        """
        self.config = config
        self.timeout = timeout_seconds or _socket_timeout(config) or TIMEOUT_SECONDS
        self._making = threading.RLock()
        self._client: AdminClient | None = None
        self._is_contacted = False
        self._tells_id = False
        #: The brokers' addresses according to Kafka; empty until it has answered.
        self._brokers: list[str] = []
        #: Reasons why brokers closed the connection, if they gave one.
        refusals: dict[int, str] = {}
        self._refusals = refusals

        # Not a method: the client would be freed by the garbage collector, in any thread, and one
        # of its own can't end it.
        def note_refusal(error: KafkaError) -> None:
            if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
                refusals[error.code()] = error.str()

        #: The `error_cb` of clients whose refused logins are to be told apart.
        self.note_refusal = note_refusal

    @property
    def client(self) -> AdminClient:
        """The client; it is made when it is needed."""
        # Up to Python 3.11, cached properties of all instances wait for one another.
        with self._making:
            if self._client is None:
                self._client = self._contact()
            return self._client

    def ask(
        self,
        question: Callable[[AdminClient], T],
        explain: Callable[[KafkaError], KafkaDrainError] | None = None,
        about: str = "",
    ) -> T:
        """Send a request and wait for the response; retry while the error is transient.

        Args:
            question: Sends it. It is asked again after an error, so it may change only what
                another attempt leaves unchanged.
            explain: Returns our error for one that a broker has answered; None for the common ones.
            about: The subject of the request, for the message when nobody answers.

        Raises:
            KafkaUnavailableError: When the brokers don't respond in time.
            AuthenticationError: When they refuse the login.
            MachineError: When this machine's librdkafka lacks what the login needs.
            KafkaDrainError: The error that `explain` returns.
        """
        deadline = time.monotonic() + self.timeout
        while True:
            # Keep a reference until the response: another thread may drop the client meanwhile.
            client: AdminClient | None = None
            try:
                client = self.client
                answer = question(client)
                # Whoever is let in now was refused for a passing reason.
                self._refusals.clear()
                return answer
            except KafkaException as error:
                is_passing = error.args[0].code() in PASSING | {KafkaError._TIMED_OUT}
                # librdkafka retries a rejected login endlessly, and reports it in this call.
                if client is not None:
                    client.poll(0)
                if is_passing:
                    # A broker was restarted or is gone: a new client requests everything afresh,
                    # and doesn't wait for a former partition leader.
                    self._client = None
                if not is_passing or time.monotonic() >= deadline:
                    raise self._explain(error.args[0], explain or self._answered, about) from error
            time.sleep(BACKOFF_SECONDS)

    def look(self) -> KafkaDrainError | None:
        """Return why Kafka doesn't answer within seconds; None if it does.

        Asks with the connection's login for the cluster: any broker knows it, and it takes no ACL.
        The connection stays open until the next look.
        """
        ends = time.monotonic() + self._quick.timeout
        try:
            self._quick.ask(lambda client: self._quick._ping(client, ends - time.monotonic()))
        except KafkaDrainError as error:
            return error
        return None

    def _ping(self, client: AdminClient, seconds: float) -> None:
        seconds = max(seconds, BACKOFF_SECONDS)
        if self._tells_id:
            answer_of(client.describe_cluster(request_timeout=seconds), seconds)
        else:
            # confluent-kafka 2.16 ends the process when it is to describe a cluster without an id.
            client.list_topics(timeout=seconds)

    @cached_property
    def _quick(self) -> Admin:
        return Admin(self.config, LOOK_SECONDS)

    def _contact(self) -> AdminClient:
        """Return a new client that a broker has answered, or that waited for that for seconds.

        If librdkafka is asked for offsets within a few milliseconds of its start, it looks for
        their leaders while it connects, and again only after up to three seconds.

        The first time, find out early whether it can get an answer at all: clients try again until
        the timeout of a request, whatever they hear meanwhile.

        Raises:
            KafkaException: When librdkafka refuses the settings.
            KafkaDrainError: When the login is refused, waiting for an answer can't help, or the
                time for one is over.
        """
        client = admin_client(self.config, error_cb=self.note_refusal)
        began, said = time.monotonic(), ""
        until = began + min(PATIENCE_SECONDS, self.timeout)
        seconds = _LISTEN_SECONDS
        # A name may become known, and a port be taken over, while services start.
        while (left := until - time.monotonic()) > 0:
            try:
                listed = client.list_topics(timeout=min(seconds, left))
            except KafkaException as error:
                said = error.args[0].str()
                client.poll(0)
                seconds *= 2
            else:
                self._tells_id = bool(listed.cluster_id)
                self._brokers = _addresses(listed)
                self._is_contacted = True
                self._refusals.clear()
                return client
        if not self._is_contacted:
            reached = [] if self._refusals else self._reach()
            if self._refusals or is_lasting(reached):
                raise self._silence(reached)
            if time.monotonic() - began >= self.timeout:
                raise self._silence(reached, said=said)
        self._is_contacted = True
        return client

    def _reach(self, servers: str = "") -> list[Reached]:
        step_seconds = min(STEP_SECONDS, self.timeout / 3)
        servers = servers or self.config.bootstrap_servers
        return reach(servers, self.config.protocol, step_seconds)

    def _explain(
        self, error: KafkaError, answered: Callable[[KafkaError], KafkaDrainError], about: str
    ) -> KafkaDrainError:
        servers = self.config.bootstrap_servers
        if error.code() == KafkaError._INVALID_ARG and "No provider for SASL" in error.str():
            return MachineError(
                "confluent-kafka on this machine can't log in as the Kafka connection says: "
                f"{error.str()}. Its wheels have no Kerberos: install librdkafka with libsasl2, "
                "then `pip install --no-binary confluent-kafka confluent-kafka`"
            )
        if error.code() == KafkaError.SASL_AUTHENTICATION_FAILED:
            # No token was set before the client began.
            return self._refused(f"logging in to Kafka at {servers} failed: {error.str()}")
        if error.code() not in UNAVAILABLE:
            return answered(error)
        return self._silence(self._reach(), about, error.str())

    def _silence(
        self, reached: Sequence[Reached], about: str = "", said: str = ""
    ) -> KafkaDrainError:
        """Return the error for having no answer.

        Args:
            reached: The results for the addresses.
            about: The subject of the request.
            said: The client's message after the timeout; empty if that wasn't waited for.
        """
        servers = self.config.bootstrap_servers
        if refusal := self._refusals.get(KafkaError._AUTHENTICATION):
            if _NO_TOKEN.search(refusal):
                what = "check that the token endpoint is reachable from here"
                if "OAuth callback" in refusal:
                    what = f"correct {_CORRECT.get(self.config.login, _SASL)}"
                return KafkaUnavailableError(
                    f"there is no token for Kafka at {servers}: {refusal}; {what}, or try again"
                )
            return self._refused(f"Kafka at {servers} rejects the credentials: {refusal}")
        refusal = self._refusals.get(KafkaError._SSL)
        if refusal and not is_lasting(reached):
            return KafkaUnavailableError(
                f"TLS with Kafka at {servers} failed: {refusal}; check security.protocol, port, "
                "ssl.ca.location and the client's certificate in the Kafka connection"
            )
        about = f" about {about}" if about else ""
        waited = f" within {self.timeout:g} s" if said else ""
        why = reasons(reached)
        what = remedy(reached, self.config.protocol, logs_in=self.config.login is not Login.NONE)
        if reached and not why:
            why, what = self._behind(said, what)
        return KafkaUnavailableError(
            f"no response{about} from Kafka at {servers}{waited}: {why or said}; {what}"
        )

    def _behind(self, why: str, what: str) -> tuple[str, str]:
        """Return why there is no response though the given addresses answer, and the remedy."""
        protocol = self.config.protocol.lower()
        if self._brokers:
            asked = self._reach(",".join(self._brokers))
            silent = [each for each in asked if each.answer is not AddressAnswer.ANSWERS]
            if not silent:
                return why, what
            return ", ".join(map(str, silent)), (
                "Kafka gives these as its brokers' addresses: check that these brokers are "
                "running and reachable from here; if they are, correct their advertised.listeners"
            )
        if protocol.startswith("sasl_"):
            return why, what
        # A broker tells its versions to everyone, and closes the connection at the next request
        # without a login.
        with_login = "SASL_SSL" if protocol == "ssl" else "SASL_PLAINTEXT"
        lacks = "the broker may want a login"
        if protocol == "ssl":
            lacks = "the broker may want ssl.certificate.location, or a login"
        if self.config.login is not Login.NONE:
            lacks = f"security.protocol {protocol.upper()} sends no login"
        return why, f"{lacks}: set security.protocol to {with_login}, and sasl.mechanism; or {what}"

    def _refused(self, seen: str) -> AuthenticationError:
        correct = _CORRECT.get(self.config.login, _SASL)
        return AuthenticationError(f"{seen}; correct {correct} in the Kafka connection")

    def _answered(self, error: KafkaError) -> KafkaDrainError:
        """Return our error for a broker's answer to a question about the cluster or its topics."""
        if error.code() == KafkaError._INVALID_ARG:
            return ConfigError(
                f"the Kafka connection's settings are invalid: {error.str()}; correct them"
            )
        seen = f"Kafka at {self.config.bootstrap_servers} responded: {error.str()}"
        if error.code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            return AuthorizationError(f"{seen}; this user lacks an ACL; add it")
        return TopicError(seen)


def _addresses(listed: Any) -> list[str]:
    brokers = (getattr(listed, "brokers", None) or {}).values()
    return [f"[{b.host}]:{b.port}" if ":" in b.host else f"{b.host}:{b.port}" for b in brokers]


def answer_of(future: concurrent.futures.Future[Any], timeout_seconds: float) -> Any:
    """Return the response to a request, or fail with a timeout if no broker responds.

    If a request goes to a broker that dies at that moment, the client waits until the broker comes
    back, even beyond the request's timeout and after its partitions have new leaders.

    Args:
        future: Future of the request.
        timeout_seconds: The request's own timeout.

    Raises:
        KafkaException: With the broker's error, or `_TIMED_OUT` if there was no response.
    """
    try:
        return future.result(timeout_seconds + GRACE_SECONDS)
    # In Python 3.10, this isn't the builtin TimeoutError.
    except concurrent.futures.TimeoutError as error:
        silence = KafkaError(KafkaError._TIMED_OUT, "the client is waiting for a broker")
        raise KafkaException(silence) from error


def _socket_timeout(config: KafkaConfig) -> float | None:
    """Return the configured `socket.timeout.ms` in seconds, or `None`."""
    name = "socket.timeout.ms"
    if name not in config.settings:
        return None
    return int(integer(10)(name, config.settings[name])) / 1000
