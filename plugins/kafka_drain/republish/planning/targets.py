"""The target topics: everything that may prevent a republish, checked before the first record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeAlias

from upath import UPath

from kafka_drain.archive.topic_settings import noted_compaction, read_topic_settings
from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.errors import ConfigError, KafkaDrainError, TopicError
from kafka_drain.intervals import time_text
from kafka_drain.kafka.acls import TARGET
from kafka_drain.kafka.cluster import KafkaCluster, Topic
from kafka_drain.kafka.defaults import retention_of
from kafka_drain.kafka.fitting import THROTTLES, Fitted, SettingFate, config_of, fit
from kafka_drain.kafka.keeping import AFTER, BEFORE, DIFFERENCE, KEEPING
from kafka_drain.kafka.topics import MAX_MESSAGE_BYTES, SEGMENT_BYTES, TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import say
from kafka_drain.republish.planning.placement import PARTITIONERS
from kafka_drain.republish.planning.plan import EXACTLY_ONCE, Target
from kafka_drain.republish.planning.record_sizes import SENT_WITH, Large
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.shards import ShardFile

#: Topic names that Kafka accepts (org.apache.kafka.common.internals.Topic).
_NAME, LONGEST_NAME = re.compile(r"[a-zA-Z0-9._-]+"), 249

_LIMIT, _CODEC, _TYPE = "max.message.bytes", "compression.type", "message.timestamp.type"
_BYTES = "retention.bytes"
#: The time that a compacted topic keeps records without a value, and what lasts until they are
#: verified: Kafka's default, a day.
_TOMBSTONES, TOMBSTONE_MS = "delete.retention.ms", 24 * 60 * 60 * 1000
#: A batch must fit into a segment, too; Kafka answers a larger one so that clients try again.
_SEGMENT = "segment.bytes"

#: Returns the records that a target topic wouldn't take, given its limit and its compression.
Larger: TypeAlias = "Callable[[str, int, str], Iterable[Large]]"

HOW = (
    "change it with kafka-configs.sh --bootstrap-server {servers} --alter --topic {topic} "
    "--add-config {setting}={value}"
)


@dataclass(frozen=True, slots=True)
class Need:
    """The requirements of the records for their target topic.

    Attributes:
        partitions: Minimum number of partitions.
        oldest_ms: Lowest timestamp; None when unknown.
        newest_ms: Highest timestamp; None when unknown.
        sources: Topics that the records came from.
        files: The files that hold the records.
    """

    partitions: int
    oldest_ms: int | None
    newest_ms: int | None
    sources: tuple[str, ...]
    files: tuple[ShardFile, ...]

    @classmethod
    def together(cls, needs: Iterable[Need]) -> Need:
        """Return the combination of at least one need; in one pass, as there may be thousands."""
        needs = list(needs)
        return cls(
            max(need.partitions for need in needs),
            min((need.oldest_ms for need in needs if need.oldest_ms is not None), default=None),
            max((need.newest_ms for need in needs if need.newest_ms is not None), default=None),
            tuple(dict.fromkeys(source for need in needs for source in need.sources)),
            tuple(dict.fromkeys(file for need in needs for file in need.files)),
        )


def check_names(names: Iterable[str]) -> None:
    """Refuse invalid or colliding topic names, and Kafka's internal topics.

    Raises:
        ConfigError: Names them.
    """
    names = sorted(names)
    own = [name for name in names if name in INTERNAL_TOPICS]
    if own:
        raise ConfigError(
            f"target topic {', '.join(own)} is one of Kafka's internal topics, which take no other "
            "records; choose another name, such as {topic}.restored. Nothing was created or sent"
        )
    bad = [
        f"{name!r} ({len(name):,} characters)"
        for name in names
        if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME or name in (".", "..")
    ]
    if bad:
        raise ConfigError(
            f"target topic {', '.join(bad)} is not acceptable; accepted: up to {LONGEST_NAME} "
            "letters, digits, dots, underscores and hyphens. Nothing was created or sent"
        )
    by_metric: dict[str, str] = {}
    for name in names:
        other = by_metric.setdefault(name.replace(".", "_"), name)
        if other != name:
            raise ConfigError(
                f"target topics {other} and {name} differ only in dots and underscores, which "
                "collide in Kafka's metric names; choose another. Nothing was created or sent"
            )


@dataclass(frozen=True)
class PlannedTargets:
    """The target topics of a plan.

    Attributes:
        targets: The targets, sorted by name; those that don't exist yet have no id.
        notes: Notes about them for the user.
        new: The settings of those that don't exist yet.
    """

    targets: tuple[Target, ...]
    notes: list[str]
    new: Mapping[str, TopicSettings] = field(default_factory=dict)


def plan_targets(
    root: UPath,
    cluster: KafkaCluster,
    needs: Mapping[str, Need],
    request: RepublishRequest,
    now: datetime,
    larger: Larger = lambda *_: (),
) -> PlannedTargets:
    """Check the target topics, and refuse those that wouldn't keep the records unchanged.

    Args:
        cluster: The target.
        needs: Requirements of the records, by target topic.
        request: The requested republish.
        larger: Returns the records that are too large for a topic.

    Raises:
        TopicError: When a topic is missing, has too few partitions, or has settings that would
            change, drop or refuse records; names the setting.
        AuthorizationError: When an ACL is missing.
    """
    targets: list[Target] = []
    notes: list[str] = []
    new: dict[str, TopicSettings] = {}
    was = noted_compaction(root).was
    for name, need in sorted(needs.items()):
        if request.create_target and not cluster.existing([name]):
            new[name], said = _new_topic(root, cluster, name, need, now, larger)
            partitions = new[name].partitions
            targets.append(Target(name, "", partitions, (0,) * partitions))
            notes += said
            _check_partitions(name, partitions, need, request)
            try:
                cluster.check_new_topic(name, new[name])
            except TopicError as error:
                raise _by_hand(name, str(error)) from error
            continue
        topic = _existing(cluster, name)
        _check_partitions(name, len(topic.partitions), need, request)
        config = cluster.topic_config(name)
        asked = _Asked(name, cluster.config.bootstrap_servers)
        if request.delivery == EXACTLY_ONCE:
            _check_timestamps(asked, config, need, now)
        _check_sizes(asked, config, larger)
        targets.append(_target(cluster, topic, config))
        notes += _losses(was, asked, config, need)
    return PlannedTargets(tuple(targets), notes, new)


def _losses(
    was: Mapping[str, bool], topic: _Asked, config: Mapping[str, str], need: Need
) -> list[str]:
    """Return a warning for each setting by which a topic won't keep all that is sent to it."""
    notes, policy = list[str](), config.get("cleanup.policy", "delete")
    if "compact" in policy and not all(was.get(source) for source in need.sources):
        notes.append(
            f"WARNING Kafka compacts topic {topic.name} (cleanup.policy={policy}), and not its "
            "source, as far as the archive knows: of each key, it will keep the newest record"
        )
    if "compact" in policy and int(kept := config.get(_TOMBSTONES, TOMBSTONE_MS)) < TOMBSTONE_MS:
        notes.append(
            f"WARNING topic {topic.name} has {_TOMBSTONES}={kept}: records without a value that "
            "Kafka deletes before they are verified count as lost; "
            f"{topic.how(_TOMBSTONES, str(TOMBSTONE_MS))}"
        )
    if "delete" in policy and int(size := config.get(_BYTES, KEEPING[_BYTES])) >= 0:
        notes.append(
            f"WARNING topic {topic.name} has {_BYTES}={size}: Kafka deletes the oldest records of "
            f"a larger partition, also of those that are sent; {topic.how(_BYTES)}"
        )
    return notes


def _by_hand(name: str, seen: str) -> TopicError:
    return TopicError(
        f"topic {name} can't be created like its source: {seen}. Create it yourself, with the "
        "settings that you want, and leave out --create-target (create_target). Nothing was "
        "created or sent"
    )


def _new_topic(
    root: UPath, cluster: KafkaCluster, name: str, need: Need, now: datetime, larger: Larger
) -> tuple[TopicSettings, list[str]]:
    """Return the settings of a new topic, and a note for each of them.

    Raises:
        TopicError: When the target refuses a setting that the records may depend on.
    """
    source = _settings_of_source(root, need)
    replicas = min(source.replication_factor, cluster.brokers())
    asked = replace(source, replication_factor=replicas)
    copied = {each: value for each, value in source.config.items() if each not in THROTTLES}
    refusals = cluster.refused_settings(name, replace(asked, config=copied))
    fitted = fit(source.config, refusals, replicas)
    if refused := [each for each in fitted if each.fate == SettingFate.REFUSED]:
        raise _by_hand(name, "; ".join(f"{f.name}={f.value}: {f.why}" for f in refused))
    settings = replace(asked, config=config_of(fitted))
    inherited = cluster.broker_config()
    wider = _for_restored(settings.config, inherited, need, now)
    told = settings.config.get(_LIMIT, inherited.get("message.max.bytes"))
    # A broker that doesn't tell its limit may have a lower one than the source.
    segment = int(settings.config.get(_SEGMENT, SEGMENT_BYTES))
    limit = min(int(told or source.max_message_bytes), segment)
    codec = settings.config.get(_CODEC, inherited.get(_CODEC, "producer"))
    most = max(larger(name, limit, codec), key=lambda one: one.batch, default=None)
    least = max(most.batch if most else 0, source.max_message_bytes)
    large = {_LIMIT: str(least)} if most or told is None else {}
    if most is not None and most.batch > segment:
        large[_SEGMENT] = str(most.batch)
    settings = replace(settings, config={**settings.config, **wider, **large})
    said = f"topic {name} will be created: {settings}"
    if replicas != source.replication_factor:
        said += f" (the source has {source.replication_factor}, the target {replicas} brokers)"
    changed = ", ".join(f"{setting}={value}" for setting, value in wider.items())
    said += f" ({changed}: the source's would refuse, drop or change old records)" * bool(wider)
    if most is not None:
        said += (
            f" ({_LIMIT}={large[_LIMIT]}: {limit} would refuse the record at "
            f"offset {most.offset} in {most.path})"
        )
    return settings, [said, *(_note(name, each, settings) for each in fitted)]


def _note(topic: str, fitted: Fitted, settings: TopicSettings) -> str:
    """Return the note for a setting of the source."""
    final = settings.config.get(fitted.name)
    if fitted.fate == SettingFate.KEPT and final != fitted.value:
        return f"  {topic}: {fitted.name}={fitted.value}: replaced by {final}, see above"
    return f"  {topic}: {fitted}"


def _existing(cluster: KafkaCluster, name: str) -> Topic:
    try:
        return cluster.topics([name], TARGET)[name]
    except TopicError as error:
        raise TopicError(
            f"{error}; --create-target (create_target) creates a missing target like its source. "
            "Nothing was sent"
        ) from error


def _target(cluster: KafkaCluster, topic: Topic, config: Mapping[str, str]) -> Target:
    partitions = [TopicPartition(topic.name, partition) for partition in topic.partitions]
    ends = cluster.latest(partitions, "read_uncommitted")
    return Target(
        topic.name,
        topic.id,
        len(partitions),
        tuple(ends[tp] for tp in partitions),
        "compact" in config.get("cleanup.policy", ""),
    )


def _settings_of_source(root: UPath, need: Need) -> TopicSettings:
    """Return the source's settings as the last drain saw them, with partitions for the records."""
    known = read_topic_settings(root)
    found = next((known[topic] for topic in need.sources if topic in known), None)
    if found is None:
        raise TopicError(
            f"the archive doesn't have the settings of {', '.join(need.sources)}, expected in "
            "topics.json, where drains of this release write them; create the target topic yourself"
        )
    return found.with_partitions(max(found.partitions, need.partitions))


def _for_restored(
    config: Mapping[str, str], inherited: Mapping[str, str], need: Need, now: datetime
) -> dict[str, str]:
    """Return the settings that must differ from the source's so that the records are kept.

    Args:
        config: Settings of the topic itself.
        inherited: Settings that it inherits from the brokers, by their names.
        need: Requirements of the records.
    """
    wider = {}
    age, ahead = _age(need, now), _ahead(need, now)
    retention = int(config.get("retention.ms", retention_of(inherited)))
    deletes = "delete" in config.get("cleanup.policy", "delete")
    if age is not None and deletes and 0 <= retention < age:
        wider["retention.ms"] = KEEPING["retention.ms"]
    if "compact" in config.get("cleanup.policy", ""):
        of_broker = inherited.get(f"log.cleaner.{_TOMBSTONES}", TOMBSTONE_MS)
        if int(config.get(_TOMBSTONES, of_broker)) < TOMBSTONE_MS:
            wider[_TOMBSTONES] = str(TOMBSTONE_MS)
    # Nobody knows how large the records are in Kafka.
    if deletes and int(config.get(_BYTES, inherited.get(f"log.{_BYTES}", KEEPING[_BYTES]))) >= 0:
        wider[_BYTES] = KEEPING[_BYTES]
    kind = config.get(_TYPE, inherited.get(f"log.{_TYPE}", KEEPING[_TYPE]))
    if kind != KEEPING[_TYPE]:
        wider[_TYPE] = KEEPING[_TYPE]
    for setting, distance in ((BEFORE, age), (DIFFERENCE, age), (AFTER, ahead)):
        bound = config.get(setting, inherited.get(f"log.{setting}", KEEPING[setting]))
        if distance is not None and distance > int(bound):
            wider[setting] = KEEPING[setting]
    return wider


def create_targets(
    cluster: KafkaCluster, new: Mapping[str, TopicSettings], made: dict[str, str]
) -> None:
    """Create the missing target topics, as `plan_targets` announced.

    Args:
        cluster: The target.
        made: Receives the id of each topic that was created here, as soon as it is.

    Raises:
        TopicError: When Kafka refuses.
    """
    for name, settings in new.items():
        if cluster.create_topic(name, settings):
            made.update(cluster.ids_of([name]))


def remove_made(cluster: KafkaCluster, made: Mapping[str, str]) -> None:
    """Remove topics that a run made and sent nothing to, after it failed.

    Only those that still have the id that they were made with, and that nothing was ever sent to.
    """
    for name, id in made.items():
        try:
            topic = cluster.topics([name])[name]
            partitions = [TopicPartition(name, partition) for partition in topic.partitions]
            ends = cluster.latest(partitions, "read_uncommitted")
            if topic.id == id and not any(ends.values()) and cluster.delete_topic(name, id):
                say(f"topic {name}, which this run had created, was removed again")
        except KafkaDrainError as error:
            say(f"topic {name}, which this run has created, is left: {error}")


def _check_partitions(name: str, partitions: int, need: Need, request: RepublishRequest) -> None:
    if partitions < need.partitions and request.placement not in PARTITIONERS:
        raise TopicError(
            f"topic {name} has {partitions} partitions, but the records need {need.partitions} for "
            f"placement {request.placement!r}; add partitions, choose another topic or place the "
            "records by key. Nothing was sent"
        )


def _age(need: Need, now: datetime) -> int | None:
    return None if need.oldest_ms is None else int(now.timestamp() * 1000) - need.oldest_ms


def _ahead(need: Need, now: datetime) -> int | None:
    return None if need.newest_ms is None else need.newest_ms - int(now.timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A topic that exists, and the cluster's addresses."""

    name: str
    servers: str

    def how(self, setting: str, enough: str | None = None) -> str:
        """Return how a setting gets the value that suffices; None for that of any restore."""
        return HOW.format(
            servers=self.servers,
            topic=self.name,
            setting=setting,
            value=enough or KEEPING[setting],
        )


def _refuse(
    topic: _Asked, setting: str, value: str, why: str, enough: str | None = None
) -> TopicError:
    """Return the error for a setting that the records can't be sent with.

    Args:
        why: Why not.
        enough: The value that suffices; None for that of any restore.
    """
    return TopicError(
        f"topic {topic.name} has {setting}={value}, {why}; {topic.how(setting, enough)}, or choose "
        "another topic. Nothing was sent"
    )


def _check_timestamps(topic: _Asked, config: Mapping[str, str], need: Need, now: datetime) -> None:
    kind = config.get(_TYPE, KEEPING[_TYPE])
    if kind != KEEPING[_TYPE]:
        raise _refuse(topic, _TYPE, kind, "which replaces the records' own timestamps")
    age = _age(need, now)
    if age is None or need.oldest_ms is None or need.newest_ms is None:
        return
    oldest = f"the oldest record has timestamp {time_text(need.oldest_ms)}"
    retention = int(config.get("retention.ms", -1))
    if "delete" in config.get("cleanup.policy", "delete") and 0 <= retention < age:
        raise _refuse(
            topic, "retention.ms", str(retention), f"and {oldest}: Kafka would delete it at once"
        )
    # Before Kafka 3.6 one setting bounded both sides (KIP-937).
    for setting in (BEFORE, DIFFERENCE):
        if setting in config and age > int(config[setting]):
            raise _refuse(topic, setting, config[setting], f"and {oldest}: Kafka would refuse it")
    ahead = _ahead(need, now)
    if ahead is not None and AFTER in config and ahead > int(config[AFTER]):
        newest = f"the newest record has timestamp {time_text(need.newest_ms)}"
        raise _refuse(topic, AFTER, config[AFTER], f"and {newest}: Kafka would refuse it")


def _check_sizes(topic: _Asked, config: Mapping[str, str], larger: Larger) -> None:
    """Refuse records that are too large for the topic, as they are sent and as it keeps them."""
    limits = {
        _LIMIT: int(config.get(_LIMIT, MAX_MESSAGE_BYTES)),
        _SEGMENT: int(config.get(_SEGMENT, SEGMENT_BYTES)),
    }
    setting = min(limits, key=lambda each: limits[each])
    limit = limits[setting]
    for large in larger(topic.name, limit, config.get(_CODEC, SENT_WITH)):
        raise _refuse(
            topic,
            setting,
            str(limit),
            f"the record at offset {large.offset} in {large.path} has {large.content:,} bytes, and "
            f"needs {large.batch:,} with its headers and in the topic's compression.type",
            {_LIMIT: KEEPING[_LIMIT], _SEGMENT: str(SEGMENT_BYTES)}[setting],
        )
