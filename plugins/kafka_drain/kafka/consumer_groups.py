"""Queries to Kafka about consumer groups, and commits of offsets on their behalf."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
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
    TopicError,
)
from kafka_drain.kafka.admin import Admin, answer_of
from kafka_drain.kafka.client_config import KafkaConfig, for_client
from kafka_drain.kafka.topics import numbered
from kafka_drain.offsets import TopicPartition

T = TypeVar("T")

# Errors of a commit from outside the group while it has members.
_MEMBERS = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.ILLEGAL_GENERATION,
)
_UNKNOWN_TOPIC = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC)

READ, COMMIT, DELETE = "DESCRIBE", "READ", "DELETE"

#: States of a group that doesn't exist, and of one that exists but can't be described.
DEAD, UNTOLD = "DEAD", "UNTOLD"


@dataclass(frozen=True, slots=True)
class Committed:
    """The committed position of a group in a partition.

    Attributes:
        offset: Offset of the next record to read.
        metadata: Metadata of the commit; Kafka Streams stores times in it.
    """

    offset: int
    metadata: str = ""


def offsets_of(committed: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
    """Return the committed offsets, without metadata."""
    return {tp: found.offset for tp, found in committed.items()}


@dataclass(frozen=True, slots=True)
class Member:
    """A consumer in a group."""

    client_id: str
    host: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.lstrip('/')}"


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group as described by its coordinator.

    Attributes:
        name: Name of the group.
        state: Such as STABLE, EMPTY; DEAD if it doesn't exist; UNTOLD if it is of a type that this
            client can't describe, so that nobody knows whether it has members.
        members: Consumers in the group.
    """

    name: str
    state: str
    members: tuple[Member, ...] = ()

    @property
    def exists(self) -> bool:
        """Whether the group exists in the cluster."""
        return self.state != DEAD

    @property
    def is_idle(self) -> bool:
        """Whether the group has no active consumers."""
        return self.state in ("EMPTY", DEAD) and not self.members

    def who(self) -> str:
        """Describe the state and members for display."""
        if self.state == UNTOLD:
            return (
                "is of a type that this client can't describe (such as streams or share), so it "
                "may have members"
            )
        shown = ", ".join(map(str, self.members[:10])) + (" …" if len(self.members) > 10 else "")
        count = len(self.members)
        return (
            f"is {self.state} with {count} member{'' if count == 1 else 's'}"
            f"{': ' + shown if shown else ''}"
        )


def groups_of_all_types(client: Any, timeout: float, *group: str) -> Sequence[Any]:
    """List groups by the request that leaves out no type; just one group if it is named.

    AdminClient.list_consumer_groups leaves out the types that librdkafka doesn't know, so this
    deprecated request is the only one that shows them.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        listed: Sequence[Any] = client.list_groups(*group, timeout=timeout)
    return listed


class ConsumerGroups:
    """Queries to a Kafka cluster about consumer groups, and changes of their offsets.

    Offsets are read through a consumer without a subscription, which doesn't join the group.
    AdminClient.list_consumer_group_offsets crashes the process with a segmentation fault if the
    coordinator moves at that moment (librdkafka issue 5040; seen with 2.16.1).

    Raises:
        KafkaUnavailableError: From every method, when the brokers don't respond in time.
        AuthenticationError: From every method, when they refuse the login.
        AuthorizationError: From every method, when an ACL is missing; names it.
    """

    def __init__(self, config: KafkaConfig, timeout_seconds: float | None = None) -> None:
        """Set up access to a cluster, as `Admin` does; nothing is sent yet."""
        self.admin = Admin(config, timeout_seconds)
        self._timeout = self.admin.timeout

    def describe(self, group: str) -> Group:
        """Describe a group; the state of a nonexistent one is DEAD.

        Brokers describe a group of another type, such as one of Kafka Streams' own protocol, like
        one that doesn't exist. They list it, though.
        """
        try:
            found = self._ask(
                group,
                READ,
                lambda client: self._result(
                    client.describe_consumer_groups([group], request_timeout=self._timeout)
                ),
            )
        except _GroupNotFound:
            return self._undescribed(group)
        if found.state.name == DEAD:
            return self._undescribed(group)
        members = tuple(Member(str(m.client_id), str(m.host)) for m in found.members)
        return Group(group, str(found.state.name), members)

    def _undescribed(self, group: str) -> Group:
        listed = self._ask(
            group, READ, lambda client: groups_of_all_types(client, self._timeout, group)
        )
        return Group(group, UNTOLD if listed else DEAD)

    def idle(self, group: str, what: str) -> Group:
        """Describe a group that is required to have no members.

        Args:
            what: The operation that requires it, for the error message.

        Raises:
            GroupInUseError: When the group has active members; names them.
        """
        found = self.describe(group)
        if not found.is_idle:
            raise _in_use(f"group {group} {found.who()}", what)
        return found

    def committed(
        self, group: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Committed]:
        """Return a group's committed offsets; partitions without an offset are left out."""
        wanted = [KafkaTopicPartition(tp.topic, tp.partition) for tp in partitions]
        if not wanted:
            return {}
        with OffsetReader(self.admin.config, group, self.admin.note_refusal) as reader:
            answers = self._ask(group, READ, lambda _: reader.committed(wanted, self._timeout))
        return {
            TopicPartition(answer.topic, answer.partition): Committed(
                answer.offset, answer.metadata or ""
            )
            for answer in answers
            if answer.offset >= 0
        }

    def all_committed(self, group: str) -> dict[TopicPartition, Committed]:
        """Return all committed offsets of a group, for existing topics that may be described."""
        listed = self._ask(group, READ, lambda client: client.list_topics(timeout=self._timeout))
        return self.committed(
            group,
            (
                TopicPartition(name, partition)
                for name, topic in listed.topics.items()
                if name not in INTERNAL_TOPICS
                for partition in numbered(topic.partitions)
            ),
        )

    def commit(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets for a group without members; creates the group if it doesn't exist.

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
            lambda client: _checked(
                self._result(
                    client.alter_consumer_group_offsets([request], request_timeout=self._timeout)
                ).topic_partitions
            ),
        )

    def delete(self, group: str) -> None:
        """Delete a group with all its offsets; a nonexistent group isn't an error.

        Raises:
            GroupInUseError: When the group has members by now.
        """
        with suppress(_GroupNotFound):
            self._ask(
                group,
                DELETE,
                lambda client: self._result(
                    client.delete_consumer_groups([group], request_timeout=self._timeout)
                ),
            )

    def _result(self, futures: Mapping[str, Any]) -> Any:
        (future,) = futures.values()
        return answer_of(future, self._timeout)

    def _ask(self, group: str, operation: str, question: Callable[[AdminClient], T]) -> T:
        return self.admin.ask(
            question, lambda error: self._explain(error, group, operation), f"group {group}"
        )

    def _explain(self, error: KafkaError, group: str, operation: str) -> KafkaDrainError:
        code, servers = error.code(), self.admin.config.bootstrap_servers
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return _GroupNotFound(f"group {group} doesn't exist at {servers}")
        if code in _MEMBERS:
            return _in_use(
                f"group {group} has members by now ({error.str()})", "changing its offsets"
            )
        if code == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return AuthorizationError(
                f"Kafka at {servers} refused {operation} on group {group} ({error.str()}); "
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
                f"group {group!r} or the Kafka connection's settings are invalid: {error.str()}; "
                "correct them"
            )
        if code == KafkaError.OFFSET_METADATA_TOO_LARGE:
            return GroupError(
                f"Kafka at {servers} refused the metadata that group {group} has committed with "
                f"its offsets ({error.str()}); raise offset.metadata.max.bytes of its brokers and "
                "try again, or give the offsets alone with --offsets-file"
            )
        if code in _UNKNOWN_TOPIC:
            return TopicError(
                f"group {group} has offsets for a topic that Kafka at {servers} doesn't have "
                f"({error.str()}); check whether it was deleted in the meantime"
            )
        return GroupError(f"Kafka at {servers} responded for group {group}: {error.str()}")


class _GroupNotFound(GroupError):
    """Raised when a group doesn't exist; never leaves this module."""


class OffsetReader:
    """A consumer that has no subscription and joins no group.

    Args:
        config: Connection settings.
        group: The group whose offsets it reads.
        note: Receives errors of its connections, such as a refused login; None for nobody.
    """

    def __init__(
        self,
        config: KafkaConfig,
        group: str,
        note: Callable[[KafkaError], None] | None = None,
    ) -> None:
        own = {
            "group.id": group,
            "enable.auto.commit": False,
            # Waits for offsets that are pending in a transaction.
            "isolation.level": "read_committed",
            "log_level": 2,
        }
        if note is not None:
            own["error_cb"] = note
        self._consumer = Consumer(for_client(config.for_librdkafka(), own))

    def __enter__(self) -> OffsetReader:
        return self

    def committed(
        self, wanted: list[KafkaTopicPartition], timeout: float
    ) -> list[KafkaTopicPartition]:
        """Return the group's offsets of partitions.

        Raises:
            KafkaException: With the broker's error for the group or for any of the partitions.
        """
        try:
            return _checked(self._consumer.committed(wanted, timeout=timeout))
        except KafkaException:
            # Errors of connections are passed on in this call.
            self._consumer.poll(0)
            raise

    def __exit__(self, *_: object) -> None:
        self._consumer.close()


def _checked(answers: list[KafkaTopicPartition]) -> list[KafkaTopicPartition]:
    """Return the results for partitions; raise the first error among them."""
    failed = next((answer.error for answer in answers if answer.error), None)
    if failed is not None:
        raise KafkaException(failed)
    return answers


def _in_use(seen: str, what: str) -> GroupInUseError:
    return GroupInUseError(
        f"{seen}; {what} needs a group without active members: stop its consumers (one that "
        "crashed leaves after its session.timeout.ms), then try again. Nothing was changed"
    )
