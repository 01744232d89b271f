"""How the source topics are set up, kept in the archive's `topics.json` at each drain.

A restore can make the target like its source, also when the source is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

from upath import UPath

from kafka_drain.documents import read_document, read_note, write_document

__all__ = ["TopicSettings", "noted_topic_settings", "read_topic_settings", "write_topic_settings"]

#: What a broker takes unless a topic or it itself is set otherwise (Kafka's default): bytes.
MAX_MESSAGE_BYTES = 1_048_588


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """How a topic is made.

    Attributes:
        partitions: How many.
        replication_factor: Copies of each partition.
        max_message_bytes: The largest batch that it takes, in bytes, whoever set that.
        config: What is set for the topic itself, by Kafka's names.
    """

    partitions: int
    replication_factor: int
    max_message_bytes: int = MAX_MESSAGE_BYTES
    config: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        config = "".join(f", {name}={value}" for name, value in sorted(self.config.items()))
        return f"{self.partitions} partitions, replication factor {self.replication_factor}{config}"

    def with_partitions(self, partitions: int) -> TopicSettings:
        """Return the settings with another number of partitions."""
        return replace(self, partitions=partitions)

    def with_config(self, name: str, value: str) -> TopicSettings:
        """Return the settings with one of them set."""
        return replace(self, config={**self.config, name: value})


def read_topic_settings(root: UPath) -> dict[str, TopicSettings]:
    """Read the settings by topic; none where no drain of this release ran.

    Raises:
        ArchiveError: When `topics.json` is damaged.
    """
    try:
        document = read_document(root / "topics.json")
    except FileNotFoundError:
        return {}
    return {name: TopicSettings(**settings) for name, settings in document.items()}


def noted_topic_settings(root: UPath) -> dict[str, TopicSettings]:
    """Read the settings by topic; none where they can't be read: the next drain notes them anew."""
    document = read_note(root / "topics.json") or {}
    try:
        return {name: TopicSettings(**settings) for name, settings in document.items()}
    except TypeError:
        # JSON, and of something else.
        return {}


def write_topic_settings(root: UPath, settings: Mapping[str, TopicSettings]) -> None:
    """Note the settings of some topics; those of others stay. Writes only what is new."""
    known = noted_topic_settings(root)
    merged = known | dict(settings)
    if merged != known:
        write_document(
            root / "topics.json", {name: asdict(merged[name]) for name in sorted(merged)}
        )
