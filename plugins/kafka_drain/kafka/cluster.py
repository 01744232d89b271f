"""Queries to a Kafka cluster: its id, topics, offsets. See consumer_groups.py for groups."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from copy import copy
from dataclasses import dataclass, replace
from itertools import chain, repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

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

from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.errors import (
    AuthorizationError,
    ConfigError,
    KafkaDrainError,
    KafkaUnavailableError,
    TopicError,
)
from kafka_drain.kafka.acls import missing_acls, require_access
from kafka_drain.kafka.admin import BACKOFF_SECONDS, Admin, answer_of
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.identity import (
    NO_TOPIC_ID,
    SeenRecord,
    cluster_text,
    counted_as,
    is_other_topic,
)
from kafka_drain.kafka.keeping import EVERYWHERE, KEEPING
from kafka_drain.kafka.records import WITHOUT_REASON, read_records
from kafka_drain.kafka.single_records import (
    RecordSample,
    read_single_records,
    read_times,
    sample_records,
)
from kafka_drain.kafka.topics import MAX_MESSAGE_BYTES, TopicSettings, numbered, partitions_of
from kafka_drain.offsets import OffsetRange, Offsets, TopicPartition
from kafka_drain.outages import watch

if TYPE_CHECKING:
    import pyarrow as pa

QUICK_SECONDS = 5.0

#: Answers about an unknown partition: a leader's, and librdkafka's of one that isn't listed.
_UNKNOWN = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as described by the cluster.

    Attributes:
        name: Topic name.
        id: Topic id (KIP-516); zeros if Kafka has none.
        partitions: Partition numbers.
    """

    name: str
    id: str
    partitions: tuple[int, ...]


class KafkaCluster:
    """Queries to a Kafka cluster.

    Attributes:
        config: Connection settings.
        admin: Its requests.

    Raises:
        KafkaUnavailableError: From every method, when the brokers don't respond in time.
        AuthenticationError: From every method, when they refuse the login.
    """

    def __init__(
        self,
        config: KafkaConfig,
        timeout_seconds: float | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        """Set up access to a cluster, as `Admin` does; nothing is sent yet.

        Args:
            config: Connection settings.
            timeout_seconds: Longest wait for an answer; None for the default.
            tell: Called once with which cluster it is, when that is known.
        """
        self.config = config
        self.admin = Admin(config, timeout_seconds)
        self._timeout = self.admin.timeout
        self._counted: Mapping[str, str] = {}
        # Shared with the copies that count topics.
        self._told: dict[str, str] = {}
        self._tell = tell

    def named(self) -> dict[str, str]:
        """Return its addresses, and its id if it was asked anything yet; asks nothing."""
        return {"bootstrap_servers": self.config.bootstrap_servers, **self._told}

    def look(self) -> KafkaDrainError | None:
        """Return why Kafka doesn't answer within seconds; None if it does."""
        return self.admin.look()

    def cluster_id(self) -> str:
        """Return the cluster's id; empty if it has none."""
        # Asks any broker: `describe_cluster` waits for the controller known to the client.
        return str(self._listed().cluster_id or "")

    def asked(self) -> dict[str, str]:
        """Return its addresses and its id, which is asked for."""
        return {"bootstrap_servers": self.config.bootstrap_servers, "cluster_id": self.cluster_id()}

    def counting(self, topic_ids: Mapping[str, str]) -> KafkaCluster:
        """Return the same cluster, which gives topics the ids by which an archive counts them.

        Args:
            topic_ids: The archive's current topic ids. A topic of which Kafka gives another one
                keeps Kafka's.
        """
        counting = copy(self)
        counting._counted = dict(topic_ids)
        return counting

    def topic_names(self) -> list[str]:
        """Return the names of all topics except internal ones."""
        return sorted(self._listed().topics.keys() - INTERNAL_TOPICS)

    def _listed(self) -> Any:
        listed = self.admin.ask(lambda admin: admin.list_topics(timeout=self._timeout))
        if not self._told:
            self._told["cluster_id"] = str(listed.cluster_id or "")
            if self._tell is not None:
                self._tell(f"Kafka: {cluster_text(self.named())}")
        return listed

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
        for name, answer in self.admin.ask(ask).items():
            partitions = tuple(numbered(p.id for p in answer.partitions))
            told = answer.authorized_operations
            allowed = None if told is None else {operation.name for operation in told}
            require_access(self.config, name, allowed, needed)
            described[name] = Topic(
                name,
                counted_as(self._counted.get(name), str(answer.topic_id or NO_TOPIC_ID)),
                partitions,
            )
        return described

    def ids_of(self, names: Collection[str]) -> dict[str, str]:
        """Return the ids of those of some topics that exist; one request, about these alone.

        Raises:
            AuthorizationError: When describing one isn't allowed.
        """
        return {name: topic.id for name, topic in self._describe(names, ("DESCRIBE",)).items()}

    def existing(self, names: Iterable[str]) -> set[str]:
        """Return those of some topics that exist.

        Kafka's list leaves out topics that this user may not describe, and ours internal ones. So
        those that aren't listed are asked for by name.

        Raises:
            AuthorizationError: When describing one isn't allowed: it may exist.
        """
        asked = {*names}
        listed = asked.intersection(self.topic_names())
        return listed | self.ids_of(asked - listed).keys()

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists."""
        return name in self.topic_names()

    def topic_settings(self, name: str) -> TopicSettings:
        """Return a topic's settings, so that another one can be created like it."""

        def ask(admin: AdminClient) -> Any:
            futures = admin.describe_topics(TopicCollection([name]), request_timeout=self._timeout)
            return answer_of(futures[name], self._timeout)

        described = self.admin.ask(ask)
        entries = self._topic_config(name)
        own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        policy, kept = entries.get("cleanup.policy"), entries.get("retention.ms")
        # Brokers of other vendors may tell only some settings.
        largest = entries.get("max.message.bytes")
        by_age = int(kept.value) if kept and (not policy or "delete" in str(policy.value)) else -1
        return TopicSettings(
            partitions=partitions_of(described),
            replication_factor=max(len(p.replicas) for p in described.partitions),
            max_message_bytes=int(largest.value) if largest else MAX_MESSAGE_BYTES,
            config={e.name: str(e.value) for e in entries.values() if e.source == own},
            compacted="compact" in str(policy.value) if policy else None,
            retention_ms=by_age if by_age >= 0 else None,
        )

    def create_topic(self, name: str, settings: TopicSettings) -> bool:
        """Create a topic, and wait until it is served; one that is there is left unchanged.

        The replication factor is limited to the number of brokers.

        Returns:
            Whether it was created; False if another client has just done so.

        Raises:
            TopicError: When Kafka refuses.
            KafkaUnavailableError: When it isn't served after the timeout.
        """
        is_new = self._create_topic(name, settings)
        deadline = time.monotonic() + self._timeout
        while not self._is_served(name):
            # It isn't listed to who may not describe it.
            self._describe([name], ("DESCRIBE",))
            if time.monotonic() >= deadline:
                raise KafkaUnavailableError(
                    f"topic {name} was created, but {self.config.bootstrap_servers} doesn't serve "
                    f"it after {self._timeout:g} s: not all of its partitions have a leader"
                )
            time.sleep(BACKOFF_SECONDS)
        return is_new

    def _is_served(self, name: str) -> bool:
        """Return whether a topic is listed, and all of its partitions have leaders."""
        found = self._listed().topics.get(name)
        if found is None or found.error is not None or not found.partitions:
            return False
        return all(partition.leader >= 0 for partition in found.partitions.values())

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
        if found is None or (topic_id is not None and is_other_topic(topic_id, found.id)):
            return False

        def ask(admin: AdminClient) -> None:
            futures = admin.delete_topics([name], request_timeout=self._timeout)
            try:
                answer_of(futures[name], self._timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise

        self.admin.ask(ask)
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
    ) -> bool:
        """Create a topic; return False if there is one already."""
        brokers = self.brokers()
        topic = NewTopic(
            name,
            settings.partitions,
            min(settings.replication_factor, brokers),
            config=dict(settings.config),
        )

        def ask(admin: AdminClient) -> bool:
            futures = admin.create_topics(
                [topic], request_timeout=self._timeout, validate_only=is_asked_only
            )
            try:
                answer_of(futures[name], self._timeout)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
            return True

        return self.admin.ask(ask)

    def brokers(self) -> int:
        """Return the number of brokers."""
        return len(self._listed().brokers)

    def refused_settings(self, name: str, settings: TopicSettings) -> dict[str, str]:
        """Ask Kafka which settings of a new topic it would refuse; creates nothing.

        Returns:
            Its words, by setting. Nothing if it takes all, or would refuse the topic without them.

        Raises:
            AuthorizationError: When this user may not create the topic.
        """
        if self._refusal(name, settings) is None:
            return {}
        bare = replace(settings, config={})
        if self._refusal(name, bare) is not None:
            return {}
        answers = {
            setting: self._refusal(name, bare.with_config(setting, value))
            for setting, value in settings.config.items()
        }
        return {setting: words for setting, words in answers.items() if words is not None}

    def keeping_settings(self, name: str, shape: TopicSettings) -> dict[str, str]:
        """Return the settings with which a new topic keeps restored records; creates nothing.

        Args:
            name: Name of a topic that doesn't exist.
            shape: Its partitions and replicas.

        Returns:
            Of `keeping.KEEPING`, what this cluster takes; what every release knows, if it refuses
            the topic whatever is set.

        Raises:
            AuthorizationError: When this user may not create the topic.
        """
        asked = replace(shape, config=KEEPING)
        if self._refusal(name, asked) is None:
            return dict(KEEPING)
        refused = self.refused_settings(name, asked)
        if not refused:
            return dict(EVERYWHERE)
        return {setting: value for setting, value in KEEPING.items() if setting not in refused}

    def _refusal(self, name: str, settings: TopicSettings) -> str | None:
        try:
            self.check_new_topic(name, settings)
        except TopicError as error:
            return str(error).partition(" responded: ")[2] or str(error)
        return None

    def broker_config(self) -> dict[str, str]:
        """Return a broker's configuration, which a new topic inherits; empty if it isn't told."""
        number = min(self._listed().brokers)
        try:
            entries = self._described(ConfigResource(ResourceType.BROKER, str(number)))
        except (AuthorizationError, TopicError):
            # Managed clusters don't answer, or refuse it for a reason of their own.
            return {}
        return {name: str(entry.value) for name, entry in entries.items()}

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
            isolation_level: `read_committed` for the last stable offset, `read_uncommitted` for
                the high watermark.
        """
        return self._list_offsets(partitions, OffsetSpec.latest(), isolation_level)

    def at_times(self, times: Offsets) -> dict[TopicPartition, int]:
        """Return the first offset whose timestamp is at or after a time in milliseconds.

        A partition without such a record has offset -1. Kafka has no times before 1970: earlier
        ones yield the first record that has a timestamp.
        """
        return {tp: offset for tp, (offset, _) in self.first_since(times).items()}

    def first_since(self, times: Offsets) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first offset at or after a time in milliseconds, and its record's own time.

        A partition without such a record has offset -1.
        """
        found: dict[TopicPartition, tuple[int, int]] = {}
        for at in set(times.values()):
            at_time = [tp for tp, wanted in times.items() if wanted == at]
            # Negative values have special meanings, such as the end offset (ListOffsetsRequest).
            spec = OffsetSpec.for_timestamp(max(0, at))
            found |= self._list_with_times(at_time, spec, "read_uncommitted")
        return found

    def _list_offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation_level: str
    ) -> dict[TopicPartition, int]:
        found = self._list_with_times(partitions, spec, isolation_level)
        if none := sorted(tp for tp, (offset, _) in found.items() if offset < 0):
            # As a start, Spark would take it for `latest`.
            raise KafkaUnavailableError(
                f"Kafka at {self.config.bootstrap_servers} tells {found[none[0]][0]} as the first "
                f"or the end offset of {none[0]}; expected an offset; try again"
            )
        return {tp: offset for tp, (offset, _) in found.items()}

    def _list_with_times(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, isolation_level: str
    ) -> dict[TopicPartition, tuple[int, int]]:
        wanted = {KafkaTopicPartition(tp.topic, tp.partition): spec for tp in partitions}
        if not wanted:
            return {}
        isolation = IsolationLevel[isolation_level.upper()]
        # A client waits for a broker that just died, even if its partitions have new leaders; a new
        # client asks those. So the first attempt is short; only slow responses get the full time.
        timeouts = chain((min(QUICK_SECONDS, self._timeout),), repeat(self._timeout))

        def ask(admin: AdminClient) -> dict[TopicPartition, tuple[int, int]]:
            timeout = next(timeouts)
            futures = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=timeout)
            try:
                answers = {
                    tp: _offset_of(tp, future, timeout)
                    for asked, future in futures.items()
                    for tp in [TopicPartition(asked.topic, asked.partition)]
                }
            except KafkaException as error:
                if error.args[0].code() not in _UNKNOWN:
                    raise
                listed = admin.list_topics(timeout=timeout).topics
                if any(
                    asked.topic not in listed
                    or asked.partition not in numbered(listed[asked.topic].partitions)
                    for asked in wanted
                ):
                    raise
                # Its leader has yet to learn of it, as of a new topic, or as one that starts.
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)) from error
            # librdkafka returns this, without an error, if a leader left the request unanswered.
            if any(answer.offset == OFFSET_INVALID for answer in answers.values()):
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return {tp: (answer.offset, answer.timestamp) for tp, answer in answers.items()}

        return self.admin.ask(ask)

    def records(
        self, tp: TopicPartition, span: OffsetRange, isolation_level: str
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records that Kafka holds of a partition, with the columns of data files.

        Args:
            span: The offsets; some or all may be gone.
            isolation_level: `read_committed` or `read_uncommitted`.

        Raises:
            AuthorizationError: When an ACL is missing.
        """
        first = max(span.start, self.earliest([tp])[tp])
        end = min(span.end, self.latest([tp], isolation_level)[tp])
        if first < end:
            yield from read_records(self.config, tp, OffsetRange(first, end), isolation_level)

    def single_records(
        self,
        offsets: Offsets,
        isolation_level: str = "read_uncommitted",
        ends: Offsets = MappingProxyType({}),
    ) -> dict[TopicPartition, SeenRecord]:
        """Return the first record of each partition at or after an offset.

        Args:
            offsets: The offsets, which Kafka must still hold; for committed records, below the last
                stable ones.
            isolation_level: As in Kafka's consumer configuration.
            ends: Where the partitions end, as `latest` has told: until the replica that is read
                knows of that, it doesn't lack a record.

        Raises:
            AuthorizationError: When an ACL on a topic is missing.
        """
        return read_single_records(self.config, offsets, isolation_level, ends)

    def times_from(
        self, offsets: Offsets, count: int, ends: Offsets
    ) -> dict[TopicPartition, list[tuple[int, int]]]:
        """Return offset and timestamp of the next records of each partition, committed or not.

        Args:
            offsets: The first offsets, which Kafka must still hold.
            count: Number of records of each; fewer if its log ends before.
            ends: As for `single_records`.

        Raises:
            AuthorizationError: When an ACL on a topic is missing.
        """
        return read_times(self.config, offsets, count, ends)

    def sample_records(self, places: Iterable[Offsets]) -> list[RecordSample]:
        """Return the size of a record from each of some places, where Kafka has any.

        Args:
            places: Offsets, of each partition one at a time.

        Raises:
            AuthorizationError: When an ACL on a topic is missing.
        """
        return sample_records(self.config, places)

    def topic_config(self, name: str) -> dict[str, str]:
        """Return a topic's configuration."""
        return {entry.name: str(entry.value) for entry in self._topic_config(name).values()}

    def _topic_config(self, name: str) -> dict[str, Any]:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                return self._described(ConfigResource(ResourceType.TOPIC, name))
            except TopicError:
                # Listed, but not known yet to the broker that was asked.
                if time.monotonic() >= deadline or not self.has_topic(name):
                    raise
            time.sleep(BACKOFF_SECONDS)

    def _described(self, resource: ConfigResource) -> dict[str, Any]:
        def ask(admin: AdminClient) -> dict[str, Any]:
            futures = admin.describe_configs([resource], request_timeout=self._timeout)
            entries: dict[str, Any] = answer_of(futures[resource], self._timeout)
            # One without a value isn't told.
            return {name: entry for name, entry in entries.items() if entry.value is not None}

        return self.admin.ask(ask)


def watched(config: KafkaConfig, tell: Callable[[str], None] | None = None) -> KafkaCluster:
    """Return a connection's cluster; who called `told_of_outages` hears when it is away.

    Args:
        config: The connection.
        tell: Hears once which cluster it leads to.
    """
    cluster = KafkaCluster(config, tell=tell)
    watch(f"Kafka at {config.bootstrap_servers}", cluster.look)
    return cluster


def _offset_of(tp: TopicPartition, future: Future[Any], timeout_seconds: float) -> Any:
    """Return a broker's answer about an offset of a partition.

    Raises:
        KafkaException: As `answer_of` does.
        KafkaUnavailableError: When the broker gives no reason for having no answer; a time is
            looked up in the segment's records, which may be in a remote store.
    """
    try:
        return answer_of(future, timeout_seconds)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN:
            raise
        raise KafkaUnavailableError(
            f"Kafka returned {error.args[0].str()!r} when asked for an offset of {tp}; "
            f"{WITHOUT_REASON}, then try again"
        ) from error
