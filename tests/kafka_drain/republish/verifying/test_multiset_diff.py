"""How damage is counted: by content and time, by order in a shard, and what compaction took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_drain.republish.verifying.match_types import Expected, Record, Token, token_of
from kafka_drain.republish.verifying.multiset_diff import (
    balance,
    compacted_of,
    too_early,
    with_other_times,
)

KEY_A, KEY_B = 10, 11


def shard(*records: Record) -> Expected:
    """A shard that sends some records."""
    return lambda: iter(records)


class Target:
    """A target partition; whoever reads it must want all of it."""

    def __init__(self, *records: Record) -> None:
        self.records = records

    def __call__(self, is_complete: Callable[[], bool]) -> Iterator[Iterable[Record]]:
        for record in self.records:
            assert is_complete() is False
            yield [record]


def timed(*tokens: Token) -> list[Record]:
    """Records with some contents and times, at offsets from 0."""
    return [(h, ts, at, KEY_A) for at, (h, ts) in enumerate(tokens)]


@pytest.mark.parametrize(("compare", "token"), [(True, (7, 5)), (False, (7, 0))])
def test_token_of(compare: bool, token: Token) -> None:
    """Records are told apart by content and time, or by content alone."""
    assert token_of((7, 5, 3, KEY_A), compare) == token


def test_balance() -> None:
    """What is missing and what is too much, each as often as it is."""
    planned = timed((1, 5), (1, 5), (2, 5), (3, 5))
    there = timed((3, 5), (1, 5), (4, 5), (4, 5), (3, 5), (3, 6))

    missing, surplus, number = balance({0: shard(*planned)}, Target(*there), True)

    assert missing == {(1, 5): 1, (2, 5): 1}
    assert surplus == {(4, 5): 2, (3, 5): 1, (3, 6): 1}
    assert number == 4


def test_balance_pace() -> None:
    """Both sides are read at one pace: what is alike is held for a moment only."""
    reads: list[str] = []

    def planned() -> Iterator[Record]:
        for record in timed((1, 5), (2, 5), (3, 5)):
            reads.append("planned")
            yield record

    def there(is_complete: Callable[[], bool]) -> Iterator[Iterable[Record]]:
        for record in timed((1, 5), (2, 5)):
            reads.append("there")
            yield [record]

    balance({0: planned}, there, True)

    assert reads == ["there", "planned", "there", "planned", "planned"]


@pytest.mark.parametrize(
    ("planned", "there", "early"),
    [
        ([(1, 5), (2, 5), (3, 5)], [(1, 5), (2, 5), (3, 5)], 0),
        ([(1, 5), (2, 5), (3, 5)], [(3, 5), (1, 5), (2, 5)], 1),
        ([(1, 5), (2, 5), (3, 5)], [(3, 5), (2, 5), (1, 5)], 2),
        # Times tell records apart whose contents are alike.
        ([(1, 5), (1, 6), (1, 7)], [(1, 7), (1, 6), (1, 5)], 2),
        # A planned time of 0 is any time.
        ([(1, 0), (2, 0), (1, 0)], [(2, 8), (1, 9), (1, 7)], 1),
        ([(2, 5), (1, 5), (1, 5)], [(1, 5), (1, 5), (2, 5)], 2),
        ([(2, 5), (1, 5), (3, 5), (1, 5)], [(1, 5), (1, 5), (2, 5), (3, 5)], 2),
    ],
)
def test_too_early(planned: list[Token], there: list[Token], early: int) -> None:
    """A record is too early when one of its shard with a lower offset comes later."""
    assert too_early({0: shard(*timed(*planned))}, Target(*timed(*there)), True) == early


def test_too_early_times_not_compared() -> None:
    """Where times aren't kept, records of one content are alike."""
    planned, there = timed((1, 5), (1, 6), (2, 5)), timed((1, 6), (1, 5), (2, 9))

    assert too_early({0: shard(*planned)}, Target(*there), False) == 0


def test_with_other_times() -> None:
    """Lost records count as there with another time as often as their content is there."""
    missing = Counter({(1, 5): 2, (1, 6): 2, (2, 5): 1, (3, 5): 1})
    surplus = Counter({(1, 7): 1, (1, 8): 2, (2, 9): 5, (4, 5): 1})

    assert with_other_times(missing, surplus) == 3 + 1


@pytest.mark.parametrize(
    ("planned", "there", "missing", "compacted"),
    [
        # Its key has a later record in the target, even at the first offset.
        ([(1, 5, 0, KEY_A), (2, 5, 1, KEY_A)], [(2, 5, 0, KEY_A)], {(1, 5): 1}, 1),
        # Its key has none.
        ([(1, 5, 0, KEY_A)], [(2, 5, 0, KEY_B)], {(1, 5): 1}, 0),
        ([(1, 5, 0, KEY_A)], [], {(1, 5): 1}, 0),
        # Its key has one, but before what precedes it in its shard.
        (
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_B), (3, 5, 2, KEY_A)],
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_B)],
            {(3, 5): 1},
            0,
        ),
        # Of three that are alike, one is missing: the first.
        (
            [(1, 5, n, KEY_A) for n in range(3)],
            [(1, 5, n, KEY_A) for n in range(2)],
            {(1, 5): 1},
            1,
        ),
        # Of two that are alike the last is missing: the other lies before what is between them.
        (
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_A), (1, 5, 2, KEY_A)],
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_A)],
            {(1, 5): 1},
            0,
        ),
        (
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_B), (1, 5, 2, KEY_A)],
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_B)],
            {(1, 5): 1},
            0,
        ),
        # The first is missing: the other lies behind.
        (
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_A), (1, 5, 2, KEY_A)],
            [(2, 5, 0, KEY_A), (1, 5, 1, KEY_A)],
            {(1, 5): 1},
            1,
        ),
        # All of them have another that is alike, but the key ends with another value.
        (
            [(1 + n % 2, 5, n, KEY_A) for n in range(5)],
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_A)],
            {(1, 5): 2, (2, 5): 1},
            2,
        ),
        # The same with any time.
        (
            [(1 + n % 2, 0, n, KEY_A) for n in range(5)],
            [(1, 8, 0, KEY_A), (2, 9, 1, KEY_A)],
            {(1, 0): 2, (2, 0): 1},
            2,
        ),
        (
            [(1, 0, 0, KEY_A), (2, 5, 1, KEY_B), (1, 0, 2, KEY_A)],
            [(1, 8, 0, KEY_A), (2, 5, 1, KEY_B)],
            {(1, 0): 1},
            0,
        ),
        # A record that was compacted meanwhile has no place that others would have to lie behind.
        (
            [(9, 5, 0, KEY_B), (1, 5, 1, KEY_A), (2, 5, 2, KEY_B), (1, 5, 3, KEY_A)],
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_B)],
            {(1, 5): 1},
            0,
        ),
        # What is there lies before all: no more are counted than are missing.
        (
            [(2, 5, 0, KEY_B), (1, 5, 1, KEY_A), (1, 5, 2, KEY_A), (4, 5, 3, KEY_A)],
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_B), (4, 5, 2, KEY_A)],
            {(1, 5): 1},
            1,
        ),
        # The key ends with another producer's record.
        (
            [(1 + n % 2, 5, n, KEY_A) for n in range(5)],
            [(1, 5, 0, KEY_A), (2, 5, 1, KEY_A), (9, 5, 2, KEY_A)],
            {(1, 5): 2, (2, 5): 1},
            3,
        ),
        # One that was there a moment ago was compacted meanwhile; it says nothing of places.
        ([(1, 5, 0, KEY_B), (2, 5, 1, KEY_A)], [(3, 5, 0, KEY_A)], {(2, 5): 1}, 1),
    ],
)
def test_compacted_of(
    planned: list[Record], there: list[Record], missing: dict[Token, int], compacted: int
) -> None:
    """Compacted is what is missing and has a later record with its key in the target."""
    assert compacted_of({0: shard(*planned)}, Target(*there), missing, True) == compacted


def test_compacted_of_several_shards() -> None:
    """A key may end with what any of its shards has sent last, and with nothing else."""
    one = shard((1, 5, 0, KEY_A), (2, 5, 1, KEY_A), (3, 5, 2, KEY_A))
    two = shard((4, 5, 0, KEY_A), (5, 5, 1, KEY_A))

    def compacted(*there: int) -> int:
        missing = {(n, 5): 1 for n in range(1, 6) if n not in there}
        target = Target(*((n, 5, at, KEY_A) for at, n in enumerate(there)))
        return compacted_of({0: one, 1: two}, target, missing, True)

    assert compacted(3) == 4
    assert compacted(5) == 4
    assert compacted(3, 5) == 3
    # Both shards' last records are missing: one of them was lost at least.
    assert compacted(2) == 4 - 1 - 1
    assert compacted(4) == 4 - 1 - 1
    shards = {0: shard((1, 5, 0, KEY_A), (2, 5, 1, KEY_A)), 1: shard((3, 5, 0, KEY_A))}
    assert compacted_of(shards, Target((1, 5, 0, KEY_A)), {(2, 5): 1, (3, 5): 1}, True) == 0
    # One alike of another shard is where it belongs.
    alike = {0: shard((7, 5, 0, KEY_B), (1, 5, 1, KEY_A)), 1: shard((1, 5, 0, KEY_A))}
    there = Target((1, 5, 0, KEY_A), (7, 5, 1, KEY_B))
    assert compacted_of(alike, there, {(1, 5): 1}, True) == 0


def test_compacted_of_equal_records() -> None:
    """Which of several equal records was found is known if one shard sent them, not if two did.

    Two equal records of key A were sent, and one was found at offset 5. A later record of key B is
    missing, and the last one that is there of its key, which others sent, is at offset 4.
    """
    equal, last = (1, 5, 0, KEY_A), (2, 5, 1, KEY_B)
    there = Target((9, 5, 4, KEY_B), (1, 5, 5, KEY_A))
    missing = {(1, 5): 1, (2, 5): 1}

    # The one that was found precedes the missing record, which no later one of its key follows.
    assert compacted_of({0: shard(equal, equal, last)}, there, missing, True) == 1
    # The one that was found may be of the other shard, which precedes nothing.
    assert compacted_of({0: shard(equal), 1: shard(equal, last)}, there, missing, True) == 2


#: Of each shard: its records as key and value, both small, so that many are alike.
plans = st.lists(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 2)), max_size=6), max_size=2)


@given(plans, st.data())
def test_compacted_of_property(plan: list[list[tuple[int, int]]], data: st.DataObject) -> None:
    """What compaction took is told, wherever it had got to; a key that ends otherwise is lost."""
    shards = [
        [(10 * key + value, 5, offset, key) for offset, (key, value) in enumerate(records)]
        for records in plan
    ]
    turns = data.draw(st.permutations([i for i, s in enumerate(shards) for _ in s]))
    rest = [list(each) for each in shards]
    log = [rest[turn].pop(0) for turn in turns]
    ends = {record[3]: at for at, record in enumerate(log)}
    cleaned = data.draw(st.integers(0, len(log)))
    kept = [at for at, record in enumerate(log) if at >= cleaned or ends[record[3]] == at]
    dropped = data.draw(st.sets(st.sampled_from(kept), max_size=2)) if kept else set()
    kept = [at for at in kept if at not in dropped]
    there = [(log[at][0], 5, place, log[at][3]) for place, at in enumerate(kept)]
    tokens = Counter((record[0], 5) for record in log)
    missing = tokens - Counter((record[0], 5) for record in there)

    compacted = compacted_of(
        {number: shard(*records) for number, records in enumerate(shards)},
        Target(*there),
        missing,
        True,
    )

    lost = missing.total() - compacted
    if not dropped:
        assert lost == 0
    final = {record[3]: record[0] for record in there}
    wanted = [{record[3]: record[0] for record in records} for records in shards]
    wrong = [k for k in ends if final.get(k) not in [each.get(k, -1) for each in wanted]]
    assert lost >= len(wrong)
