"""Count missing, duplicated and out-of-order records in a target partition, exactly.

Used only for damage: takes more passes, and memory that grows with the damage. Opens nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from kafka_drain.republish.verifying.match_types import Actual, Expected, Record, Token, token_of


def planned_among(
    expected: Mapping[int, Expected], tokens: Mapping[Token, int], compare_timestamps: bool
) -> set[Token]:
    """Return the planned records that have the same content as some of `tokens`."""
    contents = {h for h, _ in tokens}
    if not contents:
        return set()
    return {
        token_of(record, compare_timestamps)
        for source in expected.values()
        for record in source()
        if record[0] in contents
    }


def count_planned(tokens: Mapping[Token, int], planned: set[Token]) -> int:
    """Return the number of records that are equal to planned ones."""
    return sum(n for (h, ts), n in tokens.items() if (h, ts) in planned or (h, 0) in planned)


def balance(
    expected: Mapping[int, Expected], actual: Actual, compare_timestamps: bool
) -> tuple[Counter[Token], Counter[Token], int]:
    """Return missing records, surplus records, and the number of planned records.

    Both sides are read at the same pace, so that little is held in memory at a time.
    """
    planned = 0
    balance: dict[Token, int] = {}

    def count(record: Record, by: int) -> None:
        token = token_of(record, compare_timestamps)
        number = balance.get(token, 0) + by
        if number:
            balance[token] = number
        else:
            del balance[token]

    plan = _in_turns([iter(source()) for source in expected.values()])
    for record in chain.from_iterable(actual(lambda: False)):
        count(record, -1)
        wanted = next(plan, None)
        if wanted is not None:
            planned += 1
            count(wanted, 1)
    for wanted in plan:
        planned += 1
        count(wanted, 1)
    missing = Counter({token: number for token, number in balance.items() if number > 0})
    surplus = Counter({token: -number for token, number in balance.items() if number < 0})
    if compare_timestamps:
        _settle_any_time(missing, surplus)
    return missing, surplus, planned


def _in_turns(sources: list[Iterator[Record]]) -> Iterator[Record]:
    """Yield from each source in turn until all are exhausted."""
    while sources:
        going = []
        for source in sources:
            record = next(source, None)
            if record is not None:
                going.append(source)
                yield record
        sources = going


def _settle_any_time(missing: Counter[Token], surplus: Counter[Token]) -> None:
    """Match planned records that have timestamp 0 with others of the same content."""
    contents = {h for h, ts in missing if ts == 0}
    for token in [token for token in surplus if token[0] in contents]:
        any_time = (token[0], 0)
        both = min(missing[any_time], surplus[token])
        for counter, key in ((missing, any_time), (surplus, token)):
            counter[key] -= both
            if not counter[key]:
                del counter[key]


def with_other_times(missing: Counter[Token], surplus: Counter[Token]) -> int:
    """Return the number of missing records that are there with another timestamp."""
    there: Counter[int] = Counter()
    for (h, _), number in surplus.items():
        there[h] += number
    lost: Counter[int] = Counter()
    for (h, _), number in missing.items():
        lost[h] += number
    return (lost & there).total()


def without(source: Expected, contents: set[int]) -> Expected:
    """Return the expected records without those of some contents."""
    return lambda: (record for record in source() if record[0] not in contents)


def batches_without(actual: Actual, contents: set[int]) -> Actual:
    """Return the actual records without those of some contents."""

    def read(is_complete: Callable[[], bool]) -> Iterator[Iterable[Record]]:
        for batch in actual(is_complete):
            yield [record for record in batch if record[0] not in contents]

    return read


def too_early(expected: Mapping[int, Expected], actual: Actual, compare_timestamps: bool) -> int:
    """Count records that came before one of their shard with a lower source offset.

    Both sides hold the same records. A record that isn't the next one of any shard waits until it
    is.
    """
    sources = [iter(source()) for source in expected.values()]
    heads = [next(source, None) for source in sources]
    waiting: dict[int, list[int]] = {}
    early = 0

    def is_like(head: Record | None, h: int, timestamp: int) -> bool:
        return (
            head is not None
            and head[0] == h
            and (not compare_timestamps or head[1] in (0, timestamp))
        )

    for h, timestamp, _, _ in chain.from_iterable(actual(lambda: False)):
        shard = next((i for i, head in enumerate(heads) if is_like(head, h, timestamp)), None)
        if shard is None:
            waiting.setdefault(h, []).append(timestamp)
            continue
        while True:
            heads[shard] = head = next(sources[shard], None)
            times = waiting.get(head[0], []) if head else []
            time = next((ts for ts in times if head and is_like(head, head[0], ts)), None)
            if head is None or time is None:
                break
            early += 1
            times.remove(time)
            if not times:
                del waiting[head[0]]
    return early


def compacted_of(
    expected: Mapping[int, Expected],
    actual: Actual,
    missing: Mapping[Token, int],
    compare_timestamps: bool,
) -> int:
    """Count the missing records that have a later one with their key in the target.

    "Later" means after the records that precede the missing one in its shard. Among equal records,
    the first ones count as missing, unless those in the target are located before the records that
    precede the last ones. Compaction never removes the last record of a key, so if a key ends with
    a record that isn't the last one that some shard has sent for it, a later one was lost.
    """
    places: dict[int, int] = {}
    last: dict[int, tuple[int, Token]] = {}
    there: dict[Token, list[int]] = {}
    for record in chain.from_iterable(actual(lambda: False)):
        h, _, offset, key = record
        token = token_of(record, compare_timestamps)
        places.setdefault(h, offset)
        last[key] = offset, token
        there.setdefault(token if token in missing else (h, 0), []).append(offset)
    there = {token: offsets for token, offsets in there.items() if token in missing}
    left = Counter(missing)
    by_key: Counter[int] = Counter()
    ends_planned: set[int] = set()
    ends_well: set[int] = set()
    for source in expected.values():
        ends: dict[int, bool] = {}
        reached = -1
        for record, place in _placed(source, places, there, missing, compare_timestamps):
            key, token = record[3], token_of(record, compare_timestamps)
            end, (h, timestamp) = last.get(key, (-1, (0, 0)))
            if place is None and left[token]:
                left[token] -= 1
                by_key[key] += end > reached
            elif place is not None and (len(expected) == 1 or token not in missing):
                # If several shards have equal records, those found may belong to any of them.
                reached = max(reached, place)
            ends[key] = end >= 0 and token in ((h, timestamp), (h, 0))
            if ends[key]:
                ends_planned.add(key)
        ends_well.update(key for key, is_last in ends.items() if is_last)
    torn = ends_planned - ends_well
    return by_key.total() - sum(by_key[key] > 0 for key in torn)


def _placed(
    source: Expected,
    places: Mapping[int, int],
    there: Mapping[Token, list[int]],
    missing: Mapping[Token, int],
    compare_timestamps: bool,
) -> Iterator[tuple[Record, int | None]]:
    """Yield a shard's records, each with its place in the target; None if it is missing.

    Args:
        source: The shard.
        places: The first place of each content.
        there: For records of which some are missing, the places of the others, ascending. Those
            that this shard takes are removed.
        missing: Records of which some are missing.
        compare_timestamps: Whether timestamps are compared.
    """
    # For equal records some of which are there, the earliest possible place of each.
    earliest: dict[Token, list[int]] = {}
    reached = -1
    for record in source():
        token = token_of(record, compare_timestamps)
        if token in there:
            earliest.setdefault(token, []).append(reached)
        elif token not in missing:
            reached = max(reached, places.get(record[0], -1))
    taken: dict[Token, list[int | None]] = {}
    for token, bounds in earliest.items():
        # Start with the last one: compaction removes the first ones.
        taken[token] = [
            there[token].pop() if there[token] and there[token][-1] > bound else None
            for bound in reversed(bounds)
        ]
    for record in source():
        token = token_of(record, compare_timestamps)
        if token in taken:
            yield record, taken[token].pop()
        else:
            yield record, None if token in missing else places.get(record[0], -1)
