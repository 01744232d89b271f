"""The restores of an archive's republishes to a cluster. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_drain.kafka.cluster_state import TopicState
from kafka_drain.kafka.identity import is_other_topic
from kafka_drain.offsets import TopicPartition


@dataclass(frozen=True, slots=True)
class SentTo:
    """A topic that a run has sent to.

    Attributes:
        run: The run's key.
        source: Name of the topic whose records they are.
        topic: Name of the target topic.
        topic_id: Its id when the run was planned.
        is_verified: Whether the run has finished.
        name: The run's name, from which its key was made, and by which it is resumed.
        follows: Whether it is a mirror's.
    """

    run: str
    source: str
    topic: str
    topic_id: str
    is_verified: bool
    name: str = ""
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Translated:
    """A translation of a group's offsets that wasn't undone.

    Attributes:
        run: Key of the run.
        group: The group that got the offsets.
        written_at: When it was begun, in UTC.
        is_applied: Whether all of them were committed.
        sources: The partitions whose offsets were translated.
        after: The offsets in the target.
    """

    run: str
    group: str
    written_at: str
    is_applied: bool
    sources: frozenset[TopicPartition]
    after: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Restored:
    """The restores of republishes to a cluster.

    Attributes:
        sent: Records that runs have sent or are sending, oldest run first.
        groups: The translations of each group's offsets, by the group that had them.
        new_name: A name for a run that was never begun, to any cluster.
    """

    sent: Sequence[SentTo] = ()
    groups: Mapping[str, Sequence[Translated]] = field(default_factory=dict)
    new_name: str = "restore"

    def _to(self, there: TopicState) -> list[SentTo]:
        return [
            each
            for each in self.sent
            if each.topic == there.name and not is_other_topic(each.topic_id, there.id)
        ]

    def is_verified(self, there: TopicState) -> bool:
        """Return whether runs have sent to a topic, and all of them have verified it."""
        found = self._to(there)
        return bool(found) and all(each.is_verified for each in found)

    def verified_by(self, there: TopicState) -> str:
        """Return the newest run that has verified a topic; empty for none."""
        runs = [each.run for each in self._to(there) if each.is_verified]
        return runs[-1] if runs else ""

    def unfinished_run(self, source: str, ids: Mapping[str, str]) -> SentTo | None:
        """Return the newest run that is sending a topic's records; None for none.

        Args:
            source: Name of the topic.
            ids: Ids of the target's topics now.
        """
        runs = [each for each in self._of(source, ids) if not each.is_verified]
        return runs[-1] if runs else None

    def newest_run(self, source: str, ids: Mapping[str, str]) -> str | None:
        """Return the newest finished run that has sent a topic's records; None for none.

        Args:
            source: Name of the topic.
            ids: Ids of the target's topics now; records in one that was recreated are gone.
        """
        runs = [each.run for each in self._of(source, ids) if each.is_verified]
        return runs[-1] if runs else None

    def has(self, source: str, ids: Mapping[str, str]) -> bool:
        """Return whether a run has sent, or is sending, a topic's records."""
        return bool(self._of(source, ids))

    def _of(self, source: str, ids: Mapping[str, str]) -> list[SentTo]:
        return [
            each
            for each in self.sent
            if each.source == source
            and each.topic in ids
            and not is_other_topic(each.topic_id, ids[each.topic])
        ]
