"""Settings of the source topics, kept in the archive's `topics.json` and updated by each drain.

They allow a restore to create the target like its source, even if the source is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from upath import UPath

from kafka_drain.archive.format_version import known_fields
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.storage.json_files import read_document, read_note, write_document

__all__ = ["noted_topic_settings", "read_topic_settings", "write_topic_settings"]


def read_topic_settings(root: UPath) -> dict[str, TopicSettings]:
    """Read the settings by topic; empty if no drain of this release has run.

    Raises:
        ArchiveError: When `topics.json` is damaged.
    """
    try:
        document = read_document(root / "topics.json")
    except FileNotFoundError:
        return {}
    return {name: known_fields(TopicSettings, settings) for name, settings in document.items()}


def noted_topic_settings(root: UPath) -> dict[str, TopicSettings]:
    """Read the settings by topic; empty if unreadable, as the next drain rewrites them."""
    document = read_note(root / "topics.json") or {}
    try:
        return {name: known_fields(TopicSettings, settings) for name, settings in document.items()}
    except TypeError:
        # Valid JSON with other content.
        return {}


def write_topic_settings(root: UPath, settings: Mapping[str, TopicSettings]) -> None:
    """Update the settings of some topics and keep those of others. Writes only changes."""
    known = noted_topic_settings(root)
    merged = known | dict(settings)
    if merged != known:
        write_document(
            root / "topics.json", {name: asdict(merged[name]) for name in sorted(merged)}
        )
