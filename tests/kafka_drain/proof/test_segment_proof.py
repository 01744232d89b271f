"""Which segments may be sealed, and what of files and gaps is theirs."""

from __future__ import annotations

from itertools import product

import pytest

from kafka_drain.data_files.file_offsets import CommittedFile, FileOffsets
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof.offset_checks import Segment
from kafka_drain.proof.segment_proof import (
    CheckedSegment,
    check_segments,
    cut_gaps,
    provable,
    segment_of,
)
from tests.tables import each_of

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
#: Batches 3 to 5, whose own ends are forgotten, and batch 6; partition 1 came with the latter.
OLD = Segment(3, 5, {P0: OffsetRange(0, 10)})
NEW = Segment(6, 6, {P0: OffsetRange(10, 20), P1: OffsetRange(0, 5)})


def file(batch: int | None, tp: TopicPartition | None = P0, first: int = 0) -> CommittedFile:
    """Return a file with the records of two offsets, or with none."""
    ranges = (OffsetRange(first, first + 2),)
    contents = (FileOffsets(tp, ranges, 2),) if tp is not None else ()
    return CommittedFile("p", 1, "sha", contents, batch)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (file(2), -1),
        (file(3), 0),
        (file(4), 0),
        (file(5), 0),
        (file(6), 1),
        (file(7), -1),
        # The batch counts where it is known: offsets outside of it are a finding of their own.
        (file(6, P0, 0), 1),
        (file(3, P0, 10), 0),
        (file(None, P0, 0), 0),
        (file(None, P0, 9), 0),
        (file(None, P0, 10), 1),
        (file(None, P0, 19), 1),
        (file(None, P0, 20), -1),
        (file(None, P1, 0), 1),
        (file(None, P1, 5), -1),
        (file(None, TopicPartition("other", 0), 0), -1),
        # One without records may be anybody's.
        (file(None, None), 0),
        (file(6, None), 1),
        (file(9, None), -1),
    ],
)
def test_segment_of(found: CommittedFile, expected: int) -> None:
    """A file is of the segment of its batch; without one, of that which read its first offset."""
    assert segment_of(found, [OLD, NEW]) == expected


@pytest.mark.parametrize(
    ("tp", "start", "end", "in_old", "in_new"),
    [
        (P0, 0, 20, (0, 10), (10, 20)),
        (P0, 4, 6, (4, 6), None),
        (P0, 9, 11, (9, 10), (10, 11)),
        (P0, 10, 12, None, (10, 12)),
        (P0, 8, 10, (8, 10), None),
        (P0, 18, 25, None, (18, 20)),
        (P0, 20, 25, None, None),
        (P1, 0, 9, None, (0, 5)),
        (TopicPartition("other", 0), 0, 9, None, None),
    ],
)
def test_cut_gaps(
    tp: TopicPartition,
    start: int,
    end: int,
    in_old: tuple[int, int] | None,
    in_new: tuple[int, int] | None,
) -> None:
    """Of a gap, that belongs to a segment which lies in its offsets; the reason stays."""
    gap = Gap(tp, OffsetRange(start, end), GapReason.EXPIRED, acknowledged=True)

    for part, expected in ((OLD, in_old), (NEW, in_new)):
        found = list(cut_gaps([gap], part))
        wanted = [Gap(tp, OffsetRange(*expected), gap.reason, True)] if expected else []
        assert found == wanted


HARMLESS = {
    GapReason.CONTROL,
    GapReason.ABORTED,
    GapReason.COMPACTED,
    GapReason.WINDOW,
    GapReason.DELETED,
    GapReason.ERASED,
}


@each_of(
    "damaged, reason, acknowledged, where",
    list(
        product(
            (set(), {2}, {3}, {5}, {6}, {7}, {None}, {3, 6}),
            (None, *GapReason),
            (False, True),
            (5, 15),
        )
    ),
)
def test_check_segments(
    damaged: set[int | None], reason: GapReason | None, acknowledged: bool, where: int
) -> None:
    """Sound is a segment of which no batch is damaged, and each gap harmless or accepted."""
    gaps = [Gap(P0, OffsetRange(where, where + 1), reason, acknowledged)] if reason else []
    own = {3: file(3), 6: file(None, P1, 2)}

    old, new = check_segments([OLD, NEW], [*own.values(), file(9)], gaps, damaged)

    assert (old.part, new.part) == (OLD, NEW)
    assert (old.files, new.files) == ([own[3]], [own[6]])
    assert (old.gaps, new.gaps) == ((gaps, []) if where == 5 else ([], gaps))
    is_harmful = reason is not None and not acknowledged and reason not in HARMLESS
    assert old.is_sound == (not damaged & {None, 3, 4, 5} and not (is_harmful and where == 5))
    assert new.is_sound == (not damaged & {None, 6} and not (is_harmful and where == 15))


def test_check_segments_without_files() -> None:
    """A segment whose offsets are all in gaps has no file."""
    [found] = check_segments([NEW], [], [], ())

    assert (found.files, found.gaps, found.is_sound) == ([], [], True)


@each_of("sound, sealable", list(product(product((True, False), repeat=3), repeat=2)))
def test_provable(sound: tuple[bool, ...], sealable: tuple[bool, ...]) -> None:
    """Segments are sealed in order, up to the first with which something is wrong."""
    parts = [Segment(n, n, {}) for n in range(3)]
    checked = [
        CheckedSegment(part, [], [], is_sound) for part, is_sound in zip(parts, sound, strict=True)
    ]

    found = provable(checked, {n for n in range(3) if sealable[n]})

    expected = 0
    while expected < 3 and sound[expected] and sealable[expected]:
        expected += 1
    assert found == checked[:expected]


def test_provable_not_compared() -> None:
    """What was never compared isn't sealed."""
    checked = CheckedSegment(NEW, [], [], True)

    assert provable([checked], set()) == []
    assert provable([checked], {5}) == []
    assert provable([checked], {6}) == [checked]
