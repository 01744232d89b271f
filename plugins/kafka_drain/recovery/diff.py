"""Compare what an archive knows of its cluster with a target cluster. Opens nothing.

Nothing is ever deleted on a target: what only the target has is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from kafka_drain.kafka.cluster_state import (
    UNAVAILABLE_PARTS,
    Acl,
    ClusterState,
    GroupState,
    Outcome,
    Part,
    PartResult,
    ScramUser,
    Settings,
    TopicState,
)
from kafka_drain.kafka.fitting import THROTTLES, Fate, Fitted, config_of
from kafka_drain.recovery.safety import lowered_by, opened_by


class Action(str, Enum):
    """What is to be done about a difference."""

    ADD = "add"
    CHANGE = "change"
    LEAVE = "leave"
    BY_HAND = "by hand"

    def __str__(self) -> str:
        return self.value


class Kind(str, Enum):
    """What a difference is about; the first three can be applied."""

    TOPICS = "topics"
    CONFIGS = "configs"
    ACLS = "acls"
    USERS = "users"
    GROUPS = "groups"
    QUOTAS = "quotas"
    VERSIONS = "versions"

    def __str__(self) -> str:
        return self.value


#: What can be applied.
APPLICABLE = (Kind.TOPICS, Kind.CONFIGS, Kind.ACLS)

#: New topics keep everything until the restored records are verified.
KEEP = {"retention.ms": "-1", "retention.bytes": "-1"}


@dataclass(frozen=True, slots=True)
class Row:
    """One difference.

    Attributes:
        kind: What it is about.
        name: Name of the topic, user or group; for an ACL, the rule.
        setting: Name of the topic's setting; empty for other kinds.
        action: What is to be done.
        archived: What the archive has; None for nothing.
        target: What the target has; None for nothing, or if it isn't known.
        note: Why, or what to do.
        lowers: What becomes less safe; empty for nothing.
        item: What is applied.
    """

    kind: Kind
    name: str
    action: Action
    archived: str | None
    target: str | None
    note: str = ""
    setting: str = ""
    lowers: str = ""
    item: TopicState | Acl | None = None

    @property
    def can_apply(self) -> bool:
        """Whether it can be applied at all."""
        return self.kind in APPLICABLE and self.action in (Action.ADD, Action.CHANGE)

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON types."""
        return {
            "kind": str(self.kind),
            "name": self.name,
            "setting": self.setting,
            "action": str(self.action),
            "archived": self.archived,
            "target": self.target,
            "lowers_safety": self.lowers,
            "note": self.note,
        }


@dataclass(frozen=True)
class Archived:
    """What an archive knows of its cluster; each part as of its newest description.

    Attributes:
        settings: Topics, ACLs, users and brokers.
        groups: Consumer groups with offsets; None if they were never captured.
        parts: What became of each part when it was asked for last.
        as_of: When each part was captured, ISO 8601.
    """

    settings: Settings
    groups: tuple[GroupState, ...] | None
    parts: Mapping[Part, PartResult]
    as_of: Mapping[Part, str]


@dataclass(frozen=True)
class Target:
    """The target cluster.

    Attributes:
        state: What it answered about the archived topics and groups.
        values: All settings of each of these topics, defaults included.
        fitted: What becomes of the settings of each topic that it doesn't have.
    """

    state: ClusterState
    values: Mapping[str, Mapping[str, str]]
    fitted: Mapping[str, Sequence[Fitted]] = field(default_factory=dict)

    def knows(self, part: Part) -> bool:
        """Return whether it answered about a part."""
        return self.state.parts[part].outcome == Outcome.CAPTURED


def compare(archived: Archived, target: Target) -> list[Row]:
    """Return all differences, in the order in which they are to be applied."""
    return [
        *_unknown(archived),
        *_topics(archived.settings.topics or (), target),
        *_acls(archived, target),
        *_users(archived.settings.users or (), target),
        *_groups(archived.groups or ()),
        *_unavailable(),
    ]


_KIND_OF = {Part.TOPICS: Kind.TOPICS, Part.ACLS: Kind.ACLS, Part.USERS: Kind.USERS}
_KIND_OF[Part.GROUPS] = Kind.GROUPS


def _unknown(archived: Archived) -> Iterator[Row]:
    """Yield a row for each part that the archive doesn't have."""
    for part, kind in _KIND_OF.items():
        if part not in archived.as_of:
            result = archived.parts.get(part)
            why = f"{result.outcome} {result.detail}".strip() if result else "never described"
            note = f"not in the archive: {why}; nothing can be compared"
            yield Row(kind, "all", Action.BY_HAND, None, None, note)


def _topics(topics: Iterable[TopicState], target: Target) -> Iterator[Row]:
    there = {topic.name: topic for topic in target.state.settings.topics or ()}
    brokers = len(target.state.settings.brokers or ())
    for topic in topics:
        if topic.name not in there:
            yield from _new_topic(topic, brokers, target.fitted.get(topic.name))
        else:
            yield from _partitions(topic, there[topic.name])
            yield from _configs(topic, there[topic.name], target.values.get(topic.name, {}))


def _new_topic(topic: TopicState, brokers: int, fitted: Sequence[Fitted] | None) -> Iterator[Row]:
    """Yield the row of a new topic, and one for each of its settings."""
    fewer = bool(brokers) and brokers < topic.replication_factor
    made = replace(topic, replication_factor=brokers) if fewer else topic
    if fitted is not None:
        made = replace(made, config=config_of(fitted), inherited={})
    yield Row(
        Kind.TOPICS,
        topic.name,
        Action.ADD,
        _shape(topic),
        None,
        "created without a limit of retention, so that restored records aren't deleted at once; "
        "compare again when they are verified",
        lowers=(
            f"has {brokers} replicas instead of {topic.replication_factor}: the target has no more "
            "brokers"
            if fewer
            else ""
        ),
        item=made,
    )
    for each in fitted or ():
        then = {**each.becomes} | {name: KEEP[name] for name in each.becomes.keys() & KEEP}
        set_ = ", ".join(
            value if name == each.name else f"{name}={value}" for name, value in then.items()
        )
        yield Row(
            Kind.CONFIGS,
            topic.name,
            Action.BY_HAND if each.fate == Fate.REFUSED else Action.LEAVE,
            each.value,
            set_ or None,
            f"on the new topic: {each.fate}{each.why and f', {each.why}'}",
            setting=each.name,
            item=topic,
        )


def _shape(topic: TopicState) -> str:
    settings = "".join(f", {name}={value}" for name, value in sorted(topic.effective.items()))
    return f"{topic.partitions} partitions, replication factor {topic.replication_factor}{settings}"


def _partitions(topic: TopicState, there: TopicState) -> Iterator[Row]:
    if topic.partitions != there.partitions:
        more = there.partitions > topic.partitions
        yield Row(
            Kind.TOPICS,
            topic.name,
            Action.LEAVE if more else Action.BY_HAND,
            f"{topic.partitions} partitions",
            f"{there.partitions} partitions",
            (
                "Kafka can't remove partitions; original partitions fit, or --placement key"
                if more
                else "kafka-topics.sh --alter --partitions adds some, but later records of a key "
                "may then go to another partition; or republish with --placement key"
            ),
        )
    if topic.replication_factor > there.replication_factor:
        yield Row(
            Kind.TOPICS,
            topic.name,
            Action.BY_HAND,
            f"replication factor {topic.replication_factor}",
            f"replication factor {there.replication_factor}",
            "kafka-reassign-partitions.sh adds replicas",
        )


def _configs(topic: TopicState, there: TopicState, values: Mapping[str, str]) -> Iterator[Row]:
    for name, value in sorted(topic.effective.items()):
        now = values.get(name, there.effective.get(name))
        if now == value:
            continue
        if name in THROTTLES or (values and name not in values):
            # A broker lists every setting that it knows.
            why = "never copied: a state of its brokers" * (name in THROTTLES)
            yield Row(
                Kind.CONFIGS,
                topic.name,
                Action.LEAVE,
                value,
                now,
                why or "left out: the target doesn't know it",
                setting=name,
                item=topic,
            )
            continue
        inherited = name not in topic.config
        yield Row(
            Kind.CONFIGS,
            topic.name,
            Action.CHANGE,
            value,
            now,
            "set by the brokers of the archived cluster" if inherited else "",
            setting=name,
            lowers=lowered_by(name, now, value),
            item=topic,
        )
    for name, value in sorted(there.config.items()):
        if name not in topic.effective:
            note = "only on the target"
            if KEEP.get(name) == value:
                note = "set for the restore; kafka-configs.sh --delete-config removes it"
            yield Row(
                Kind.CONFIGS, topic.name, Action.LEAVE, None, value, note, setting=name, item=topic
            )


def _acls(archived: Archived, target: Target) -> Iterator[Row]:
    ours = archived.settings.acls or ()
    if not target.knows(Part.ACLS):
        if ours:
            result = target.state.parts[Part.ACLS]
            note = (
                f"the target's ACLs are {result.outcome} ({result.detail}): it has no authorizer, "
                "or this user lacks Describe on the cluster"
            )
            yield Row(Kind.ACLS, "all", Action.BY_HAND, f"{len(ours)} ACLs", None, note)
        return
    there = set(target.state.settings.acls or ())
    for acl in ours:
        if acl not in there:
            yield Row(
                Kind.ACLS, str(acl), Action.ADD, "there", None, lowers=opened_by(acl), item=acl
            )
    for acl in sorted(there.difference(ours)) if Part.ACLS in archived.as_of else ():
        yield Row(Kind.ACLS, str(acl), Action.LEAVE, None, "there", "only on the target", item=acl)


def _users(users: Iterable[ScramUser], target: Target) -> Iterator[Row]:
    there = {(user.name, user.mechanism) for user in target.state.settings.users or ()}
    for user in users:
        if (user.name, user.mechanism) in there:
            continue
        known = "" if target.knows(Part.USERS) else "the target's users aren't known; "
        note = (
            f"{known}a credential never leaves its cluster: kafka-configs.sh --alter --entity-type "
            f"users --entity-name {user.name} --add-config "
            f"'{user.mechanism}=[iterations={user.iterations},password=…]'"
        )
        yield Row(Kind.USERS, user.name, Action.BY_HAND, user.mechanism, None, note)


def _groups(groups: Iterable[GroupState]) -> Iterator[Row]:
    for group in groups:
        note = (
            "after the republish: kafka-drain translate-group ARCHIVE --from-archive --group "
            f"{group.name}"
        )
        count = len(group.offsets)
        shown = f"{count} offset{'' if count == 1 else 's'}"
        yield Row(Kind.GROUPS, group.name, Action.BY_HAND, shown, None, note)


def _unavailable() -> Iterator[Row]:
    for part, kind in ((Part.QUOTAS, Kind.QUOTAS), (Part.VERSIONS, Kind.VERSIONS)):
        yield Row(kind, "all", Action.BY_HAND, None, None, UNAVAILABLE_PARTS[part])


def chosen(
    rows: Iterable[Row], kinds: Iterable[Kind], *, accept_lower_safety: bool
) -> tuple[list[Row], list[Row]]:
    """Return the rows to apply, and those that are held back because they lower safety."""
    wanted = set(kinds)
    found = [row for row in rows if row.can_apply and row.kind in wanted]
    if accept_lower_safety:
        return found, []
    return [row for row in found if not row.lowers], [row for row in found if row.lowers]
