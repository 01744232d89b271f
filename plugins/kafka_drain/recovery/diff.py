"""Compare the archived description of a cluster with a target cluster. Opens nothing.

Nothing is ever deleted on a target: what only the target has is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from kafka_drain.kafka.cluster_state import (
    UNAVAILABLE_PARTS,
    Acl,
    ClusterState,
    GroupState,
    Part,
    PartOutcome,
    PartResult,
    ScramUser,
    Settings,
    TopicState,
)
from kafka_drain.kafka.defaults import DEFAULTS
from kafka_drain.kafka.fitting import Fitted, SettingFate, config_of, fit
from kafka_drain.kafka.identity import is_other_topic
from kafka_drain.kafka.keeping import KEEPING, is_keeping
from kafka_drain.offsets import TopicPartition
from kafka_drain.recovery.commands import Commands
from kafka_drain.recovery.restored import Restored
from kafka_drain.recovery.safety import lost_defaults, lowered_by, opened_by


class Action(str, Enum):
    """The action for a difference."""

    ADD = "add"
    CHANGE = "change"
    LATER = "later"
    BY_HAND = "by hand"
    LEAVE = "leave"
    DONE = "done"

    def __str__(self) -> str:
        return self.value


class Kind(str, Enum):
    """The kind of a difference; the first three can be applied."""

    TOPICS = "topics"
    CONFIGS = "configs"
    ACLS = "acls"
    USERS = "users"
    GROUPS = "groups"

    def __str__(self) -> str:
        return self.value


#: Kinds that can be applied.
APPLICABLE = (Kind.TOPICS, Kind.CONFIGS, Kind.ACLS)

#: Still to be done, by anyone.
LEFT = (Action.ADD, Action.CHANGE, Action.LATER, Action.BY_HAND)

_TYPE = "message.timestamp.type"


@dataclass(frozen=True, slots=True)
class Difference:
    """One difference.

    Attributes:
        kind: Its subject.
        name: Name of the topic, user or group; for an ACL, the rule.
        setting: Name of the topic's setting; empty for other kinds, and for what a restore has set.
        archived: The archived state; None for none.
        target: The target's state; None for none, or if it isn't known.
        note: Why, or what to do.
        lowers: The loss of safety; empty for none.
        item: The topic or the ACL that is added.
        sets: The topic's settings that are changed at once; None for the brokers' own.
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
    sets: Mapping[str, str | None] = field(default_factory=dict)

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
    """An archive's description of its cluster; each part as of its newest one.

    Attributes:
        settings: Topics, ACLs, users and brokers; topics also as they were before they were
            deleted, if the archive has records of them.
        groups: Consumer groups with offsets; None if they were never captured.
        parts: Result of each part when it was asked for last.
        as_of: When each part was captured, ISO 8601.
        held: Topics of which the archive has records, each with its number of partitions there.
        gone: Topics that weren't there any more, each with what its settings are known from.
        incomplete: Why a part may lack something of the cluster as it was last, by part.
    """

    settings: Settings
    groups: tuple[GroupState, ...] | None
    parts: Mapping[Part, PartResult]
    as_of: Mapping[Part, str]
    held: Mapping[str, int] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)
    incomplete: Mapping[Part, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetCluster:
    """The target cluster.

    Attributes:
        state: Its answers about the archived topics, and all groups.
        values: All settings of each of these topics, defaults included.
        refusals: Settings of the archived topics that it refuses, by topic, with its words.
        keeping: Settings with which a new topic of it takes and keeps restored records.
        brokers: What a new topic inherits from its brokers; empty if that isn't known.
        restored: The restores of republishes to it.
    """

    state: ClusterState
    values: Mapping[str, Mapping[str, str]]
    refusals: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    keeping: Mapping[str, str] = field(default_factory=lambda: KEEPING)
    restored: Restored = field(default_factory=Restored)
    brokers: Mapping[str, str] = field(default_factory=dict)

    def knows(self, part: Part) -> bool:
        """Return whether it answered about a part."""
        return self.state.parts[part].outcome == PartOutcome.CAPTURED


def compare(archived: Archived, target: TargetCluster, commands: Commands) -> list[Difference]:
    """Return all differences, in the order in which they are to be applied."""
    return [
        *_topics(archived, target, commands),
        *_acls(archived, target),
        *_users(archived.settings.users or (), target, commands),
        *_groups(archived, target, commands),
    ]


_KIND_OF = {Part.TOPICS: Kind.TOPICS, Part.ACLS: Kind.ACLS, Part.USERS: Kind.USERS}
_KIND_OF[Part.GROUPS] = Kind.GROUPS


def not_compared(archived: Archived) -> dict[str, str]:
    """Return why some parts of a cluster can't be compared, or not whole, by part."""
    found = {}
    for part in _KIND_OF:
        if part in archived.incomplete:
            found[str(part)] = archived.incomplete[part]
        elif part not in archived.as_of:
            result = archived.parts.get(part)
            why = f"{result.outcome} {result.detail}".strip() if result else "never described"
            found[str(part)] = f"not in the archive: {why}"
    return {**found, **{str(part): note for part, note in UNAVAILABLE_PARTS.items()}}


def _topics(archived: Archived, target: TargetCluster, commands: Commands) -> Iterator[Difference]:
    there = {topic.name: topic for topic in target.state.settings.topics or ()}
    brokers = len(target.state.settings.brokers or ())
    topics = archived.settings.topics or ()
    for topic in topics:
        if topic.name not in there:
            yield from _new_topic(topic, brokers, archived, target)
        else:
            yield from _partitions(topic, there[topic.name], brokers, commands)
            yield from _configs(topic, there[topic.name], archived, target, commands)
    for name in sorted(archived.held.keys() - {topic.name for topic in topics} - there.keys()):
        partitions = archived.held[name]
        note = (
            "the archive has records of it, and no description or drain has noted its settings: "
            f"{commands.create_topic(name, partitions)}"
        )
        yield Difference(Kind.TOPICS, name, Action.BY_HAND, f"{partitions} partitions", None, note)


def _new_topic(
    topic: TopicState, brokers: int, archived: Archived, target: TargetCluster
) -> Iterator[Difference]:
    """Yield the row of a new topic, and one for each of its settings."""
    replicas = min(topic.replication_factor, brokers or topic.replication_factor)
    wanted = {**lost_defaults(topic, target.brokers), **topic.effective}
    fitted = fit(wanted, target.refusals.get(topic.name, {}), replicas)
    # Nothing is restored to one that the archive has no record of.
    keeping = target.keeping if topic.name in archived.held else {}
    config = {**config_of(fitted), **keeping}
    listed = ", ".join(f"{name}={value}" for name, value in sorted(keeping.items()))
    note = "the archive has no record of it"
    if keeping:
        note = (
            "created with what a restore needs, which is set back once its records are verified: "
            f"{listed}"
        )
    if since := archived.gone.get(topic.name):
        note = (
            "not in the newest description, but the archive has records of it; settings from "
            f"{since}; {note}"
        )
    yield Difference(
        Kind.TOPICS,
        topic.name,
        Action.ADD,
        _shape(topic),
        None,
        note,
        lowers=(
            f"has {replicas} replicas instead of {topic.replication_factor}: the target has no "
            "more brokers"
            if replicas < topic.replication_factor
            else ""
        ),
        item=replace(topic, replication_factor=replicas, config=config, inherited={}),
    )
    for each in fitted:
        then = {name: config[name] for name in each.becomes}
        set_ = ", ".join(
            value if name == each.name else f"{name}={value}" for name, value in then.items()
        )
        action = Action.BY_HAND if each.fate == SettingFate.REFUSED else Action.LEAVE
        note = f"on the new topic: {_fate(each)}"
        if each.name not in topic.effective:
            note += f"; {_origin(topic, each.name)}"
        yield Difference(
            Kind.CONFIGS, topic.name, action, each.value, set_ or None, note, setting=each.name
        )


def _origin(topic: TopicState, setting: str) -> str:
    """Return where an archived topic's setting came from; empty for the topic itself."""
    if setting in topic.config:
        return ""
    if setting in topic.inherited:
        return "set by the brokers of the archived cluster"
    return "Kafka's default, as the archive has no other value; the target's brokers set another"


def _fate(fitted: Fitted) -> str:
    return f"{fitted.fate}{fitted.why and f', {fitted.why}'}"


def _shape(topic: TopicState) -> str:
    settings = "".join(f", {name}={value}" for name, value in sorted(topic.effective.items()))
    return f"{topic.partitions} partitions, replication factor {topic.replication_factor}{settings}"


def _partitions(
    topic: TopicState, there: TopicState, brokers: int, commands: Commands
) -> Iterator[Difference]:
    if topic.partitions != there.partitions:
        more = there.partitions > topic.partitions
        added = commands.add_partitions(topic.name, topic.partitions)
        yield Difference(
            Kind.TOPICS,
            topic.name,
            Action.LEAVE if more else Action.BY_HAND,
            f"{topic.partitions} partitions",
            f"{there.partitions} partitions",
            (
                "Kafka can't remove partitions; original partitions fit, or --placement key"
                if more
                else f"{added} adds some, but later records of a key may then go to another "
                "partition; or republish with --placement key"
            ),
        )
    if topic.replication_factor > there.replication_factor:
        yield Difference(
            Kind.TOPICS,
            topic.name,
            Action.BY_HAND if brokers > there.replication_factor else Action.LEAVE,
            f"replication factor {topic.replication_factor}",
            f"replication factor {there.replication_factor}",
            "kafka-reassign-partitions.sh adds replicas"
            if brokers > there.replication_factor
            else "the target has no more brokers",
        )


def _configs(
    topic: TopicState,
    there: TopicState,
    archived: Archived,
    target: TargetCluster,
    commands: Commands,
) -> Iterator[Difference]:
    """Yield the differences of a topic's settings."""
    values = target.values.get(topic.name, {})
    wanted = {**_lost_defaults(topic, there, target), **topic.effective}
    # A broker lists every setting that it knows.
    unknown = {name: "Unknown topic config" for name in wanted if values and name not in values}
    refusals = {**unknown, **target.refusals.get(topic.name, {})}
    fitted = fit(wanted, refusals, there.replication_factor)
    # Where ids aren't told, its settings say that it was made for a restore.
    is_restored = is_other_topic(topic.id, there.id) or is_keeping(there.config)
    awaits = topic.name in archived.held and is_restored and not target.restored.is_verified(there)
    kept = {}
    if is_keeping(there.config):
        # What the target refuses stays as it is.
        refused = {each.name for each in fitted if each.fate == SettingFate.REFUSED}
        kept = {
            name: v
            for name, v in there.config.items()
            if KEEPING.get(name) == v and name not in refused
        }
        yield from _set_back(topic.name, kept, config_of(fitted), awaits, target, there, commands)
    for each in fitted:
        if each.name not in kept:
            for row in _changed(topic, there, each, values, commands, awaits=awaits):
                if row.setting not in kept:
                    yield row
    now = values.get(_TYPE, there.effective.get(_TYPE, KEEPING[_TYPE]))
    if awaits and now != KEEPING[_TYPE]:
        # Kafka would replace the timestamps of restored records, so that a republish refuses it.
        yield Difference(
            Kind.CONFIGS,
            topic.name,
            Action.CHANGE,
            KEEPING[_TYPE],
            now,
            "needed by the restore; set back once its records are verified",
            setting=_TYPE,
            sets={_TYPE: KEEPING[_TYPE]},
        )
    seen = {*kept, *wanted, *config_of(fitted)}
    for name, value in sorted(there.config.items()):
        if name in seen:
            continue
        note = "only on the target"
        if KEEPING.get(name) == value:
            note += f"; if it was set for a restore: {commands.unset(topic.name, name)}"
        yield Difference(Kind.CONFIGS, topic.name, Action.LEAVE, None, value, note, setting=name)
    for name, value in sorted(there.inherited.items()):
        if name not in seen and value != DEFAULTS.get(name):
            had, note = DEFAULTS.get(name, "Kafka's default"), _origin(topic, name)
            yield Difference(Kind.CONFIGS, topic.name, Action.LEAVE, had, value, note, setting=name)


def _lost_defaults(topic: TopicState, there: TopicState, target: TargetCluster) -> dict[str, str]:
    """Return Kafka's defaults that a topic had, and has only if they are its own in the target."""
    # What was set for a restore hides what the brokers set.
    hidden = KEEPING if is_keeping(there.config) else {}
    lost = lost_defaults(topic, {**target.brokers, **there.inherited})
    return {
        name: default
        for name, default in lost.items()
        if there.config.get(name, default) in (default, hidden.get(name))
    }


def _set_back(
    name: str,
    kept: Mapping[str, str],
    wanted: Mapping[str, str],
    awaits: bool,
    target: TargetCluster,
    there: TopicState,
    commands: Commands,
) -> Iterator[Difference]:
    """Yield the difference that undoes a restore's settings: all of them at once, or nothing."""
    back = {setting: wanted.get(setting) for setting in kept}
    back = {setting: value for setting, value in back.items() if value != kept[setting]}
    if not back:
        return
    own = [f"{setting}={value}" for setting, value in sorted(back.items()) if value is not None]
    brokers = [setting for setting, value in sorted(back.items()) if value is None]
    if brokers:
        told = target.brokers
        named = (f"{each}={told[each]}" if each in told else each for each in brokers)
        own.append(f"the brokers' own {', '.join(named)}")
    run = target.restored.verified_by(there)
    note = f"set for the restore; run {run} has verified what it sent"
    if awaits:
        note = (
            "set for the restore; once its records are republished and verified, and read where "
            f"Kafka then deletes them: {commands.apply_configs()}"
        )
    elif not run:
        note = "set for the restore; the archive has no record of it"
    if brokers and not target.brokers:
        note += "; the target doesn't tell what its brokers set"
    yield Difference(
        Kind.CONFIGS,
        name,
        Action.LATER if awaits else Action.CHANGE,
        ", ".join(own),
        ", ".join(f"{setting}={kept[setting]}" for setting in sorted(back)),
        note,
        lowers="deletes and refuses records by these settings",
        sets=back,
    )


def _changed(
    topic: TopicState,
    there: TopicState,
    fitted: Fitted,
    values: Mapping[str, str],
    commands: Commands,
    *,
    awaits: bool,
) -> Iterator[Difference]:
    """Yield the difference of one archived setting."""
    now = values.get(fitted.name, there.effective.get(fitted.name))
    if now == fitted.value:
        return
    if not fitted.becomes:
        action = Action.BY_HAND if fitted.fate == SettingFate.REFUSED else Action.LEAVE
        yield Difference(
            Kind.CONFIGS, topic.name, action, fitted.value, now, _fate(fitted), setting=fitted.name
        )
        return
    notes = [] if fitted.fate == SettingFate.KEPT else [f"archived {fitted.value}: {_fate(fitted)}"]
    if origin := _origin(topic, fitted.name):
        notes.append(origin)
    for name, value in fitted.becomes.items():
        now = values.get(name, there.effective.get(name))
        if now == value:
            # It can't be more like the archived one.
            yield Difference(
                Kind.CONFIGS, topic.name, Action.LEAVE, value, now, "; ".join(notes), setting=name
            )
            continue
        lowered = lowered_by(name, now, value)
        is_needed = awaits and (KEEPING.get(name) == now or bool(name in KEEPING and lowered))
        if awaits and name == _TYPE and not is_needed:
            continue
        if is_needed:
            notes.append(
                f"needed by the restore; once its records are verified: {commands.apply_configs()}"
            )
        yield Difference(
            Kind.CONFIGS,
            topic.name,
            Action.LATER if is_needed else Action.CHANGE,
            value,
            now,
            "; ".join(notes),
            setting=name,
            lowers=lowered,
            sets={name: value},
        )


def _acls(archived: Archived, target: TargetCluster) -> Iterator[Difference]:
    ours = archived.settings.acls or ()
    if not target.knows(Part.ACLS):
        if ours:
            result = target.state.parts[Part.ACLS]
            note = (
                f"the target's ACLs are {result.outcome} ({result.detail}): it has no authorizer, "
                "or this user lacks Describe on the cluster"
            )
            yield Difference(Kind.ACLS, "all", Action.BY_HAND, f"{len(ours)} ACLs", None, note)
        return
    there = set(target.state.settings.acls or ())
    for acl in ours:
        if acl not in there:
            yield Difference(
                Kind.ACLS, str(acl), Action.ADD, "there", None, lowers=opened_by(acl), item=acl
            )
    for acl in sorted(there.difference(ours)) if Part.ACLS in archived.as_of else ():
        yield Difference(
            Kind.ACLS, str(acl), Action.LEAVE, None, "there", "only on the target", item=acl
        )


def _users(
    users: Iterable[ScramUser], target: TargetCluster, commands: Commands
) -> Iterator[Difference]:
    there = {(user.name, user.mechanism) for user in target.state.settings.users or ()}
    for user in users:
        if (user.name, user.mechanism) in there:
            continue
        known = "" if target.knows(Part.USERS) else "the target's users aren't known; "
        note = (
            f"{known}a credential never leaves its cluster; with a new password in NEW_PASSWORD: "
            f"{commands.add_user(user)}"
        )
        yield Difference(Kind.USERS, user.name, Action.BY_HAND, user.mechanism, None, note)


def _groups(archived: Archived, target: TargetCluster, commands: Commands) -> Iterator[Difference]:
    there = {
        group.name: {TopicPartition(o.topic, o.partition): o.offset for o in group.offsets}
        for group in target.state.groups or ()
    }
    result = target.state.parts[Part.GROUPS]
    is_known = target.knows(Part.GROUPS) and not result.detail
    for group in archived.groups or ():
        yield _group(group, archived, target, there, commands, is_known=is_known)


def _group(
    group: GroupState,
    archived: Archived,
    target: TargetCluster,
    there: Mapping[str, Mapping[TopicPartition, int]],
    commands: Commands,
    *,
    is_known: bool,
) -> Difference:
    """Return a group's difference: whether its offsets are translated, or how that is done."""
    notes = []
    placed: set[TopicPartition] = set()
    runs: list[str] = []
    for record in target.restored.groups.get(group.name, ()):
        now = there.get(record.group)
        behind = [
            f"{tp} is at {'no offset' if now is None or tp not in now else f'{now[tp]:,}'} instead "
            f"of {at:,}"
            for tp, at in sorted(record.after.items())
            if now is None or now.get(tp, -1) < at
        ]
        named = f"run {record.run}" + (f" to {record.group}" * (record.group != group.name))
        if not record.is_applied:
            notes.append(f"begun with {named} at {record.written_at}, and not finished")
        elif behind and (now is not None or is_known):
            notes.append(f"translated with {named} at {record.written_at}, but {behind[0]}")
        else:
            placed |= record.sources
            runs.append(f"translated with {named}")
            if now is None:
                runs.append("the target doesn't tell its offsets")
    own = there.get(group.name, {})
    partitions = [TopicPartition(o.topic, o.partition) for o in group.offsets]
    missing = [tp for tp in partitions if tp not in placed]
    # Nothing was sent of a topic without records: any offset there is as good as another.
    empty = sorted({tp.topic for tp in missing if tp.topic not in archived.held and tp not in own})
    to_do = sorted({tp.topic for tp in missing if tp.topic in archived.held})
    count = len(partitions)
    shown = f"{count:,} offset{'' if count == 1 else 's'}"
    if not (empty or to_do or notes):
        notes = list(dict.fromkeys(runs)) or ["has offsets in the target"]
        return Difference(Kind.GROUPS, group.name, Action.DONE, shown, shown, "; ".join(notes))
    if to_do and any(tp in own for tp in missing) and not notes:
        notes.append("has offsets in the target that no run of this archive has translated")
    commanded: dict[str, None] = {}
    ids = {topic.name: topic.id for topic in target.state.settings.topics or ()}
    for topic in to_do:
        run = target.restored.newest_run(topic, ids)
        if run is None:
            begun = target.restored.unfinished_run(topic, ids)
            if begun is not None:
                run, sends = begun.run, commands.republish(begun.name, follows=begun.follows)
            else:
                run = target.restored.new_name
                left = [
                    name for name in sorted(archived.held) if not target.restored.has(name, ids)
                ]
                # Records that another run has sent are refused.
                sends = commands.republish(
                    run, topics=left if len(left) < len(archived.held) else ()
                )
            commanded[f"republish first: {sends}"] = None
        commanded[commands.translate(group.name, run)] = None
    for topic in empty:
        commanded[
            f"the archive has no record of {topic}: {commands.from_start(group.name, topic)}"
        ] = None
    target_shown = f"{count - len(missing):,} of {shown}" if placed else None
    return Difference(
        Kind.GROUPS,
        group.name,
        Action.BY_HAND,
        shown,
        target_shown,
        "; ".join([*notes, *commanded]),
    )


def chosen(
    rows: Iterable[Difference], kinds: Iterable[Kind], *, accept_lower_safety: bool
) -> tuple[list[Difference], list[Difference]]:
    """Return the rows to apply, and those that are held back because they lower safety."""
    wanted = set(kinds)
    found = [row for row in rows if row.can_apply and row.kind in wanted]
    if accept_lower_safety:
        return found, []
    return [row for row in found if not row.lowers], [row for row in found if row.lowers]
