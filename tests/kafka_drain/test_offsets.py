"""Offset arithmetic, against sets of single offsets."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.offsets import (
    OffsetRange,
    TopicPartition,
    count,
    from_spark_json,
    merge,
    overlapping,
    ranges_between,
    subtract,
    to_spark_json,
    within,
    without,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def R(start: int, end: int) -> OffsetRange:
    return OffsetRange(start, end)


def offsets_of(ranges: list[OffsetRange]) -> set[int]:
    return {offset for r in ranges for offset in range(r.start, r.end)}


a_range = st.builds(
    lambda start, length: OffsetRange(start, start + length), st.integers(0, 40), st.integers(0, 12)
)
filled_range = a_range.filter(len)
some_ranges = st.lists(a_range, max_size=8)
partitions = st.builds(
    TopicPartition, st.text(min_size=1, max_size=5), st.integers(min_value=0, max_value=200)
)


# OffsetRange


@pytest.mark.parametrize(("start", "end"), [(-1, 0), (5, 4), (-2, -1)])
def test_offset_range_refused(start: int, end: int) -> None:
    """A range that ends before it starts or holds negative offsets can't be made."""
    with pytest.raises(ValueError, match=rf"got \[{start}, {end}\)"):
        OffsetRange(start, end)


def test_offset_range_half_open() -> None:
    """A range holds its start and not its end."""
    held = R(3, 6)

    assert [offset in held for offset in range(2, 7)] == [False, True, True, True, False]
    assert "3" not in held
    assert len(held) == 3
    assert str(held) == "[3, 6)"


def test_topic_partition_text() -> None:
    """A topic-partition is written as Kafka does and sorts by number."""
    assert str(TopicPartition("flights", 3)) == "flights-3"
    assert [A0, TopicPartition("a", 2), TopicPartition("a", 10), B0] == sorted(
        [B0, TopicPartition("a", 10), TopicPartition("a", 2), A0]
    )


# merge, count


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([], []),
        ([R(3, 3)], []),
        ([R(0, 2), R(2, 4)], [R(0, 4)]),
        ([R(5, 6), R(0, 2)], [R(0, 2), R(5, 6)]),
        ([R(0, 9), R(2, 3)], [R(0, 9)]),
        ([R(0, 2), R(2, 2), R(3, 4)], [R(0, 2), R(3, 4)]),
    ],
)
def test_merge_examples(ranges: list[OffsetRange], expected: list[OffsetRange]) -> None:
    """Ranges that touch become one; empty ones vanish."""
    assert expected == merge(ranges)


@given(some_ranges)
def test_merge_property(ranges: list[OffsetRange]) -> None:
    """A union holds the same offsets, sorted, and no range touches the next."""
    merged = merge(ranges)

    assert offsets_of(ranges) == offsets_of(merged)
    assert all(a.end < b.start for a, b in pairwise(merged))
    assert all(len(r) for r in merged)
    assert len(offsets_of(ranges)) == count(merged)


# subtract


@pytest.mark.parametrize(
    ("whole", "parts", "expected"),
    [
        (R(0, 10), [], [R(0, 10)]),
        (R(0, 10), [R(0, 10)], []),
        (R(5, 5), [], []),
        (R(0, 10), [R(2, 3), R(5, 7)], [R(0, 2), R(3, 5), R(7, 10)]),
        (R(3, 6), [R(0, 4), R(9, 12)], [R(4, 6)]),
        (R(3, 6), [R(6, 9)], [R(3, 6)]),
    ],
)
def test_subtract_examples(
    whole: OffsetRange, parts: list[OffsetRange], expected: list[OffsetRange]
) -> None:
    """What no part covers is left, in order."""
    assert expected == subtract(whole, parts)


@given(a_range, some_ranges)
def test_subtract_property(whole: OffsetRange, parts: list[OffsetRange]) -> None:
    """The rest is the difference of the sets, as sorted ranges that don't touch."""
    rest = subtract(whole, parts)

    assert offsets_of([whole]) - offsets_of(parts) == offsets_of(rest)
    assert merge(rest) == rest


# overlapping


@given(some_ranges, some_ranges)
def test_without_property(ranges: list[OffsetRange], parts: list[OffsetRange]) -> None:
    """What is left of each range is what a subtraction leaves, in the order of the ranges."""
    left = without(ranges, parts)

    assert left == [rest for whole in ranges for rest in subtract(whole, parts)]
    assert offsets_of(left) == offsets_of(ranges) - offsets_of(parts)


@given(some_ranges, filled_range)
def test_overlapping_property(ranges: list[OffsetRange], wanted: OffsetRange) -> None:
    """Exactly the ranges that share an offset are found."""
    merged = merge(ranges)
    expected = [r for r in merged if offsets_of([r]) & offsets_of([wanted])]

    assert expected == list(overlapping(merged, wanted))


@pytest.mark.parametrize("at", [0, 5, 10])
def test_overlapping_empty_range(at: int) -> None:
    """A range without offsets shares none, wherever it lies."""
    assert list(overlapping([R(0, 10)], R(at, at))) == []


@given(some_ranges, filled_range)
def test_within_property(ranges: list[OffsetRange], span: OffsetRange) -> None:
    """Of each range, the offsets that the span has too are left, and no empty range."""
    left = within(merge(ranges), span)

    assert offsets_of(left) == offsets_of(ranges) & offsets_of([span])
    assert left == merge(left)


# ranges_between


@given(
    st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(0, 20)),
    st.dictionaries(st.sampled_from([A0, A1, B0]), st.integers(20, 40)),
)
def test_ranges_between_property(
    start: dict[TopicPartition, int], end: dict[TopicPartition, int]
) -> None:
    """Each partition of the end is read from its start, or from 0, in order."""
    expected = [(tp, set(range(start.get(tp, 0), end[tp]))) for tp in sorted(end)]

    assert expected == [(tp, offsets_of([r])) for tp, r in ranges_between(start, end)]


def test_ranges_between_backwards() -> None:
    """A partition that ends before it starts is refused by its name."""
    with pytest.raises(ValueError, match="a-1 ends at offset 4, before its start 5"):
        list(ranges_between({A0: 1, A1: 5}, {A0: 1, A1: 4}))


# Spark's JSON


@given(st.dictionaries(partitions, st.integers(-2, 2**63 - 1), max_size=6))
def test_spark_json_round_trip(offsets: dict[TopicPartition, int]) -> None:
    """What is written is read back, for any topic name."""
    assert offsets == from_spark_json(to_spark_json(offsets))


def test_to_spark_json_order() -> None:
    """Topics and partitions come in order, partitions by number."""
    offsets = {B0: -2, TopicPartition("a", 10): 3, TopicPartition("a", 9): -1}

    assert to_spark_json(offsets) == '{"a":{"9":-1,"10":3},"b":{"0":-2}}'
    assert to_spark_json({}) == "{}"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-",
        "{",
        "3",
        "[]",
        '"a"',
        "null",
        '{"a": 3}',
        '{"a": ["0"]}',
        '{"a": null}',
        '{"a": {"x": 3}}',
        '{"a": {"0": null}}',
        '{"a": {"0": [1]}}',
        '{"a": {"0": "x"}}',
    ],
)
def test_from_spark_json_other_form(text: str) -> None:
    """Text of another form is a ValueError, whatever it is."""
    with pytest.raises(ValueError):
        from_spark_json(text)


def test_from_spark_json_shows_text() -> None:
    """The message shows what was read, and no more than a line of it."""
    text = json.dumps({"a": [0] * 1000})

    with pytest.raises(ValueError, match=r'expected \{"topic": .*, got \{"a": \[0, 0') as raised:
        from_spark_json(text)

    assert len(str(raised.value)) < 300
