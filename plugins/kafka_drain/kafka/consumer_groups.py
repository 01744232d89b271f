"""What we ask Kafka of consumer groups, and the offsets that we commit for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import AdminClient

from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.errors import (
    AuthorizationError,
    ConfigError,
    GroupError,
    GroupInUseError,
    KafkaDrainError,
    KafkaUnavailableError,
    TopicError,
)
from kafka_drain.kafka.admin_answers import answer_of
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import (
    BACKOFF_SECONDS,
    TIMEOUT_SECONDS,
    socket_timeout,
)
from kafka_drain.kafka.error_codes import PASSING, UNAVAILABLE
from kafka_drain.offsets import TopicPartition

__all__ = ["Committed", "ConsumerGroups", "Group", "Member", "offsets_of"]

T = TypeVar("T")

# What is answered to a commit from outside while the group has members.
_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
)
_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)

READ, COMMIT, DELETE = "DESCRIBE", "READ", "DELETE"


@dataclass(frozen=True, slots=True)
class Committed:
    """What a group has committed for a partition.

    Attributes:
        offset: The offset of the record that it reads next.
        metadata: What its consumers noted beside it; Kafka Streams keeps times there.
    """

    offset: int
    metadata: str = ""


def offsets_of(committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
    """Return what was committed, without metadata."""
    return {tp: found.offset for tp, found in committed.items()}


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer that is in a group.

    Attributes:
        client_id: Its client.id.
        host: Where it runs.
    """

    client_id: str
    host: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.lstrip('/')}"


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as its coordinator describes it.

    Attributes:
        name: Its name.
        state: Such as STABLE, EMPTY, or DEAD: the last is also that of a group that isn't there.
        members: The consumers in it.
    """

    name: str
    state: str
    members: tuple[Member, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether the cluster knows the group."""
        return self.state != "DEAD"

    @property
    def is_idle(self) -> bool:
        """Whether nobody reads with it."""
        return self.state in ("EMPTY", "DEAD") and not self.members

    def who(self) -> str:
        """Return its state and members, for people."""
        shown = ", ".join(map(str, self.members[:10])) + (" …" if len(self.members) > 10 else "")
        count = len(self.members)
        return (
            f"is {self.state} with {count} member{'' if count == 1 else 's'}"
            f"{': ' + shown if shown else ''}"
        )


class ConsumerGroups:
    """Questions to a Kafka cluster about consumer groups, and changes of their offsets.

    Offsets are read through a consumer that is subscribed to nothing, which doesn't join the
    group. AdminClient.list_consumer_group_offsets ends the process with a segmentation fault when
    the coordinator moves in that moment (librdkafka issue 5040; seen with 2.16.1).

    Raises:
        KafkaUnavailableError: From every method, when the brokers don't answer in time.
        AuthorizationError: From every method, when an ACL is missing; names it.
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

    @cached_property
    def _admin(self) -> AdminClient:
        # librdkafka prints refused connections to stderr; the error that we raise says it once.
        return AdminClient({**self.config.for_librdkafka(), "log_level": 2})

    def describe(self, group: str) -> Group:
        """Describe a group; of one that doesn't exist the state is DEAD."""
        try:
            found = self._ask(
                group,
                READ,
                lambda: self._result(
                    self._admin.describe_consumer_groups([group], request_timeout=self._timeout)
                ),
            )
        except _GroupNotFound:
            return Group(group, "DEAD")
        members = tuple(Member(str(m.client_id), str(m.host)) for m in found.members)
        return Group(group, str(found.state.name), members)

    def idle(self, group: str, what: str) -> Group:
        """Describe a group that has to have no members.

        Args:
            group: The group.
            what: What needs that, for the error's message.

        Raises:
            GroupInUseError: When somebody reads with it; says who.
        """
        found = self.describe(group)
        if not found.is_idle:
            raise _in_use(f"group {group} {found.who()}", what)
        return found

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Return what a group has committed; partitions without an offset are left out."""
        wanted = [KafkaTopicPartition(tp.topic, tp.partition) for tp in partitions]
        if not wanted:
            return {}
        with _Reader(self.config, group) as consumer:
            answers = self._ask(
                group,
                READ,
                lambda: _checked(consumer.committed(wanted, timeout=self._timeout)),
            )
        return {
            TopicPartition(answer.topic, answer.partition): Committed(
                answer.offset, answer.metadata or ""
            )
            for answer in answers
            if answer.offset >= 0
        }

    def all_committed(self, group: str) -> dict[TopicPartition, Committed]:
        """Return all that a group has committed, for topics that exist and may be described."""
        listed = self._ask(group, READ, lambda: self._admin.list_topics(timeout=self._timeout))
        return self.committed(
            group,
            (
                TopicPartition(name, partition)
                for name, topic in listed.topics.items()
                if name not in INTERNAL_TOPICS
                for partition in topic.partitions
            ),
        )

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets for a group without members; makes the group where there is none.

        Raises:
            GroupInUseError: When the group has members by now.
            TopicError: When a topic doesn't exist.
        """
        if not offsets:
            return
        request = ConsumerGroupTopicPartitions(
            group,
            [
                KafkaTopicPartition(tp.topic, tp.partition, found.offset, metadata=found.metadata)
                for tp, found in offsets.items()
            ],
        )
        self._ask(
            group,
            COMMIT,
            lambda: _checked(
                self._result(
                    self._admin.alter_consumer_group_offsets(
                        [request], request_timeout=self._timeout
                    )
                ).topic_partitions
            ),
        )

    def delete(self, group: str) -> None:
        """Delete a group with all its offsets; one that isn't there is no error.

        Raises:
            GroupInUseError: When the group has members by now.
        """
        with suppress(_GroupNotFound):
            self._ask(
                group,
                DELETE,
                lambda: self._result(
                    self._admin.delete_consumer_groups([group], request_timeout=self._timeout)
                ),
            )

    def _result(self, futures: Mapping[str, Any]) -> Any:
        (future,) = futures.values()
        return answer_of(future, self._timeout)

    def _ask(self, group: str, operation: str, question: Callable[[], T]) -> T:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return question()
            except KafkaException as error:
                is_passing = error.args[0].code() in PASSING
                if not is_passing or time.monotonic() >= deadline:
                    raise self._explain(error.args[0], group, operation) from error
            time.sleep(BACKOFF_SECONDS)

    def _explain(self, error: KafkaError, group: str, operation: str) -> KafkaDrainError:
        code, servers = error.code(), self.config.bootstrap_servers
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return _GroupNotFound(f"group {group} doesn't exist at {servers}")
        if code in _MEMBERS:
            return _in_use(
                f"group {group} has members by now ({error.str()})", "changing its offsets"
            )
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return AuthorizationError(
                f"Kafka at {servers} refused {operation} of group {group} ({error.str()}); "
                f"expected the ACL {operation} on Group {group}; add it"
            )
        if code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            needed = "READ" if operation == COMMIT else "DESCRIBE"
            return AuthorizationError(
                f"Kafka at {servers} refused the offsets of group {group} ({error.str()}); "
                f"expected the ACL {needed} on each topic that the run read and wrote; add it"
            )
        if code in (KafkaError._INVALID_ARG, KafkaError.INVALID_GROUP_ID):
            return ConfigError(
                f"group {group!r} or the Kafka connection's settings don't fit: {error.str()}; "
                "correct them"
            )
        if code in _UNKNOWN_TOPIC:
            return TopicError(
                f"Kafka at {servers} doesn't know a topic that offsets of group {group} are for "
                f"({error.str()}); was it deleted meanwhile?"
            )
        if code in UNAVAILABLE:
            return KafkaUnavailableError(
                f"no answer about group {group} from Kafka at {servers} within "
                f"{self._timeout:g} s ({error.str()}); check that the broker runs, that "
                "bootstrap.servers is right and reachable from here; the same call may succeed "
                "later"
            )
        return GroupError(f"Kafka at {servers} answered for group {group}: {error.str()}")


class _GroupNotFound(GroupError):
    """Raised when a group doesn't exist; never leaves this module."""


class _Reader:
    """A consumer that is subscribed to nothing and joins no group."""

    def __init__(self, config: KafkaConfig, group: str) -> None:
        self._consumer = Consumer(
            {
                **config.for_librdkafka(),
                "group.id": group,
                "enable.auto.commit": False,
                # Waits for offsets that a transaction holds.
                "isolation.level": "read_committed",
                "log_level": 2,
            }
        )

    def __enter__(self) -> Consumer:
        return self._consumer

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _checked(answers: list[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
    """Return the answers for partitions, none of which may be an error."""
    failed = next((answer.error for answer in answers if answer.error), None)
    if failed is not None:
        raise KafkaException(failed)
    return answers


def _in_use(seen: str, what: str) -> GroupInUseError:
    return GroupInUseError(
        f"{seen}; {what} needs a group that nobody reads with: stop its consumers (one that "
        "crashed leaves after its session.timeout.ms), then try again. Nothing was changed"
    )
