"""Classify a gap by what Kafka still holds of it. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, overlapping, subtract

Find = Callable[[Sequence[OffsetRange]], Sequence[OffsetRange]]


def classify(
    tp: TopicPartition,
    missing: Iterable[OffsetRange],
    bounds: KafkaBounds,
    *,
    is_compacted: bool,
    committed: Find,
    uncommitted: Find,
) -> list[Gap]:
    """Determine why offsets are in no file; one gap can be split into several.

    Args:
        tp: Their partition.
        missing: The offsets, sorted and disjoint.
        bounds: The offsets that Kafka holds of the partition.
        is_compacted: Whether Kafka compacts the topic.
        committed: Returns the offsets among those given at which a `read_committed` consumer finds
            records.
        uncommitted: Returns the same for a `read_uncommitted` consumer.
    """
    missing = list(missing)
    # Offsets beyond the end count as well: Kafka held them before the log was truncated.
    expired = _without(missing, [OffsetRange(bounds.earliest, bounds.high_watermark)])
    held = _without(missing, expired)
    # A read_committed consumer would wait forever at the last stable offset.
    above = [OffsetRange(bounds.last_stable, max(bounds.last_stable, bounds.high_watermark))]
    lost = committed(_without(held, above))
    rest = _without(held, lost)
    hidden = uncommitted(rest)
    aborted = _without(hidden, above)
    empty = GapReason.COMPACTED if is_compacted else GapReason.CONTROL
    return [
        *(Gap(tp, r, GapReason.EXPIRED) for r in expired),
        *(Gap(tp, r, GapReason.LOST) for r in lost),
        *(Gap(tp, r, GapReason.ABORTED) for r in aborted),
        *(Gap(tp, r, GapReason.OPEN) for r in _without(hidden, aborted)),
        *(Gap(tp, r, empty) for r in _without(rest, hidden)),
    ]


def _without(ranges: Iterable[OffsetRange], parts: Sequence[OffsetRange]) -> list[OffsetRange]:
    return [r for whole in ranges for r in subtract(whole, overlapping(parts, whole))]
