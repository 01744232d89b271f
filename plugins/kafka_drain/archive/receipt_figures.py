"""Check that the figures of a receipt agree with each other. Plain arithmetic; opens nothing.

No file is read for it: a writer with a bug, or somebody who edits a receipt and seals it again,
shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from kafka_drain.archive.receipts import (
    FileSet,
    Receipt,
    SealedContent,
    SealedPartition,
    SoFar,
    records_of,
)
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.errors import ConfigError
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge, subtract, within

#: How figures of a partition follow from those of its files.
_BOUNDS: Mapping[str, Callable[..., int | None]] = {
    "first_offset": min,
    "last_offset": max,
    "first_timestamp": min,
    "last_timestamp": max,
}
#: Reasons with which nothing is sealed.
_NEVER_SEALED = (GapReason.OPEN, GapReason.LOST, GapReason.UNKNOWN)
#: Reasons with which only what somebody has accepted is sealed.
_ACCEPTED = (GapReason.EXPIRED, GapReason.UNEXPLAINED)


def contradiction(receipt: Receipt, before: Receipt | None = None) -> str:
    """Return the first contradiction between a receipt's figures; empty for none.

    Args:
        before: The receipt that it follows in its generation; None if that isn't known.
    """
    return next(_contradictions(receipt, before), "")


def _contradictions(receipt: Receipt, before: Receipt | None) -> Iterator[str]:
    if before and (before.pipeline, before.cluster_id) != (receipt.pipeline, receipt.cluster_id):
        yield "is of another pipeline or cluster than the receipt before it"
    for topic, topic_id in before.topics.items() if before else ():
        if receipt.topics.get(topic, topic_id) != topic_id:
            yield f"has another id of topic {topic} than the receipt before it"
    parts: dict[TopicPartition, list[SealedPartition]] = {}
    for part in receipt.partitions:
        parts.setdefault(part.tp, []).append(part)
    held = records_of(receipt.files)
    for tp in sorted(held.keys() | parts.keys()):
        if tp.topic not in receipt.topics:
            yield f"has {tp}, but no topic id of {tp.topic}"
        yield from _of_partition(tp, parts.get(tp, []), held.get(tp, 0))
    contents: dict[TopicPartition, list[SealedContent]] = {}
    for content in (each for file in receipt.files for each in file.contents):
        contents.setdefault(content.tp, []).append(content)
    for tp, own in parts.items():
        # Of several ranges, only the files say which has what.
        if len(own) == 1:
            yield from _of_bounds(own[0], contents.get(tp, ()))
    yield from _of_files(receipt, parts)
    # A compaction keeps the gaps of the receipts that it rewrote, which have what was accepted.
    if not receipt.provenance:
        yield from _not_accepted(receipt)
    if receipt.generation is None:
        yield from _of_window(receipt)
    else:
        yield from _of_totals(receipt, before)


def _of_partition(tp: TopicPartition, parts: Sequence[SealedPartition], held: int) -> Iterator[str]:
    """Compare the rows of a partition, and the number of records that the files have of it."""
    for part in parts:
        for reason in _NEVER_SEALED:
            if part.gaps.get(reason):
                yield f"seals {tp} with offsets that are {reason}"
    drained = merge(part.range for part in parts)
    if len(drained) != sum(len(part.range) > 0 for part in parts):
        # Records of a file that reaches into two rows may count for both.
        return
    for part in parts:
        own = (each for ranges in part.gaps.values() for each in ranges)
        gaps = [piece for each in own for piece in within([each], part.range)]
        missing = count(gaps)
        if count(merge(gaps)) != missing:
            yield f"gives two reasons for one offset of {tp}"
        if part.records + missing != len(part.range):
            yield (
                f"has {part.records:,} records and {missing:,} missing offsets of {tp} "
                f"{part.range}, which are {len(part.range):,} offsets"
            )
    records = sum(part.records for part in parts)
    if held != records:
        yield f"has {records:,} records of {tp}, but its files have {held:,}"


def _of_bounds(part: SealedPartition, contents: Sequence[SealedContent]) -> Iterator[str]:
    """Compare the lowest and highest figures of a partition with those of its files."""
    for name, pick in _BOUNDS.items():
        found = [at for each in contents if (at := getattr(each, name)) is not None]
        held = pick(found, default=None)
        if getattr(part, name) != held:
            yield f"has {name} {getattr(part, name)} of {part.tp}, but its files have {held}"


def _of_window(receipt: Receipt) -> Iterator[str]:
    """Compare a window's figures with those of its rows and files: it follows no other receipt."""
    if (receipt.first_batch, receipt.last_batch, receipt.previous) != (0, 0, None):
        yield "is a window's, but names batches or a receipt before it"
    for part in receipt.partitions:
        gaps = {reason: count(ranges) for reason, ranges in part.gaps.items()}
        if part.so_far != SoFar(part.start, part.records, gaps):
            yield f"has other totals of {part.tp} than its own"
    if receipt.files_so_far != FileSet().plus((file.path, file.bytes) for file in receipt.files):
        yield "has another total of files than its own"


def _of_files(
    receipt: Receipt, parts: Mapping[TopicPartition, Sequence[SealedPartition]]
) -> Iterator[str]:
    folder = receipt.where.rpartition("/receipt")[0]
    drained = {tp: merge(part.range for part in own) for tp, own in parts.items()}
    gaps = {
        tp: merge(each for part in own for ranges in part.gaps.values() for each in ranges)
        for tp, own in parts.items()
    }
    seen = set()
    for file in receipt.files:
        if file.path in seen:
            yield f"has {file.path} twice"
        seen.add(file.path)
        if not file.path.startswith(f"{folder}/data/"):
            yield f"has {file.path}, which isn't in {folder}/data"
        for content in file.contents:
            here = f"{content.tp} {content.first:,} to {content.last:,} in {file.path}"
            if not 0 <= content.first <= content.last:
                yield f"has {here}"
                continue
            if not 0 < content.records <= content.last - content.first + 1:
                yield f"has {content.records:,} records of {here}"
            for at in (content.first, content.last):
                if subtract(OffsetRange(at, at + 1), drained.get(content.tp, [])):
                    yield f"has {here}, which it didn't drain"
                elif within(gaps[content.tp], OffsetRange(at, at + 1)):
                    yield f"has {here}, and no record of {at:,}"


def _not_accepted(receipt: Receipt) -> Iterator[str]:
    try:
        accepted = parse_ranges("acknowledged", receipt.acknowledged, "")
    except ConfigError as error:
        yield str(error)
        return
    for part in receipt.partitions:
        for reason in _ACCEPTED:
            for gap in part.gaps.get(reason, ()):
                if subtract(gap, accepted.get(part.tp, [])):
                    yield f"has {part.tp} {gap} as {reason}, which nobody accepted"


def _of_totals(receipt: Receipt, before: Receipt | None) -> Iterator[str]:
    """Compare the totals of a generation with those of the receipt before."""
    if receipt.window:
        yield f"is a generation's, but names the window {receipt.window}"
    known = {part.tp: part for part in before.partitions} if before else {}
    for part in receipt.partitions:
        previous = known.get(part.tp)
        gaps = dict(previous.gaps_so_far) if previous else {}
        for reason, ranges in part.gaps.items():
            gaps[reason] = gaps.get(reason, 0) + count(ranges)
        expected = (
            previous.start_so_far if previous else part.start,
            part.records + (previous.records_so_far if previous else 0),
            gaps,
        )
        seen = (part.start_so_far, part.records_so_far, dict(part.gaps_so_far))
        if before is None and receipt.first_batch > 0:
            # What the segments before it hold isn't known.
            continue
        if previous is not None and previous.end != part.start:
            yield (
                f"starts {part.tp} at {part.start:,}, but the receipt before it ends at "
                f"{previous.end:,}"
            )
        elif seen != expected:
            yield f"has other totals of {part.tp} than it and the receipt before it add up to"
    if before is not None or receipt.first_batch == 0:
        earlier = before.files_so_far if before is not None else FileSet()
        files = earlier.plus((file.path, file.bytes) for file in receipt.files)
        if files != receipt.files_so_far:
            yield "has another total of files than it and the receipt before it add up to"
