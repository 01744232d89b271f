"""The archived offsets that a topic's log still has, after `roll --rewritten`.

Below the offset at which a generation starts with a new incarnation of a topic, the log still has
the records that were archived of the incarnations before it.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence

from kafka_drain.archive.fold import Partition
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.kafka.identity import earlier_incarnations
from kafka_drain.offsets import OffsetRange, TopicPartition, merge

#: Ends, exclusive, up to which the log has the offsets of an incarnation.
LogEnds = Mapping[Partition, int]


def log_ends(
    snapshot: Snapshot, topic_ids: Mapping[str, str], partitions: Iterable[TopicPartition]
) -> dict[Partition, int]:
    """Return, by incarnation, the end (exclusive) of its archived offsets in the logs.

    Args:
        snapshot: The archive.
        topic_ids: Ids by which the archive counts the topics now; their incarnations have no end.

    Raises:
        ArchiveError: When the `generation.json` of an incarnation's first generation is damaged.
    """
    ends: dict[Partition, int] = {}
    for tp in partitions:
        counted = topic_ids.get(tp.topic, "")
        end = ends[tp, counted] = sys.maxsize
        for earlier in earlier_incarnations(counted):
            end = min(end, _start(snapshot, tp, counted))
            ends[tp, earlier] = end
            counted = earlier
    return ends


def _start(snapshot: Snapshot, tp: TopicPartition, counted: str) -> int:
    """Return an incarnation's start; 0 if it is unknown.

    If its first generation doesn't drain the partition, that was left out, and goes on where it
    ended as soon as it is drained again: its log wasn't the one that was rewritten.
    """
    number = snapshot.topic_incarnations().get((tp.topic, counted))
    return snapshot.generation(number).starting_offsets.get(tp, sys.maxsize) if number else 0


def drained_before(
    snapshot: Snapshot,
    open_generation: SnapshotGeneration,
    partitions: Collection[TopicPartition],
    topic_ids: Mapping[str, str],
) -> dict[TopicPartition, int]:
    """Return the offsets up to which generations before the open one have drained partitions.

    Of earlier incarnations of their topics, what their logs still have.
    """
    index = snapshot.skipped.index if snapshot.skipped is not None else None
    drained = index.drained if index is not None else {}
    names = {tp.topic for tp in partitions}
    log = log_ends(snapshot, {name: topic_ids.get(name, "") for name in names}, partitions)
    ends: dict[TopicPartition, int] = {}
    for tp in partitions if drained else ():
        topic_id = topic_ids.get(tp.topic, "")
        # From the oldest incarnation on: the newest one decides.
        for counted in (*reversed(earlier_incarnations(topic_id)), topic_id):
            if (tp, counted) in drained:
                ends[tp] = min(drained[tp, counted].end, log[tp, counted])
    last = index.last if index is not None else 0
    for generation in snapshot.generations if partitions else ():
        if last < generation.number < open_generation.number:
            ids, receipt = snapshot.topic_ids(generation), generation.last_receipt()
            sealed = {**generation.starting_offsets, **(receipt.ends if receipt else {})}
            ends |= {
                tp: min(sealed[tp], log[key])
                for tp in partitions
                if tp in sealed and (key := (tp, ids.get(tp.topic, ""))) in log
            }
    return ends


def offsets_in_log(
    held: Mapping[Partition, Sequence[OffsetRange]], ends: LogEnds
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets of those archived that are still the log's, sorted and disjoint.

    Args:
        held: Archived offsets, by incarnation.
        ends: See `log_ends`.
    """
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for (tp, counted), ranges in held.items():
        end = ends.get((tp, counted), 0)
        found.setdefault(tp, []).extend(
            OffsetRange(r.start, min(r.end, end)) for r in ranges if r.start < end
        )
    return {tp: merge(ranges) for tp, ranges in found.items() if ranges}
