"""Offsets that two sealed segments hold, where neither stands for the other. Opens nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka_drain.findings import Finding, Reason
from kafka_drain.gap_reasons import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, subtract
from kafka_drain.receipts import Receipt

__all__ = ["Claim", "claims_of", "find_overlaps", "may_overlap", "stands_for"]


@dataclass(frozen=True, slots=True)
class Claim:
    """Offsets of one partition that a generation or a window holds.

    Attributes:
        owner: The generation's or the window's folder, relative to the archive.
        topic_id: Id of the topic that they count in.
        tp: The partition.
        range: The offsets.
        stands_for: The generations and windows of whose files it has taken the place of some.
        left: How many of the offsets, at most, it leaves to windows.
    """

    owner: str
    topic_id: str
    tp: TopicPartition
    range: OffsetRange
    stands_for: frozenset[str] = frozenset()
    left: int = 0


def claims_of(newest: Iterable[Receipt], windows: Iterable[Receipt]) -> list[Claim]:
    """Return what generations and windows hold.

    Windows of which other windows have taken the place of all files hold nothing, as do those
    that only say that files were deleted.

    Args:
        newest: The newest receipt of each generation, which says where it began and ends.
        windows: The receipts of all sealed windows.
    """
    claims = [
        Claim(
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
    gone = {path for receipt in windows for path in receipt.replaces}
    stands_for = _closure(windows)
    for receipt in windows:
        if all(file.path in gone for file in receipt.files):
            continue
        for part in receipt.partitions:
            held = subtract(part.range, merge([r for rs in part.gaps.values() for r in rs]))
            claims += [
                Claim(
                    owner=f"windows/{receipt.window}",
                    topic_id=receipt.topics.get(part.tp.topic, ""),
                    tp=part.tp,
                    range=r,
                    stands_for=stands_for[receipt.window],
                )
                for r in held
            ]
    return claims


def _closure(windows: Sequence[Receipt]) -> dict[str, frozenset[str]]:
    """Return by window whose files it stands for, also by way of other windows."""
    direct = {
        receipt.window: frozenset("/".join(path.split("/")[:2]) for path in receipt.replaces)
        for receipt in windows
    }
    found: dict[str, frozenset[str]] = {}
    for window in direct:
        reached: set[str] = set()
        waiting = set(direct[window])
        while waiting:
            owner = waiting.pop()
            reached.add(owner)
            waiting |= direct.get(owner.removeprefix("windows/"), frozenset()) - reached
        found[window] = frozenset(reached)
    return found


def may_overlap(a: Claim, b: Claim, twice: int, left: int) -> bool:
    """Say whether two claims on the same offsets are in order.

    Args:
        a: The one.
        b: The other.
        twice: How many offsets both claim.
        left: How many offsets the one that leaves some to windows has still left: lost before they
            were sealed, and drained again by a repair.
    """
    return stands_for(a, b) or twice <= left


def stands_for(a: Claim, b: Claim) -> bool:
    """Say whether two claims are of one segment, or one has taken the place of the other's files.

    Which offsets such a window took over is its own proof's matter: it was sealed by that.
    """
    return a.owner == b.owner or b.owner in a.stands_for or a.owner in b.stands_for


def find_overlaps(claims: Iterable[Claim]) -> list[Finding]:
    """Find offsets that two segments hold: a sweep over the claims on each partition."""
    by_partition: dict[tuple[TopicPartition, str], list[Claim]] = {}
    for claim in claims:
        by_partition.setdefault((claim.tp, claim.topic_id), []).append(claim)
    findings: list[Finding] = []
    for (tp, _), own in by_partition.items():
        if len(own) > 1:
            own.sort(key=lambda claim: (claim.range.start, claim.range.end, claim.owner))
            findings += _sweep(tp, own)
    return findings


def _sweep(tp: TopicPartition, claims: Sequence[Claim]) -> list[Finding]:
    found: dict[tuple[str, str], list[OffsetRange]] = {}
    active: list[int] = []
    # By claim: what one segment of a generation leaves to windows isn't another segment's to give.
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
            f"holds {tp} {', '.join(map(str, ranges[:3]))}, as {first} does",
        )
        for (first, second), ranges in found.items()
    ]
