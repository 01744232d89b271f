"""Offset arithmetic: topic-partitions, ranges and the gaps between them. Opens nothing."""

from __future__ import annotations

import json
import operator
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

#: Where the offsets of any partition end: Kafka numbers them in 64 bits, and `len` counts no more.
NO_END = (1 << 63) - 1


@dataclass(frozen=True, order=True, slots=True)
class TopicPartition:
    """One partition of one topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


#: An offset of each of some partitions.
Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, order=True, slots=True)
class OffsetRange:
    """Offsets from `start` (inclusive) to `end` (exclusive), like Spark's `KafkaOffsetRange`."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= NO_END:
            raise ValueError(
                f"an offset range needs 0 <= start <= end < 2^63, got [{self.start}, {self.end})"
            )

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, offset: object) -> bool:
        return isinstance(offset, int) and self.start <= offset < self.end

    def __str__(self) -> str:
        return f"[{self.start}, {self.end})"


#: Ranges of each of some partitions.
Ranges = Mapping[TopicPartition, Sequence[OffsetRange]]


def count(ranges: Iterable[OffsetRange]) -> int:
    """Return the number of offsets in disjoint ranges."""
    return sum(len(r) for r in ranges)


def merge(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the union of ranges: sorted, disjoint, and not adjacent."""
    merged: list[OffsetRange] = []
    for current in sorted(r for r in ranges if len(r)):
        if merged and current.start <= merged[-1].end:
            merged[-1] = OffsetRange(merged[-1].start, max(merged[-1].end, current.end))
        else:
            merged.append(current)
    return merged


def subtract(whole: OffsetRange, parts: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of `whole` that no part covers, in order."""
    missing: list[OffsetRange] = []
    at = whole.start
    for part in merge(parts):
        if part.end <= at:
            continue
        if part.start >= whole.end:
            break
        if part.start > at:
            missing.append(OffsetRange(at, part.start))
        at = part.end
    if at < whole.end:
        missing.append(OffsetRange(at, whole.end))
    return missing


def without(ranges: Iterable[OffsetRange], parts: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Return the parts of each range that no part covers, in the order of the ranges."""
    merged = merge(parts)
    return [rest for whole in ranges for rest in subtract(whole, overlapping(merged, whole))]


def overlapping(merged: Sequence[OffsetRange], wanted: OffsetRange) -> Sequence[OffsetRange]:
    """Return the ranges, of sorted disjoint ones, that share an offset with `wanted`."""
    if not len(wanted):
        return []
    first = bisect_right(merged, wanted.start, key=lambda r: r.end)
    last = bisect_left(merged, wanted.end, key=lambda r: r.start)
    return merged[first:last]


def within(merged: Sequence[OffsetRange], span: OffsetRange) -> list[OffsetRange]:
    """Return the parts of sorted disjoint ranges that lie within a span."""
    return [
        OffsetRange(max(r.start, span.start), min(r.end, span.end))
        for r in overlapping(merged, span)
    ]


def ranges_between(start: Offsets, end: Offsets) -> Iterator[tuple[TopicPartition, OffsetRange]]:
    """Yield the range that a batch read per partition, for each partition of `end` in order.

    A partition missing from `start` was added to the topic later; Spark reads it from 0.

    Raises:
        ValueError: When a partition ends before it starts.
    """
    for tp in sorted(end):
        first = start.get(tp, 0)
        if end[tp] < first:
            raise ValueError(f"{tp} ends at offset {end[tp]}, before its start {first}")
        yield tp, OffsetRange(first, end[tp])


def from_spark_json(text: str) -> dict[TopicPartition, int]:
    """Parse offsets in the form used by Spark's options and checkpoint.

    The form is `{"topic": {"0": 23, "1": -2}}`; -2 is earliest and -1 is latest.

    Raises:
        ValueError: When the text isn't in that form.
    """
    parsed = json.loads(text)
    try:
        return {
            TopicPartition(topic, int(partition)): operator.index(offset)
            for topic, partitions in parsed.items()
            for partition, offset in partitions.items()
        }
    except (AttributeError, TypeError) as error:
        raise ValueError(f'expected {{"topic": {{"0": 23}}}}, got {text[:200]}') from error


def to_spark_json(offsets: Offsets) -> str:
    """Format offsets as Spark's options and checkpoint have them."""
    nested: dict[str, dict[str, int]] = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return json.dumps(nested, separators=(",", ":"))
