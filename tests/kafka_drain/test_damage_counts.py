"""How damage is counted: by content and time, by order in a shard, and what compaction took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import pytest

from kafka_drain.republishing.damage_counts import (
    balance,
    compacted_of,
    too_early,
    with_other_times,
)
from kafka_drain.republishing.match_types import Expected, Record, Token, token_of

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
        # One that was there a moment ago was compacted meanwhile; it says nothing of places.
        ([(1, 5, 0, KEY_B), (2, 5, 1, KEY_A)], [(3, 5, 0, KEY_A)], {(2, 5): 1}, 1),
    ],
)
def test_compacted_of(
    planned: list[Record], there: list[Record], missing: dict[Token, int], compacted: int
) -> None:
    """Compacted is what is missing and has a later record with its key in the target."""
    assert compacted_of({0: shard(*planned)}, Target(*there), missing, True) == compacted
