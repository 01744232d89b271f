"""Find changes since a republish was planned, if it is planned again now. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from kafka_drain.archive.frozen_plan import files_changed
from kafka_drain.kafka.identity import is_other_cluster, is_other_topic
from kafka_drain.republish.planning.documents import ChangeJson, SchemaIdsJson
from kafka_drain.republish.planning.plan import RepublishPlan, Target
from kafka_drain.republish.planning.shards import Shard, ShardFile


@dataclass(frozen=True)
class Outline:
    """The part of a plan that determines the records to be sent.

    Attributes:
        cluster_id: Id of the target cluster.
        targets: The topics that get records.
        shards: The records and their targets; the names of their progress don't count.
        schema_ids: The schema ids that are replaced.
        change: The drops and changes.
    """

    cluster_id: str
    targets: Sequence[Target]
    shards: Sequence[Shard]
    schema_ids: SchemaIdsJson | None
    change: ChangeJson | None = None

    @classmethod
    def of(cls, plan: RepublishPlan) -> Outline:
        """Return a plan's outline."""
        return cls(plan.cluster_id, plan.targets, plan.shards, plan.schema_ids, plan.change)

    @property
    def files(self) -> set[tuple[str, str]]:
        """Path and SHA-256 of each file."""
        return {(file.path, file.sha256) for shard in self.shards for file in shard.files}


@dataclass(frozen=True)
class Approved:
    """An approved plan, as far as it is needed for making it again.

    Attributes:
        files: The only files to choose from.
        accept: Called with the new plan's outline; raises an error if it isn't the same.
    """

    files: Collection[str]
    accept: Callable[[Outline], None]


def changes(seen: Outline, now: Outline, *, may_grow: bool) -> list[str]:
    """Return the differences, as parts of a sentence; empty if there are none.

    Args:
        seen: The plan that was made.
        now: The same plan, made again of the same files.
        may_grow: Whether other records may have reached the targets since: those that go back to
            their source, which producers use.
    """
    if is_other_cluster(seen.cluster_id, now.cluster_id):
        return [f"Kafka cluster {seen.cluster_id} became {now.cluster_id}"]
    found = []
    if gone := [path for path, _ in seen.files - now.files]:
        found.append(files_changed(gone))
    found += _targets(seen.targets, now.targets, may_grow=may_grow)
    # Files name themselves, and whatever else differs must not pass for the same.
    if not found and _records(seen.shards) != _records(now.shards):
        found.append("the selected records became others")
    if seen.schema_ids != now.schema_ids:
        found.append("the map of schema ids became another one")
    found += _change(seen.change, now.change)
    return found


def _change(seen: ChangeJson | None, now: ChangeJson | None) -> Iterator[str]:
    if seen is None or now is None:
        if seen != now:
            yield "what is left out and changed became something else"
    elif seen["function"] != now["function"]:
        yield "the function that changes records became another one"
    elif seen["key_id"] != now["key_id"]:
        yield "the key of the pseudonyms became another one"
    elif seen != now:
        yield "what is left out and changed became something else"


def _targets(seen: Sequence[Target], now: Sequence[Target], *, may_grow: bool) -> Iterator[str]:
    there = {target.topic: target for target in now}
    for was in seen:
        topic = there.get(was.topic)
        if topic is None:
            yield f"topic {was.topic} gets no records any more"
        elif is_other_topic(was.id, topic.id):
            yield f"topic {was.topic} was recreated"
        elif topic.partitions != was.partitions:
            yield f"topic {was.topic} went from {was.partitions} to {topic.partitions} partitions"
        elif was.id and topic.is_compacted and not was.is_compacted:
            yield f"topic {was.topic} became one that Kafka compacts (cleanup.policy)"
        elif topic.start != was.start and not may_grow:
            new = sum(topic.start) - sum(was.start)
            yield f"the offsets of topic {was.topic} grew by {new:,}: something else writes to it"


def _records(
    shards: Sequence[Shard],
) -> list[tuple[object, str, str, int | None, object, tuple[ShardFile, ...]]]:
    return [
        (s.source, s.topic_id, s.target_topic, s.target_partition, s.rows, s.files) for s in shards
    ]
