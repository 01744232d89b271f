"""A cluster's state besides its records: groups' offsets, topics, ACLs, users, brokers.

Plain values; opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum


class Part(str, Enum):
    """A part of a cluster's state; the last two can't be asked with this client."""

    GROUPS = "groups"
    TOPICS = "topics"
    ACLS = "acls"
    USERS = "users"
    BROKERS = "brokers"
    QUOTAS = "quotas"
    VERSIONS = "versions"

    def __str__(self) -> str:
        return self.value


#: The parts that can be asked for, and switched off.
ASKED = (Part.GROUPS, Part.TOPICS, Part.ACLS, Part.USERS, Part.BROKERS)

#: Advice about the other parts.
UNAVAILABLE_PARTS: Mapping[Part, str] = {
    Part.QUOTAS: (
        "this client has no request for client quotas; keep the output of kafka-configs.sh "
        "--describe --entity-type clients, users and ips"
    ),
    Part.VERSIONS: (
        "this client has no request for versions of brokers and features; keep the output of "
        "kafka-broker-api-versions.sh and kafka-features.sh describe"
    ),
}


class PartOutcome(str, Enum):
    """The outcome of the request for a part."""

    CAPTURED = "captured"
    OFF = "off"
    NOT_AUTHORISED = "not_authorised"
    UNSUPPORTED = "unsupported"
    UNANSWERED = "unanswered"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class PartResult:
    """The result of one part.

    Attributes:
        outcome: Whether it was captured.
        detail: Why not, or what is missing from it; empty if nothing is. It holds nothing that
            differs between two runs with the same outcome.
    """

    outcome: PartOutcome
    detail: str


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """A group's committed offset in one partition.

    Attributes:
        offset: Offset of the next record to read.
        leader_epoch: Leader epoch of the last record read; None if the commit has none.
        metadata: Metadata of the commit.
    """

    topic: str
    partition: int
    offset: int
    leader_epoch: int | None
    metadata: str


@dataclass(frozen=True, slots=True)
class GroupState:
    """A consumer group that has offsets in the topics.

    Attributes:
        name: Name of the group.
        type: Its protocol, `classic` or `consumer` (KIP-848); `unknown` from older brokers.
        state: Such as `stable` or `empty`.
        offsets: Its committed offsets, sorted.
    """

    name: str
    type: str
    state: str
    offsets: tuple[GroupOffset, ...]


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic's settings.

    Attributes:
        name: The topic.
        id: Its topic id.
        partitions: Number of partitions.
        replication_factor: Number of replicas of each partition.
        config: Configuration set on the topic itself, without sensitive values.
        inherited: Configuration that differs from Kafka's default because of the brokers' settings.
    """

    name: str
    id: str
    partitions: int
    replication_factor: int
    config: Mapping[str, str]
    inherited: Mapping[str, str]

    @property
    def effective(self) -> dict[str, str]:
        """All values that differ from Kafka's defaults."""
        return {**self.inherited, **self.config}


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An access control entry; the words are those of Kafka, in lower case.

    Attributes:
        resource: `topic`, `group` or `cluster`.
        name: Name or prefix of the resource, `*` for all.
        pattern: `literal` or `prefixed`.
        principal: Such as `User:alice`.
        host: Host that it holds for, `*` for all.
        operation: Such as `read`.
        permission: `allow` or `deny`.
    """

    resource: str
    name: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        named = f"{self.name}*" if self.pattern == "prefixed" else self.name
        return (
            f"{self.permission} {self.principal} from {self.host} to {self.operation} "
            f"{self.resource} {named}"
        )

    def is_about(self, topics: Collection[str], groups: Collection[str]) -> bool:
        """Return whether it is about one of these topics or groups, or about the cluster."""
        if self.resource == "cluster":
            return True
        names = {"topic": topics, "group": groups}.get(self.resource, ())
        if self.pattern == "prefixed":
            return any(name.startswith(self.name) for name in names)
        return bool(names) if self.name == "*" else self.name in names


@dataclass(frozen=True, slots=True, order=True)
class ScramUser:
    """A SCRAM user; the credential itself never leaves the cluster.

    Attributes:
        name: The user.
        mechanism: `SCRAM-SHA-256` or `SCRAM-SHA-512`.
        iterations: Iterations of the hash.
    """

    name: str
    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True, order=True)
class Broker:
    """A broker of the cluster.

    Attributes:
        host: Its host, as clients reach it.
        rack: Its rack; None for none.
    """

    id: int
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings that rarely change; a part that wasn't captured is None.

    Attributes:
        brokers: The brokers, by id.
        topics: The topics, by name.
        acls: ACLs about the topics, the groups and the cluster.
    """

    brokers: tuple[Broker, ...] | None = None
    topics: tuple[TopicState, ...] | None = None
    acls: tuple[Acl, ...] | None = None
    users: tuple[ScramUser, ...] | None = None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster's answers.

    Attributes:
        cluster_id: The cluster's id; empty if it didn't say.
        parts: The result of each part.
        settings: The part that rarely changes.
        groups: Groups that have offsets in the topics, by name; None if they weren't captured.
    """

    cluster_id: str
    parts: Mapping[Part, PartResult]
    settings: Settings
    groups: tuple[GroupState, ...] | None
