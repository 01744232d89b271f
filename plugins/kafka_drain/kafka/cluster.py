"""What we ask a Kafka cluster: its id, topics, offsets. Of groups: consumer_groups.py."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import Any, TypeVar

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
    TopicError,
)
from kafka_drain.kafka.acls import missing_acls, require_access
from kafka_drain.kafka.admin_answers import answer_of
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.error_codes import PASSING, UNAVAILABLE
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition

__all__ = ["KafkaCluster", "Topic"]

T = TypeVar("T")

TIMEOUT_SECONDS = 20.0

BACKOFF_SECONDS = 0.2

QUICK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as the cluster describes it.

    Attributes:
        name: Its name.
        id: Its id (KIP-516).
        partitions: The numbers of its partitions.
    """

    name: str
    id: str
    partitions: tuple[int, ...]


def socket_timeout(config: KafkaConfig) -> float | None:
    name = "socket.timeout.ms"
    if name not in config.settings:
        return None
    return int(integer(10)(name, config.settings[name])) / 1000


class KafkaCluster:
    """Questions to a Kafka cluster.

    Raises:
        KafkaUnavailableError: From every method, when the brokers don't answer in time.
    """

    def __init__(self, config: KafkaConfig, timeout_seconds: float | None = None) -> None:
        """Name a cluster; nothing is asked yet.

        Args:
            config: How to reach it.
            timeout_seconds: How long to wait for an answer; None for the connection's
                socket.timeout.ms, or 20 s.

        Raises:
            ConfigError: When socket.timeout.ms is no number.
        """
        self.config = config
        self._timeout = timeout_seconds or socket_timeout(config) or TIMEOUT_SECONDS
        #: Why a broker closed the connection, as far as it said so.
        self._refusals: dict[int, str] = {}

    @cached_property
    def _admin(self) -> AdminClient:
        # librdkafka prints refused connections to stderr; the error that we raise says it once.
        settings: dict[str, Any] = {"log_level": 2, "error_cb": self._note_refusal}
        return AdminClient({**self.config.for_librdkafka(), **settings})

    def _note_refusal(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._AUTHENTICATION, KafkaError._SSL):
            self._refusals[error.code()] = error.str()

    def _ask(self, question: Callable[[AdminClient], T]) -> T:
        """Ask and wait for the answer; again while what is answered passes by itself."""
        deadline = time.monotonic() + self._timeout
        while True:
            # Held until the answer is there: another thread may forget the client meanwhile.
            admin: AdminClient | None = None
            try:
                admin = self._admin
                return question(admin)
            except KafkaException as error:
                is_passing = error.args[0].code() in PASSING | {KafkaError._TIMED_OUT}
                # librdkafka tries a refused login again and again, and says so in this call.
                if admin is not None:
                    admin.poll(0)
                if is_passing:
                    # A broker was restarted or is gone: a new client asks for everything anew,
                    # and doesn't wait for a broker that led a partition once.
                    self.__dict__.pop("_admin", None)
                if not is_passing or time.monotonic() >= deadline:
                    raise self._explain(error.args[0]) from error
            time.sleep(BACKOFF_SECONDS)

    def _explain(self, error: KafkaError) -> KafkaDrainError:
        if error.code() == KafkaError._INVALID_ARG:
            return ConfigError(
                f"the Kafka connection's settings don't fit: {error.str()}; correct them"
            )
        if error.code() in UNAVAILABLE:
            return self._explain_silence(error)
        if error.code() in (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            KafkaError.GROUP_AUTHORIZATION_FAILED,
        ):
            return AuthorizationError(
                f"Kafka at {self.config.bootstrap_servers} answered: {error.str()}; this user "
                "lacks an ACL; add it"
            )
        return TopicError(f"Kafka at {self.config.bootstrap_servers} answered: {error.str()}")

    def _explain_silence(self, error: KafkaError) -> KafkaDrainError:
        servers = self.config.bootstrap_servers
        if refusal := self._refusals.get(KafkaError._AUTHENTICATION):
            return AuthenticationError(
                f"Kafka at {servers} refuses the login: {refusal}; correct sasl.username, "
                "sasl.password or sasl.mechanism in the Kafka connection"
            )
        if refusal := self._refusals.get(KafkaError._SSL):
            return KafkaUnavailableError(
                f"no TLS with Kafka at {servers}: {refusal}; check security.protocol, the port, "
                "ssl.ca.location and the client's certificate in the Kafka connection"
            )
        return KafkaUnavailableError(
            f"no answer from Kafka at {servers} within {self._timeout:g} s ({error.str()}); check "
            "that the broker runs, that bootstrap.servers is right and reachable from here"
        )

    def cluster_id(self) -> str:
        """Return the cluster's id."""
        # Of any broker: `describe_cluster` waits for the controller that the client has known.
        return str(self._ask(lambda admin: admin.list_topics(timeout=self._timeout)).cluster_id)

    def topic_names(self) -> list[str]:
        """Return the names of all topics that aren't internal."""
        listed = self._ask(lambda admin: admin.list_topics(timeout=self._timeout))
        return sorted(listed.topics.keys() - INTERNAL_TOPICS)

    def topics(
        self, names: Collection[str], needed: Sequence[str] = ("DESCRIBE",)
    ) -> dict[str, Topic]:
        """Describe topics, which this user may do some things with.

        Args:
            names: Which.
            needed: What has to be allowed, by the names of Kafka's ACL operations.

        Raises:
            TopicError: When one doesn't exist; names those that do.
            AuthorizationError: When something isn't allowed; names topic and operations, and the
                command that allows them.
        """
        deadline = time.monotonic() + self._timeout
        while True:
            described = self._describe(names, needed)
            missing = set(names) - described.keys()
            if not missing:
                return described
            existing = self.topic_names()
            # A topic that was made a moment ago isn't known to all brokers yet.
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
        """Describe those topics that exist."""
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
        """Whether there is a topic of this name."""
        return name in self.topic_names()

    def topic_settings(self, name: str) -> TopicSettings:
        """Return how a topic is set up, so that another can be made like it."""

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
        """Make a topic; one that another made in this moment is left as it is.

        Copies of each partition are no more than the cluster has brokers.

        Raises:
            TopicError: When Kafka refuses.
        """
        self._create_topic(name, settings)
        deadline = time.monotonic() + self._timeout
        while not self.has_topic(name) and time.monotonic() < deadline:
            time.sleep(BACKOFF_SECONDS)

    def check_new_topic(self, name: str, settings: TopicSettings) -> None:
        """Ask Kafka whether it would make a topic; makes none.

        Raises:
            TopicError: When it would refuse.
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
        """Return the topics that a regular expression matches whole, less the internal ones.

        Raises:
            ConfigError: When it is no regular expression.
            TopicError: When it matches none.
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
            raise TopicError(
                f"topic_pattern {pattern!r} matches no topic at {self.config.bootstrap_servers}; "
                "create the topics or correct the pattern"
            )
        return names

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each partition still holds."""
        return self._list_offsets(partitions, OffsetSpec.earliest(), "read_uncommitted")

    def latest(
        self, partitions: Iterable[TopicPartition], isolation_level: str
    ) -> dict[TopicPartition, int]:
        """Return where each partition ends.

        Args:
            partitions: Which.
            isolation_level: `read_committed` for the last stable offset, `read_uncommitted` for
                the high watermark.
        """
        return self._list_offsets(partitions, OffsetSpec.latest(), isolation_level)

    def at_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the first offset whose timestamp is at or after a time in milliseconds.

        A partition without such a record has offset -1. Kafka knows no time before 1970: earlier
        ones mean its first record with a timestamp.
        """
        found: dict[TopicPartition, int] = {}
        for at in set(times.values()):
            at_time = [tp for tp, wanted in times.items() if wanted == at]
            # Negative ones stand for other questions, such as for the end (ListOffsetsRequest).
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
        # A client waits for a broker that just died, though others lead its partitions by now;
        # a new one asks those. Only an answer that is slow deserves the whole time.
        timeouts = chain((min(QUICK_SECONDS, self._timeout),), repeat(self._timeout))

        def ask(admin: AdminClient) -> dict[TopicPartition, int]:
            timeout = next(timeouts)
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=timeout)
            offsets = {
                TopicPartition(tp.topic, tp.partition): answer_of(future, timeout).offset
                for tp, future in futures.items()
            }
            # librdkafka's word, without an error, where a leader left the request unanswered.
            if OFFSET_INVALID in offsets.values():
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return offsets

        return self._ask(ask)

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
