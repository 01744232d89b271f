"""Offsets without a trace at which Spark had read a record: they have expired since."""

from __future__ import annotations

from kafka_drain.gaps import EMPTY, Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.gap_explanation import split_read
from tests.tables import each_of

TP = TopicPartition("t", 0)
R = OffsetRange


@each_of("reason", list(GapReason))
@each_of(
    "were_read, expired, rest",
    [
        ([], [], [R(3, 9)]),
        ([R(0, 3), R(9, 12)], [], [R(3, 9)]),
        ([R(0, 12)], [R(3, 9)], []),
        ([R(3, 9)], [R(3, 9)], []),
        ([R(2, 4), R(6, 7), R(8, 10)], [R(3, 4), R(6, 7), R(8, 9)], [R(4, 6), R(7, 8)]),
    ],
)
def test_split_read(
    reason: GapReason,
    were_read: list[OffsetRange],
    expired: list[OffsetRange],
    rest: list[OffsetRange],
) -> None:
    """What had a record that is gone isn't harmless; other reasons stay as they are."""
    found = split_read(Gap(TP, R(3, 9), reason), {TP: were_read})

    if reason not in (*EMPTY, GapReason.UNEXPLAINED):
        assert found == [Gap(TP, R(3, 9), reason)]
        return
    assert [gap.range for gap in found if gap.reason == GapReason.EXPIRED] == expired
    assert [gap.range for gap in found if gap.reason == reason] == rest
    assert len(found) == len(expired) + len(rest)
