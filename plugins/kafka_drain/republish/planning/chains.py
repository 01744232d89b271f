"""Chains: shards that one writer sends in turn, with one progress for all. Opens nothing.

A plan of few shards has a chain for each of them. One of thousands would need thousands of
producers, groups and open files; chained, it needs as many as a target partition is given writers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace

from kafka_drain.republish.planning.shards import ProgressSlot, Shard

__all__ = ["MOST", "MOST_PER_PARTITION", "chain_numbers", "chains_of", "place"]

#: So many chains send to one target partition at most: verify reads all of them side by side, and
#: the progress of each is a group's of its own where the target has one partition.
MOST_PER_PARTITION = 16

#: Where keys decide, so many, as long as the target has as many partitions.
MOST_BY_KEY = 64

#: So many chains send to one target topic at most; each costs a producer.
MOST = 512


def chain_numbers(sources: Sequence[tuple[int | None, int]], partitions: int) -> list[int]:
    """Return the chain of each source partition, numbered from 0 as they come.

    Args:
        sources: Of each, the target partition that gets its records (None where keys decide), and
            how many there are.
        partitions: How many partitions the target has.
    """
    by_key = max(MOST_PER_PARTITION, min(MOST_BY_KEY, partitions))
    by_target: dict[int | None, list[int]] = {}
    for number, (target, _) in enumerate(sources):
        by_target.setdefault(target, []).append(number)
    chains = [
        [members[at] for at in chain]
        for target, members in by_target.items()
        for chain in _shared_out(
            [sources[at][1] for at in members], by_key if target is None else MOST_PER_PARTITION
        )
    ]
    sizes = [sum(sources[at][1] for at in chain) for chain in chains]
    found: dict[int, int] = {}
    for number, several in enumerate(_shared_out(sizes, MOST)):
        found |= {at: number for chain in several for at in chains[chain]}
    names: dict[int, int] = {}
    return [names.setdefault(found[at], len(names)) for at in range(len(sources))]


def _shared_out(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Share things out, the largest first, each to whoever has least; return their numbers."""
    if len(sizes) <= most:
        return [[number] for number in range(len(sizes))]
    shares: list[list[int]] = [[] for _ in range(most)]
    loads = [(0, share) for share in range(most)]
    heapify(loads)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        load, share = loads[0]
        shares[share].append(number)
        heapreplace(loads, (load + sizes[number], share))
    return [sorted(share) for share in shares if share]


def chains_of(shards: Iterable[Shard]) -> list[tuple[Shard, ...]]:
    """Return the chains: the shards that share a progress, in the order in which they are sent."""
    found: dict[ProgressSlot, list[Shard]] = {}
    for shard in shards:
        found.setdefault(shard.progress, []).append(shard)
    return [tuple(chain) for chain in found.values()]


def place(shards: Sequence[Shard], records: int) -> tuple[int, int]:
    """Return where a chain is that has sent so many records.

    Returns:
        The shard's place in the chain, and how many of its records were sent. Between two shards
        it is the beginning of the later one; the number of shards and 0 when all was sent.
    """
    for at, shard in enumerate(shards):
        if records < shard.records:
            return at, records
        records -= shard.records
    return len(shards), records
