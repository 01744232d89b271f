"""Compare a target partition with the records of its shards. Opens nothing.

If everything is right, a walk along the target (sequence_match) is the only pass, in bounded
memory. If there were records of other producers, the shards are read once more to distinguish these
from duplicates. Everything else handles damage (multiset_diff).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from kafka_drain.republish.planning.verdicts import is_exact
from kafka_drain.republish.verifying.kept_twins import with_kept_twins
from kafka_drain.republish.verifying.match_types import Actual, Expected
from kafka_drain.republish.verifying.multiset_diff import (
    balance,
    batches_without,
    compacted_of,
    count_planned,
    planned_among,
    too_early,
    with_other_times,
    without,
)
from kafka_drain.republish.verifying.offset_map import Block
from kafka_drain.republish.verifying.sequence_match import Walk


@dataclass(frozen=True)
class PartitionMatch:
    """The result for one target partition.

    Attributes:
        expected: Number of records that the plan puts there.
        found: Number of these that are there.
        lost: Number of these that are missing.
        duplicates: Number of duplicates: records equal to planned ones, beyond the planned number.
        out_of_order: Number of records that came before one of their shard with a lower source
            offset. Only records whose content is there as often as planned are checked.
        unplanned: Number of records that weren't planned and are from other producers.
        compacted: Number of planned records that Kafka has compacted away: the target has a later
            one with the same key.
        fingerprint: BLAKE2b-128 of the content hashes (eight bytes each, little endian) of the
            records that the walk found, in the target's order.
        mappings: Offsets of each shard's records, by shard number.
        notes: Notes about it for the user.
        changes: Effect of a change on each shard that sends there, by shard number: numbers of
            dropped and changed records, and the digest of the rest.
    """

    expected: int
    found: int
    lost: int
    duplicates: int
    out_of_order: int
    unplanned: int
    compacted: int
    fingerprint: str
    mappings: Mapping[int, tuple[Block, ...]]
    notes: tuple[str, ...] = ()
    changes: Mapping[int, tuple[int, int, str]] = field(default_factory=dict)

    @property
    def is_exact(self) -> bool:
        """Return whether each planned record is there once, in its shard's order."""
        return is_exact(lost=self.lost, duplicates=self.duplicates, out_of_order=self.out_of_order)

    def to_dict(self) -> dict[str, Any]:
        """Return the match as JSON types, to pass it to another process."""
        return asdict(self) | {
            "mappings": {str(number): list(blocks) for number, blocks in self.mappings.items()},
            "changes": {str(number): list(found) for number, found in self.changes.items()},
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> PartitionMatch:
        """Parse a document from `to_dict`."""
        mappings = {
            int(number): tuple(Block(*block) for block in blocks)
            for number, blocks in document["mappings"].items()
        }
        changes = {int(number): tuple(found) for number, found in document["changes"].items()}
        read = {"mappings": mappings, "notes": tuple(document["notes"]), "changes": changes}
        return cls(**(document | read))


def match_partition(
    expected: Mapping[int, Expected],
    actual: Actual,
    *,
    compare_timestamps: bool = True,
    is_compacted: bool = False,
) -> PartitionMatch:
    """Match a target partition with the shards that send to it.

    Args:
        expected: The records that each shard sends there, by shard number. A timestamp of 0 matches
            any: librdkafka replaces it with the time of sending.
        actual: The records in the partition.
        compare_timestamps: False if the delivery doesn't keep them, to compare only contents.
        is_compacted: Whether Kafka may have removed records that have a later one with their key.
    """
    walk = Walk(expected, compare_timestamps)
    walk.run(actual)
    if walk.proves_all:
        planned = planned_among(expected, walk.unexpected, compare_timestamps)
        duplicates = count_planned(walk.unexpected, planned)
        return PartitionMatch(
            expected=walk.matched,
            found=walk.matched,
            lost=0,
            duplicates=duplicates,
            out_of_order=0,
            unplanned=walk.unexpected.total() - duplicates,
            compacted=0,
            fingerprint=walk.fingerprint,
            mappings=walk.mappings(),
        )
    missing, surplus, records = balance(expected, actual, compare_timestamps)
    duplicates = count_planned(surplus, planned_among(expected, surplus, compare_timestamps))
    lost, compacted = missing.total(), 0
    notes = []
    if walk.is_by_shard:
        notes.append(
            "identical records of several source partitions: each one's order was proven separately"
        )
    if other_times := with_other_times(missing, surplus):
        notes.append(f"{other_times:,} of the lost records are there with a different timestamp")
    in_order, mappings = walk.is_complete, walk.mappings()
    if lost or duplicates:
        others = {h for h, _ in chain(missing, surplus)}
        expected_rest = {number: without(source, others) for number, source in expected.items()}
        actual_rest = batches_without(actual, others)
        rest = Walk(expected_rest, compare_timestamps)
        rest.run(actual_rest)
        in_order = rest.is_complete
        if is_compacted:
            # Records compacted away at the start of the target have stopped the first walk there.
            mappings = with_kept_twins(rest.mappings(), expected, actual, others)
    else:
        expected_rest, actual_rest = dict(expected), actual
    out_of_order = 0
    if not in_order:
        out_of_order = max(1, too_early(expected_rest, actual_rest, compare_timestamps))
    if lost and is_compacted:
        compacted = compacted_of(expected, actual, missing, compare_timestamps)
        lost -= compacted
    return PartitionMatch(
        expected=records,
        found=records - lost - compacted,
        lost=lost,
        duplicates=duplicates,
        out_of_order=out_of_order,
        unplanned=surplus.total() - duplicates,
        compacted=compacted,
        fingerprint=walk.fingerprint,
        mappings=mappings,
        notes=tuple(notes),
    )
