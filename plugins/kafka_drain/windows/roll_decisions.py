"""Decide what a roll leaves behind, removes or refuses. Plain arithmetic; opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto

from kafka_drain.offsets import OffsetRange, TopicPartition


def never_sealed(recreated: Collection[str], last_read: int | None, last_sealed: int) -> bool:
    """Return whether no validation will ever seal the open generation's remaining batches.

    That is the case when a topic was recreated and the batches may have been read from the new one.

    Args:
        recreated: Topics that were recreated after the generation was opened.
        last_read: The last batch after which a drain queried Kafka; None if there is none.
        last_sealed: The last batch that has a receipt.
    """
    return bool(recreated) and (last_read is None or last_read <= last_sealed)


def given_up(
    first: Mapping[TopicPartition, int], held: Mapping[TopicPartition, Sequence[OffsetRange]]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets in a set of files that Kafka can no longer deliver.

    Args:
        first: The earliest offset in Kafka of each partition whose topic hasn't changed.
        held: The offsets in the files, sorted and disjoint.
    """
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for tp, ranges in held.items():
        for offsets in ranges:
            end = min(offsets.end, first.get(tp, offsets.end))
            if offsets.start < end:
                found.setdefault(tp, []).append(OffsetRange(offsets.start, end))
    return found


def may_lose(
    held: Collection[TopicPartition], changed: Collection[TopicPartition], gone: int
) -> set[TopicPartition]:
    """Return the partitions of which Kafka may no longer have each record of a set of files.

    Args:
        held: The partitions that have records in the files.
        changed: Those where Kafka has another record at an offset.
        gone: Number of the records that Kafka no longer has, of whichever partition.
    """
    return set(held if gone else changed)


class WindowFate(Enum):
    """The fate of a sealed window when the next generation drains."""

    #: The next generation drains none of its offsets.
    STAYS = auto()
    #: The next generation drains some of its offsets too, and Kafka still has all of them.
    GOES = auto()
    #: The next generation drains some of its offsets too, but Kafka no longer has all of them.
    TORN = auto()


def judge_window(parts: Iterable[tuple[OffsetRange, int | None, int]]) -> WindowFate:
    """Decide the fate of a window: a repair may have drained offsets that aren't sealed yet.

    Args:
        parts: For each range of the window: the range, the next generation's starting offset (None
            if it doesn't drain the partition), and the earliest offset in Kafka.
    """
    parts = list(parts)
    if not any(end is not None and held.end > max(end, first) for held, end, first in parts):
        return WindowFate.STAYS
    is_there = all(end is not None and held.start >= first for held, end, first in parts)
    return WindowFate.GOES if is_there else WindowFate.TORN
