"""Where a time divides a partition's offsets, although records aren't always in the order of time.

Kafka's lookup by time gives the first offset at or after a time (ListOffsets). That is no bound:
one record whose producer had a wrong clock hides all later ones from every time before its own. So
a record divides only if those behind it, by and large, aren't earlier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, Offsets, TopicPartition, merge

#: So many records behind one decide whether it divides.
LOOKAHEAD = 100

#: An offset, and the record's timestamp in milliseconds; -1 for a record without one.
Timed = tuple[int, int]


def is_divide(behind: Iterable[int], time: int) -> bool:
    """Return whether a record at or after a time divides earlier records from those behind it.

    That is so if of the next one, two, three and so on, no more than half are earlier: some may be
    late, but the record isn't one of a few that are ahead of all others. What divides a time
    divides each earlier one, too, if it isn't before that; so bounds are in the order of times.

    Args:
        behind: The times of the records behind it, in the order of offsets.
        time: The time, in milliseconds.
    """
    balance = 0
    for timestamp in behind:
        if timestamp >= 0:
            balance += 1 if timestamp >= time else -1
        if balance < 0:
            return False
    return True


def divide(records: Iterable[Timed], time: int, *, end: int, is_first: bool, now: int) -> int:
    """Return the offset that divides earlier records from those at or after a time.

    A record belongs with those that it lies among, so one from the future with what it follows.
    Where records are mixed over more than `LOOKAHEAD`, some belong to an earlier or later interval.

    Args:
        records: Records up to the end, from one on that isn't behind the offset.
        time: The time, in milliseconds.
        end: The result if no record divides them.
        is_first: Whether there is nothing that the first record could follow.
        now: The current time, in milliseconds.
    """
    left = iter(records)
    window = deque(islice(left, LOOKAHEAD + 1))
    follows = not is_first
    while window:
        if follows and time > now:
            # What is dated after now divides nothing where it has a record to follow.
            return end
        offset, timestamp = window.popleft()
        may_divide = timestamp >= time and not (timestamp > now and follows)
        if may_divide and is_divide((at for _, at in window), time):
            return offset
        follows = follows or 0 <= timestamp <= now
        window.extend(islice(left, 1))
    return end


@dataclass(frozen=True)
class TimeBounds:
    """Asks Kafka where times divide the offsets of partitions.

    Attributes:
        earliest: The log start offset of each partition.
        ends: End of the search in each partition.
        now: The current time, in milliseconds.
    """

    cluster: KafkaCluster
    earliest: Offsets
    ends: Offsets
    now: int

    def of(
        self, time: int, partitions: Collection[TopicPartition], known: Offsets
    ) -> dict[TopicPartition, int]:
        """Return each partition's offset for a time, in milliseconds; -1 for behind its end.

        Args:
            known: Offsets that aren't divided by a later time than this one, where known.

        Raises:
            KafkaUnavailableError: When Kafka doesn't respond, or deletes records meanwhile.
        """
        found = self.cluster.first_since(dict.fromkeys(partitions, time))
        divided = {
            tp: max(offset, known.get(tp, 0), self.earliest[tp]) if offset >= 0 else -1
            for tp, (offset, _) in found.items()
        }
        begin = {tp: at for tp, at in divided.items() if 0 <= at < self.ends[tp]}
        # Records from the future follow others, unless there are none.
        ahead = [tp for tp in begin if found[tp][1] > self.now]
        first = self.cluster.first_since(dict.fromkeys(ahead, 0))
        for tp, next_ones in self.cluster.times_from(begin, LOOKAHEAD + 1, self.ends).items():
            divided[tp] = divide(
                self._from(tp, next_ones),
                time,
                end=self.ends[tp],
                is_first=tp in first and begin[tp] == first[tp][0],
                now=self.now,
            )
        # What it has deleted meanwhile looks as if there were no records.
        for tp, earliest in self.cluster.earliest(begin).items():
            if earliest > begin[tp]:
                raise KafkaUnavailableError(
                    f"Kafka has deleted offsets of {tp} up to {earliest} while the times of its "
                    f"records from offset {begin[tp]} on were read; try again"
                )
        return divided

    def of_no_interval(self) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the offsets that no interval up to now holds, by their records' times.

        Those are of records without a time in front of all others, as Kafka keeps them of formats
        before 0.10, and of a partition's records if all of them are dated after now.
        """
        later = self.of(self.now + 1, list(self.ends), {})
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

    def _from(self, tp: TopicPartition, next_ones: list[Timed]) -> Iterator[Timed]:
        """Yield the records up to the search's end, those behind the next ones when needed."""
        end = self.ends[tp]
        yield from (timed for timed in next_ones if timed[0] < end)
        if len(next_ones) > LOOKAHEAD and next_ones[-1][0] + 1 < end:
            yield from self._read(tp, OffsetRange(next_ones[-1][0] + 1, end))

    def _read(self, tp: TopicPartition, span: OffsetRange) -> Iterator[Timed]:
        for batch in self.cluster.records(tp, span, "read_uncommitted"):
            times = batch.column("timestamp").cast("int64").to_pylist()
            for offset, at in zip(batch.column("offset").to_pylist(), times, strict=True):
                yield offset, at // 1000
