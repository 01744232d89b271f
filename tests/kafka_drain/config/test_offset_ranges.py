"""Ranges that somebody accepts as expired, as they are named on a command line."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.config.offset_ranges import parse_ranges, range_name
from kafka_drain.errors import ConfigError
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.drained import offsets_in


def test_range_name() -> None:
    """A range is named by topic, partition, start and end."""
    assert range_name(TopicPartition("a.b-c_d", 3), OffsetRange(5, 9)) == "a.b-c_d:3:5-9"


names = st.text("abcxyzABC0189._-", min_size=1, max_size=6)
ranges = st.tuples(
    st.builds(TopicPartition, names, st.integers(0, 2)),
    st.builds(lambda a, n: OffsetRange(a, a + n), st.integers(0, 20), st.integers(1, 9)),
)


@given(st.lists(ranges, max_size=6))
def test_parse_ranges_round_trip(
    accepted: list[tuple[TopicPartition, OffsetRange]],
) -> None:
    """What a finding names is understood, whatever the topic; overlapping ranges are one."""
    parsed = parse_ranges("acknowledge_expired", (range_name(tp, r) for tp, r in accepted))

    assert set(parsed) == {tp for tp, _ in accepted}
    for tp, found in parsed.items():
        assert offsets_in(found) == offsets_in(r for other, r in accepted if other == tp)
        assert all(a.end < b.start for a, b in pairwise(found))


@pytest.mark.parametrize(
    "text",
    [
        *("", "t", "t:0", "t:0:5", "t:0:5-", "t:0:-9", "t:0:5-9:", ":0:5-9", "t::5-9", "t:x:5-9"),
        *("t:0:5-5", "t:0:9-5", "t:-1:5-9", "t:0:5 - 9", "t:0:5-9\n", "t:0:5-9 ", "t/u:0:5-9"),
        "t:0:[5, 9)",
    ],
)
def test_parse_ranges_refused(text: str) -> None:
    """Another form, or a range without an offset, is refused with what is accepted."""
    with pytest.raises(ConfigError, match=r"accepted: topic:partition:start-end"):
        parse_ranges("acknowledge_expired", ["t:0:1-2", text])


def test_parse_ranges_message() -> None:
    """The option and what was given are named."""
    with pytest.raises(ConfigError) as raised:
        parse_ranges("acknowledge_expired", ["t:0:9"])

    assert str(raised.value) == (
        "acknowledge_expired = 't:0:9' is not acceptable; accepted: topic:partition:start-end, "
        "such as flights:0:100-200; the end is exclusive"
    )


def test_parse_ranges_none() -> None:
    """Nothing is accepted unless it is named."""
    assert parse_ranges("acknowledge_expired", []) == {}
