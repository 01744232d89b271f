"""Ask a cluster for its state: one bounded set of requests, none of which can fail the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaTopicPartition
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    ConfigSource,
    ResourcePatternType,
    ResourceType,
)

from kafka_drain.errors import KafkaDrainError
from kafka_drain.kafka.admin import admin_client, answer_of
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster_state import (
    ASKED,
    UNAVAILABLE_PARTS,
    Acl,
    Broker,
    ClusterState,
    GroupOffset,
    GroupState,
    Part,
    PartOutcome,
    PartResult,
    ScramUser,
    Settings,
    TopicState,
)
from kafka_drain.kafka.consumer_groups import OffsetReader, groups_of_all_types
from kafka_drain.kafka.topics import numbered, partitions_of

T = TypeVar("T")

#: Time limit of one request, in seconds.
REQUEST_SECONDS = 5.0
#: Time limit of all groups together, in seconds.
GROUPS_SECONDS = 20.0
#: Number of groups whose offsets are asked for.
MOST_GROUPS = 1_000
#: Groups that are asked for at the same time.
_LANES = 8
#: Number of groups that a note names.
_NAMED = 10

_RESOURCES = {
    ResourceType.TOPIC: "topic",
    ResourceType.GROUP: "group",
    # librdkafka's name for Kafka's resource type CLUSTER.
    ResourceType.BROKER: "cluster",
}


_NOT_AUTHORISED = {
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
}
_UNSUPPORTED = {
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError._UNSUPPORTED_FEATURE,
    KafkaError.INVALID_REQUEST,
    # The cluster has no authorizer, so it has no ACLs.
    KafkaError.SECURITY_DISABLED,
}


def outcome_of(code: int) -> PartOutcome:
    """Return the outcome for a part by an error code; no error is fatal."""
    if code in _NOT_AUTHORISED:
        return PartOutcome.NOT_AUTHORISED
    return PartOutcome.UNSUPPORTED if code in _UNSUPPORTED else PartOutcome.UNANSWERED


@dataclass
class Cost:
    """The cost of a description.

    Attributes:
        requests: Number of requests.
        milliseconds: Its duration.
    """

    requests: int = 0
    milliseconds: int = 0


@dataclass
class ClusterDescriber:
    """Describes a cluster.

    Attributes:
        config: Connection settings.
        cost: Cost of the last description.
    """

    config: KafkaConfig
    cost: Cost = field(default_factory=Cost)

    def describe(
        self,
        topics: Collection[str],
        parts: Collection[Part] = ASKED,
        about: Callable[[Acl], bool] | None = None,
        only: Collection[str] | None = None,
    ) -> ClusterState:
        """Ask for the state of a cluster, as far as it concerns some topics.

        A part that this user may not see, that the broker doesn't know or doesn't answer in time
        is noted as such: nothing is raised for it.

        Args:
            parts: The parts to ask for.
            about: Returns whether an ACL counts; None for those about the topics, the groups that
                are found, and the cluster.
            only: The groups that count; None for all that have offsets.
        """
        began = time.monotonic()
        self.cost = Cost()
        found: dict[Part, PartResult] = {
            part: PartResult(PartOutcome.UNSUPPORTED, why)
            for part, why in UNAVAILABLE_PARTS.items()
        }

        def ask(part: Part, question: Callable[[], tuple[T, str]]) -> T | None:
            if part not in parts:
                found[part] = PartResult(PartOutcome.OFF, "")
                return None
            try:
                answer, detail = question()
            except KafkaException as error:
                found[part] = _failed(error.args[0])
                return None
            except ValueError as error:
                # The client doesn't know a value that a newer broker has answered.
                found[part] = PartResult(PartOutcome.UNSUPPORTED, str(error))
                return None
            found[part] = PartResult(PartOutcome.CAPTURED, detail)
            return answer

        cluster_id, may_describe = self._identity()
        if not cluster_id:
            unanswered = dict.fromkeys(ASKED, PartResult(PartOutcome.UNANSWERED, ""))
            return ClusterState("", {**unanswered, **found}, Settings(), None)
        brokers = ask(Part.BROKERS, self._brokers)
        described = ask(Part.TOPICS, lambda: self._topics(topics))
        groups = ask(Part.GROUPS, lambda: self._groups(topics, only, sees_all=may_describe))
        names = {group.name for group in groups or ()}

        def allowed(question: Callable[[], T]) -> T:
            # Refused as a whole, librdkafka 2.16 takes it for an empty list of ACLs, and ends the
            # process for users.
            if not may_describe:
                raise KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
            return question()

        counts = about or (lambda acl: acl.is_about(topics, names))
        # Which groups matter isn't known without them.
        missing = "without those on groups, which weren't captured"
        if groups is not None:
            untold = found[Part.GROUPS].detail
            missing = "without those on groups that weren't described" if untold else ""
        detail = missing if about is None else ""
        acls = ask(Part.ACLS, lambda: allowed(lambda: self._acls(counts, detail)))
        users = ask(Part.USERS, lambda: allowed(self._users))
        self.cost.milliseconds = round(1000 * (time.monotonic() - began))
        return ClusterState(
            cluster_id,
            {part: found[part] for part in Part},
            Settings(brokers, described, acls, users),
            groups,
        )

    @cached_property
    def _admin(self) -> AdminClient:
        return admin_client(self.config)

    def _answer(self, future: Any) -> Any:
        self.cost.requests += 1
        return answer_of(future, REQUEST_SECONDS)

    @cached_property
    def _described(self) -> Any:
        future = self._admin.describe_cluster(
            include_authorized_operations=True, request_timeout=REQUEST_SECONDS
        )
        return self._answer(future)

    def _identity(self) -> tuple[str, bool]:
        """Return the cluster's id, and whether this user may describe the cluster."""
        try:
            self.cost.requests += 1
            if not self._admin.list_topics(timeout=REQUEST_SECONDS).cluster_id:
                # confluent-kafka 2.16 ends the process when it is to describe such a cluster.
                return "", False
            described = self._described
        except (KafkaException, KafkaDrainError):
            return "", False
        # Without an authorizer, a broker lists all operations.
        operations = described.authorized_operations or ()
        return str(described.cluster_id or ""), AclOperation.DESCRIBE in operations

    def _brokers(self) -> tuple[tuple[Broker, ...], str]:
        nodes = self._described.nodes
        return tuple(sorted(Broker(n.id, n.host, n.port, n.rack) for n in nodes)), ""

    def _topics(self, names: Collection[str]) -> tuple[tuple[TopicState, ...], str]:
        if not names:
            return (), ""
        collection = TopicCollection(sorted(names))
        described = self._admin.describe_topics(collection, request_timeout=REQUEST_SECONDS)
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(names)]
        configs = self._admin.describe_configs(resources, request_timeout=REQUEST_SECONDS)
        self.cost.requests += 2
        found: list[TopicState] = []
        missing: list[tuple[KafkaException, str]] = []
        listed: Collection[str] | None = None
        for resource, future in configs.items():
            name = str(resource.name)
            try:
                topic = answer_of(described[name], REQUEST_SECONDS)
                entries = answer_of(future, REQUEST_SECONDS)
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    listed = self._listed() if listed is None else listed
                    if name not in listed:
                        continue
                missing.append((error, f"{name}: {_failed(error.args[0]).outcome}"))
                continue
            found.append(_topic_state(name, topic, entries.values()))
        if missing and not found:
            raise missing[0][0]
        return tuple(sorted(found, key=lambda topic: topic.name)), "; ".join(
            why for _, why in missing
        )

    def _listed(self) -> Collection[str]:
        self.cost.requests += 1
        return set(self._admin.list_topics(timeout=REQUEST_SECONDS).topics)

    def _groups(
        self, topics: Collection[str], only: Collection[str] | None, *, sees_all: bool
    ) -> tuple[tuple[GroupState, ...], str]:
        listed = self._answer(self._admin.list_consumer_groups(request_timeout=REQUEST_SECONDS))
        if listed.errors:
            # Groups of a broker that doesn't answer must not look like groups that don't exist.
            raise KafkaException(listed.errors[0])
        wanted = self._partitions(topics)
        deadline = time.monotonic() + GROUPS_SECONDS
        # librdkafka's newer request leaves out groups of types that it doesn't know.
        known = {str(group.group_id): group for group in listed.valid}
        # It asks each broker for its groups, and describes them.
        self.cost.requests += 2
        others = {
            str(group.id): group
            for group in groups_of_all_types(self._admin, REQUEST_SECONDS)
            if str(group.id) not in known and (only is None or group.id in only)
        }
        names = sorted({*others, *(name for name in known if only is None or name in only)})
        asked = [known.get(name) or _Other(name) for name in names[:MOST_GROUPS]]

        def offsets(group: Any) -> GroupState | str:
            if time.monotonic() > deadline:
                return f"{group.group_id}: {PartOutcome.UNANSWERED}"
            try:
                return _group_state(group, self._committed(str(group.group_id), wanted))
            except KafkaException as error:
                return f"{group.group_id}: {_failed(error.args[0]).outcome}"
            except KafkaDrainError:
                # There is no token for its client.
                return f"{group.group_id}: {PartOutcome.UNANSWERED}"

        with ThreadPoolExecutor(_LANES) as pool:
            answers = list(pool.map(offsets, asked))
        # The coordinator, and the offsets.
        self.cost.requests += 2 * len(asked)
        details = [answer for answer in answers if isinstance(answer, str)]
        if not sees_all:
            details.append(
                "only groups that this user may describe: it lacks DESCRIBE on the cluster"
            )
        groups = [answer for answer in answers if isinstance(answer, GroupState) and answer.offsets]
        held = {group.name for group in groups}
        # Groups of Kafka Connect, for example, have a protocol, but no offsets.
        without = sorted(
            name for name, group in others.items() if name not in held and not group.protocol_type
        )
        if without:
            details.append(
                f"{', '.join(without[:_NAMED])}{' …' if len(without) > _NAMED else ''}: of a type "
                "that this client can't describe, and without committed offsets (share groups keep "
                "theirs elsewhere)"
            )
        if len(names) > MOST_GROUPS:
            details.append(f"only the first {MOST_GROUPS:,} of the cluster's groups by name")
        return tuple(groups), "; ".join(details)

    def _partitions(self, topics: Collection[str]) -> list[KafkaTopicPartition]:
        self.cost.requests += 1
        listed = self._admin.list_topics(timeout=REQUEST_SECONDS).topics
        offsets = listed.get("__consumer_offsets")
        # No broker lists the groups of a partition without a leader. Who may not describe the topic
        # can't see that.
        if offsets is not None and any(p.leader < 0 for p in offsets.partitions.values()):
            raise KafkaException(KafkaError(KafkaError.COORDINATOR_NOT_AVAILABLE))
        return [
            KafkaTopicPartition(name, partition)
            for name in sorted(topics)
            if name in listed
            for partition in numbered(listed[name].partitions)
        ]

    def _committed(
        self, group: str, wanted: list[KafkaTopicPartition]
    ) -> list[KafkaTopicPartition]:
        with OffsetReader(self.config, group) as reader:
            return reader.committed(wanted, REQUEST_SECONDS) if wanted else []

    def _acls(self, counts: Callable[[Acl], bool], detail: str) -> tuple[tuple[Acl, ...], str]:
        # None matches everything, which the annotations don't say.
        anything: Any = None
        everything = AclBindingFilter(
            ResourceType.ANY,
            anything,
            ResourcePatternType.ANY,
            anything,
            anything,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        listed = self._answer(
            self._admin.describe_acls(everything, request_timeout=REQUEST_SECONDS)
        )
        found = [_acl(binding) for binding in listed if binding.restype in _RESOURCES]
        return tuple(sorted(filter(counts, found))), detail

    def _users(self) -> tuple[tuple[ScramUser, ...], str]:
        future = self._admin.describe_user_scram_credentials(request_timeout=REQUEST_SECONDS)
        found = [
            ScramUser(str(name), info.mechanism.name.replace("_", "-"), info.iterations)
            for name, user in self._answer(future).items()
            for info in user.scram_credential_infos
        ]
        return tuple(sorted(found)), ""


def _failed(error: KafkaError) -> PartResult:
    # The code's name, as its text may name a broker or a time.
    return PartResult(outcome_of(error.code()), error.name())


def _topic_state(name: str, described: Any, entries: Iterable[Any]) -> TopicState:
    # Sorted, so that equal settings are equal documents.
    told = sorted(
        (entry for entry in entries if not entry.is_sensitive and entry.value is not None),
        key=lambda entry: str(entry.name),
    )
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    inherited = {
        ConfigSource.DYNAMIC_BROKER_CONFIG.value,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value,
        ConfigSource.STATIC_BROKER_CONFIG.value,
    }
    return TopicState(
        name=name,
        id=str(described.topic_id),
        partitions=partitions_of(described),
        replication_factor=max(len(p.replicas) for p in described.partitions),
        config={e.name: str(e.value) for e in told if e.source == own},
        inherited={e.name: str(e.value) for e in told if e.source in inherited},
    )


@dataclass(frozen=True)
class _Other:
    """A group of a type that the client doesn't know."""

    group_id: str


def _group_state(listed: Any, answers: Iterable[KafkaTopicPartition]) -> GroupState:
    return GroupState(
        name=str(listed.group_id),
        type=_word(getattr(listed, "type", None)),
        state=_word(getattr(listed, "state", None)),
        offsets=tuple(
            GroupOffset(a.topic, a.partition, a.offset, a.leader_epoch, a.metadata or "")
            for a in sorted(answers, key=lambda a: (a.topic, a.partition))
            if a.offset >= 0
        ),
    )


def _word(member: Any) -> str:
    return "unknown" if member is None else str(member.name).lower()


def _acl(binding: Any) -> Acl:
    return Acl(
        resource=_RESOURCES[binding.restype],
        name=binding.name,
        pattern=binding.resource_pattern_type.name.lower(),
        principal=binding.principal,
        host=binding.host,
        operation=binding.operation.name.lower(),
        permission=binding.permission_type.name.lower(),
    )
