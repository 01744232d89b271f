"""Where a reprocess starts, and into which groups it goes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.receipts import (
    FileSet,
    Receipt,
    SealedContent,
    SealedFile,
    SealedPartition,
)
from kafka_drain.errors import ConfigError, TopicError
from kafka_drain.offsets import OffsetRange, TopicPartition, count
from kafka_drain.windows.reprocess.options import ReprocessOptions
from kafka_drain.windows.reprocess.plan import Cut, comparable_receipts, parse_cut, plan_groups

TP = TopicPartition("t", 0)


def segment(number: int, start: int, end: int) -> Receipt:
    """Return the receipt of a batch; its timestamps are its offsets."""
    part = SealedPartition.of(
        tp=TP,
        range=OffsetRange(start, end),
        records=end - start,
        first=start if end > start else None,
        last=end - 1 if end > start else None,
        first_timestamp=start if end > start else None,
        last_timestamp=end - 1 if end > start else None,
        gaps={},
        kafka=None,
        start_so_far=0,
        records_so_far=end,
        gaps_so_far={},
    )
    return Receipt(
        pipeline="p",
        cluster_id="c",
        topics={"t": "id"},
        generation=1,
        first_batch=number,
        last_batch=number,
        sealed_at="",
        previous=None,
        partitions=(part,),
        files=(),
        files_so_far=FileSet(),
    )


def file(start: int, end: int) -> SealedFile:
    """Return a file of some offsets."""
    content = SealedContent.of(TP, start, end - 1, end - start, start, end - 1)
    return SealedFile(f"{start}-{end}", 10, "", (content,))


def archived(ends: list[int]) -> list[Receipt]:
    """Return segments that end at some offsets, from 0 on."""
    return [segment(n, *span) for n, span in enumerate(pairwise([0, *ends]))]


@pytest.mark.parametrize(
    ("cut", "first"),
    [
        (Cut(batch=(1, 0)), 0),
        (Cut(batch=(1, 2)), 20),
        (Cut(batch=(0, 9)), 0),
        (Cut(time_ms=15), 10),
        (Cut(time_ms=20), 20),
        (Cut(offsets={TP: 19}), 10),
        (Cut(offsets={TP: 20}), 20),
    ],
)
def test_plan_groups_cut(cut: Cut, first: int) -> None:
    """A reprocess starts with the whole segment that holds what was named."""
    files = [file(0, 10), file(10, 20), file(20, 30)]

    (group,) = plan_groups(archived([10, 20, 30]), files, cut)

    assert group.ranges == {TP: [OffsetRange(first, 30)]}
    assert group.replaces == sorted(f.path for f in files if f.contents[0].first >= first)
    assert group.records == {TP: 30 - first}


@pytest.mark.parametrize(
    "cut", [Cut(batch=(1, 3)), Cut(batch=(2, 0)), Cut(time_ms=30), Cut(offsets={TP: 30})]
)
def test_plan_groups_behind_the_end(cut: Cut) -> None:
    """What nothing sealed reaches is refused."""
    with pytest.raises(ConfigError, match="nothing is sealed from"):
        plan_groups(archived([10, 20, 30]), [], cut)


def test_plan_groups_cuts_no_file() -> None:
    """Where a window's file holds several segments, the group takes them all."""
    files = [file(0, 10), file(10, 30), file(30, 40)]

    groups = plan_groups(archived([10, 20, 30, 40]), files, Cut(batch=(1, 2)), offsets_per_group=1)

    assert [group.ranges[TP] for group in groups] == [[OffsetRange(10, 30)], [OffsetRange(30, 40)]]
    assert [group.replaces for group in groups] == [["10-30"], ["30-40"]]


@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=30),
    st.data(),
    st.integers(1, 50),
)
def test_plan_groups_property(lengths: list[int], data: Any, offsets_per_group: int) -> None:
    """Groups tile the offsets from the cut's segment on; each file from there on is in one."""
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    bounds = sorted({0, ends[-1], *data.draw(st.lists(st.sampled_from(ends)))})
    files = [file(a, b) for a, b in pairwise(bounds)]
    asked = data.draw(st.integers(0, len(lengths) - 1))
    segments = archived(ends)

    groups = plan_groups(segments, files, Cut(batch=(1, asked)), offsets_per_group)

    held = [r for group in groups for r in group.ranges.get(TP, [])]
    start = held[0].start if held else ends[-1]
    assert start <= segments[asked].starts[TP]
    assert count(held) == ends[-1] - start
    named = Counter(path for group in groups for path in group.replaces)
    assert named == Counter(f.path for f in files if f.contents[0].first >= start)
    assert not any(f.contents[0].first < start <= f.contents[0].last for f in files)
    for group in groups:
        assert sum(group.records.values()) == group.offsets


def test_comparable_receipts_topic_made_again() -> None:
    """Offsets of a topic that was recreated since can't be drained again; those after it can."""
    receipts = archived([10, 20, 30])
    made_again = [*receipts[:2], replace(receipts[2], topics={"t": "new"})]

    assert comparable_receipts(receipts, {"t": "id", "u": "x"}, Cut(batch=(1, 0))) == receipts
    assert comparable_receipts(made_again, {"t": "new"}, Cut(batch=(1, 2))) == made_again[2:]
    with pytest.raises(TopicError, match=r"t was recreated.* since batch 1 of generation 1"):
        comparable_receipts(made_again, {"t": "new"}, Cut(batch=(1, 1)))


@pytest.mark.parametrize(
    ("given", "cut"),
    [
        ({"from_batch": "7"}, Cut(batch=(3, 7))),
        ({"from_batch": 0}, Cut(batch=(3, 0))),
        ({"from_batch": " 1:7 "}, Cut(batch=(1, 7))),
        ({"from_time": "1970-01-01T00:00:01Z"}, Cut(time_ms=1000)),
        ({"from_offsets": ["t:0:5"]}, Cut(offsets={TP: 5})),
        ({}, None),
        ({"from_batch": ""}, None),
    ],
)
def test_parse_cut(given: dict[str, Any], cut: Cut | None) -> None:
    """A batch, a time or offsets say where to start, as a form or a command line has them."""
    assert parse_cut(ReprocessOptions(**given), newest_generation=lambda: 3) == cut


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"from_batch": "x"}, "from_batch = 'x' is not acceptable; accepted: a batch id"),
        ({"from_time": "noon"}, "from_time = 'noon'"),
        ({"from_offsets": ["t:5"]}, "from_offsets = 't:5' is not acceptable; accepted: topic"),
        (
            {"from_batch": "1", "from_time": "2026-01-01"},
            "^from_batch, from_time, from_offsets exclude each other",
        ),
        ({"from_batch": 1, "abandon": True}, "^abandon ends the reprocess that was started; don't"),
        ({"abandon": "maybe"}, "abandon = 'maybe' is not acceptable; accepted: true or false"),
    ],
)
def test_parse_cut_bad(given: dict[str, Any], says: str) -> None:
    """What can't be understood is refused by name."""
    with pytest.raises(ConfigError, match=says):
        parse_cut(ReprocessOptions(**given), newest_generation=lambda: 1)


def reached(**cut: Any) -> list[bool]:
    """Whether a cut is reached by a segment of offsets and times 0 to 9, one of 10 to 19, …"""
    return [Cut(**cut).is_reached(receipt) for receipt in archived([10, 20, 20, 30])]


def test_cut_is_reached() -> None:
    """By batch and generation, by the newest time, or by an offset of a partition that is named."""
    other = TopicPartition("u", 0)

    assert reached(batch=(1, 1)) == [False, True, True, True]
    assert reached(batch=(0, 9)) == [True] * 4
    assert reached(batch=(2, 0)) == [False] * 4
    assert reached(time_ms=9) == [True, True, False, True]
    assert reached(time_ms=10) == [False, True, False, True]
    assert reached(offsets={TP: 9}) == [True] * 4
    assert reached(offsets={TP: 10}) == [False, True, True, True]
    assert reached(offsets={other: 0}) == [False] * 4
    assert reached(offsets={other: 0, TP: 29}) == [False, False, False, True]


def test_cut_is_reached_window() -> None:
    """A window belongs to no generation: no batch reaches it."""
    [receipt] = archived([10])
    window = replace(receipt, generation=None, window="2026", last_batch=0)

    assert not Cut(batch=(1, 0)).is_reached(window)


@pytest.mark.parametrize(
    ("cut", "text"),
    [
        (Cut(batch=(2, 7)), "batch 7 of generation 2"),
        (Cut(time_ms=1000), "timestamp 1970-01-01T00:00:01.000Z"),
        (Cut(offsets={TopicPartition("u", 1): 5, TP: 3}), "t-0 offset 3, u-1 offset 5"),
    ],
)
def test_cut_text(cut: Cut, text: str) -> None:
    """People read where it starts."""
    assert str(cut) == text


def test_comparable_receipts_names() -> None:
    """Only the topics are named that were made again, or that nobody drains any more."""
    [receipt] = archived([10])
    before = replace(receipt, topics={"t": "id", "u": "old", "v": "id-v"})

    with pytest.raises(TopicError, match=r"^u, v was recreated, or is no longer drained, since"):
        comparable_receipts([before], {"t": "id", "u": "new"}, Cut(batch=(1, 0)))
