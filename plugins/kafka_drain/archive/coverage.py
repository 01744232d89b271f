"""The offsets that an archive holds, and the receipts that prove them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from kafka_drain.archive.fold import Partition
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.incarnations import LogEnds, drained_before, log_ends, offsets_in_log
from kafka_drain.archive.receipts import Receipt, SealedPartition
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.offsets import OffsetRange, Offsets, Ranges, TopicPartition


@dataclass(frozen=True)
class Owned:
    """Ownership of the offsets of some topic-partitions.

    Attributes:
        ranges: Owned offsets, sorted and disjoint; up to `horizon`, offsets that the open
            generation has yet to drain belong to it.
        sealed: End offsets of the open generation's receipts.
        generations: Generations with offsets of the log, without those that are left out.
        windows: The receipts of sealed windows with offsets of the log, likewise.
        log_ends: Up to where the log has what was archived of each incarnation of a topic.
    """

    ranges: dict[TopicPartition, list[OffsetRange]]
    sealed: dict[TopicPartition, int]
    generations: list[SnapshotGeneration] = field(default_factory=list)
    windows: Sequence[Receipt] = ()
    log_ends: LogEnds = field(default_factory=dict)

    def receipts_of(self, wanted: Ranges) -> list[str]:
        """Return the receipts that prove some offsets, as paths relative to the archive."""
        names: list[str] = []
        for generation in self.generations:
            newest = generation.last_receipt()
            if newest is not None:
                names += _span(generation, self._of(newest, wanted))
        return names + [
            receipt.where for receipt in self.windows if receipt.covers(self._of(receipt, wanted))
        ]

    def _of(self, receipt: Receipt, wanted: Ranges) -> dict[TopicPartition, list[OffsetRange]]:
        """Return those of some offsets of the log that a generation or window can contain."""
        topics = receipt.topics
        return offsets_in_log(
            {(tp, topics.get(tp.topic, "")): ranges for tp, ranges in wanted.items()},
            self.log_ends,
        )

    def receipts_at(self, tp: TopicPartition, offset: int) -> list[tuple[Receipt, SealedPartition]]:
        """Return the receipts of the segments containing an offset, with the partition's part."""
        receipts = list(self.windows)
        for generation in self.generations:
            names = generation.receipt_names()
            number = _bisect(generation, names, lambda receipt: receipt.ends.get(tp, 0) > offset)
            receipts += [generation.read_receipt(name) for name in names[number : number + 1]]
        return [
            (receipt, part)
            for receipt in receipts
            for part in receipt.partitions
            if part.tp == tp
            and offset in part.range
            and offset < self.log_ends.get((tp, receipt.topics.get(tp.topic, "")), 0)
        ]

    def receipts_between(self, from_ms: int, to_ms: int) -> list[str]:
        """Return the receipts of segments with records in a time range; reads all receipts."""
        sealed = [
            (generation.receipt_where(name), generation.read_receipt(name))
            for generation in self.generations
            for name in generation.receipt_names()
        ]
        sealed += [(receipt.where, receipt) for receipt in self.windows]
        return [where for where, receipt in sealed if receipt.covers_time(from_ms, to_ms)]


def read_owned(snapshot: Snapshot, topic_ids: Mapping[str, str], horizon: Offsets) -> Owned:
    """Determine the offsets that the archive owns.

    Of what is left out, the index says which offsets it covers.

    Args:
        snapshot: The archive, with all that covers offsets whose receipts are asked for.
        topic_ids: Ids by which the archive counts the topics now; with that of another topic, the
            same offsets mean other records.
        horizon: For each partition, the offset up to which ownership is determined.

    Raises:
        ReceiptError: When a receipt is damaged.
    """
    covered = [snapshot.fold.held]
    if snapshot.skipped is not None:
        covered.append(snapshot.skipped.index.covered)
    log = log_ends(snapshot, topic_ids, horizon.keys() | {tp for each in covered for tp, _ in each})
    held: dict[Partition, list[OffsetRange]] = {}
    sealed: dict[TopicPartition, int] = {}
    counting: list[SnapshotGeneration] = []
    for generation in snapshot.generations:
        ids = snapshot.topic_ids(generation)
        here = {tp: (tp, ids.get(tp.topic, "")) for tp in horizon}
        if generation is snapshot.open_generation:
            # The next drain takes a topic that it doesn't count yet, from its beginning on.
            counted = generation.document.topics or ids
            here |= {
                tp: (tp, topic_ids.get(tp.topic, ""))
                for tp, key in here.items()
                if key not in log and tp.topic not in counted
            }
        here = {tp: key for tp, key in here.items() if key in log}
        if not here:
            continue
        counting.append(generation)
        receipt = generation.last_receipt()
        ends = receipt.ends if receipt else {}
        starts = generation.starting_offsets
        is_open = generation is snapshot.open_generation
        asked = [tp for tp in here if is_open and tp not in starts and tp not in ends]
        before = drained_before(snapshot, generation, asked, topic_ids)
        for tp, key in here.items():
            # A partition that was added to the topic later is drained from 0; one that was left out
            # and is named again goes on where it ended.
            start = starts.get(tp, before.get(tp, 0))
            end = horizon[tp] if is_open else ends.get(tp, start)
            held.setdefault(key, []).append(OffsetRange(start, max(start, end)))
            if is_open:
                sealed[tp] = ends.get(tp, start)
    for key, ranges in chain.from_iterable(each.items() for each in covered):
        held.setdefault(key, []).extend(ranges)
    windows = [
        receipt
        for receipt in snapshot.fold.receipts
        if any(
            part.range.start < log.get((part.tp, receipt.topics.get(part.tp.topic, "")), 0)
            for part in receipt.partitions
        )
    ]
    owned = {tp: list[OffsetRange]() for tp in horizon} | offsets_in_log(held, log)
    return Owned(owned, sealed, counting, windows, log)


def _span(generation: Generation, wanted: Ranges) -> list[str]:
    """Return a generation's first and last receipt that hold some of the offsets.

    Receipts are in the order of offsets, so a binary search reads only a few of thousands.
    """
    names = generation.receipt_names()

    def ends_after(receipt: Receipt) -> bool:
        return any(
            part.range.end > rs[0].start
            for part in receipt.partitions
            if (rs := wanted.get(part.tp))
        )

    def starts_after(receipt: Receipt) -> bool:
        return all(
            part.range.start >= rs[-1].end
            for part in receipt.partitions
            if (rs := wanted.get(part.tp))
        )

    first = _bisect(generation, names, ends_after)
    end = _bisect(generation, names, starts_after)
    found = names[first:end]
    ends = found if len(found) <= 2 else [found[0], found[-1]]
    return [generation.receipt_where(name) for name in ends]


def _bisect(
    generation: Generation, names: Sequence[str], is_there: Callable[[Receipt], bool]
) -> int:
    """Return the index of the first receipt that satisfies a monotonic condition."""
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if is_there(generation.read_receipt(names[middle])):
            high = middle
        else:
            low = middle + 1
    return low
