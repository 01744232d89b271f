"""Which files can hold what is looked for, and in which order they are read."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.archive.receipts import SealedContent
from kafka_drain.errors import ConfigError
from kafka_drain.find.criteria import Criteria
from kafka_drain.find.plan import SCAN_BYTES, Position, parts_of, steps_of, why_scan
from kafka_drain.offsets import TopicPartition
from tests.kafka_drain.find.held_files import A0, A1, B0, held

FILES = [
    held("old", (A0, 0, 9), topic_id="old"),
    held("first", (A0, 0, 9), (A1, 0, 9)),
    held("second", (A0, 10, 19), (A1, 10, 19)),
    held("overlapping", (A0, 15, 29)),
    held("other", (B0, 0, 99)),
]
INCARNATIONS = {("a", "old"): 1, ("a", "new"): 2, ("b", "new"): 2}


def read_in_steps(criteria: Criteria, after: Position | None = None) -> list[list[str]]:
    """Return what is read in each step, as file and partition."""
    steps = steps_of(parts_of(FILES, INCARNATIONS, criteria, after))
    return [[f"{part.file.path} {part.tp}" for part in step.parts] for step in steps]


ALL = [
    ["old a-0"],
    ["first a-0"],
    ["second a-0", "overlapping a-0"],
    ["first a-1"],
    ["second a-1"],
    ["other b-0"],
]


@pytest.mark.parametrize(
    ("given", "steps"),
    [
        ({}, ALL),
        ({"keys": ["k"]}, ALL),
        ({"topics": ["b"]}, [["other b-0"]]),
        ({"partitions": ["1"]}, [["first a-1"], ["second a-1"]]),
        ({"topics": ["a"], "partitions": ["1"], "offset": "10"}, [["second a-1"]]),
        ({"topics": ["a"], "partitions": ["0"], "offset": "9-10"}, [["old a-0"], ["first a-0"]]),
        ({"topics": ["a"], "partitions": ["0"], "offset": "20-29"}, [["overlapping a-0"]]),
        ({"from_time": "1970-01-01T00:00:00.300Z"}, [["other b-0"]]),
        ({"to_time": "1970-01-01T00:00:00.001Z", "topics": ["a"]}, [ALL[0], ALL[1], ALL[3]]),
        ({"topics": ["c"]}, []),
    ],
)
def test_plan(given: dict[str, Any], steps: list[list[str]]) -> None:
    """Receipts rule files out; the others are read by topic, incarnation, partition and offset."""
    assert read_in_steps(Criteria.of(**given)) == steps


@pytest.mark.parametrize(
    ("after", "steps"),
    [
        ("a:0:0:0", ALL),
        ("a:1:0:8", ALL),
        ("a:1:0:9", ALL[1:]),
        ("a:2:0:9", ALL[2:]),
        # What overlaps and ends before is done.
        ("a:2:0:19", [["overlapping a-0"], *ALL[3:]]),
        ("a:2:0:29", ALL[3:]),
        ("a:2:1:100", ALL[5:]),
        ("b:2:0:98", ALL[5:]),
        ("b:2:0:99", []),
    ],
)
def test_plan_after(after: str, steps: list[list[str]]) -> None:
    """A search goes on behind a position."""
    assert read_in_steps(Criteria.of(), Position.parse(after)) == steps


def test_plan_after_within() -> None:
    """In the position's own partition, only later offsets are read; in others, all."""
    parts = parts_of(FILES, INCARNATIONS, Criteria.of(), Position("a", 2, 0, 17))

    found = {f"{part.file.path} {part.tp}": part.from_offset for part in parts}
    assert found == {
        "second a-0": 18,
        "overlapping a-0": 18,
        "first a-1": 0,
        "second a-1": 0,
        "other b-0": 0,
    }


def test_plan_rows() -> None:
    """A part keeps what is selected of it, also where a search goes on within it."""
    criteria = Criteria.of(topics=["a"], partitions=["0"], offset="3-8")
    [whole] = parts_of([held("file", (A0, 0, 9))], {}, criteria)
    [rest] = parts_of([held("file", (A0, 0, 9))], {}, criteria, Position("a", 0, 0, 4))

    assert whole.rows == rest.rows == criteria.selection.rows(A0)
    assert (whole.from_offset, rest.from_offset) == (0, 5)


def test_plan_incarnations() -> None:
    """A topic that no generation knows comes first; so may one without an id be known."""
    known = {("a", "new"): 7, ("c", ""): 8}
    files = [
        held("known", (A0, 0, 9)),
        held("unknown", (A0, 0, 9), topic_id="other"),
        held("without", (TopicPartition("c", 0), 0, 9)),
    ]

    parts = parts_of(files, known, Criteria.of())
    assert {part.file.path: part.incarnation for part in parts} == {
        "known": 7,
        "unknown": 0,
        "without": 8,
    }


def test_steps_touch() -> None:
    """Parts that share a single offset are read together, those beside each other aren't."""
    files = [held("a", (A0, 0, 5)), held("b", (A0, 5, 9)), held("c", (A0, 10, 12))]
    steps = steps_of(parts_of(files, {}, Criteria.of()))

    assert [[part.file.path for part in step.parts] for step in steps] == [["a", "b"], ["c"]]


def test_steps_within_an_earlier_part() -> None:
    """A step ends with the part that reaches farthest, which needn't be the last one."""
    files = [held("a", (A0, 0, 100)), held("b", (A0, 10, 20)), held("c", (A0, 30, 40))]
    (step,) = steps_of(parts_of(files, {}, Criteria.of()))

    assert [part.file.path for part in step.parts] == ["a", "b", "c"]


def test_plan_unknown_times() -> None:
    """A file whose times are unknown isn't ruled out by them."""
    file, [content] = held("file", (A0, 0, 9))
    unknown = SealedContent.of(content.tp, 0, 9, 10, None, None)
    criteria = Criteria.of(from_time="2026-01-01")

    assert parts_of([(file, [content])], {}, criteria) == []
    assert len(parts_of([(file, [unknown])], {}, criteria)) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from([A0, A1, B0]), st.integers(0, 20), st.integers(0, 8)), max_size=12
    )
)
def test_steps_in_order(drawn: list[tuple[TopicPartition, int, int]]) -> None:
    """Whatever overlaps, each step ends before the next one begins, and nothing is left out."""
    files = [held(f"{n}", (tp, first, first + more)) for n, (tp, first, more) in enumerate(drawn)]
    parts = parts_of(files, {}, Criteria.of())
    steps = steps_of(parts)

    assert sorted(part.file.path for step in steps for part in step.parts) == sorted(
        part.file.path for part in parts
    )
    firsts = [min(part.at(part.content.first) for part in step.parts) for step in steps]
    for step, following in zip(steps, firsts[1:], strict=False):
        assert step.through() < following
    assert sum(step.records() for step in steps) == sum(more + 1 for _, _, more in drawn)


@pytest.mark.parametrize(
    ("given", "size", "refused"),
    [
        ({"keys": ["k"]}, SCAN_BYTES, False),
        ({"keys": ["k"]}, SCAN_BYTES + 1, True),
        ({"headers": ["a=b"]}, SCAN_BYTES + 1, True),
        ({"value_contains": "x"}, SCAN_BYTES + 1, True),
        ({"jsonpath": "$.id"}, SCAN_BYTES + 1, True),
        # Each record matches: the search ends at its limit.
        ({"topics": ["a"]}, SCAN_BYTES + 1, False),
        ({}, SCAN_BYTES + 1, False),
    ],
)
def test_why_scan(given: dict[str, Any], size: int, refused: bool) -> None:
    """Much is only read when that is asked for."""
    assert bool(why_scan(3, size, Criteria.of(**given))) is refused


def test_why_scan_advises() -> None:
    """What could narrow the search is named, and what already does isn't."""
    whole = {"topics": ["a"], "partitions": ["0"], "from_time": "2026-01-01"}
    some = why_scan(3, 1 << 30, Criteria.of(headers=["a=secret"], topics=["a"]))
    keyed = why_scan(3, 1 << 30, Criteria.of(keys=["k"], **whole))
    closer = why_scan(3, 1 << 30, Criteria.of(keys=["k"], **whole, to_time="2026-01-02"))

    assert "1,074 MB in 3 files" in some
    assert "narrow it with --partition, --from-time, --to-time, --key, or read" in some
    assert "secret" not in some
    assert "with --topic, --partition" in why_scan(3, 1 << 30, Criteria.of(headers=["a=b"]))
    assert "narrow it with --to-time, or read" in keyed
    assert "narrow it with closer bounds, or read" in closer


@pytest.mark.parametrize("text", ["", "a", "a:0:0", "a:0:0:x", "a:0:0:1:2", "a b:0:0:1"])
def test_position_refused(text: str) -> None:
    """Only what an earlier search gave is a position."""
    with pytest.raises(ConfigError, match="is not acceptable"):
        Position.parse(text)


def test_position_text() -> None:
    """A position is read as it was written; a record may be of no topic."""
    for position in (Position("a.b-c_1", 12, 3, 456), Position("", 0, 0, 0)):
        assert Position.parse(str(position)) == position
