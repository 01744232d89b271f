"""Tests of chains: which shards one writer sends in turn."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.planning.chains import (
    CHAIN_RECORDS,
    LEAST_CHAINS,
    MAX_BY_KEY,
    MAX_CHAINS,
    MAX_PER_PARTITION,
    chain_numbers,
    chains_of,
    place,
)
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ProgressSlot, Shard, ShardFile
from kafka_drain.republish.verifying.offset_map import offset_in_chain, place_and_offset


def shard(number: int, records: int, slot: int) -> Shard:
    """A shard of so many records, whose progress is kept in a slot."""
    file = ShardFile(f"{number}", "parquet", 1, "", 0, max(0, records - 1), records, True)
    return Shard(
        number=number,
        source=TopicPartition("t", number),
        topic_id="id",
        target_topic="x",
        target_partition=0,
        rows=Rows(),
        files=(file,),
        progress=ProgressSlot("g", TopicPartition("x", slot)),
    )


@settings(deadline=None)
@given(
    sources=st.lists(
        st.tuples(st.one_of(st.none(), st.integers(0, 40)), st.integers(0, 1_000)), max_size=900
    ),
    partitions=st.integers(1, 100),
)
def test_chain_numbers_property(sources: list[tuple[int | None, int]], partitions: int) -> None:
    """Each source has one chain, numbers come in order, and no partition has too many chains."""
    numbers = chain_numbers(sources, partitions)

    assert len(numbers) == len(sources)
    assert list(dict.fromkeys(numbers)) == list(range(len(set(numbers))))
    assert len(set(numbers)) <= MAX_CHAINS
    by_target: dict[int | None, set[int]] = {}
    for (target, _), number in zip(sources, numbers, strict=True):
        by_target.setdefault(target, set()).add(number)
    by_key = max(MAX_PER_PARTITION, min(MAX_BY_KEY, partitions))
    for target, chains in by_target.items():
        assert len(chains) <= (by_key if target is None else MAX_PER_PARTITION)


@pytest.mark.parametrize(
    ("records", "chains"),
    [
        (CHAIN_RECORDS * LEAST_CHAINS, LEAST_CHAINS),
        (CHAIN_RECORDS * (LEAST_CHAINS + 1), LEAST_CHAINS + 1),
        (CHAIN_RECORDS * MAX_CHAINS * 2, MAX_CHAINS),
    ],
)
def test_chain_numbers_by_records(records: int, chains: int) -> None:
    """The more records thousands of sources have, the more writers send them."""
    sources = [(number, records // 1_000) for number in range(1_000)]

    assert len(set(chain_numbers(sources, 1_000))) == chains


@pytest.mark.parametrize(
    ("targets", "partitions", "chains"),
    [
        ([0] * MAX_PER_PARTITION, 1, MAX_PER_PARTITION),
        ([0] * (MAX_PER_PARTITION + 1), 1, MAX_PER_PARTITION),
        ([0] * 10_000, 1, MAX_PER_PARTITION),
        ([None] * 100, 1, MAX_PER_PARTITION),
        ([None] * 100, 32, 32),
        ([None] * 100, 1_000, MAX_BY_KEY),
        (list(range(MAX_CHAINS)), MAX_CHAINS, MAX_CHAINS),
        # Thousands with few records each: a writer costs more than it sends.
        (list(range(10_000)), 10_000, LEAST_CHAINS),
        (list(range(MAX_CHAINS + 1)), 10_000, LEAST_CHAINS),
        ([], 1, 0),
    ],
)
def test_chain_numbers(targets: list[int | None], partitions: int, chains: int) -> None:
    """Few sources have a chain each; thousands share as many as there may be writers."""
    numbers = chain_numbers([(target, 5) for target in targets], partitions)

    assert len(set(numbers)) == chains
    if chains == len(targets):
        assert numbers == list(range(chains))
    shares = Counter(numbers).values()
    assert max(shares, default=0) - min(shares, default=0) <= 1


def test_chain_numbers_loads() -> None:
    """A chain of one large source gets none of the small ones."""
    numbers = chain_numbers([(0, 1_000_000), *[(0, 10)] * 100], 1)

    assert numbers.count(numbers[0]) == 1


def test_chains_of() -> None:
    """Shards with one slot are a chain, in the plan's order."""
    shards = [shard(0, 5, 0), shard(1, 5, 1), shard(2, 5, 0)]

    assert [[s.number for s in chain] for chain in chains_of(shards)] == [[0, 2], [1]]


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=5))
def test_place_property(sizes: list[int]) -> None:
    """Going through a chain record by record, each shard has each of its places once, in order."""
    shards = [shard(number, size, 0) for number, size in enumerate(sizes)]

    places = [place(shards, sent) for sent in range(sum(sizes) + 1)]

    assert places[:-1] == [(at, done) for at, size in enumerate(sizes) for done in range(size)]
    assert places[-1] == (len(sizes), 0)


@given(places=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 2**63 - 1)), min_size=2))
def test_offset_in_chain_property(places: list[tuple[int, int]]) -> None:
    """Offsets in a chain go up from shard to shard, and can be taken apart again."""
    offsets = [offset_in_chain(*one) for one in sorted(places)]

    assert all(a <= b for a, b in pairwise(offsets))
    assert [place_and_offset(offset) for offset in offsets] == sorted(places)
