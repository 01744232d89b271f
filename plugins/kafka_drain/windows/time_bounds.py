"""Where a time divides a partition's offsets, although records aren't always in the order of time.

Kafka's lookup by time gives the first offset at or after a time (ListOffsets). That is no bound:
one record whose producer had a wrong clock hides all later ones from every time before its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition, merge

#: So many records in a row that are at or after a time end the search for earlier ones.
LOOKAHEAD = 100

#: An offset, and the record's timestamp in milliseconds; -1 for a record without one.
Timed = tuple[int, int]


def may_hide(found: Timed, next_later: int, end: int, before: int) -> bool:
    """Return whether the record that a lookup found may hide earlier ones.

    Args:
        found: The first record at or after a time.
        next_later: The first offset whose record is later than that one; -1 if there is none.
        end: Where the search ends.
        before: The time from which on a record is suspiciously late, in milliseconds.
    """
    offset, timestamp = found
    return timestamp >= before or offset + 1 < (end if next_later < 0 else min(next_later, end))


def divide(records: Iterable[Timed], time: int, *, first: int, earliest: int, now: int) -> int:
    """Return the offset that divides earlier records from those at or after a time.

    A record belongs with those that it lies among: later ones in front of an earlier one are left
    on its side, and so are records from the future that follow it. Where records are mixed over
    more than `LOOKAHEAD`, later ones hide earlier ones, which then belong to a later interval.

    Args:
        records: The records from `first` on, in the order of offsets.
        time: The time, in milliseconds.
        first: The first offset at or after the time, as Kafka's lookup gives it.
        earliest: The first offset that Kafka holds.
        now: The current time, in milliseconds.
    """
    divides, ahead = first, 0
    for offset, timestamp in records:
        follows = not ahead and divides > earliest
        if 0 <= timestamp < time or (timestamp > now and follows):
            divides, ahead = offset + 1, 0
        else:
            ahead += 1
            if ahead > LOOKAHEAD:
                break
    return divides


@dataclass(frozen=True)
class TimeBounds:
    """Asks Kafka where times divide the offsets of partitions.

    Attributes:
        cluster: The cluster.
        earliest: The first offset of each partition that Kafka holds.
        ends: Where the search ends in each partition.
        now: The current time, in milliseconds.
        step: Length of an interval, in milliseconds. A record that is later than a bound by more
            is looked at: it may be of a producer with a wrong clock.
    """

    cluster: KafkaCluster
    earliest: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    now: int
    step: int

    def of(
        self,
        time: int,
        partitions: Collection[TopicPartition],
        known: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return where a time, in milliseconds, divides each partition; -1 for behind its end.

        Records are read only where one may hide others.

        Args:
            time: The time.
            partitions: The partitions.
            known: Offsets that aren't divided by a later time than this one, where known.
        """
        found = self.cluster.first_since(dict.fromkeys(partitions, time))
        divided = {tp: offset for tp, (offset, _) in found.items()}
        early = {tp: timed for tp, timed in found.items() if 0 <= timed[0] < self.ends[tp]}
        later = self.cluster.first_since({tp: at + 1 for tp, (_, at) in early.items()})
        for tp, timed in early.items():
            late = min(time + self.step, self.now + 1)
            if may_hide(timed, later[tp][0], self.ends[tp], late):
                first = max(timed[0], known.get(tp, 0))
                divided[tp] = divide(
                    self._read(tp, first),
                    time,
                    first=first,
                    earliest=self.earliest[tp],
                    now=self.now,
                )
        return divided

    def of_no_interval(self) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the offsets that no interval up to now holds, by their records' times.

        Those are of records without a time in front of all others, as Kafka keeps them of formats
        before 0.10, and of a partition's records if all of them are dated after now.
        """
        later = self.of(self.now, list(self.ends), {})
        timed = self.cluster.first_since(dict.fromkeys(self.ends, 0))
        found: dict[TopicPartition, list[OffsetRange]] = {}
        for tp, end in self.ends.items():
            first = timed[tp][0] if timed[tp][0] >= 0 else end
            untimed = OffsetRange(self.earliest[tp], max(self.earliest[tp], min(first, end)))
            ranges = [untimed] if self._has_records(tp, untimed) else []
            if 0 <= later[tp] < end:
                ranges.append(OffsetRange(later[tp], end))
            if ranges:
                found[tp] = merge(ranges)
        return found

    def _has_records(self, tp: TopicPartition, span: OffsetRange) -> bool:
        """Return whether a record is in a span, which may also hold a marker, or nothing."""
        return len(span) > 0 and any(
            batch.num_rows for batch in self.cluster.records(tp, span, "read_uncommitted")
        )

    def _read(self, tp: TopicPartition, first: int) -> Iterator[Timed]:
        span = OffsetRange(first, self.ends[tp])
        for batch in self.cluster.records(tp, span, "read_uncommitted"):
            times = batch.column("timestamp").cast("int64").to_pylist()
            for offset, at in zip(batch.column("offset").to_pylist(), times, strict=True):
                yield offset, at // 1000
