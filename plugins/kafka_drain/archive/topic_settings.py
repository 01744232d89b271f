"""Settings of the source topics, kept in the archive's `topics.json` and updated by each drain.

They allow a restore to create the target like its source, even if the source is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

from upath import UPath

from kafka_drain.archive.documents import TopicsDocument
from kafka_drain.kafka.identity import is_other_topic
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import Offsets, TopicPartition

_UNTOLD: Mapping[str, str] = MappingProxyType({})
_NOWHERE: Offsets = MappingProxyType({})


def read_topic_settings(root: UPath) -> dict[str, TopicSettings]:
    """Read the settings by topic; empty if no drain of this release has run.

    Raises:
        ArchiveError: When `topics.json` is damaged.
    """
    try:
        return _settings(TopicsDocument.read(root / "topics.json"))
    except FileNotFoundError:
        return {}


def noted_topic_settings(root: UPath) -> dict[str, TopicSettings]:
    """Read the settings by topic; empty if unreadable, as the next drain rewrites them."""
    return _settings(TopicsDocument.read_note(root / "topics.json") or TopicsDocument())


def _settings(document: TopicsDocument) -> dict[str, TopicSettings]:
    return {
        name: TopicSettings(
            row.partitions,
            row.replication_factor,
            row.max_message_bytes,
            row.config,
            compacted=row.compacted,
            retention_ms=row.retention_ms,
        )
        for name, row in document.topics.items()
    }


@dataclass(frozen=True)
class NotedCompaction:
    """What drains have noted of Kafka's compaction.

    Attributes:
        was: Whether Kafka compacted each topic at a drain so far; what is unknown is left out.
        begins: Offsets below which drains read partitions before Kafka compacted their topics.
        ends: Offsets from which on partitions were written after Kafka had compacted their topics.
    """

    was: Mapping[str, bool]
    begins: Offsets
    ends: Offsets


def noted_compaction(root: UPath, topic_ids: Mapping[str, str] = _UNTOLD) -> NotedCompaction:
    """Read what drains have noted of Kafka's compaction.

    Args:
        topic_ids: Ids by which the archive counts the topics that are meant: of others, nothing is
            known.
    """
    document = TopicsDocument.read_note(root / "topics.json") or TopicsDocument()
    noted = {name: _was(each) for name, each in _of_topics(document, topic_ids).items()}
    rows = {
        name: row
        for name, row in document.topics.items()
        if row.topic_id is not None and row.topic_id == topic_ids.get(name)
    }
    begins, ends = (
        {
            TopicPartition(name, int(partition)): offset
            for name, offsets in noted_offsets.items()
            for partition, offset in (offsets or {}).items()
        }
        for noted_offsets in (
            {name: row.compacted_from for name, row in rows.items()},
            {name: row.compacted_until for name, row in rows.items()},
        )
    )
    return NotedCompaction({n: was for n, was in noted.items() if was is not None}, begins, ends)


def _of_topics(document: TopicsDocument, topic_ids: Mapping[str, str]) -> dict[str, TopicSettings]:
    """Return the settings, without those noted of other topics of the same names."""
    return {
        name: each
        for name, each in _settings(document).items()
        if not is_other_topic(document.topics[name].topic_id or "", topic_ids.get(name, ""))
    }


def _was(settings: TopicSettings) -> bool | None:
    own = settings.config.get("cleanup.policy")
    if settings.compacted is None and own is not None:
        # A note of an older release, which has only what is set on the topic itself.
        return "compact" in own
    return settings.compacted


def _has_ended(before: TopicSettings | None, now: TopicSettings) -> bool:
    """Return whether Kafka compacted a topic before, and doesn't any more."""
    return before is not None and _was(before) is True and not _was(now)


def _has_begun(before: TopicSettings | None, now: TopicSettings) -> bool:
    """Return whether Kafka compacts a topic, and is known not to have done so before."""
    return before is not None and _was(before) is False and bool(_was(now))


def _until(
    before: TopicSettings | None,
    now: TopicSettings,
    noted: dict[str, int] | None,
    ends: dict[str, int],
) -> dict[str, int] | None:
    """Return where a topic's logs ended when it was first seen not to be compacted any more.

    Of a partition that was added, or named, since: when that was first seen.
    """
    if _was(now) is not False or not _has_ended(before, now):
        # It is compacted again, or nobody knows; or it never was.
        return None
    return ends | (noted or {}) or None


def _of_topic(offsets: Offsets, name: str) -> dict[str, int]:
    return {str(tp.partition): at for tp, at in sorted(offsets.items()) if tp.topic == name}


def _row(
    settings: TopicSettings,
    topic_id: str | None,
    compacted_from: Mapping[str, int] | None,
    compacted_until: Mapping[str, int] | None,
) -> dict[str, Any]:
    row = {
        **asdict(settings),
        "topic_id": topic_id,
        "compacted_from": compacted_from or None,
        "compacted_until": compacted_until or None,
    }
    return {name: value for name, value in row.items() if value is not None}


def write_topic_settings(
    root: UPath,
    settings: Mapping[str, TopicSettings],
    topic_ids: Mapping[str, str] = _UNTOLD,
    were_read: Offsets = _NOWHERE,
    ends: Offsets = _NOWHERE,
) -> None:
    """Update the settings of some topics and keep those of others. Writes only changes.

    A topic that Kafka compacted once lacks records from then on, whatever its setting is now; one
    that was made again under its name doesn't. What was read before lacked none, nor does what was
    written after it.

    Args:
        topic_ids: Ids of these topics.
        were_read: Offsets up to which drains have read their partitions.
        ends: Where their logs end.
    """
    document = TopicsDocument.read_note(root / "topics.json") or TopicsDocument()
    ids = {name: row.topic_id for name, row in document.topics.items()}
    known = _settings(document)
    same = _of_topics(document, topic_ids)
    seen = {
        name: replace(each, compacted=True) if _has_ended(same.get(name), each) else each
        for name, each in settings.items()
    }
    noted = {
        name: row.compacted_until
        for name, row in document.topics.items()
        if row.topic_id == topic_ids.get(name)
    }
    until = {
        name: _until(same.get(name), each, noted.get(name), _of_topic(ends, name))
        for name, each in settings.items()
    }
    is_new = any(until[name] != noted.get(name) for name in until) or any(
        name not in known
        or (known[name], known[name].compacted, known[name].retention_ms, ids[name])
        != (each, each.compacted, each.retention_ms, topic_ids.get(name))
        for name, each in seen.items()
    )
    if is_new:
        begins = {
            name: row.compacted_from
            for name, row in document.topics.items()
            if row.topic_id == topic_ids.get(name)
        }
        for name in (name for name, each in seen.items() if _has_begun(same.get(name), each)):
            begins[name] = _of_topic(were_read, name)
        rows = {
            name: _row(each, topic_ids.get(name), begins.get(name), until[name])
            for name, each in seen.items()
        }
        merged = document.content() | rows
        TopicsDocument.model_validate(dict(sorted(merged.items()))).write(root / "topics.json")
