"""Places of what compaction has kept: a consumer that hasn't read it doesn't skip it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafka_drain.republish.verifying import kept_twins
from kafka_drain.republish.verifying.kept_twins import with_kept_twins
from kafka_drain.republish.verifying.match_types import Record
from kafka_drain.republish.verifying.matching import match_partition
from kafka_drain.republish.verifying.offset_map import Block

#: Contents: two that compaction took some of, and others.
X, Y, OTHER = 1, 2, 9

Shard = dict[int, int]


def reading(shard: Shard) -> Callable[[], Iterator[Record]]:
    return lambda: ((content, 1, offset, content) for offset, content in shard.items())


def kept(
    shards: list[Shard], there: Shard, *placed: tuple[Block, ...]
) -> dict[int, tuple[Block, ...]]:
    """Add what is there of X and Y to blocks of the other records, by shard."""

    def read(is_complete: Callable[[], bool]) -> Iterator[list[Record]]:
        # It must be read to its end.
        assert is_complete() is False
        yield [(content, 1, place, content) for place, content in there.items()]

    return with_kept_twins(
        dict(enumerate(placed)),
        {number: reading(shard) for number, shard in enumerate(shards)},
        read,
        {X, Y},
    )


def one(source: int, place: int) -> Block:
    return Block(source, source + 1, place, place + 1, 1)


@pytest.mark.parametrize(
    ("shard", "there", "placed", "expected"),
    [
        # Nothing is left.
        ({0: X, 1: OTHER}, {51: OTHER}, (one(1, 51),), (one(1, 51),)),
        # Of equal records, the last one is there.
        ({0: X, 1: X, 2: X}, {52: X}, (), (one(2, 52),)),
        ({0: X, 1: X, 2: X}, {51: X, 52: X}, (), (Block(1, 3, 51, 53, 2),)),
        ({0: X, 1: X, 3: X}, {51: X, 52: X}, (), (one(1, 51), one(3, 52))),
        ({0: X, 1: X, 2: X}, {51: X, 53: X}, (), (one(1, 51), one(2, 53))),
        # Between others, before and after them.
        (
            {0: X, 1: OTHER, 2: X, 3: OTHER, 4: X},
            {51: OTHER, 52: X, 53: OTHER, 54: X},
            (one(1, 51), one(3, 53)),
            (one(1, 51), one(2, 52), one(3, 53), one(4, 54)),
        ),
        # Two contents.
        ({0: X, 1: Y, 2: X, 3: Y}, {52: X, 53: Y}, (), (Block(2, 4, 52, 54, 2),)),
        # Another producer's equal record after it: it may be either, or both are others'.
        ({0: X}, {50: X, 60: X}, (), (Block(0, 1, 50, 61, 1),)),
        # All are there; compaction took some of the other content.
        ({0: X, 1: X}, {50: X, 52: X}, (), (one(0, 50), one(1, 52))),
        # Within a joined block it counts, and needs no place of its own.
        (
            {0: OTHER, 1: X, 2: OTHER},
            {50: OTHER, 51: X, 54: OTHER},
            (Block(0, 3, 50, 55, 2),),
            (Block(0, 3, 50, 55, 3),),
        ),
        # But not if the block would then look exact, which it isn't.
        (
            {0: OTHER, 1: X, 2: X, 3: OTHER},
            {50: OTHER, 51: X, 53: OTHER},
            (Block(0, 4, 50, 54, 3),),
            (Block(0, 4, 50, 54, 3),),
        ),
    ],
)
def test_kept_of_one_shard(
    shard: Shard, there: Shard, placed: tuple[Block, ...], expected: tuple[Block, ...]
) -> None:
    """What one shard alone has sent gets the place that it has."""
    assert kept([shard], there, placed).get(0, ()) == expected


@pytest.mark.parametrize(
    ("before", "after", "first", "last"),
    [
        # After the last record of an exact block, before the first one of the next.
        (one(0, 49), one(9, 61), 50, 60),
        (one(0, 51), one(9, 60), 52, 58),
        (Block(0, 2, 50, 52, 2), Block(9, 11, 57, 59, 2), 52, 56),
        # A block that isn't exact may have its record at any of its places.
        (Block(0, 1, 49, 57, 1), one(9, 61), 50, 60),
        (Block(0, 1, 50, 57, 1), one(9, 61), 52, 60),
        (Block(0, 1, 51, 57, 1), one(9, 61), 52, 60),
        (one(0, 49), Block(9, 10, 52, 57, 1), 50, 56),
        (None, one(9, 55), 50, 54),
        (one(0, 55), None, 56, 60),
    ],
)
def test_kept_between(before: Block | None, after: Block | None, first: int, last: int) -> None:
    """A record lies between the records before and after it."""
    placed = tuple(block for block in (before, after) if block is not None)
    # Both shards may have sent each of these.
    found = kept([{5: X}, {5: X}], dict.fromkeys(range(50, 61, 2), X), placed)

    assert Block(5, 6, first, last + 1, 1) in found[0]


@pytest.mark.parametrize(
    ("shards", "there", "expected"),
    [
        # Whose it is isn't known: both may continue there, and neither counts it exactly.
        ([{0: X}, {5: X}], {50: X}, [(Block(0, 1, 49, 51, 1),), (Block(5, 6, 49, 51, 1),)]),
        # There is nothing before it.
        ([{0: X}, {5: X}], {0: X}, [(one(0, 0),), (one(5, 0),)]),
        (
            [{0: X}, {5: X}],
            {50: X, 52: X},
            [(Block(0, 1, 50, 53, 1),), (Block(5, 6, 50, 53, 1),)],
        ),
        # The place of a later record bounds that of an earlier one, which may be gone.
        (
            [{0: X, 1: Y}, {5: X, 6: Y}],
            {50: Y, 52: X},
            [
                (Block(0, 1, 50, 53, 1), Block(1, 2, 50, 53, 1)),
                (Block(5, 6, 50, 53, 1), Block(6, 7, 50, 53, 1)),
            ],
        ),
    ],
)
def test_kept_of_several_shards(
    shards: list[Shard], there: Shard, expected: list[tuple[Block, ...]]
) -> None:
    """What several shards have sent may belong to any of them."""
    assert kept(shards, there) == dict(enumerate(expected))


def test_kept_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many of them are joined, like all blocks."""
    monkeypatch.setattr(kept_twins, "MAX_BLOCKS", 3)
    three, four = (dict.fromkeys(range(0, end, 2), X) for end in (6, 8))

    assert len(kept([three], dict.fromkeys(range(50, 53), X))[0]) == 3
    assert kept([four], dict.fromkeys(range(50, 54), X)) == {0: (Block(0, 7, 50, 54, 4),)}


@st.composite
def compacted(draw: st.DrawFn) -> tuple[list[Shard], dict[int, tuple[int, int, int]]]:
    """Shards, and what is left of them: by place, the shard, offset and content."""
    contents = st.sampled_from([X, Y, OTHER, *range(20, 30)])
    shards = [
        dict(enumerate(draw(st.lists(contents, max_size=8))))
        for _ in range(draw(st.integers(1, 3)))
    ]
    queues = [[(n, o, c) for o, c in shard.items()] for n, shard in enumerate(shards)]
    order = draw(st.permutations([n for n, shard in enumerate(shards) for _ in shard]))
    log = {50 + at: queues[number].pop(0) for at, number in enumerate(order)}
    until = draw(st.integers(50, 80))
    last = {content: at for at, (_, _, content) in log.items() if at < until}
    return shards, {at: sent for at, sent in log.items() if at >= last.get(sent[2], 0)}


#: Both shards end with a record that may be either's, so its block begins before others' places.
EITHER = (
    [{0: X, 1: OTHER, 2: X}, {0: X, 1: X, 2: OTHER}],
    {52: (0, 1, OTHER), 53: (0, 2, X), 54: (1, 0, X), 55: (1, 1, X), 56: (1, 2, OTHER)},
)


@example(EITHER)
@given(compacted())
def test_match_compacted_skips_nothing(
    case: tuple[list[Shard], dict[int, tuple[int, int, int]]],
) -> None:
    """Of whatever compaction leaves, a consumer reads all that it hasn't read."""
    shards, log = case
    found = match_partition(
        {number: reading(shard) for number, shard in enumerate(shards)},
        lambda _: iter([[(content, 1, place, content) for place, (_, _, content) in log.items()]]),
        is_compacted=True,
    )
    assert found.lost == found.duplicates == 0

    for place, (number, offset, _) in log.items():
        blocks = found.mappings[number]
        for at in range(offset + 1):
            assert next(b for b in blocks if b.source_end > at).translate(at) <= place
