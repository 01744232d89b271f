"""Detection of offsets held by two segments, or by none between two generations.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_drain.archive.fold import Partition, owners_replaced, replaced_by
from kafka_drain.archive.receipts import Receipt
from kafka_drain.findings import Finding, Reason
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, overlapping, subtract


@dataclass(frozen=True, slots=True)
class OffsetClaim:
    """Offsets of one partition held by a generation or a window.

    Attributes:
        owner: Folder of the generation or window, relative to the archive.
        topic_id: Id of the topic that the offsets belong to.
        stands_for: Generations and windows of which it replaces some files.
        left: Maximum number of the offsets that it leaves to windows.
    """

    owner: str
    topic_id: str
    tp: TopicPartition
    range: OffsetRange
    stands_for: frozenset[str] = frozenset()
    left: int = 0


def claims_of(newest: Iterable[Receipt], windows: Iterable[Receipt]) -> list[OffsetClaim]:
    """Return the offsets that generations and windows hold.

    Windows whose files have all been replaced by other windows hold nothing, nor do windows that
    only record that files were deleted.

    Args:
        newest: The newest receipt of each generation, which has its start and end offsets.
        windows: The receipts of all sealed windows.
    """
    claims = [
        OffsetClaim(
            owner=f"generations/{receipt.generation:04d}",
            topic_id=receipt.topics.get(part.tp.topic, ""),
            tp=part.tp,
            range=OffsetRange(part.start_so_far, part.range.end),
            left=part.gaps_so_far.get(GapReason.WINDOW, 0),
        )
        for receipt in newest
        for part in receipt.partitions
        if part.start_so_far < part.range.end
    ]
    windows = list(windows)
    replaced = replaced_by(windows)
    stands_for = owners_replaced(windows)
    for receipt in windows:
        if not any(file.path not in replaced for file in receipt.files):
            continue
        for part in receipt.partitions:
            # Nothing else may hold erased offsets: the records would have come back.
            gaps = (rs for reason, rs in part.gaps.items() if reason != GapReason.ERASED)
            held = subtract(part.range, merge([r for rs in gaps for r in rs]))
            claims += [
                OffsetClaim(
                    owner=f"windows/{receipt.window}",
                    topic_id=receipt.topics.get(part.tp.topic, ""),
                    tp=part.tp,
                    range=r,
                    stands_for=stands_for[receipt.window],
                )
                for r in held
            ]
    return claims


def may_overlap(a: OffsetClaim, b: OffsetClaim, twice: int, left: int) -> bool:
    """Return whether two claims on the same offsets are legitimate.

    Args:
        a: The first claim.
        b: The second claim.
        twice: Number of offsets that both claim.
        left: Number of offsets that the claim leaving some to windows can still give up: they were
            lost before they were sealed, and drained again by a repair.
    """
    return stands_for(a, b) or twice <= left


def stands_for(a: OffsetClaim, b: OffsetClaim) -> bool:
    """Return whether both claims are one segment's, or one has replaced files of the other.

    Which offsets such a window took over was proven when it was sealed, and isn't checked here.
    """
    return a.owner == b.owner or b.owner in a.stands_for or a.owner in b.stands_for


def find_overlaps(claims: Iterable[OffsetClaim]) -> list[Finding]:
    """Find offsets held by two segments, with a sweep over the claims on each partition."""
    by_partition: dict[tuple[TopicPartition, str], list[OffsetClaim]] = {}
    for claim in claims:
        by_partition.setdefault((claim.tp, claim.topic_id), []).append(claim)
    findings: list[Finding] = []
    for (tp, _), own in by_partition.items():
        if len(own) > 1:
            own.sort(key=lambda claim: (claim.range.start, claim.range.end, claim.owner))
            findings += _sweep(tp, own)
    return findings


def _sweep(tp: TopicPartition, claims: Sequence[OffsetClaim]) -> list[Finding]:
    found: dict[tuple[str, str], list[OffsetRange]] = {}
    active: list[int] = []
    # Per claim, because what one generation leaves to windows isn't another segment's to give up.
    left = [claim.left for claim in claims]
    for number, claim in enumerate(claims):
        active = [n for n in active if claims[n].range.end > claim.range.start]
        for other_number in active:
            other = claims[other_number]
            both = OffsetRange(claim.range.start, min(other.range.end, claim.range.end))
            leaving = max(other_number, number, key=lambda n: claims[n].left)
            if not may_overlap(other, claim, len(both), left[leaving]):
                found.setdefault((other.owner, claim.owner), []).append(both)
            elif not stands_for(other, claim):
                left[leaving] -= len(both)
        active.append(number)
    return [
        Finding(
            Reason.SEGMENT_OVERLAP,
            second,
            f"holds {tp} {', '.join(map(str, ranges[:3]))}, which {first} holds too",
        )
        for (first, second), ranges in found.items()
    ]


@dataclass(frozen=True, slots=True)
class Hole:
    """Offsets between two generations that are in no segment.

    Attributes:
        owner: Folder of the later generation, relative to the archive.
        before: Folder of the generation that drained the partition previously.
        topic_id: Id of the topic that the offsets belong to.
    """

    owner: str
    before: str
    topic_id: str
    tp: TopicPartition
    range: OffsetRange

    def finding(self) -> Finding:
        """Return the hole as a finding."""
        detail = f"resumes {self.tp} after {self.range}, which {self.before} doesn't hold"
        return Finding(Reason.SEGMENT_HOLE, self.owner, detail)


def drained_of(receipt: Receipt) -> dict[Partition, OffsetRange]:
    """Return the offsets that a generation has drained according to its newest receipt."""
    return {
        (part.tp, receipt.topics.get(part.tp.topic, "")): OffsetRange(
            part.start_so_far, part.range.end
        )
        for part in receipt.partitions
    }


def find_holes(
    generations: Iterable[tuple[str, Mapping[Partition, OffsetRange] | None]],
    accounted: Mapping[Partition, Sequence[OffsetRange]],
) -> list[Hole]:
    """Find offsets between two generations, each of which starts where the previous one ended.

    A partition that a generation leaves out is resumed in a later one. Recreated topics have their
    own offsets.

    Args:
        generations: Folders of all generations, oldest first, each with what it has drained, which
            may be nothing yet; None if unknown.
        accounted: Offsets covered by windows, and those accepted as lost; sorted, disjoint.
    """
    holes: list[Hole] = []
    ends: dict[Partition, tuple[str, int]] = {}
    for name, drained in generations:
        if drained is None:
            ends = {}
            continue
        for key, offsets in drained.items():
            before, end = ends.get(key, (name, offsets.start))
            between = OffsetRange(end, max(end, offsets.start))
            held = overlapping(accounted.get(key, []), between)
            tp, topic_id = key
            holes += [Hole(name, before, topic_id, tp, r) for r in subtract(between, held)]
            ends[key] = name, max(end, offsets.end)
    return holes


def find_early(
    generations: Iterable[tuple[str, Mapping[Partition, OffsetRange] | None]],
    fresh: Collection[str],
) -> list[Finding]:
    """Find generations that start before the end of the offsets that earlier ones have drained.

    Those that have sealed something are compared by what they hold, see `find_overlaps`.

    Args:
        generations: As for `find_holes`.
        fresh: Those of them that have sealed nothing yet.
    """
    found: list[Finding] = []
    ends: dict[Partition, int] = {}
    for name, drained in generations:
        for key, offsets in (drained or {}).items():
            end = ends.get(key, 0)
            if name in fresh and offsets.start < end:
                detail = (
                    f"starts {key[0]} at {offsets.start:,}, but earlier generations have "
                    f"drained it up to {end:,}"
                )
                found.append(Finding(Reason.SEGMENT_EARLY, name, detail))
            ends[key] = max(end, offsets.end)
    return found
