"""Which reason a gap has: each combination of what Kafka holds, and of what its consumers find."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import product

import pytest

from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.gap_probe import LogContents, Look, classify
from tests.tables import each_of

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


def seeing(records: Collection[int], markers: Collection[int] = ()) -> Look:
    """See records and markers at some offsets."""

    def look(ranges: Sequence[OffsetRange]) -> LogContents:
        return LogContents(finding(records, [])(ranges), finding(markers, [])(ranges))

    return look


def reason_of(
    where: str, is_committed: bool, is_written: bool, is_marker: bool, is_compacted: bool
) -> tuple[GapReason, bool]:
    """Return the reason of one offset, and whether a read_committed consumer may be asked."""
    if where in {"before", "beyond"}:
        return GapReason.EXPIRED, False
    may_ask = where == "stable"
    if is_committed and may_ask:
        return GapReason.LOST, may_ask
    if is_written or is_committed:
        return GapReason.ABORTED if may_ask else GapReason.OPEN, may_ask
    if is_marker:
        return GapReason.CONTROL, may_ask
    return GapReason.COMPACTED if is_compacted else GapReason.UNEXPLAINED, may_ask


#: An offset of each kind, where Kafka holds [10, 40) and 30 is the last stable offset.
PLACES = {
    "before": [0, 9],
    "stable": [10, 29],
    "open": [30, 39],
    "beyond": [40, 99],
}


@each_of(
    "where, is_committed, is_written, is_marker, is_compacted",
    [
        (where, committed, written, marker, compacted)
        for where, committed, written, marker, compacted in product(PLACES, *[(False, True)] * 4)
        # What committed readers see, all see; and an offset is a record or a marker.
        if (written or not committed) and not (written and marker)
    ],
)
def test_classify(
    where: str, is_committed: bool, is_written: bool, is_marker: bool, is_compacted: bool
) -> None:
    """Lost where a record is there, also in a compacted topic; a marker only if one was seen."""
    reason, may_ask = reason_of(where, is_committed, is_written, is_marker, is_compacted)
    for offset in PLACES[where]:
        asked: list[OffsetRange] = []

        found = classify(
            TP,
            [R(offset, offset + 1)],
            KafkaBounds(earliest=10, last_stable=30, high_watermark=40),
            is_compacted=is_compacted,
            committed=finding({offset} if is_committed else (), asked),
            uncommitted=seeing({offset} if is_written else (), {offset} if is_marker else ()),
        )

        assert found == [Gap(TP, R(offset, offset + 1), reason)]
        assert bool(asked) is may_ask


@pytest.mark.parametrize("is_compacted", [False, True])
def test_classify_parts(is_compacted: bool) -> None:
    """A gap falls into as many reasons as it has; each offset into one."""
    absent = GapReason.COMPACTED if is_compacted else GapReason.UNEXPLAINED

    found = classify(
        TP,
        [R(5, 16), R(28, 45)],
        KafkaBounds(earliest=10, last_stable=30, high_watermark=40),
        is_compacted=is_compacted,
        committed=finding({11, 12}, []),
        uncommitted=seeing({11, 12, 14, 29, 31}, {10, 15, 32}),
    )

    by_reason: dict[GapReason, list[int]] = {}
    for gap in found:
        by_reason.setdefault(gap.reason, []).extend(range(gap.range.start, gap.range.end))
    assert by_reason == {
        GapReason.EXPIRED: [5, 6, 7, 8, 9, 40, 41, 42, 43, 44],
        GapReason.LOST: [11, 12],
        GapReason.ABORTED: [14, 29],
        GapReason.OPEN: [31],
        GapReason.CONTROL: [10, 15, 32],
        absent: [13, 28, 30, *range(33, 40)],
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
        uncommitted=seeing((), {19}),
    )

    assert asked == [R(10, 20)]
    assert found == [
        Gap(TP, R(19, 20), GapReason.CONTROL),
        Gap(TP, R(10, 19), GapReason.UNEXPLAINED),
    ]
