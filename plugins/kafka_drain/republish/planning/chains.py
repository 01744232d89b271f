"""Chains: shards that one writer sends in sequence, with one shared progress. Opens nothing.

In a plan of few shards, each shard is its own chain. A plan of thousands would need thousands of
producers, groups and open files; with chains it needs only a bounded number of writers per target.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heapify, heapreplace

from kafka_drain.republish.planning.shards import ProgressSlot, Shard

#: Maximum number of chains per target partition: verify reads all of them side by side, and if the
#: target has only one partition, the progress of each chain needs its own group.
MAX_PER_PARTITION = 16

#: Maximum when keys choose the partition, provided the target has as many partitions.
MAX_BY_KEY = 64

#: Maximum number of chains per target topic; each one costs a producer.
MAX_CHAINS = 512

#: Of more sources than these: the number of records for which another writer pays, and the number
#: of chains up to which they are spread over writers all the same.
CHAIN_RECORDS, LEAST_CHAINS = 2_000, 32


def chain_numbers(sources: Sequence[tuple[int | None, int]], partitions: int) -> list[int]:
    """Return the chain number of each source partition; numbered from 0 in order of appearance.

    Args:
        sources: For each source partition, the target partition that gets its records (None when
            keys choose it) and the number of records.
        partitions: Number of partitions of the target.
    """
    by_key = max(MAX_PER_PARTITION, min(MAX_BY_KEY, partitions))
    by_target: dict[int | None, list[int]] = {}
    for number, (target, _) in enumerate(sources):
        by_target.setdefault(target, []).append(number)
    chains = [
        [members[at] for at in chain]
        for target, members in by_target.items()
        for chain in _shared_out(
            [sources[at][1] for at in members], by_key if target is None else MAX_PER_PARTITION
        )
    ]
    sizes = [sum(sources[at][1] for at in chain) for chain in chains]
    found: dict[int, int] = {}
    most = MAX_CHAINS
    if len(sources) > MAX_CHAINS:
        most = min(MAX_CHAINS, max(LEAST_CHAINS, sum(sizes) // CHAIN_RECORDS))
    for number, several in enumerate(_shared_out(sizes, most)):
        found |= {at: number for chain in several for at in chains[chain]}
    names: dict[int, int] = {}
    return [names.setdefault(found[at], len(names)) for at in range(len(sources))]


def _shared_out(sizes: Sequence[int], most: int) -> list[list[int]]:
    """Distribute items, largest first, each to the smallest share; return the indices by share."""
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
    """Return the chains: shards that share a progress, in the order in which they are sent."""
    found: dict[ProgressSlot, list[Shard]] = {}
    for shard in shards:
        found.setdefault(shard.progress, []).append(shard)
    return [tuple(chain) for chain in found.values()]


def place(shards: Sequence[Shard], records: int) -> tuple[int, int]:
    """Return the position of a chain that has sent a number of records.

    Returns:
        The index of the shard in the chain, and the number of its records that were sent. Between
        two shards, this is the start of the later one; when everything was sent, it is the number
        of shards and 0.
    """
    for at, shard in enumerate(shards):
        if records < shard.records:
            return at, records
        records -= shard.records
    return len(shards), records
