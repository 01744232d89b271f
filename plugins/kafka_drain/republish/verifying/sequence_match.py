"""One pass along a target partition: each record must be the next one of some shard.

Records that are equal (in content and timestamp) and next in several shards could belong to any of
them. The walk follows every possibility; each ends as soon as the shards differ. If there are too
many, each shard's order is proven separately, which never rejects a correct target. Opens nothing.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence

from kafka_drain.republish.verifying.match_types import Actual, Expected, Record, Token
from kafka_drain.republish.verifying.offset_map import Block, join_blocks
from kafka_drain.republish.verifying.records import ExpectedRecords, Records

#: Maximum number of possibilities followed for equal records.
MAX_STATES = 64

#: Maximum number of distinct unplanned records kept in the first pass.
MAX_UNEXPECTED = 1_000_000

#: Number of a shard's blocks that are kept before neighbors are joined.
MAX_BLOCKS = 1_000

#: Number of records after which records that no possibility needs any more are dropped.
_TRIM = 1_000

_NOBODY, _SEVERAL = -1, -2


class Walk:
    """One pass along the target, with each shard's next record at hand.

    There are three modes: one possibility, several, and each shard separately. A mode stays active
    until its batch ends or it switches to another mode. Before them, as long as a target has
    nothing but the records of its only shard, these are compared in whole batches.
    """

    def __init__(self, expected: Mapping[int, Expected], compare_timestamps: bool) -> None:
        self.matched = 0
        self.unexpected: Counter[Token] = Counter()
        self.is_by_shard = False
        self._compare = compare_timestamps
        self._has_too_many = False
        self._numbers = list(expected)
        sources = [source() for source in expected.values()]
        #: The only shard's records, while all of the target is like them.
        self._whole: ExpectedRecords | None = None
        if len(sources) == 1 and isinstance(sources[0], ExpectedRecords):
            self._whole, sources = sources[0], [()]
        self._sources = [iter(source) for source in sources]
        #: For each shard, records that were read ahead.
        self._queues: list[deque[Record]] = [deque() for _ in self._sources]
        self._heads: list[Record | None] = [next(source, None) for source in self._sources]
        #: By content hash, the shard whose next record has that content.
        self._holders: dict[int, int] = {}
        for shard in range(len(self._heads)):
            self._enter(shard)
        #: While several possibilities are followed: each shard's position in each of them, relative
        #: to the start of the queues at the fork (`_gone` of their records were dropped since).
        self._states: set[tuple[int, ...]] = set()
        self._gone = [0] * len(self._sources)
        self._reached = [0] * len(self._sources)
        #: For each shard, records that only some possibilities have found: offset, earliest place.
        self._waiting: list[deque[tuple[int, int]]] = [deque() for _ in self._sources]
        self._last = -1
        self._digest = hashlib.blake2b(digest_size=16)
        self._hashes = array("Q")
        #: For each shard: the start and the next offset of its stretch, source and target in turn.
        self._stretches = [[-1, -1, -1, -1] for _ in self._sources]
        self._blocks: list[list[Block]] = [[] for _ in self._sources]
        self._limits = [MAX_BLOCKS] * len(self._sources)
        self._way = self._follow

    @property
    def is_complete(self) -> bool:
        """Return whether each shard's records were found in order."""
        if self._whole is not None:
            return self._whole.following() is None
        if not self._states:
            return not any(self._heads)
        return any(
            all(self._peek(shard, at) is None for shard, at in enumerate(state))
            for state in self._states
        )

    @property
    def proves_all(self) -> bool:
        """Return whether each planned record was found at a distinct place."""
        return self.is_complete and not self.is_by_shard and not self._has_too_many

    @property
    def fingerprint(self) -> str:
        """Hex digest of everything that was found."""
        return self._digest.hexdigest()

    def run(self, actual: Actual) -> None:
        """Walk along the target."""
        # In the by-shard mode, the walk may be complete before all records were seen.
        for batch in actual(lambda: self.is_complete and not self.is_by_shard):
            if isinstance(batch, Records):
                batch = self._follow_whole(batch)
            else:
                self._take_singly()
            records = iter(batch)
            while self._way(records):
                pass
            self.matched += len(self._hashes)
            # Little endian, like all machines that pyarrow runs on.
            self._digest.update(self._hashes)
            del self._hashes[:]

    def mappings(self) -> dict[int, tuple[Block, ...]]:
        """Return the blocks of each shard's records."""
        for shard, waiting in enumerate(self._waiting):
            while waiting:
                self._settle(shard, self._last)
            self._end_stretch(shard)
        return {
            number: tuple(blocks)
            for number, blocks in zip(self._numbers, self._blocks, strict=True)
            if blocks
        }

    def _follow_whole(self, records: Records) -> Records:
        """Compare records with the only shard's next ones; return the rest from a difference on."""
        while self._whole is not None and records:
            planned = self._whole.following()
            number = min(len(records), len(planned or ()))
            found = records.part(0, number)
            if planned is None or not planned.part(0, number).is_like(found, self._compare):
                self._take_singly()
                break
            self._hashes.extend(found.hashes())
            self._lengthen(planned.offsets[:number], found.offsets)
            self._whole.skip(number)
            records = records.part(number, len(records))
        return records

    def _take_singly(self) -> None:
        """Follow the only shard's records one by one from now on."""
        if self._whole is not None:
            self._sources = [iter(self._whole)]
            self._heads = [next(self._sources[0], None)]
            self._whole = None
            self._enter(0)

    def _follow(self, records: Iterator[Record]) -> bool:
        """Follow a single possibility. The speed of verify depends on this loop."""
        compare = self._compare
        holders, heads, queues, sources = self._holders, self._heads, self._queues, self._sources
        stretches = self._stretches
        add = self._hashes.append
        # Unpack in the loop header: `zip` then reuses one tuple for all records, and the garbage
        # collector has nothing to scan.
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
        """Register the shard as the holder of its next record's content."""
        head = self._heads[shard]
        if head is not None and self._holders.setdefault(head[0], shard) != shard:
            self._holders[head[0]] = _SEVERAL

    def _let_go(self, h: int) -> None:
        """Find the remaining holders of a content after one of several shards advanced.

        The caller registers the shard that advanced.
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
        """Advance each possibility by a record; drop those that can't, unless none can."""
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
        self._last = record[2]
        # A shard's record has its earliest place when the first possibility finds it, and its
        # latest one when the last does.
        for shard, positions in enumerate(zip(*states, strict=True)):
            reached, waiting = self._reached[shard], self._waiting[shard]
            if max(positions) > reached:
                head = self._peek(shard, reached)
                waiting.append((head[2] if head else -1, record[2]))
                self._reached[shard] = reached = reached + 1
            while waiting and reached - len(waiting) < min(positions):
                self._settle(shard, record[2])
        return True

    def _settle(self, shard: int, latest: int) -> None:
        """Record where the first waiting record is.

        A translated consumer continues at its earliest place: it may read some records again, but
        skips none.
        """
        source, earliest = self._waiting[shard].popleft()
        if earliest == latest:
            self._begin_stretch(shard, source, earliest)
        else:
            self._end_stretch(shard)
            self._add_block(shard, Block(source, source + 1, earliest, latest + 1, 1))

    def _follow_several(self, records: Iterator[Record]) -> bool:
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
        """Choose the mode by the number of possibilities."""
        if 1 < len(self._states) <= MAX_STATES:
            self._way = self._follow_several
            return True
        if len(self._states) > MAX_STATES:
            # Continue from each shard's farthest position: along a correct target, no shard is ever
            # before its true position, so all of them reach their end.
            self._states = {tuple(self._reached)}
            self.is_by_shard = True
        self._trim()
        for shard, waiting in enumerate(self._waiting):
            while waiting and self.is_by_shard:
                # Its latest place will never be known.
                self._settle(shard, waiting[0][1])
            # Only possibilities that have been dropped have found the others.
            waiting.clear()
        self._states = set()
        self._holders.clear()
        for shard, queue in enumerate(self._queues):
            self._heads[shard] = queue.popleft() if queue else next(self._sources[shard], None)
            self._enter(shard)
        self._way = self._follow_by_shard if self.is_by_shard else self._follow
        return True

    # Each shard separately

    def _follow_by_shard(self, records: Iterator[Record]) -> bool:
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

    # Places of records

    def _begin_stretch(self, shard: int, source: int, target: int) -> None:
        """Record the place of a record, which may extend the current stretch."""
        stretch = self._stretches[shard]
        if source == stretch[2] and target == stretch[3]:
            stretch[2] += 1
            stretch[3] += 1
            return
        self._end_stretch(shard)
        self._stretches[shard][:] = source, target, source + 1, target + 1

    def _lengthen(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Record the places of the only shard's next records."""
        if _has_gaps(sources) or _has_gaps(targets):
            for source, target in zip(sources, targets, strict=True):
                self._begin_stretch(0, source, target)
            return
        self._begin_stretch(0, sources[0], targets[0])
        self._stretches[0][2:] = sources[-1] + 1, targets[-1] + 1

    def _end_stretch(self, shard: int) -> None:
        source, target, source_end, target_end = self._stretches[shard]
        if source < 0:
            return
        self._stretches[shard][:] = -1, -1, -1, -1
        block = Block(source, source_end, target, target_end, source_end - source)
        self._add_block(shard, block)

    def _add_block(self, shard: int, block: Block) -> None:
        blocks = self._blocks[shard]
        blocks.append(block)
        if len(blocks) > self._limits[shard]:
            blocks[:] = join_blocks(blocks)
            self._limits[shard] = len(blocks) + MAX_BLOCKS


def _has_gaps(offsets: Sequence[int]) -> bool:
    """Return whether offsets don't follow each other."""
    return [*offsets] != [*range(offsets[0], offsets[0] + len(offsets))]
