"""What a run may say of its target: every combination of what was found there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from kafka_drain.offsets import TopicPartition
from kafka_drain.output import Level, level_of
from kafka_drain.republish.planning.plan import AT_LEAST_ONCE, EXACTLY_ONCE, RepublishPlan
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ProgressSlot, Shard
from kafka_drain.republish.planning.verdicts import gets_receipt, is_exact
from kafka_drain.republish.verifying.matching import PartitionMatch
from kafka_drain.republish.verifying.offset_map import Block
from kafka_drain.republish.verifying.result import (
    ChangeFound,
    Verification,
    VerifiedPartition,
    change_found,
)
from tests.tables import each_of

NONE, ONE = {"lost": 0, "duplicates": 0, "out_of_order": 0}, (0, 1, 2)
COMBINATIONS = [dict(zip(NONE, found, strict=True)) for found in product(ONE, repeat=3)]


def match(**found: Any) -> PartitionMatch:
    """What was found in a partition that ten records were planned for."""
    shown = {"expected": 10, "found": 10, "unplanned": 0, "compacted": 0, "fingerprint": "f"}
    return PartitionMatch(**{**NONE, **shown, "mappings": {}, **found})


def verification(*matches: PartitionMatch) -> Verification:
    """What was found in the partitions of topic t."""
    return Verification(
        tuple(VerifiedPartition(TopicPartition("t", n), m) for n, m in enumerate(matches))
    )


@each_of("found", COMBINATIONS)
def test_is_exact(found: dict[str, int]) -> None:
    """Exact is what has nothing lost, nothing twice and nothing out of order."""
    assert is_exact(**found) is (found == NONE)
    assert match(**found).is_exact is (found == NONE)
    # What is others', and what compaction took, changes nothing.
    assert match(**found, unplanned=3, compacted=3).is_exact is (found == NONE)


@each_of("found", COMBINATIONS)
@each_of("is_first", [False, True])
def test_gets_receipt(found: dict[str, int], is_first: bool) -> None:
    """One partition decides for all: by what was lost, exactly once by all of it."""
    matches: Sequence[PartitionMatch] = [match(**found), match()]
    whole = verification(*(matches if is_first else reversed(matches)))

    assert whole.is_exact is (found == NONE)
    assert whole.gets_receipt(EXACTLY_ONCE) is (found == NONE)
    assert whole.gets_receipt(AT_LEAST_ONCE) is (found["lost"] == 0)
    assert gets_receipt(AT_LEAST_ONCE, **found) is (found["lost"] == 0)


def test_verification_sums() -> None:
    """The figures are those of all partitions."""
    first = match(lost=1, duplicates=2, out_of_order=3, unplanned=4, compacted=5, notes=("a",))
    second = match(expected=20, lost=10, duplicates=20, out_of_order=30, unplanned=40, compacted=50)

    found = verification(first, second)

    assert found.to_dict() == {
        "is_exact": False,
        "records": 30,
        "lost": 11,
        "twice": 22,
        "out_of_order": 33,
        "foreign": 44,
        "compacted": 55,
        "partitions": [
            {
                "topic": "t",
                "partition": 0,
                "records": 10,
                "found": 10,
                "lost": 1,
                "twice": 2,
                "out_of_order": 3,
                "foreign": 4,
                "compacted": 5,
                "fingerprint": "f",
                "notes": ["a"],
            },
            {
                "topic": "t",
                "partition": 1,
                "records": 20,
                "found": 10,
                "lost": 10,
                "twice": 20,
                "out_of_order": 30,
                "foreign": 40,
                "compacted": 50,
                "fingerprint": "f",
                "notes": [],
            },
        ],
    }
    assert found.lines() == [
        "verify: NOT EXACT: of 30 records 11 are lost; 22 are duplicates, 33 are out of order; "
        "55 have been compacted by Kafka since; 44 records of other producers are in between",
        "  t-0: 10 of 10 found, 1 lost, 2 duplicated, 3 out of order",
        "  t-1: 10 of 20 found, 10 lost, 20 duplicated, 30 out of order",
        "  t-0: a",
    ]
    assert level_of(found.lines()[0]) is Level.ERROR


def test_verification_exact_lines() -> None:
    """What is exact needs one line."""
    lines = verification(match(), match(expected=5)).lines()

    assert lines == ["verify: 15 records are in Kafka once, in order, as in the files"]
    assert level_of(lines[0]) is Level.GOOD


def test_match_read_again() -> None:
    """What another process found is what is read."""
    blocks = (Block(0, 5, 10, 15, 5), Block(7, 9, 15, 17, 2))
    found = match(lost=1, mappings={3: blocks, 4: ()}, notes=("a", "b"))

    document = json.loads(json.dumps(found.to_dict()))

    assert set(document["mappings"]) == {"3", "4"}
    assert PartitionMatch.from_dict(document) == found


def plan_with_change(*planned: tuple[int, int, str]) -> RepublishPlan:
    """A plan with a shard for each planned result of a change."""
    sources = [TopicPartition("t", 10 + number) for number in range(len(planned))]
    change: Any = {
        "filter": [], "mask": ["$.a"], "hash": [], "drop_headers": [], "mark": False,
        "function": None, "key_id": None, "selected": 30, "schemas": [],
        "dropped": sum(shard[0] for shard in planned),
        "changed": sum(shard[1] for shard in planned),
        "shards": [{"dropped": a, "changed": b, "digest": c} for a, b, c in planned],
    }  # fmt: skip
    return RepublishPlan(
        run="r", key="r-0", created_at="2026-01-01T00:00:00.000+00:00", pipeline="p",
        cluster_id="c", request={}, delivery="exactly_once", transactions="strict",
        engine="worker", placement="original", provenance=False, targets=(),
        shards=tuple(
            Shard(number, tp, "1", "copy", 0, Rows(), (), ProgressSlot("g", tp))
            for number, tp in enumerate(sources)
        ),
        size=0, change=change,
    )  # fmt: skip


@pytest.mark.parametrize("is_exact", [False, True])
def test_change_found_without_change(is_exact: bool) -> None:
    """A plan without a change has no result of one."""
    plan = replace(plan_with_change(), change=None)

    assert change_found(plan, {}, is_exact=is_exact) is None


@pytest.mark.parametrize(
    ("seen", "is_exact", "others"),
    [
        ({0: (1, 2, "a"), 1: (3, 4, "b")}, True, []),
        ({0: (1, 2, "a"), 1: (3, 4, "b")}, False, []),
        # One figure is another.
        ({0: (0, 2, "a"), 1: (3, 4, "b")}, True, [10]),
        ({0: (1, 0, "a"), 1: (3, 4, "b")}, True, [10]),
        ({0: (1, 2, "a"), 1: (3, 4, "a")}, True, [11]),
        ({0: (3, 4, "b"), 1: (1, 2, "a")}, True, [10, 11]),
        ({0: (1, 2, "a"), 1: (3, 4, "a")}, False, [11]),
        # A shard that wasn't read to its end says nothing, if records are missing anyway.
        ({0: (1, 2, "a")}, False, []),
        ({1: (3, 4, "b")}, False, []),
        ({}, False, []),
        ({0: (1, 2, "a")}, True, [11]),
        ({1: (3, 4, "b")}, True, [10]),
        ({}, True, [10, 11]),
    ],
)
def test_change_found(
    seen: dict[int, tuple[int, int, str]], is_exact: bool, others: list[int]
) -> None:
    """A shard is another one's than planned if any figure differs, or nothing was seen of it."""
    found = change_found(plan_with_change((1, 2, "a"), (3, 4, "b")), seen, is_exact=is_exact)

    assert found == ChangeFound(4, 6, tuple(TopicPartition("t", n) for n in others))


def test_change_found_other_plan() -> None:
    """A plan with more results than shards isn't compared with a part of them."""
    plan = plan_with_change((1, 2, "a"), (3, 4, "b"))

    with pytest.raises(ValueError, match="longer"):
        change_found(replace(plan, shards=plan.shards[:1]), {0: (1, 2, "a")}, is_exact=True)


def test_verification_other_change() -> None:
    """Records that are all there, and aren't what was planned, get no receipt and no green line."""
    others = tuple(TopicPartition("t", number) for number in range(7))

    found = Verification(verification(match()).partitions, ChangeFound(1, 2, others))

    assert found.is_exact
    assert not found.is_as_planned
    assert not found.gets_receipt(EXACTLY_ONCE)
    assert not found.gets_receipt(AT_LEAST_ONCE)
    lines = found.lines()
    assert lines == [
        "verify: NOT AS PLANNED: 10 records are in Kafka once, in order, with other contents",
        "  the change gave another result than when it was planned, for t-0, t-1, t-2, t-3, t-4",
    ]
    assert [level_of(line) for line in lines] == [Level.ERROR, Level.ERROR]


def test_verification_change() -> None:
    """A change that made what was planned is said with its figures."""
    found = Verification(verification(match()).partitions, ChangeFound(1, 2))

    assert found.is_as_planned
    assert found.gets_receipt(EXACTLY_ONCE)
    assert found.lines() == [
        "verify: 10 records are in Kafka once, in order, as planned: 1 left out, 2 changed"
    ]
    assert level_of(found.lines()[0]) is Level.GOOD
