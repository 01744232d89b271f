"""Which reason a gap has, by what Kafka holds of it. Opens nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, overlapping, subtract

__all__ = ["classify"]

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
    """Say why offsets are in no file; one gap can fall into several.

    Args:
        tp: Their partition.
        missing: The offsets, sorted and disjoint.
        bounds: What Kafka holds of the partition.
        is_compacted: Whether Kafka compacts the topic.
        committed: Returns those of some offsets at which a `read_committed` consumer finds records.
        uncommitted: Returns the same for a `read_uncommitted` consumer.
    """
    missing = list(missing)
    # Kafka held offsets beyond the end as well, before the log was truncated.
    expired = _without(missing, [OffsetRange(bounds.earliest, bounds.high_watermark)])
    held = _without(missing, expired)
    # From the last stable offset on, a read_committed consumer waits for ever.
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
