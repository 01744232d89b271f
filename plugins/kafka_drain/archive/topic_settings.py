"""Settings of the source topics, kept in the archive's `topics.json` and updated by each drain.

They allow a restore to create the target like its source, even if the source is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from upath import UPath

from kafka_drain.archive.documents import TopicsDocument
from kafka_drain.kafka.topics import TopicSettings


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
            row.partitions, row.replication_factor, row.max_message_bytes, row.config
        )
        for name, row in document.topics.items()
    }


def write_topic_settings(root: UPath, settings: Mapping[str, TopicSettings]) -> None:
    """Update the settings of some topics and keep those of others. Writes only changes."""
    document = TopicsDocument.read_note(root / "topics.json") or TopicsDocument()
    known = _settings(document)
    if known | dict(settings) != known:
        merged = document.content() | {name: asdict(each) for name, each in settings.items()}
        TopicsDocument.model_validate(dict(sorted(merged.items()))).write(root / "topics.json")
