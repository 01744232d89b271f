"""What a roll may leave behind, take back or has to refuse. Plain arithmetic; opens nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum, auto

from kafka_drain.offsets import OffsetRange, TopicPartition

__all__ = ["WindowFate", "given_up", "judge_window", "never_sealed"]


def never_sealed(recreated: Collection[str], last_read: int | None, last_sealed: int) -> bool:
    """Say whether unsealed batches may have been read of a topic that was made again.

    Args:
        recreated: Topics that were made again since the generation was opened.
        last_read: The last batch that a drain has asked Kafka after; None when none has.
        last_sealed: The last batch that has a receipt.
    """
    return bool(recreated) and (last_read is None or last_read <= last_sealed)


def given_up(
    first: Mapping[TopicPartition, int], held: Mapping[TopicPartition, Sequence[OffsetRange]]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return what of some files Kafka can't give again.

    Args:
        first: The first offset that Kafka holds of each partition whose topic is still the same.
        held: What the files hold, sorted and disjoint.
    """
    found: dict[TopicPartition, list[OffsetRange]] = {}
    for tp, ranges in held.items():
        for offsets in ranges:
            end = min(offsets.end, first.get(tp, offsets.end))
            if offsets.start < end:
                found.setdefault(tp, []).append(OffsetRange(offsets.start, end))
    return found


class WindowFate(Enum):
    """What becomes of a window when the next generation drains."""

    #: The next generation drains nothing of it.
    STAYS = auto()
    #: The next generation drains some of it as well, and Kafka still has all of it.
    GOES = auto()
    #: The same, and Kafka no longer has all of it.
    TORN = auto()


def judge_window(parts: Iterable[tuple[OffsetRange, int | None, int]]) -> WindowFate:
    """Say what becomes of a window: a repair may have drained offsets that aren't sealed.

    Args:
        parts: What the window holds; of each, where the next generation starts (None where it
            doesn't drain that), and the first offset that Kafka holds.
    """
    parts = list(parts)
    if not any(end is not None and held.end > max(end, first) for held, end, first in parts):
        return WindowFate.STAYS
    is_there = all(end is not None and held.start >= first for held, end, first in parts)
    return WindowFate.GOES if is_there else WindowFate.TORN
