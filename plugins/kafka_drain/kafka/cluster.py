"""Queries to a Kafka cluster: its id, topics, offsets. See consumer_groups.py for groups."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    OFFSET_INVALID,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    ConfigSource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from kafka_drain.config.checks import integer
from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.errors import (
    AuthenticationError,
    AuthorizationError,
    ConfigError,
    KafkaDrainError,
    KafkaUnavailableError,
    MachineError,
    TopicError,
)
from kafka_drain.kafka.acls import missing_acls, require_access
from kafka_drain.kafka.admin_answers import answer_of
from kafka_drain.kafka.client_config import KafkaConfig, for_client
from kafka_drain.kafka.error_codes import PASSING, UNAVAILABLE
from kafka_drain.kafka.logins import Login
from kafka_drain.kafka.records import read_records
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

TIMEOUT_SECONDS = 20.0

BACKOFF_SECONDS = 0.2

QUICK_SECONDS = 5.0

_SASL = "sasl.username, sasl.password or sasl.mechanism"
#: What to correct when a login is refused.
_CORRECT = {
    Login.KERBEROS: "sasl.kerberos.principal or sasl.kerberos.keytab",
    Login.OIDC: "the client's id, its secret, the scope or the token endpoint",
    Login.ASSERTION: "the assertion, the scope or the token endpoint",
    Login.UNSECURED: "sasl.oauthbearer.config",
    Login.MSK_IAM: "this machine's AWS credentials, their rights in IAM, or oauth_cb",
    Login.GOOGLE: "the application default credentials here, their rights, or oauth_cb",
    Login.CALLBACK: "what the function in oauth_cb returns",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as described by the cluster.

    Attributes:
        name: Topic name.
        id: Topic id (KIP-516).
        partitions: Partition numbers.
    """

    name: str
    id: str
    partitions: tuple[int, ...]


def socket_timeout(config: KafkaConfig) -> float | None:
    """Return the configured `socket.timeout.ms` in seconds, or `None`."""
    name = "socket.timeout.ms"
    if name not in config.settings:
        return None
    return int(integer(10)(name, config.settings[name])) / 1000


class KafkaCluster:
    """Queries to a Kafka cluster.

    Raises:
        KafkaUnavailableError: From every method, when the brokers don't respond in time.
    """

    def __init__(self, config: KafkaConfig, timeout_seconds: float | None = None) -> None:
        """Set up access to a cluster; nothing is sent yet.

        Args:
            config: Connection settings.
            timeout_seconds: How long to wait for a response; None for the connection's
                socket.timeout.ms, or 20 s.

        Raises:
            ConfigError: When socket.timeout.ms isn't a number.
        """
        self.config = config
        self._timeout = timeout_seconds or socket_timeout(config) or TIMEOUT_SECONDS
        #: Reasons why brokers closed the connection, if they gave one.
        self._refusals: dict[int, str] = {}

    @cached_property
    def _admin(self) -> AdminClient:
        # librdkafka prints refused connections to stderr; the raised error already reports them.
        refusals = self._refusals

        # Not a method: the client would be freed by the garbage collector, in any thread, and one
        # of its own can't end it.
        def note_refusal(error: KafkaError) -> None:
            if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
                refusals[error.code()] = error.str()

        settings: dict[str, Any] = {"log_level": 2, "error_cb": note_refusal}
        return AdminClient(for_client(self.config.for_librdkafka(), settings))

    def _ask(self, question: Callable[[AdminClient], T]) -> T:
        """Send a request and wait for the response; retry while the error is transient."""
        deadline = time.monotonic() + self._timeout
        while True:
            # Keep a reference until the response: another thread may drop the client meanwhile.
            admin: AdminClient | None = None
            try:
                admin = self._admin
                return question(admin)
            except KafkaException as error:
                is_passing = error.args[0].code() in PASSING | {KafkaError._TIMED_OUT}
                # librdkafka retries a rejected login endlessly, and reports it in this call.
                if admin is not None:
                    admin.poll(0)
                if is_passing:
                    # A broker was restarted or is gone: a new client requests everything afresh,
                    # and doesn't wait for a former partition leader.
                    self.__dict__.pop("_admin", None)
                if not is_passing or time.monotonic() >= deadline:
                    raise self._explain(error.args[0]) from error
            time.sleep(BACKOFF_SECONDS)

    def _explain(self, error: KafkaError) -> KafkaDrainError:
        servers = self.config.bootstrap_servers
        if error.code() == KafkaError._INVALID_ARG and "No provider for SASL" in error.str():
            return MachineError(
                "confluent-kafka on this machine can't log in as the Kafka connection says: "
                f"{error.str()}. Its wheels have no Kerberos: install librdkafka with libsasl2, "
                "then `pip install --no-binary confluent-kafka confluent-kafka`"
            )
        if error.code() == KafkaError._INVALID_ARG:
            return ConfigError(
                f"the Kafka connection's settings are invalid: {error.str()}; correct them"
            )
        if error.code() == KafkaError.SASL_AUTHENTICATION_FAILED:
            # No token was set before the client began.
            return self._refused(f"logging in to Kafka at {servers} failed: {error.str()}")
        if error.code() in UNAVAILABLE:
            return self._explain_silence(error)
        if error.code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            return AuthorizationError(
                f"Kafka at {servers} responded: {error.str()}; this user lacks an ACL; add it"
            )
        return TopicError(f"Kafka at {servers} responded: {error.str()}")

    def _explain_silence(self, error: KafkaError) -> KafkaDrainError:
        servers = self.config.bootstrap_servers
        if refusal := self._refusals.get(KafkaError._AUTHENTICATION):
            return self._refused(f"Kafka at {servers} rejects the credentials: {refusal}")
        if refusal := self._refusals.get(KafkaError._SSL):
            return KafkaUnavailableError(
                f"TLS with Kafka at {servers} failed: {refusal}; check security.protocol, port, "
                "ssl.ca.location and the client's certificate in the Kafka connection"
            )
        return KafkaUnavailableError(
            f"no response from Kafka at {servers} within {self._timeout:g} s ({error.str()}); "
            "check that the broker is running, and that bootstrap.servers is correct and reachable "
            "from here"
        )

    def _refused(self, seen: str) -> AuthenticationError:
        correct = _CORRECT.get(self.config.login, _SASL)
        return AuthenticationError(f"{seen}; correct {correct} in the Kafka connection")

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        # Asks any broker: `describe_cluster` waits for the controller known to the client.
        return str(self._ask(lambda admin: admin.list_topics(timeout=self._timeout)).cluster_id)

    def topic_names(self) -> list[str]:
        """Return the names of all topics except internal ones."""
        listed = self._ask(lambda admin: admin.list_topics(timeout=self._timeout))
        return sorted(listed.topics.keys() - INTERNAL_TOPICS)

    def topics(
        self, names: Collection[str], needed: Sequence[str] = ("DESCRIBE",)
    ) -> dict[str, Topic]:
        """Describe topics and check this user's permissions on them.

        Args:
            names: Topic names.
            needed: Required operations, by Kafka's ACL names.

        Raises:
            TopicError: When a topic doesn't exist; names existing ones.
            AuthorizationError: When an operation isn't allowed; names the topic, the operations,
                and the command that adds the ACLs.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            described = self._describe(names, needed)
            missing = set(names) - described.keys()
            if not missing:
                return described
            existing = self.topic_names()
            # A topic that was just created may not be known to all brokers yet.
            if not missing <= set(existing) or time.monotonic() >= deadline:
                break
            time.sleep(BACKOFF_SECONDS)
        shown = ", ".join(existing[:10]) + (" …" if len(existing) > 10 else "")
        raise TopicError(
            f"topic {', '.join(sorted(missing))} doesn't exist at "
            f"{self.config.bootstrap_servers}; there {'are' if existing else 'are no'} topics"
            f"{': ' + shown if existing else ''}; create it or correct the name"
        )

    def _describe(self, names: Collection[str], needed: Sequence[str]) -> dict[str, Topic]:
        """Describe the topics that exist."""
        if not names:
            return {}

        def ask(admin: AdminClient) -> dict[str, Any]:
            futures = admin.describe_topics(
                TopicCollection(sorted(names)),
                include_authorized_operations=True,
                request_timeout=self._timeout,
            )
            answers = {}
            for name, future in futures.items():
                try:
                    answers[name] = answer_of(future, self._timeout)
                except KafkaException as error:
                    if error.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        raise missing_acls(self.config, name, needed) from error
                    if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
            return answers

        described: dict[str, Topic] = {}
        for name, answer in self._ask(ask).items():
            partitions = tuple(sorted(p.id for p in answer.partitions))
            told = answer.authorized_operations
            allowed = None if told is None else {operation.name for operation in told}
            require_access(self.config, name, allowed, needed)
            described[name] = Topic(name, str(answer.topic_id), partitions)
        return described

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists."""
        return name in self.topic_names()

    def topic_settings(self, name: str) -> TopicSettings:
        """Return a topic's settings, so that another one can be created like it."""

        def ask(admin: AdminClient) -> Any:
            futures = admin.describe_topics(TopicCollection([name]), request_timeout=self._timeout)
            return answer_of(futures[name], self._timeout)

        described = self._ask(ask)
        entries = self._topic_config(name)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        return TopicSettings(
            partitions=len(described.partitions),
            replication_factor=max(len(p.replicas) for p in described.partitions),
            max_message_bytes=int(entries["max.message.bytes"].value),
            config={e.name: str(e.value) for e in entries.values() if e.source == own},
        )

    def create_topic(self, name: str, settings: TopicSettings) -> None:
        """Create a topic; if another client has just created it, it is left unchanged.

        The replication factor is limited to the number of brokers.

        Raises:
            TopicError: When Kafka refuses.
        """
        self._create_topic(name, settings)
        deadline = time.monotonic() + self._timeout
        while not self.has_topic(name) and time.monotonic() < deadline:
            time.sleep(BACKOFF_SECONDS)

    def delete_topic(self, name: str, topic_id: str | None = None) -> bool:
        """Delete a topic, and wait until it is gone.

        Args:
            name: The topic.
            topic_id: The topic's id; a topic with another one is left alone. None for any.

        Returns:
            Whether it was there and is gone.

        Raises:
            TopicError: When Kafka refuses.
            KafkaUnavailableError: When it is still there after the timeout.
        """
        found = self._describe([name], ("DELETE",)).get(name)
        if found is None or topic_id not in (None, found.id):
            return False

        def ask(admin: AdminClient) -> None:
            futures = admin.delete_topics([name], request_timeout=self._timeout)
            try:
                answer_of(futures[name], self._timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

        self._ask(ask)
        deadline = time.monotonic() + self._timeout
        while self.has_topic(name):
            if time.monotonic() >= deadline:
                raise KafkaUnavailableError(
                    f"topic {name} is still there {self._timeout:g} s after it was deleted"
                )
            time.sleep(BACKOFF_SECONDS)
        return True

    def check_new_topic(self, name: str, settings: TopicSettings) -> None:
        """Ask Kafka whether it would create a topic, without creating it.

        Raises:
            TopicError: When Kafka would refuse.
        """
        self._create_topic(name, settings, is_asked_only=True)

    def _create_topic(
        self, name: str, settings: TopicSettings, *, is_asked_only: bool = False
    ) -> None:
        brokers = len(self._ask(lambda admin: admin.list_topics(timeout=self._timeout)).brokers)
        topic = NewTopic(
            name,
            settings.partitions,
            min(settings.replication_factor, brokers),
            config=dict(settings.config),
        )

        def ask(admin: AdminClient) -> None:
            futures = admin.create_topics(
                [topic], request_timeout=self._timeout, validate_only=is_asked_only
            )
            try:
                answer_of(futures[name], self._timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise

        self._ask(ask)

    def matching(self, pattern: str) -> list[str]:
        """Return the topics whose whole name matches a regular expression, except internal ones.

        Raises:
            ConfigError: When it isn't a regular expression.
            TopicError: When no topic matches.
        """
        try:
            matches = re.compile(pattern).fullmatch
        except re.error as error:
            raise ConfigError(
                f"topic_pattern = {pattern!r} is not acceptable ({error}); accepted: a regular "
                "expression that both Java and Python understand"
            ) from error
        names = [name for name in self.topic_names() if matches(name)]
        if not names:
            internal = sorted(filter(matches, INTERNAL_TOPICS))
            remedy = (
                f"name {' and '.join(internal)} in topics or assign: a pattern matches no internal "
                "topic"
                if internal
                else "create the topics or correct the pattern"
            )
            raise TopicError(
                f"topic_pattern {pattern!r} matches no topic at {self.config.bootstrap_servers}; "
                f"{remedy}"
            )
        return names

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the earliest offset that each partition still has."""
        return self._list_offsets(partitions, OffsetSpec.earliest(), "read_uncommitted")

    def latest(
        self, partitions: Iterable[TopicPartition], isolation_level: str
    ) -> dict[TopicPartition, int]:
        """Return the end offset of each partition.

        Args:
            partitions: The partitions.
            isolation_level: `read_committed` for the last stable offset, `read_uncommitted` for
                the high watermark.
        """
        return self._list_offsets(partitions, OffsetSpec.latest(), isolation_level)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset whose timestamp is at or after a time in milliseconds.

        A partition without such a record has offset -1. Kafka has no times before 1970: earlier
        ones yield the first record that has a timestamp.
        """
        found: dict[TopicPartition, int] = {}
        for at in set(times.values()):
            at_time = [tp for tp, wanted in times.items() if wanted == at]
            # Negative values have special meanings, such as the end offset (ListOffsetsRequest).
            spec = OffsetSpec.for_timestamp(max(0, at))
            found |= self._list_offsets(at_time, spec, "read_uncommitted")
        return found

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation_level: str
    ) -> dict[TopicPartition, int]:
        wanted = {KafkaTopicPartition(tp.topic, tp.partition): spec for tp in partitions}
        if not wanted:
            return {}
        isolation = IsolationLevel[isolation_level.upper()]
        # A client waits for a broker that just died, even if its partitions have new leaders; a new
        # client asks those. So the first attempt is short; only slow responses get the full time.
        timeouts = chain((min(QUICK_SECONDS, self._timeout),), repeat(self._timeout))

        def ask(admin: AdminClient) -> dict[TopicPartition, int]:
            timeout = next(timeouts)
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=timeout)
            offsets = {
                TopicPartition(tp.topic, tp.partition): answer_of(future, timeout).offset
                for tp, future in futures.items()
            }
            # librdkafka returns this, without an error, if a leader left the request unanswered.
            if OFFSET_INVALID in offsets.values():
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return offsets

        return self._ask(ask)

    def records(
        self, tp: TopicPartition, span: OffsetRange, isolation_level: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records that Kafka holds of a partition, with the columns of data files.

        Args:
            tp: The partition.
            span: The offsets; some or all may be gone.
            isolation_level: `read_committed` or `read_uncommitted`.

        Raises:
            AuthorizationError: When an ACL is missing.
        """
        first = max(span.start, self.earliest([tp])[tp])
        end = min(span.end, self.latest([tp], isolation_level)[tp])
        if first < end:
            yield from read_records(self.config, tp, OffsetRange(first, end), isolation_level)

    def topic_config(self, name: str) -> dict[str, str]:
        """Return a topic's configuration."""
        return {entry.name: str(entry.value) for entry in self._topic_config(name).values()}

    def _topic_config(self, name: str) -> dict[str, Any]:
        resource = ConfigResource(ResourceType.TOPIC, name)

        def ask(admin: AdminClient) -> dict[str, Any]:
            futures = admin.describe_configs([resource], request_timeout=self._timeout)
            entries: dict[str, Any] = answer_of(futures[resource], self._timeout)
            return entries

        return self._ask(ask)
