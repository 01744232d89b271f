"""The target topics: everything that may prevent a republish, checked before the first record."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc
from upath import UPath

from kafka_drain.archive.topic_settings import read_topic_settings
from kafka_drain.config.source_options import INTERNAL_TOPICS
from kafka_drain.data_files.reader import read_records
from kafka_drain.data_files.scalars import number
from kafka_drain.errors import ConfigError, TopicError
from kafka_drain.intervals import time_text
from kafka_drain.kafka.acls import TARGET
from kafka_drain.kafka.cluster import KafkaCluster, Topic
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.placement import PARTITIONERS
from kafka_drain.republish.planning.plan import EXACTLY_ONCE, Target
from kafka_drain.republish.planning.request import RepublishRequest
from kafka_drain.republish.planning.shards import ShardFile

#: Topic names that Kafka accepts (org.apache.kafka.common.internals.Topic).
_NAME, LONGEST_NAME = re.compile(r"[a-zA-Z0-9._-]+"), 249

#: Maximum overhead of a record in a batch, besides its key, value and headers, in bytes.
OVERHEAD = 100

HOW = "change it with kafka-configs --alter --topic {topic} --add-config {setting}=…"


@dataclass(frozen=True, slots=True)
class Need:
    """What the records require of their target topic.

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


def plan_targets(
    root: UPath,
    cluster: KafkaCluster,
    needs: Mapping[str, Need],
    request: RepublishRequest,
    now: datetime,
) -> tuple[tuple[Target, ...], list[str]]:
    """Check the target topics, and refuse those that wouldn't keep the records unchanged.

    Returns:
        The targets, sorted by name, and notes about them for the user.

    Raises:
        TopicError: When a topic is missing, has too few partitions, or has settings that would
            change or drop records; names the setting.
        AuthorizationError: When an ACL is missing.
    """
    targets: list[Target] = []
    notes: list[str] = []
    for name, need in sorted(needs.items()):
        if request.create_target and not cluster.has_topic(name):
            settings, wider = _settings_like(root, need, now)
            targets.append(Target(name, "", settings.partitions, (0,) * settings.partitions))
            notes.append(f"topic {name} will be created: {settings}{wider}")
            _check_partitions(name, settings.partitions, need, request)
            cluster.check_new_topic(name, settings)
            continue
        topic = _existing(cluster, name)
        _check_partitions(name, len(topic.partitions), need, request)
        config = cluster.topic_config(name)
        if request.delivery == EXACTLY_ONCE:
            _check_timestamps(name, config, need, now)
            _check_sizes(root, name, config, need)
        targets.append(_target(cluster, topic, config))
    return tuple(targets), notes


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


def _settings_like(root: UPath, need: Need, now: datetime) -> tuple[TopicSettings, str]:
    """Return the source's settings as the last drain saw them, adjusted for old records."""
    known = read_topic_settings(root)
    found = next((known[topic] for topic in need.sources if topic in known), None)
    if found is None:
        raise TopicError(
            f"the archive doesn't have the settings of {', '.join(need.sources)}, expected in "
            "topics.json, where drains of this release write them; create the target topic yourself"
        )
    settings = found.with_partitions(max(found.partitions, need.partitions))
    wider = _for_old_records(settings.config, _age(need, now))
    for setting, value in wider.items():
        settings = settings.with_config(setting, value)
    changed = ", ".join(f"{setting}={value}" for setting, value in wider.items())
    return settings, f" ({changed}: the source's would drop or change old records)" * bool(wider)


def _for_old_records(config: Mapping[str, str], age: int | None) -> dict[str, str]:
    """Return the settings that must differ from the source's so that old records are kept."""
    wider = {}
    retention = int(config.get("retention.ms", 604_800_000))
    deletes = "delete" in config.get("cleanup.policy", "delete")
    if age is not None and deletes and 0 <= retention < age:
        wider["retention.ms"] = "-1"
    if config.get("message.timestamp.type", "CreateTime") != "CreateTime":
        wider["message.timestamp.type"] = "CreateTime"
    for setting in ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"):
        if age is not None and age > int(config.get(setting, age)):
            wider[setting] = str((1 << 63) - 1)
    return wider


def create_targets(
    root: UPath,
    cluster: KafkaCluster,
    needs: Mapping[str, Need],
    now: datetime,
) -> None:
    """Create the missing target topics like their sources, as `plan_targets` announced.

    Raises:
        TopicError: When Kafka refuses.
    """
    missing = {
        name: _settings_like(root, need, now)[0]
        for name, need in sorted(needs.items())
        if not cluster.has_topic(name)
    }
    for name, settings in missing.items():
        cluster.create_topic(name, settings)


def _check_partitions(name: str, partitions: int, need: Need, request: RepublishRequest) -> None:
    if partitions < need.partitions and request.placement not in PARTITIONERS:
        raise TopicError(
            f"topic {name} has {partitions} partitions, but the records need {need.partitions} for "
            f"placement {request.placement!r}; add partitions, choose another topic or place the "
            "records by key. Nothing was sent"
        )


def _age(need: Need, now: datetime) -> int | None:
    return None if need.oldest_ms is None else int(now.timestamp() * 1000) - need.oldest_ms


def _refuse(name: str, setting: str, value: str, why: str) -> TopicError:
    how = HOW.format(topic=name, setting=setting)
    return TopicError(
        f"topic {name} has {setting}={value}, {why}; {how}, or choose another topic. Nothing was "
        "sent"
    )


def _check_timestamps(name: str, config: Mapping[str, str], need: Need, now: datetime) -> None:
    kind = config.get("message.timestamp.type", "CreateTime")
    if kind != "CreateTime":
        raise _refuse(
            name, "message.timestamp.type", kind, "which replaces the records' own timestamps"
        )
    age = _age(need, now)
    if age is None or need.oldest_ms is None or need.newest_ms is None:
        return
    oldest = f"the oldest record has timestamp {time_text(need.oldest_ms)}"
    retention = int(config.get("retention.ms", -1))
    if "delete" in config.get("cleanup.policy", "delete") and 0 <= retention < age:
        raise _refuse(
            name, "retention.ms", str(retention), f"and {oldest}: Kafka would delete it at once"
        )
    # Before Kafka 3.6 one setting bounded both sides (KIP-937).
    for setting in ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"):
        if setting in config and age > int(config[setting]):
            raise _refuse(name, setting, config[setting], f"and {oldest}: Kafka would refuse it")
    setting = "message.timestamp.after.max.ms"
    ahead = need.newest_ms - int(now.timestamp() * 1000)
    if setting in config and ahead > int(config[setting]):
        newest = f"the newest record has timestamp {time_text(need.newest_ms)}"
        raise _refuse(name, setting, config[setting], f"and {newest}: Kafka would refuse it")


def _check_sizes(root: UPath, name: str, config: Mapping[str, str], need: Need) -> None:
    """Refuse records that are too large for the topic, compressed as they would be sent.

    The files are read only if the source accepts larger batches than the target.
    """
    setting = "max.message.bytes"
    limit = int(config.get(setting, 1 << 20))
    known = read_topic_settings(root)
    sources = [known[topic].max_message_bytes for topic in need.sources if topic in known]
    if sources and len(sources) == len(need.sources) and max(sources) <= limit:
        return
    for path, offset, size in _large_records(root, need.files, limit):
        raise _refuse(
            name, setting, str(limit), f"the record at offset {offset} in {path} has {size:,} bytes"
        )


def _large_records(
    root: UPath, files: tuple[ShardFile, ...], limit: int
) -> Iterator[tuple[str, int, int]]:
    # A file is named once for each partition that it holds.
    for file in {file.path: file for file in files}.values():
        for batch in read_records(root / file.path, file.file_format, 64 << 20):
            sizes = pc.add(
                pc.binary_length(batch["key"]).fill_null(number(0)),
                pc.binary_length(batch["value"]).fill_null(number(0)),
            )
            for row in pc.indices_nonzero(pc.greater(sizes, number(limit - OVERHEAD))).to_pylist():
                content = (batch["key"][row].as_py() or b"") + (batch["value"][row].as_py() or b"")
                size = len(pa.compress(content, codec="lz4", asbytes=True)) + OVERHEAD
                if size > limit:
                    yield file.path, batch["offset"][row].as_py(), len(content)
