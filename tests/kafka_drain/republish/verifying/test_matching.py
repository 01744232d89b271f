"""Matching a target partition with its shards, against an oracle that tries everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafka_drain.offsets import TopicPartition
from kafka_drain.republish.verifying import sequence_match as walk
from kafka_drain.republish.verifying.match_types import Record
from kafka_drain.republish.verifying.matching import PartitionMatch, match_partition
from kafka_drain.republish.verifying.offset_map import PartitionMap

#: Content and timestamp.
Token = tuple[int, int]

FOREIGN = 100


class Case:
    """Shards and a target, as `match_partition` takes them; counts how often each is read.

    Source offsets go up by two, target offsets begin at 10.
    """

    def __init__(self, shards: list[list[Token]], target: list[Token], batch: int = 3) -> None:
        self.shards = shards
        self.target = target
        self.batch = batch
        self.reads: Counter[str] = Counter()
        self.complete: list[bool] = []

    def shard(self, number: int) -> Callable[[], Iterator[Record]]:
        def records() -> Iterator[Record]:
            self.reads["shard"] += 1
            return ((h, ts, 2 * at, h) for at, (h, ts) in enumerate(self.shards[number]))

        return records

    def actual(self, is_complete: Callable[[], bool]) -> Iterator[Iterable[Record]]:
        self.reads["target"] += 1
        records = [(h, ts, at, h) for at, (h, ts) in enumerate(self.target, 10)]
        for at in range(0, len(records), self.batch):
            self.complete.append(is_complete())
            yield records[at : at + self.batch]
        self.complete.append(is_complete())

    def match(self, **options: bool) -> PartitionMatch:
        expected = {number: self.shard(number) for number in range(len(self.shards))}
        return match_partition(expected, self.actual, **options)


def plain(*contents: int) -> list[Token]:
    """Records with a timestamp of their own: that of their content."""
    return [(content, content + 1) for content in contents]


def counts(found: PartitionMatch) -> tuple[int, int, int, int]:
    return found.lost, found.duplicates, found.out_of_order, found.unplanned


# The oracle


def oracle_differs(shards: list[list[Token]], target: list[Token]) -> tuple[Counter[Token], ...]:
    """Return what is missing and what is too much; planned timestamps of 0 have what is left."""
    planned = Counter(token for shard in shards for token in shard)
    present = Counter(target)
    missing, surplus = planned - present, present - planned
    for h, timestamp in list(missing):
        for token in [token for token in surplus if token[0] == h and timestamp == 0]:
            both = min(missing[h, 0], surplus[token])
            missing[h, 0] -= both
            surplus[token] -= both
    return +missing, +surplus


def oracle_counts(shards: list[list[Token]], target: list[Token]) -> tuple[int, int, int]:
    """Count lost, twice and foreign."""
    planned = {token for shard in shards for token in shard}
    missing, surplus = oracle_differs(shards, target)
    twice = sum(n for (h, ts), n in surplus.items() if (h, ts) in planned or (h, 0) in planned)
    return missing.total(), twice, surplus.total() - twice


def oracle_interleaves(shards: list[list[Token]], target: list[Token]) -> bool:
    """Whether a target is the shards' records, in order of each."""

    @cache
    def goes_on(state: tuple[int, ...]) -> bool:
        done = sum(state)
        if done == len(target):
            return True
        h, timestamp = target[done]
        return any(
            at < len(shard)
            and shard[at] in ((h, timestamp), (h, 0))
            and goes_on((*state[:number], at + 1, *state[number + 1 :]))
            for number, (shard, at) in enumerate(zip(shards, state, strict=True))
        )

    return sum(map(len, shards)) == len(target) and goes_on((0,) * len(shards))


# Generated cases

tokens = st.tuples(st.integers(0, 2), st.integers(0, 2))
some_shards = st.lists(st.lists(tokens, max_size=6), min_size=1, max_size=3)
damage = st.lists(
    st.tuples(
        st.sampled_from(["delete", "double", "swap", "foreign", "move"]),
        st.integers(0, 30),
        st.integers(0, 30),
    ),
    max_size=4,
)


@st.composite
def interleaved(draw: st.DrawFn) -> tuple[list[list[Token]], list[tuple[int, int]]]:
    """Shards, and for each place of the target the shard and the number of its record."""
    shards = draw(some_shards)
    owners = draw(st.permutations([i for i, shard in enumerate(shards) for _ in shard]))
    return shards, [(owner, owners[:at].count(owner)) for at, owner in enumerate(owners)]


def damaged(target: list[Token], steps: list[tuple[str, int, int]]) -> list[Token]:
    records = list(target)
    for what, here, there in steps:
        if what == "foreign":
            records.insert(here % (len(records) + 1), (FOREIGN + there % 2, there))
        elif records:
            at, other = here % len(records), there % len(records)
            if what == "delete":
                del records[at]
            elif what == "double":
                records.insert(other, records[at])
            elif what == "swap":
                records[at], records[other] = records[other], records[at]
            else:
                records.insert(other, records.pop(at))
    return records


def sent(shards: list[list[Token]], places: list[tuple[int, int]]) -> list[Token]:
    """What Kafka holds of shards: librdkafka replaces timestamp 0."""
    return [(h, ts or 7) for h, ts in (shards[shard][number] for shard, number in places)]


def check_mappings(found: PartitionMatch, places: list[tuple[int, int]]) -> None:
    """A translated consumer of a shard skips none of its records."""
    for shard, blocks in found.mappings.items():
        tp = TopicPartition("t", 0)
        mapped = PartitionMap(tp, "", tp, blocks)
        assert sum(block.records for block in blocks) == sum(s == shard for s, _ in places)
        for target, (owner, number) in enumerate(places, 10):
            if owner == shard:
                assert all(mapped.translate(o) <= target for o in range(2 * number + 1))


@pytest.mark.parametrize("max_states", [1, 3, 64])
@given(case=interleaved(), batch=st.integers(1, 5), foreign=damage)
def test_match_interleaved(
    case: tuple[list[list[Token]], list[tuple[int, int]]],
    batch: int,
    foreign: list[tuple[str, int, int]],
    max_states: int,
) -> None:
    """Shards that were sent as they are never look damaged, whatever is alike in them."""
    shards, places = case
    others = [step for step in foreign if step[0] == "foreign"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "MAX_STATES", max_states)

        found = Case(shards, damaged(sent(shards, places), others), batch).match()

        assert found.is_exact
        assert counts(found) == (0, 0, 0, len(others))
        assert found.expected == found.found == len(places)
        if not others:
            check_mappings(found, places)


@settings(max_examples=4 * settings.default.max_examples)
@given(case=interleaved(), batch=st.integers(1, 5), steps=damage)
@example(([plain(0, 1), plain(0, 2)], [(0, 0), (0, 1), (1, 1), (1, 0)]), 3, [])
def test_match_damaged(
    case: tuple[list[list[Token]], list[tuple[int, int]]],
    batch: int,
    steps: list[tuple[str, int, int]],
) -> None:
    """What is lost, twice, foreign or out of order is counted as the oracle does."""
    shards, places = case
    target = damaged(sent(shards, places), steps)

    found = Case(shards, target, batch).match()

    lost, twice, foreign = oracle_counts(shards, target)
    assert (found.lost, found.duplicates, found.unplanned) == (lost, twice, foreign)
    assert found.found == found.expected - lost == len(places) - lost
    missing, surplus = oracle_differs(shards, target)
    if lost or twice:
        others = {h for h, _ in (*missing, *surplus)}
        shards = [[token for token in shard if token[0] not in others] for shard in shards]
        target = [token for token in target if token[0] not in others]
    else:
        target = [token for token in target if token not in surplus]
    assert (found.out_of_order == 0) == oracle_interleaves(shards, target)


@pytest.mark.parametrize("max_unexpected", [1, 1_000])
@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    order=st.randoms(),
    steps=damage,
)
def test_match_unlike_records(
    lengths: list[int], order: Random, steps: list[tuple[str, int, int]], max_unexpected: int
) -> None:
    """Where no two records are alike, those out of order are the ones that came too early."""
    shards = [plain(*range(10 * i, 10 * i + length)) for i, length in enumerate(lengths)]
    owners = [i for i, length in enumerate(lengths) for _ in range(length)]
    order.shuffle(owners)
    left = [iter(shard) for shard in shards]
    target = damaged([next(left[owner]) for owner in owners], steps)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(walk, "MAX_UNEXPECTED", max_unexpected)

        found = Case(shards, target).match()

        once = [h for h, _ in target if [t[0] for t in target].count(h) == 1 and h < FOREIGN]
        early = sum(
            any(other // 10 == h // 10 and other < h for other in once[at:])
            for at, h in enumerate(once)
        )
        assert counts(found) == (
            *oracle_counts(shards, target)[:2],
            early,
            oracle_counts(shards, target)[2],
        )


# Single cases


def test_match_one_pass() -> None:
    """A right target is read once, and so are its shards."""
    case = Case([plain(1, 2, 3), plain(4, 5)], plain(1, 4, 2, 5, 3))

    found = case.match()

    assert found.is_exact
    assert (found.expected, found.found, found.compacted) == (5, 5, 0)
    assert case.reads == {"target": 1, "shard": 2}
    assert case.complete == [False, False, True]


def test_match_foreign_second_pass() -> None:
    """Other producers' records cost one more reading of the shards, none of the target."""
    case = Case([plain(1, 2)], plain(1, FOREIGN, 2))

    assert counts(case.match()) == (0, 0, 0, 1)
    assert case.reads == {"target": 1, "shard": 2}


def test_match_task_sent_again() -> None:
    """Records that a retried task sent again are twice, and nothing else."""
    case = Case([plain(*range(10))], plain(*range(6), *range(3, 10)))

    assert counts(case.match()) == (0, 3, 0, 0)


def test_match_one_came_early() -> None:
    """A record that came before ten others is one record out of order."""
    case = Case([plain(*range(11))], plain(10, *range(10)))

    assert counts(case.match()) == (0, 0, 1, 0)


def test_match_timestamps() -> None:
    """A record with another timestamp is lost, unless timestamps aren't compared or were 0."""
    planned, target = [(1, 0), (2, 5), (3, 6)], [(1, 9), (2, 4), (3, 6)]

    found = Case([planned], target).match()

    assert counts(found) == (1, 0, 0, 1)
    assert found.notes == ("1 of the lost records are there with a different timestamp",)
    assert Case([planned], target).match(compare_timestamps=False).is_exact


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ([(1, 5), (1, 6), (1, 7)], (0, 0, 0, 0)),
        # Alike but for their times: they are there, in another order.
        ([(1, 7), (1, 6), (1, 5)], (0, 0, 2, 0)),
        ([(1, 6), (1, 5), (1, 7)], (0, 0, 1, 0)),
        # One has another's time.
        ([(1, 5), (1, 6), (1, 6)], (1, 1, 0, 0)),
        # One has a time that none was planned with.
        ([(1, 5), (1, 6), (1, 8)], (1, 0, 0, 1)),
        ([(1, 5), (1, 6), (1, 7), (1, 8)], (0, 0, 0, 1)),
        ([(1, 5), (1, 6), (1, 7), (1, 7)], (0, 1, 0, 0)),
    ],
)
@pytest.mark.parametrize("compare_timestamps", [True, False])
def test_match_times(target: list[Token], found: tuple[int, ...], compare_timestamps: bool) -> None:
    """Other times are found, and times in another order; nothing of it where they aren't kept."""
    case = Case([[(1, 5), (1, 6), (1, 7)]], target)

    matched = case.match(compare_timestamps=compare_timestamps)

    if compare_timestamps:
        assert counts(matched) == found
    else:
        assert counts(matched) == (0, len(target) - 3, 0, 0)


def test_match_times_beside_damage() -> None:
    """Times in another order are found also where another record is lost."""
    case = Case([[(1, 5), (1, 6), (2, 5)]], [(1, 6), (1, 5)])

    assert counts(case.match()) == (1, 0, 1, 0)
    assert counts(case.match(compare_timestamps=False)) == (1, 0, 0, 0)


def test_match_alike_times() -> None:
    """Records of several shards that differ in time alone are told apart by it."""
    case = Case([[(1, 5), (2, 1)], [(1, 6), (3, 1)]], [(1, 6), (3, 1), (1, 5), (2, 1)])

    found = case.match()

    assert found.is_exact
    assert [block[2:] for block in found.mappings[0]] == [(12, 13, 1), (13, 14, 1)]


def test_match_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of records that are all alike end with each shard proven by itself."""
    shards = [[(1, 1)] * 2_000 for _ in range(3)]

    found = Case(shards, [(1, 1)] * 6_000, batch=1_000).match()

    assert found.is_exact
    assert len(found.notes) == 1
    assert Case(shards, [(1, 1)] * 5_999, batch=1_000).match().lost == 1
    assert Case(shards, [(1, 1)] * 6_001, batch=1_000).match().duplicates == 1


def test_match_long_doubt() -> None:
    """Two possibilities that live on for long cost no memory beyond what differs."""
    stretch = [(i, 1) for i in range(5_000)]
    shards = [[*stretch, (8_000, 1)], [*stretch, (9_000, 1)]]
    target = [token for token in stretch for _ in range(2)]

    assert Case(shards, [*target, (9_000, 1), (8_000, 1)], batch=100).match().is_exact


def test_match_fingerprint() -> None:
    """The fingerprint depends on the order, not on other producers' records or on batches."""
    prints = [
        Case([plain(1), plain(2)], target, batch).match().fingerprint
        for target, batch in (
            (plain(1, 2), 1),
            (plain(1, FOREIGN, 2), 3),
            (plain(2, 1), 1),
        )
    ]

    assert prints[0] == prints[1] != prints[2]
    assert len(prints[0]) == 32
    # Of a damaged target it is that of the records before the damage.
    lost = Case([plain(1, 2, 3)], plain(1, 3)).match().fingerprint
    assert lost == Case([plain(1)], plain(1)).match().fingerprint


def test_match_nothing() -> None:
    """A partition that nothing was planned for holds nothing but other producers' records."""
    found = Case([[]], plain(FOREIGN, FOREIGN)).match()

    assert counts(found) == (0, 0, 0, 2)
    assert found.mappings == {}


def test_match_blocks_joined() -> None:
    """Where no offsets are consecutive, blocks are joined to a thousand records at most."""
    found = Case([plain(*range(20_000))], plain(*range(20_000)), batch=1_000).match()

    blocks = found.mappings[0]
    assert len(blocks) < 1_100
    assert max(block.records for block in blocks) == 1_000
    assert sum(block.records for block in blocks) == 20_000


# Compacted targets


def keyed(*records: tuple[str, int]) -> Callable[[], Iterator[Record]]:
    return lambda: iter(
        [(100 * ord(key) + value, 1, at, ord(key)) for at, (key, value) in enumerate(records)]
    )


def compacted(planned: list[tuple[str, int]], there: list[int]) -> PartitionMatch:
    """Match a target that holds some of the planned records, by their numbers."""
    records = list(keyed(*planned)())
    return match_partition(
        {0: keyed(*planned)}, lambda _: iter([[records[at] for at in there]]), is_compacted=True
    )


def test_match_compacted() -> None:
    """A missing record whose key has a later one was compacted."""
    found = compacted([("a", 1), ("b", 1), ("a", 2), ("b", 2)], [2, 3])

    assert found.is_exact
    assert (found.expected, found.found, found.compacted) == (4, 2, 2)


def test_match_compacted_last_missing() -> None:
    """A missing record that is the last of its key is lost: compaction keeps that one."""
    found = compacted([("a", 1), ("b", 1), ("a", 2)], [0, 1])

    assert not found.is_exact
    assert (found.lost, found.compacted) == (1, 0)


def test_match_compacted_mapped() -> None:
    """What compaction has left is mapped, also behind what it took: consumers find their place."""
    planned = [("a", 1), ("b", 1), ("a", 2), ("c", 1), ("d", 1)]

    found = compacted(planned, [1, 2, 3, 4])

    assert found.is_exact
    [block] = found.mappings[0]
    assert (block.source_start, block.source_end) == (1, 5)
    assert (block.target_start, block.target_end) == (1, 5)
