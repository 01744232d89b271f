"""Which reason a gap has: each combination of what Kafka holds, and of what its consumers find."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product

import pytest

from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.gap_classification import classify

TP = TopicPartition("t", 0)
R = OffsetRange


def finding(
    offsets: Collection[int], asked: list[OffsetRange]
) -> Callable[[Sequence[OffsetRange]], list[OffsetRange]]:
    """Find records at some offsets, and note what was asked."""

    def find(ranges: Sequence[OffsetRange]) -> list[OffsetRange]:
        asked.extend(ranges)
        return [R(o, o + 1) for r in ranges for o in range(r.start, r.end) if o in offsets]

    return find


def reason_of(
    where: str, is_committed: bool, is_written: bool, is_compacted: bool
) -> tuple[GapReason, bool]:
    """Return the reason of one offset, and whether a read_committed consumer may be asked."""
    if where in {"before", "beyond"}:
        return GapReason.EXPIRED, False
    may_ask = where == "stable"
    if is_committed and may_ask:
        return GapReason.LOST, may_ask
    if is_written or is_committed:
        return GapReason.ABORTED if may_ask else GapReason.OPEN, may_ask
    return GapReason.COMPACTED if is_compacted else GapReason.CONTROL, may_ask


#: An offset of each kind, where Kafka holds [10, 40) and 30 is the last stable offset.
PLACES = {
    "before": [0, 9],
    "stable": [10, 29],
    "open": [30, 39],
    "beyond": [40, 99],
}


@pytest.mark.parametrize(
    ("where", "is_committed", "is_written", "is_compacted"),
    [
        (where, committed, written, compacted)
        for where, committed, written, compacted in product(PLACES, *[(False, True)] * 3)
        # What committed readers see, all see.
        if written or not committed
    ],
)
def test_classify(where: str, is_committed: bool, is_written: bool, is_compacted: bool) -> None:
    """Lost where a record is there, also in a compacted topic; else by what Kafka says of it."""
    reason, may_ask = reason_of(where, is_committed, is_written, is_compacted)
    for offset in PLACES[where]:
        asked: list[OffsetRange] = []

        found = classify(
            TP,
            [R(offset, offset + 1)],
            KafkaBounds(earliest=10, last_stable=30, high_watermark=40),
            is_compacted=is_compacted,
            committed=finding({offset} if is_committed else (), asked),
            uncommitted=finding({offset} if is_written else (), []),
        )

        assert found == [Gap(TP, R(offset, offset + 1), reason)]
        assert bool(asked) is may_ask


@pytest.mark.parametrize("is_compacted", [False, True])
def test_classify_parts(is_compacted: bool) -> None:
    """A gap falls into as many reasons as it has; each offset into one."""
    empty = GapReason.COMPACTED if is_compacted else GapReason.CONTROL

    found = classify(
        TP,
        [R(5, 16), R(28, 45)],
        KafkaBounds(earliest=10, last_stable=30, high_watermark=40),
        is_compacted=is_compacted,
        committed=finding({11, 12}, []),
        uncommitted=finding({11, 12, 14, 29, 31}, []),
    )

    by_reason: dict[GapReason, list[int]] = {}
    for gap in found:
        by_reason.setdefault(gap.reason, []).extend(range(gap.range.start, gap.range.end))
    assert by_reason == {
        GapReason.EXPIRED: [5, 6, 7, 8, 9, 40, 41, 42, 43, 44],
        GapReason.LOST: [11, 12],
        GapReason.ABORTED: [14, 29],
        GapReason.OPEN: [31],
        empty: [10, 13, 15, 28, 30, *range(32, 40)],
    }


def test_classify_truncated() -> None:
    """Of a log that ends before its last stable offset was asked, nothing is asked beyond that."""
    asked: list[OffsetRange] = []

    found = classify(
        TP,
        [R(10, 20)],
        KafkaBounds(earliest=10, last_stable=25, high_watermark=20),
        is_compacted=False,
        committed=finding((), asked),
        uncommitted=finding((), []),
    )

    assert asked == [R(10, 20)]
    assert found == [Gap(TP, R(10, 20), GapReason.CONTROL)]
