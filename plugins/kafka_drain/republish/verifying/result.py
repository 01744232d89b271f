"""The result of verify, for one target partition and for all. Opens nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafka_drain.offsets import TopicPartition
from kafka_drain.output import Level, Line
from kafka_drain.republish.planning.documents import (
    ChangedShardJson,
    VerificationJson,
    VerifiedJson,
)
from kafka_drain.republish.planning.plan import RepublishPlan
from kafka_drain.republish.planning.verdicts import gets_receipt
from kafka_drain.republish.verifying.matching import PartitionMatch


@dataclass(frozen=True)
class VerifiedPartition:
    """One target partition and its result."""

    tp: TopicPartition
    match: PartitionMatch

    def to_dict(self) -> VerifiedJson:
        """Return the result as JSON types, without the mappings."""
        return {
            "topic": self.tp.topic,
            "partition": self.tp.partition,
            "records": self.match.expected,
            "found": self.match.found,
            "lost": self.match.lost,
            "twice": self.match.duplicates,
            "out_of_order": self.match.out_of_order,
            "foreign": self.match.unplanned,
            "compacted": self.match.compacted,
            "fingerprint": self.match.fingerprint,
            "notes": list(self.match.notes),
        }


@dataclass(frozen=True)
class ChangeFound:
    """The effect of a change on the records when they were verified.

    Attributes:
        dropped: Number of records that it dropped.
        changed: Number of records that it changed.
        others: Source partitions of which it made something else than planned.
    """

    dropped: int
    changed: int
    others: tuple[TopicPartition, ...] = ()


def change_found(
    plan: RepublishPlan, seen: Mapping[int, tuple[int, int, str]], *, is_exact: bool
) -> ChangeFound | None:
    """Compare the effect of a change on each shard with the plan.

    Args:
        seen: Numbers of dropped and changed records, and the digest of the rest, by shard number.
            A shard is missing if it wasn't read to its end.
        is_exact: Whether all records are there, so that all shards have been read.

    Returns:
        None if the plan has no change.
    """
    if plan.change is None:
        return None
    others = tuple(
        shard.source
        for shard, planned in zip(plan.shards, plan.change["shards"], strict=True)
        if seen.get(shard.number, None if is_exact else _as(planned)) != _as(planned)
    )
    return ChangeFound(plan.change["dropped"], plan.change["changed"], others)


def _as(planned: ChangedShardJson) -> tuple[int, int, str]:
    return planned["dropped"], planned["changed"], planned["digest"]


@dataclass(frozen=True)
class Verification:
    """The result for all target partitions.

    Attributes:
        partitions: The target partitions.
        change: Effect of the plan's change on the records; None if it has none.
    """

    partitions: tuple[VerifiedPartition, ...]
    change: ChangeFound | None = None

    @property
    def records(self) -> int:
        """Number of planned records."""
        return sum(partition.match.expected for partition in self.partitions)

    @property
    def lost(self) -> int:
        """Number of planned records that are missing."""
        return sum(partition.match.lost for partition in self.partitions)

    @property
    def duplicates(self) -> int:
        """Number of duplicates beyond the plan."""
        return sum(partition.match.duplicates for partition in self.partitions)

    @property
    def out_of_order(self) -> int:
        """Number of records that came too early."""
        return sum(partition.match.out_of_order for partition in self.partitions)

    @property
    def unplanned(self) -> int:
        """Number of records of other producers."""
        return sum(partition.match.unplanned for partition in self.partitions)

    @property
    def compacted(self) -> int:
        """Number of planned records that Kafka has compacted away."""
        return sum(partition.match.compacted for partition in self.partitions)

    @property
    def is_exact(self) -> bool:
        """Return whether each planned record is in Kafka once, in its shard's order."""
        return all(partition.match.is_exact for partition in self.partitions)

    @property
    def is_as_planned(self) -> bool:
        """Return whether the plan's change, if any, had the planned effect on the records."""
        return self.change is None or not self.change.others

    def gets_receipt(self, delivery: str) -> bool:
        """Return whether a run with this delivery gets its receipt."""
        return self.is_as_planned and gets_receipt(
            delivery, lost=self.lost, duplicates=self.duplicates, out_of_order=self.out_of_order
        )

    def to_dict(self) -> VerificationJson:
        """Return the result as JSON types, without the offset map."""
        return {
            "is_exact": self.is_exact,
            "records": self.records,
            "lost": self.lost,
            "twice": self.duplicates,
            "out_of_order": self.out_of_order,
            "foreign": self.unplanned,
            "compacted": self.compacted,
            "partitions": [partition.to_dict() for partition in self.partitions],
        }

    def lines(self) -> list[str]:
        """Return the result as text lines for the user."""
        others = [
            f"{number:,} {what}"
            for number, what in (
                (self.compacted, "have been compacted by Kafka since"),
                (self.unplanned, "records of other producers are in between"),
            )
            if number
        ]
        once = f"{self.records:,} records are in Kafka once, in order"
        if not self.is_exact:
            first = (
                f"NOT EXACT: of {self.records:,} records {self.lost:,} are lost; "
                f"{self.duplicates:,} are duplicates, {self.out_of_order:,} are out of order"
            )
        elif self.change is None:
            first = f"{once}, as in the files"
        elif self.is_as_planned:
            first = f"{once}, as planned: {self.change.dropped:,} left out, "
            first += f"{self.change.changed:,} changed"
        else:
            first = f"NOT AS PLANNED: {once}, with other contents"
        return [
            Line(
                f"verify: {'; '.join([first, *others])}",
                Level.GOOD if self.is_exact and self.is_as_planned else Level.ERROR,
            ),
            *(
                f"  {partition.tp}: {match.found:,} of {match.expected:,} found, {match.lost:,} "
                f"lost, {match.duplicates:,} duplicated, {match.out_of_order:,} out of order"
                for partition in self.partitions
                if not (match := partition.match).is_exact
            ),
            *(
                [
                    Line(
                        "  the change gave another result than when it was planned, for "
                        f"{', '.join(map(str, self.change.others[:5]))}",
                        Level.ERROR,
                    )
                ]
                if self.change is not None and not self.is_as_planned
                else []
            ),
            *(
                f"  {partition.tp}: {note}"
                for partition in self.partitions
                for note in partition.match.notes
            ),
        ]
