"""Select records of an archive by topic, partition, offset and time. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kafka_drain import intervals
from kafka_drain.config.offset_ranges import parse_ranges, range_name
from kafka_drain.errors import ConfigError
from kafka_drain.offsets import OffsetRange, TopicPartition


@dataclass(frozen=True, slots=True)
class Rows:
    """The selected records of one partition.

    Attributes:
        ranges: Offset ranges, sorted and disjoint; None for all offsets.
        from_ms: Lowest timestamp in milliseconds since 1970; None for no bound.
        to_ms: Exclusive upper bound of timestamps; None for no bound.
    """

    ranges: tuple[OffsetRange, ...] | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    @property
    def has_times(self) -> bool:
        """Return whether the selection is bounded by timestamps."""
        return self.from_ms is not None or self.to_ms is not None

    def none_of(self, first: int, last: int, first_ms: int | None, last_ms: int | None) -> bool:
        """Return whether none of the records in these bounds is selected; None means unknown."""
        if self.ranges is not None and not any(
            r.start <= last and first < r.end for r in self.ranges
        ):
            return True
        return not intervals.TimeRange(self.from_ms, self.to_ms).may_hold(first_ms, last_ms)

    def all_of(self, first: int, last: int, first_ms: int | None, last_ms: int | None) -> bool:
        """Return whether every record in these bounds is selected; None means unknown."""
        if self.ranges is not None and not any(
            r.start <= first and last < r.end for r in self.ranges
        ):
            return False
        old_enough = self.from_ms is None or (first_ms is not None and first_ms >= self.from_ms)
        new_enough = self.to_ms is None or (last_ms is not None and last_ms < self.to_ms)
        return old_enough and new_enough


@dataclass(frozen=True)
class Selection:
    """A selection as requested.

    Attributes:
        topics: Only these topics; empty for all.
        partitions: Only these partitions of each topic; empty for all.
        offsets: Only these offset ranges, and no other partition; empty for all.
        from_ms: Lowest timestamp in milliseconds since 1970; None for no bound.
        to_ms: Exclusive upper bound of timestamps; None for no bound.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[int, ...] = ()
    offsets: Mapping[TopicPartition, tuple[OffsetRange, ...]] = field(default_factory=dict)
    from_ms: int | None = None
    to_ms: int | None = None

    @classmethod
    def of(
        cls,
        *,
        topics: Iterable[str] = (),
        partitions: Iterable[int | str] = (),
        offsets: Iterable[str] = (),
        from_time: str | datetime | None = None,
        to_time: str | datetime | None = None,
    ) -> Selection:
        """Parse a selection as users write it.

        Args:
            topics: Topic names.
            partitions: Partition numbers.
            offsets: Ranges as `topic:partition:start-end`, with an exclusive end.
            from_time: Lowest timestamp, in ISO 8601; UTC if it has no time zone.
            to_time: Exclusive upper bound of timestamps.

        Raises:
            ConfigError: When a value is not acceptable.
        """
        numbers = []
        for partition in partitions:
            if not str(partition).isdecimal():
                raise ConfigError(f"partition = {partition!r} is not acceptable; accepted: 0, 1, …")
            numbers.append(int(partition))
        from_ms = parse_time("from_time", from_time) if from_time else None
        to_ms = parse_time("to_time", to_time) if to_time else None
        if from_ms is not None and to_ms is not None and from_ms > to_ms:
            raise ConfigError(
                f"from_time = {from_time} is after to_time = {to_time}; expected an earlier time"
            )
        parsed = parse_ranges("offsets", offsets, "such as flights:0:100-200")
        return cls(
            topics=tuple(sorted(set(topics))),
            partitions=tuple(sorted(set(numbers))),
            offsets={tp: tuple(ranges) for tp, ranges in parsed.items()},
            from_ms=from_ms,
            to_ms=to_ms,
        )

    @property
    def times(self) -> intervals.TimeRange | None:
        """The range of timestamps; None for all."""
        if self.from_ms is None and self.to_ms is None:
            return None
        return intervals.TimeRange(self.from_ms, self.to_ms)

    @property
    def asked_offsets(self) -> Mapping[TopicPartition, tuple[OffsetRange, ...]] | None:
        """The selected offsets, sorted and disjoint; None for all."""
        return self.offsets or None

    def rows(self, tp: TopicPartition) -> Rows | None:
        """Return the selected records of a partition; None when none are selected."""
        if (self.topics and tp.topic not in self.topics) or (
            self.partitions and tp.partition not in self.partitions
        ):
            return None
        if self.offsets and tp not in self.offsets:
            return None
        return Rows(self.offsets.get(tp), self.from_ms, self.to_ms)

    def to_dict(self) -> dict[str, Any]:
        """Return the selection as users write it, without the options that weren't given."""
        written: dict[str, Any] = {
            "topics": list(self.topics),
            "partitions": list(self.partitions),
            "offsets": [
                range_name(tp, r) for tp, ranges in sorted(self.offsets.items()) for r in ranges
            ],
            "from_time": None if self.from_ms is None else intervals.time_text(self.from_ms),
            "to_time": None if self.to_ms is None else intervals.time_text(self.to_ms),
        }
        return {name: value for name, value in written.items() if value not in ([], None)}


def parse_time(name: str, value: str | datetime) -> int:
    """Return a time in milliseconds since 1970, rounded up to a whole millisecond.

    Raises:
        ConfigError: When the value isn't a time.
    """
    time = intervals.parse_time(name, value) if isinstance(value, str) else intervals.in_utc(value)
    return intervals.milliseconds(time)
