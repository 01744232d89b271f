"""Find the places of records that compaction has kept although it has removed equal ones.

Opens nothing. The walk along a compacted target leaves out all records that equal a missing one.
Those of them that are still there need a place in the offset map: a consumer would skip them
otherwise.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, chain, groupby
from typing import NamedTuple

from kafka_drain.republish.verifying.match_types import Actual, Expected
from kafka_drain.republish.verifying.offset_map import Block, join_blocks

#: Number of a shard's blocks that are kept before neighbors are joined.
MAX_BLOCKS = 1_000


class _Kept(NamedTuple):
    """A record that may still be there.

    Attributes:
        before: Number of the shard's blocks before it.
        offset: Its offset in the source.
        first: Its lowest possible place.
        last: Its highest possible place.
        is_sure: Whether it is there.
    """

    before: int
    offset: int
    first: int
    last: int
    is_sure: bool


def with_kept_twins(
    mappings: Mapping[int, tuple[Block, ...]],
    expected: Mapping[int, Expected],
    actual: Actual,
    contents: Collection[int],
) -> dict[int, tuple[Block, ...]]:
    """Add to each shard's blocks the records of some contents that are still there.

    Args:
        mappings: Offsets of the other records, by shard number.
        expected: The records that each shard sends.
        actual: The records in the target.
        contents: The contents that were left out.
    """
    there: dict[int, list[int]] = {}
    for h, _, place, _ in chain.from_iterable(actual(lambda: False)):
        if h in contents:
            there.setdefault(h, []).append(place)
    planned = {
        number: Counter(h for h, _, _, _ in source() if h in there)
        for number, source in expected.items()
    }
    everyone = sum(planned.values(), Counter[int]())
    found = {}
    for number, source in expected.items():
        blocks = list(mappings.get(number, ()))
        left = planned[number].copy()
        kept: list[_Kept] = []
        for h, _, offset, _ in source():
            if h not in left:
                continue
            places = there[h]
            if planned[number][h] == everyone[h] >= len(places):
                # Of records with the same key, compaction removes the first ones.
                sure = places[-left[h]] if left[h] <= len(places) else None
                possible: Sequence[int] = [] if sure is None else [sure]
            else:
                sure, possible = None, places
            left[h] -= 1
            at = bisect_right(blocks, offset, key=lambda block: block.source_end)
            possible = _between(possible, blocks, at)
            if possible and at < len(blocks) and blocks[at].source_start < offset:
                # Within joined records, one more of them is joined; which ones stays unknown.
                joined = blocks[at]._replace(records=blocks[at].records + 1)
                blocks[at] = blocks[at] if joined.is_exact else joined
            elif possible:
                kept.append(_Kept(at, offset, possible[0], possible[-1], sure is not None))
        with_them = list(_added(blocks, kept))
        found[number] = tuple(with_them if len(with_them) <= MAX_BLOCKS else join_blocks(with_them))
    return {number: blocks for number, blocks in found.items() if blocks}


def _between(places: Sequence[int], blocks: Sequence[Block], at: int) -> Sequence[int]:
    """Return the places that are possible for a record between two blocks, or within the second.

    Args:
        places: Places, ascending.
        blocks: The shard's blocks.
        at: Number of blocks that end before the record.
    """
    lower, upper = 0, len(places)
    if at > 0:
        before = blocks[at - 1]
        lower = bisect_left(
            places, before.target_end if before.is_exact else before.target_start + 1
        )
    if at < len(blocks):
        after = blocks[at]
        upper = bisect_left(places, after.target_start if after.is_exact else after.target_end)
    return places[lower:upper]


def _added(blocks: Sequence[Block], kept: Iterable[_Kept]) -> Iterable[Block]:
    """Yield the blocks, with those of the records that may still be there between them."""
    following = 0
    for before, some in groupby(kept, key=lambda each: each.before):
        yield from blocks[following:before]
        following = before
        kept_here = list(some)
        # A block that isn't exact may begin before them.
        limit = blocks[before].target_start if before < len(blocks) else kept_here[-1].first
        yield from _blocks_of(kept_here, limit)
    yield from blocks[following:]


def _blocks_of(kept: Sequence[_Kept], limit: int) -> Iterable[Block]:
    """Yield blocks of records between the same two blocks; their places ascend up to a limit."""
    # A lower place of a later record: the earlier one may be gone.
    firsts = [*accumulate((each.first for each in reversed(kept)), min, initial=limit)][:0:-1]
    lasts = accumulate((each.last for each in kept), max)
    stretch: Block | None = None
    for each, first, last in zip(kept, firsts, lasts, strict=True):
        # A block of one record at one place is exact. This one may be gone: it mustn't be.
        start = first if each.is_sure or first < last else max(0, first - 1)
        block = Block(each.offset, each.offset + 1, start, last + 1, 1)
        if stretch is None:
            stretch = block
        elif (
            stretch.is_exact
            and block.is_exact
            and (stretch.source_end, stretch.target_end) == (block.source_start, start)
        ):
            stretch = stretch._replace(
                source_end=block.source_end,
                target_end=block.target_end,
                records=stretch.records + 1,
            )
        else:
            yield stretch
            stretch = block
    if stretch is not None:
        yield stretch
