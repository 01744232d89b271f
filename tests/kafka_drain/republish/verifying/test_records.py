"""Consecutive records: compared as a whole, they match as they do one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.data_files.content_hash import UNREADABLE
from kafka_drain.republish.verifying.match_types import Record
from kafka_drain.republish.verifying.matching import match_partition
from kafka_drain.republish.verifying.records import ExpectedRecords, Records
from kafka_drain.republish.verifying.sequence_match import Walk

Row = tuple[Any, Any, Any, int, int]

ROW: Row = (b"k", b"v", None, 5, 0)


def records(rows: Sequence[Row], *, with_keys: bool = False) -> Records:
    keys, values, headers, times, offsets = (
        [row[place] for row in rows] for place in range(len(ROW))
    )
    return Records(keys, values, headers, times, offsets, with_keys)


def parts(rows: Sequence[Row], size: int) -> Iterator[Records]:
    return (records(rows[at : at + size]) for at in range(0, len(rows), size))


contents = st.tuples(
    st.sampled_from([None, b"", b"a", b"b"]),
    st.sampled_from([None, b"", b"a", b"b"]),
    st.sampled_from([None, [("n", b"1")], [("n", None)], [("n", b"1"), ("n", b"2")]]),
    st.sampled_from([0, 1, 2]),
)
steps = st.integers(1, 2)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Row], list[Row], int, int]:
    """Return what is planned and what is there, each with the size of its batches."""
    planned = draw(st.lists(st.tuples(contents, steps), max_size=12))
    there = draw(
        st.one_of(
            st.just(planned),
            st.lists(st.tuples(contents, steps), max_size=12),
            st.permutations(planned),
            st.integers(0, 12).map(lambda at: [*planned[:at], *planned[at + 1 :]]),
            st.integers(0, 12).map(lambda at: [*planned[:at], *planned[at : at + 1] * 2]),
        )
    )

    def placed(rows: Any) -> list[Row]:
        at, found = 10, []
        for (key, value, headers, timestamp), step in rows:
            at += step
            found.append((key, value, headers, timestamp, at))
        return found

    return placed(planned), placed(there), draw(st.integers(1, 5)), draw(st.integers(1, 5))


@given(histories(), st.booleans())
def test_match_property(history: tuple[list[Row], list[Row], int, int], times: bool) -> None:
    """What whole batches say of a target is what its records say one by one."""
    planned, there, planned_size, size = history

    def singly(is_complete: Callable[[], bool]) -> Iterator[list[Record]]:
        return (list(batch) for batch in parts(there, size))

    one_by_one = match_partition(
        {0: lambda: iter(records(planned))}, singly, compare_timestamps=times
    )

    as_a_whole = match_partition(
        {0: lambda: ExpectedRecords(parts(planned, planned_size))},
        lambda is_complete: parts(there, size),
        compare_timestamps=times,
    )

    assert as_a_whole == one_by_one


@pytest.mark.parametrize(
    ("other", "is_like"),
    [
        (ROW, True),
        ((b"k", b"v", None, 5, 9), True),
        ((None, b"v", None, 5, 0), False),
        ((b"", b"v", None, 5, 0), False),
        ((b"k", None, None, 5, 0), False),
        ((b"k", b"w", None, 5, 0), False),
        ((b"k", b"v", [("n", b"")], 5, 0), False),
        ((b"k", b"v", UNREADABLE, 5, 0), False),
        ((b"k", b"v", None, 6, 0), False),
    ],
)
def test_is_like_other(other: Row, is_like: bool) -> None:
    """Each part of the content counts, and the timestamp; the offset doesn't."""
    assert records([ROW, ROW]).is_like(records([ROW, other]), True) is is_like


@pytest.mark.parametrize(
    ("planned", "there", "compare_timestamps", "is_like"),
    [(0, 7, True, True), (7, 0, True, False), (7, 0, False, True)],
)
def test_is_like_timestamp(
    planned: int, there: int, compare_timestamps: bool, is_like: bool
) -> None:
    """A planned timestamp of 0 is like any, and any are alike if they aren't compared."""
    one, other = (records([(*ROW[:3], time, 0)]) for time in (planned, there))
    assert one.is_like(other, compare_timestamps) is is_like


def test_records_unreadable_headers() -> None:
    """A record whose headers can't be read has a hash of its own, which no content has."""
    [(h, *_)] = records([(b"k", b"v", UNREADABLE, 5, 0)])
    assert h == 0


def test_records_keys_hashed() -> None:
    """Keys are hashed only if asked for; none is 0."""
    rows = [ROW, (None, *ROW[1:])]
    assert [key for *_, key in records(rows)] == [0, 0]
    first, none = (key for *_, key in records(rows, with_keys=True))
    assert first
    assert none == 0


def test_walk_compares_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a target that is as planned, no record is followed by itself: that is what is cheap."""
    rows = [(b"k%d" % at, b"v", None, at, at) for at in range(1, 101)]

    def one_by_one(batch: Records) -> Iterator[Record]:
        assert not len(batch)
        return iter(())

    monkeypatch.setattr(Records, "__iter__", one_by_one)
    walk = Walk({0: lambda: ExpectedRecords(parts(rows, 7))}, True)
    hashed: list[int] = []
    hashes = Records.hashes
    monkeypatch.setattr(Records, "hashes", lambda self: hashed.append(len(self)) or hashes(self))

    walk.run(lambda is_complete: (batch for batch in parts(rows, 10)))

    assert walk.is_complete
    # One side only.
    assert sum(hashed) == walk.matched == 100
