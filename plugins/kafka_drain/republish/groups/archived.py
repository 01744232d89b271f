"""A group's committed offsets as the archive has noted them, for when its cluster is gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from upath import UPath

from kafka_drain.archive.cluster_documents import Moment
from kafka_drain.archive.cluster_moments import moment_at, read_settings
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.errors import ConfigError, TopicError
from kafka_drain.intervals import from_iso, in_utc
from kafka_drain.kafka.cluster_state import Part
from kafka_drain.kafka.identity import is_other_topic
from kafka_drain.offsets import TopicPartition

_SHOWN = 10


@dataclass(frozen=True)
class ArchivedOffsets:
    """A group's committed offsets at a moment.

    Attributes:
        committed: The offsets.
        topic_ids: Ids of the topics at that moment, as far as they were captured.
        metadata: Metadata committed with the offsets.
    """

    moment: Moment
    committed: dict[TopicPartition, int]
    topic_ids: dict[str, str]
    metadata: Mapping[TopicPartition, str] = field(default_factory=dict)

    def note(self) -> str:
        """Say as of when the offsets are."""
        return (
            f"the offsets are those of {self.moment.answered_at}, when the archive's cluster was "
            "described last; what the group has read since then is read again"
        )

    def is_outdated(self, snapshot: Snapshot) -> bool:
        """Return whether the archive holds records that were drained after the moment.

        Raises:
            ReceiptError: When the newest receipt of a generation is damaged.
        """
        receipts = (generation.last_receipt() for generation in reversed(snapshot.generations))
        newest = next(filter(None, receipts), None)
        if newest is None:
            return False
        if newest.cluster is None:
            # Nothing was described before; or the newest description was damaged by then.
            sealed, described = map(from_iso, (newest.sealed_at, self.moment.answered_at))
            return in_utc(sealed) >= in_utc(described)
        drained, noted = newest.cluster.number, self.moment.number
        return drained > noted or (drained == noted and not newest.described)

    def check_topics(self, drained: Mapping[TopicPartition, str]) -> None:
        """Check that the offsets are of the topics that were drained.

        Args:
            drained: Id of the topic whose records count, by partition; empty if it isn't known.

        Raises:
            TopicError: When a topic had been recreated by then: its offsets name other records.
        """
        for tp, id in sorted(drained.items()):
            known = self.topic_ids.get(tp.topic)
            if is_other_topic(id, known or "") and tp in self.committed:
                raise TopicError(
                    f"topic {tp.topic} had id {known} at {self.moment.answered_at}, but the run "
                    f"read {tp} of id {id}: the offsets name other records. Give an earlier time "
                    "with --at, or the offsets with --offsets-file"
                )


def archived_offsets(root: UPath, group: str, at: datetime | None) -> ArchivedOffsets:
    """Return a group's committed offsets according to the archive.

    Args:
        at: The newest moment that isn't later counts; None for the newest.

    Raises:
        ConfigError: When no moment has groups, or the group isn't in it; lists those that are.
    """
    moment = moment_at(root, at, Part.GROUPS)
    if moment is None or moment.groups is None:
        before = f" at or before {at.isoformat()}" if at else ""
        raise ConfigError(
            f"{root} has no offsets of consumer groups{before}: no validation has noted them; give "
            "another --at, or the offsets with --offsets-file"
        )
    found = next((each for each in moment.groups if each.name == group), None)
    if found is None:
        names = sorted(each.name for each in moment.groups)
        more = " …" if len(names) > _SHOWN else ""
        untold = moment.parts[Part.GROUPS].detail
        had = f"isn't described at {moment.answered_at} ({untold})" if untold else ""
        raise ConfigError(
            f"group {group} {had or f'had no offsets at {moment.answered_at}'}; there were "
            f"{', '.join(names[:_SHOWN]) or 'none'}{more}; correct --group or --at"
        )
    settings = read_settings(root, moment)
    return ArchivedOffsets(
        moment,
        {TopicPartition(o.topic, o.partition): o.offset for o in found.offsets},
        {topic.name: topic.id for topic in settings.topics or ()},
        {TopicPartition(o.topic, o.partition): o.metadata for o in found.offsets},
    )
