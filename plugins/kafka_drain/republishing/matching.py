"""What a target partition holds against what the shards should have put there. Opens nothing.

The first pass walks along the target: each of its records has to be the next one of some shard.
Shards may interleave, other producers' records may lie in between. Where all is right that is the
only pass, in bounded memory; where other producers' records were seen, the shards are read once
more to tell them from records that are there twice. The rest is for damage: what is missing, what
is there too often and what is out of order is then counted exactly, in memory that grows with it.

Records that are alike (in content and timestamp) and next in several shards could be any of them.
The walk follows each possibility, which end as soon as the shards differ. Where they become too
many, each shard's order is proven by itself; that can't accuse a right target.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any, TypeAlias

from kafka_drain.republishing.offset_map import Block, join_blocks

__all__ = ["Actual", "Expected", "PartitionMatch", "Record", "match_partition"]

#: Content hash, timestamp in milliseconds, offset, hash of the key (asked for on compacted targets
#: only).
Record: TypeAlias = "tuple[int, int, int, int]"

#: Makes a shard's records anew, in order; their offsets are the source's.
Expected: TypeAlias = "Callable[[], Iterator[Record]]"

#: Reads the target partition anew, in batches; the offsets are the target's. A batch is asked for
#: after the ones before were matched. It gets a function that says whether all was found.
Actual: TypeAlias = "Callable[[Callable[[], bool]], Iterator[Iterable[Record]]]"

_Token: TypeAlias = "tuple[int, int]"

#: So many possibilities are followed where records are alike.
MAX_STATES = 64

#: So many different records that nobody planned are kept in the first pass.
MAX_UNEXPECTED = 1_000_000

#: So many blocks of a shard are kept as they are before neighbours are joined.
MAX_BLOCKS = 1_000

#: Records after which what no possibility needs any more is forgotten.
_TRIM = 1_000

_NOBODY, _SEVERAL = -1, -2


@dataclass(frozen=True)
class PartitionMatch:
    """What was found in one target partition.

    Attributes:
        expected: Records that the plan puts there.
        found: Those of them that are there.
        lost: Those that are not.
        twice: Records too many: alike planned ones, more often than planned.
        out_of_order: Records that came before one of their shard with a lower source offset. Only
            records whose content is there as often as planned are looked at.
        foreign: Records that nobody planned: other producers'.
        compacted: Planned records that Kafka's compaction took: the target has a later one with
            the same key.
        fingerprint: BLAKE2b-128 of the content hashes (eight bytes each, little endian) of the
            records that the walk found, in the target's order.
        mappings: By shard number, where its records are.
        notes: What people should know about it.
    """

    expected: int
    found: int
    lost: int
    twice: int
    out_of_order: int
    foreign: int
    compacted: int
    fingerprint: str
    mappings: Mapping[int, tuple[Block, ...]]
    notes: tuple[str, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether each planned record is there once, in its shard's order."""
        return self.lost == self.twice == self.out_of_order == 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types, for another process."""
        return asdict(self) | {
            "mappings": {str(number): list(blocks) for number, blocks in self.mappings.items()}
        }

    @classmethod
    def from_dict(cls, document: dict[str, Any]) -> PartitionMatch:
        """Read what `to_dict` wrote."""
        mappings = {
            int(number): tuple(Block(*block) for block in blocks)
            for number, blocks in document["mappings"].items()
        }
        return cls(**(document | {"mappings": mappings, "notes": tuple(document["notes"])}))


def match_partition(
    expected: Mapping[int, Expected],
    actual: Actual,
    *,
    compare_timestamps: bool = True,
    is_compacted: bool = False,
) -> PartitionMatch:
    """Match a target partition with the shards that send to it.

    Args:
        expected: What each shard sends there, by the shard's number. A timestamp of 0 stands for
            any: librdkafka replaces it by the time of sending.
        actual: What the partition holds.
        compare_timestamps: False where the delivery doesn't keep them; contents alone are compared.
        is_compacted: Whether Kafka may have removed records that have a later one with their key.
    """
    walk = _Walk(expected, compare_timestamps)
    walk.run(actual)
    if walk.proves_all:
        planned = _planned(expected, walk.unexpected, compare_timestamps)
        twice = _common(walk.unexpected, planned)
        return PartitionMatch(
            expected=walk.matched,
            found=walk.matched,
            lost=0,
            twice=twice,
            out_of_order=0,
            foreign=walk.unexpected.total() - twice,
            compacted=0,
            fingerprint=walk.fingerprint,
            mappings=walk.mappings(),
        )
    missing, surplus, records = _balance(expected, actual, compare_timestamps)
    twice = _common(surplus, _planned(expected, surplus, compare_timestamps))
    lost, compacted = missing.total(), 0
    notes = []
    if walk.is_by_shard:
        notes.append(
            "identical records of several source partitions: each one's order was proven alone"
        )
    if other_times := _with_other_times(missing, surplus):
        notes.append(f"{other_times:,} of the lost records are there with another timestamp")
    in_order = walk.is_complete
    if lost or twice:
        others = {h for h, _ in chain(missing, surplus)}
        expected_rest = {number: _without(source, others) for number, source in expected.items()}
        actual_rest = _batches_without(actual, others)
        rest = _Walk(expected_rest, compare_timestamps)
        rest.run(actual_rest)
        in_order = rest.is_complete
    else:
        expected_rest, actual_rest = dict(expected), actual
    out_of_order = 0
    if not in_order:
        out_of_order = max(1, _too_early(expected_rest, actual_rest, compare_timestamps))
    if lost and is_compacted:
        compacted = _compacted(expected, actual, missing, compare_timestamps)
        lost -= compacted
    return PartitionMatch(
        expected=records,
        found=records - lost - compacted,
        lost=lost,
        twice=twice,
        out_of_order=out_of_order,
        foreign=surplus.total() - twice,
        compacted=compacted,
        fingerprint=walk.fingerprint,
        mappings=walk.mappings(),
        notes=tuple(notes),
    )


class _Walk:
    """One pass along the target, with each shard's next record at hand.

    Three ways of going take turns: one possibility, several, and each shard by itself. A way goes
    on until its batch ends or another takes over.
    """

    def __init__(self, expected: Mapping[int, Expected], compare_timestamps: bool) -> None:
        self.matched = 0
        self.unexpected: Counter[_Token] = Counter()
        self.is_by_shard = False
        self._compare = compare_timestamps
        self._has_too_many = False
        self._numbers = list(expected)
        self._sources = [source() for source in expected.values()]
        #: Records that were read ahead, of each shard.
        self._queues: list[deque[Record]] = [deque() for _ in self._sources]
        self._heads: list[Record | None] = [next(source, None) for source in self._sources]
        #: Which shard's next record has a content.
        self._holders: dict[int, int] = {}
        for shard in range(len(self._heads)):
            self._enter(shard)
        #: While several possibilities are followed: how far each shard is in each of them, counted
        #: from where the queues began once (`_gone` of their records were forgotten since).
        self._states: set[tuple[int, ...]] = set()
        self._gone = [0] * len(self._sources)
        self._reached = [0] * len(self._sources)
        self._digest = hashlib.blake2b(digest_size=16)
        self._hashes = array("Q")
        #: Of each shard: where the stretch began and how it goes on, source and target in turn.
        self._stretches = [[-1, -1, -1, -1] for _ in self._sources]
        self._blocks: list[list[Block]] = [[] for _ in self._sources]
        self._limits = [MAX_BLOCKS] * len(self._sources)
        self._way = self._go_on

    @property
    def is_complete(self) -> bool:
        """Whether each shard's records were found in order."""
        if not self._states:
            return not any(self._heads)
        return any(
            all(self._peek(shard, at) is None for shard, at in enumerate(state))
            for state in self._states
        )

    @property
    def proves_all(self) -> bool:
        """Whether each planned record was found in a place of its own."""
        return self.is_complete and not self.is_by_shard and not self._has_too_many

    @property
    def fingerprint(self) -> str:
        """Hex of the chain over what was found."""
        return self._digest.hexdigest()

    def run(self, actual: Actual) -> None:
        """Walk along the target."""
        # Each shard by itself may be done before all records were seen.
        for batch in actual(lambda: self.is_complete and not self.is_by_shard):
            records = iter(batch)
            while self._way(records):
                pass
            self.matched += len(self._hashes)
            # Little endian, as all machines are that pyarrow runs on.
            self._digest.update(self._hashes)
            del self._hashes[:]

    def mappings(self) -> dict[int, tuple[Block, ...]]:
        """Return where each shard's records were found."""
        for shard in range(len(self._sources)):
            self._end_stretch(shard)
        return {
            number: tuple(blocks)
            for number, blocks in zip(self._numbers, self._blocks, strict=True)
            if blocks
        }

    def _go_on(self, records: Iterator[Record]) -> bool:
        """Follow the one possibility. This loop decides how fast verify is."""
        compare = self._compare
        holders, heads, queues, sources = self._holders, self._heads, self._queues, self._sources
        stretches = self._stretches
        add = self._hashes.append
        # Unpacked at once: `zip` then makes one tuple for all records, and nothing for the garbage
        # collector to look through.
        for h, timestamp, target, key in records:
            shard = holders.get(h, _NOBODY)
            if shard == _SEVERAL:
                record = h, timestamp, target, key
                candidates = [
                    i for i, head in enumerate(heads) if head and self._is_like(head, record)
                ]
                if len(candidates) > 1:
                    self._fork()
                    self._step(record)
                    return self._change()
                shard = candidates[0] if candidates else _NOBODY
            head = heads[shard] if shard >= 0 else None
            if head is None or (compare and head[1] != timestamp and head[1]):
                self._unexpected(h, timestamp)
                continue
            add(h)
            source = head[2]
            stretch = stretches[shard]
            if source == stretch[2] and target == stretch[3]:
                stretch[2] = source + 1
                stretch[3] = target + 1
            else:
                self._begin_stretch(shard, source, target)
            queue = queues[shard]
            heads[shard] = head = queue.popleft() if queue else next(sources[shard], None)
            if holders[h] == shard:
                del holders[h]
            else:
                self._let_go(h)
            if head is not None and holders.setdefault(head[0], shard) != shard:
                holders[head[0]] = _SEVERAL
        return False

    def _enter(self, shard: int) -> None:
        """Note whose next record it is."""
        head = self._heads[shard]
        if head is not None and self._holders.setdefault(head[0], shard) != shard:
            self._holders[head[0]] = _SEVERAL

    def _let_go(self, h: int) -> None:
        """Find out who still has a content, after one of several went on.

        The one that went on is entered anew by who calls.
        """
        left = [i for i, head in enumerate(self._heads) if head and head[0] == h]
        if not left:
            del self._holders[h]
        else:
            self._holders[h] = left[0] if len(left) == 1 else _SEVERAL

    def _is_like(self, head: Record, record: Record) -> bool:
        return head[0] == record[0] and (not self._compare or head[1] in (0, record[1]))

    def _unexpected(self, h: int, timestamp: int) -> None:
        if len(self.unexpected) < MAX_UNEXPECTED:
            self.unexpected[h, timestamp if self._compare else 0] += 1
        else:
            self._has_too_many = True

    # Several possibilities

    def _fork(self) -> None:
        for head, queue in zip(self._heads, self._queues, strict=True):
            if head is not None:
                queue.appendleft(head)
        self._gone = [0] * len(self._sources)
        self._reached = [0] * len(self._sources)
        self._states = {(0,) * len(self._sources)}

    def _peek(self, shard: int, at: int) -> Record | None:
        queue = self._queues[shard]
        at -= self._gone[shard]
        while len(queue) <= at:
            record = next(self._sources[shard], None)
            if record is None:
                return None
            queue.append(record)
        return queue[at]

    def _step(self, record: Record) -> bool:
        """Let each possibility take a record; those that can't end, unless none can."""
        states = set()
        for state in self._states:
            for shard, at in enumerate(state):
                head = self._peek(shard, at)
                if head is not None and self._is_like(head, record):
                    states.add((*state[:shard], at + 1, *state[shard + 1 :]))
        if not states:
            self._unexpected(record[0], record[1])
            return False
        self._states = states
        self._hashes.append(record[0])
        # A shard's record counts as where it is at the earliest: a translated consumer may read
        # some again, and skips none.
        for shard, reached in enumerate(self._reached):
            if any(state[shard] > reached for state in states):
                head = self._peek(shard, reached)
                self._begin_stretch(shard, head[2] if head else -1, record[2])
                self._reached[shard] += 1
        return True

    def _go_on_with_several(self, records: Iterator[Record]) -> bool:
        for seen, record in enumerate(records, 1):
            if self._step(record) and not 1 < len(self._states) <= MAX_STATES:
                return self._change()
            if seen % _TRIM == 0:
                self._trim()
        self._trim()
        return False

    def _trim(self) -> None:
        for shard, queue in enumerate(self._queues):
            while self._gone[shard] < min(state[shard] for state in self._states):
                queue.popleft()
                self._gone[shard] += 1

    def _change(self) -> bool:
        """Choose the way by how many possibilities there are."""
        if 1 < len(self._states) <= MAX_STATES:
            self._way = self._go_on_with_several
            return True
        if len(self._states) > MAX_STATES:
            # From the farthest place of each shard: where a right target is walked along, no shard
            # is ever behind its true place, so that each one ends.
            self._states = {tuple(self._reached)}
            self.is_by_shard = True
        self._trim()
        for shard, at in enumerate(next(iter(self._states))):
            queue = self._queues[shard]
            for ahead in range(self._reached[shard] - at):
                # Was given its place by a possibility that ended.
                h, timestamp, _, key = queue[ahead]
                queue[ahead] = (h, timestamp, -1, key)
        self._states = set()
        self._holders.clear()
        for shard, queue in enumerate(self._queues):
            self._heads[shard] = queue.popleft() if queue else next(self._sources[shard], None)
            self._enter(shard)
        self._way = self._go_on_by_shard if self.is_by_shard else self._go_on
        return True

    # Each shard by itself

    def _go_on_by_shard(self, records: Iterator[Record]) -> bool:
        for record in records:
            is_taken = False
            for shard, head in enumerate(self._heads):
                if head is not None and self._is_like(head, record):
                    is_taken = True
                    self._begin_stretch(shard, head[2], record[2])
                    queue = self._queues[shard]
                    self._heads[shard] = (
                        queue.popleft() if queue else next(self._sources[shard], None)
                    )
            if is_taken:
                self._hashes.append(record[0])
        return False

    # Where records are

    def _begin_stretch(self, shard: int, source: int, target: int) -> None:
        """Note where a record is; it may also belong to the stretch before."""
        if source < 0:
            return
        stretch = self._stretches[shard]
        if source == stretch[2] and target == stretch[3]:
            stretch[2] += 1
            stretch[3] += 1
            return
        self._end_stretch(shard)
        self._stretches[shard][:] = source, target, source + 1, target + 1

    def _end_stretch(self, shard: int) -> None:
        source, target, source_end, target_end = self._stretches[shard]
        if source < 0:
            return
        blocks = self._blocks[shard]
        blocks.append(Block(source, source_end, target, target_end, source_end - source))
        self._stretches[shard][:] = -1, -1, -1, -1
        if len(blocks) > self._limits[shard]:
            blocks[:] = join_blocks(blocks)
            self._limits[shard] = len(blocks) + MAX_BLOCKS


# Damage


def _token(record: Record, compare_timestamps: bool) -> _Token:
    return record[0], record[1] if compare_timestamps else 0


def _planned(
    expected: Mapping[int, Expected], tokens: Mapping[_Token, int], compare_timestamps: bool
) -> set[_Token]:
    """Return which planned records have the content of some others."""
    contents = {h for h, _ in tokens}
    if not contents:
        return set()
    return {
        _token(record, compare_timestamps)
        for source in expected.values()
        for record in source()
        if record[0] in contents
    }


def _common(tokens: Mapping[_Token, int], planned: set[_Token]) -> int:
    """Return how many of some records are alike planned ones."""
    return sum(n for (h, ts), n in tokens.items() if (h, ts) in planned or (h, 0) in planned)


def _balance(
    expected: Mapping[int, Expected], actual: Actual, compare_timestamps: bool
) -> tuple[Counter[_Token], Counter[_Token], int]:
    """Return what is missing, what is there beyond the plan, and how many records were planned.

    Both sides are read at one pace, so that little is held at a time.
    """
    planned = 0
    balance: dict[_Token, int] = {}

    def count(record: Record, by: int) -> None:
        token = _token(record, compare_timestamps)
        number = balance.get(token, 0) + by
        if number:
            balance[token] = number
        else:
            del balance[token]

    plan = _in_turns([source() for source in expected.values()])
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
    """Yield from each source in turn until all have ended."""
    while sources:
        going = []
        for source in sources:
            record = next(source, None)
            if record is not None:
                going.append(source)
                yield record
        sources = going


def _settle_any_time(missing: Counter[_Token], surplus: Counter[_Token]) -> None:
    """Let planned records with timestamp 0 have others of their content."""
    contents = {h for h, ts in missing if ts == 0}
    for token in [token for token in surplus if token[0] in contents]:
        any_time = (token[0], 0)
        both = min(missing[any_time], surplus[token])
        for counter, key in ((missing, any_time), (surplus, token)):
            counter[key] -= both
            if not counter[key]:
                del counter[key]


def _with_other_times(missing: Counter[_Token], surplus: Counter[_Token]) -> int:
    there: Counter[int] = Counter()
    for (h, _), number in surplus.items():
        there[h] += number
    lost: Counter[int] = Counter()
    for (h, _), number in missing.items():
        lost[h] += number
    return (lost & there).total()


def _without(source: Expected, contents: set[int]) -> Expected:
    return lambda: (record for record in source() if record[0] not in contents)


def _batches_without(actual: Actual, contents: set[int]) -> Actual:
    def read(is_complete: Callable[[], bool]) -> Iterator[Iterable[Record]]:
        for batch in actual(is_complete):
            yield [record for record in batch if record[0] not in contents]

    return read


def _too_early(expected: Mapping[int, Expected], actual: Actual, compare_timestamps: bool) -> int:
    """Count records that came before one of their shard with a lower source offset.

    Both sides hold the same records. A record that is no shard's next waits until it is.
    """
    sources = [source() for source in expected.values()]
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


def _compacted(
    expected: Mapping[int, Expected],
    actual: Actual,
    missing: Mapping[_Token, int],
    compare_timestamps: bool,
) -> int:
    """Count the missing records that have a later one with their key in the target.

    Later is: behind what precedes the missing record in its shard. Of records that are alike,
    the first ones count as the missing ones.
    """
    places: dict[int, int] = {}
    last: dict[int, int] = {}
    for h, _, offset, key in chain.from_iterable(actual(lambda: False)):
        places.setdefault(h, offset)
        last[key] = offset
    left = Counter(missing)
    compacted = 0
    for source in expected.values():
        reached = -1
        for record in source():
            token = _token(record, compare_timestamps)
            if left[token]:
                left[token] -= 1
                compacted += last.get(record[3], -1) > reached
            else:
                reached = max(reached, places.get(record[0], -1))
    return compacted
