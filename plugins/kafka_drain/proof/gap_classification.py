"""Classify a gap by what Kafka still holds of it. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, overlapping, subtract

Find = Callable[[Sequence[OffsetRange]], Sequence[OffsetRange]]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a `read_uncommitted` consumer comes across.

    Attributes:
        records: The offsets at which it finds records.
        markers: The offsets at which it is seen to skip a transaction marker.
    """

    records: Sequence[OffsetRange] = ()
    markers: Sequence[OffsetRange] = ()


Look = Callable[[Sequence[OffsetRange]], Seen]


def classify(
    tp: TopicPartition,
    missing: Iterable[OffsetRange],
    bounds: KafkaBounds,
    *,
    is_compacted: bool,
    committed: Find,
    uncommitted: Look,
) -> list[Gap]:
    """Determine why offsets are in no file; one gap can be split into several.

    A reason is given only where there is evidence of it. That no consumer finds a record is none: a
    log that has lost a segment looks the same.

    Args:
        missing: The offsets, sorted and disjoint.
        bounds: The offsets that Kafka holds of the partition.
        is_compacted: Whether Kafka compacts the topic.
        committed: Returns the offsets among those given at which a `read_committed` consumer finds
            records.
        uncommitted: Returns what a `read_uncommitted` consumer comes across at those given.
    """
    missing = list(missing)
    # Offsets beyond the end count as well: Kafka held them before the log was truncated.
    expired = _without(missing, [OffsetRange(bounds.earliest, bounds.high_watermark)])
    held = _without(missing, expired)
    # A read_committed consumer would wait forever at the last stable offset.
    above = [OffsetRange(bounds.last_stable, max(bounds.last_stable, bounds.high_watermark))]
    lost = committed(_without(held, above))
    rest = _without(held, lost)
    seen = uncommitted(rest)
    aborted = _without(seen.records, above)
    quiet = _without(rest, seen.records)
    nothing = _without(quiet, seen.markers)
    absent = GapReason.COMPACTED if is_compacted else GapReason.UNEXPLAINED
    return [
        *(Gap(tp, r, GapReason.EXPIRED) for r in expired),
        *(Gap(tp, r, GapReason.LOST) for r in lost),
        *(Gap(tp, r, GapReason.ABORTED) for r in aborted),
        *(Gap(tp, r, GapReason.OPEN) for r in _without(seen.records, aborted)),
        *(Gap(tp, r, GapReason.CONTROL) for r in _without(quiet, nothing)),
        *(Gap(tp, r, absent) for r in nothing),
    ]


def _without(ranges: Iterable[OffsetRange], parts: Sequence[OffsetRange]) -> list[OffsetRange]:
    return [r for whole in ranges for r in subtract(whole, overlapping(parts, whole))]
