"""Check that windows agree with their plans, and with the receipts of the files that they replace.

Plain arithmetic; opens nothing. No data file is read for it: receipts and plans that somebody has
edited, writing all hashes again, show here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from kafka_drain.archive.fold import WindowKind, owner_of
from kafka_drain.archive.receipts import Receipt, SealedFile, records_of
from kafka_drain.config.offset_ranges import parse_ranges
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, count, merge, overlapping, without

if TYPE_CHECKING:
    from kafka_drain.archive.documents import WindowPlan

__all__ = ["Accounts", "contradicts_plan"]

_Gaps = dict[tuple[TopicPartition, GapReason], list[OffsetRange]]


def contradicts_plan(window: Receipt, plan: WindowPlan, kind: WindowKind) -> str:
    """Describe how a window's plan contradicts its receipt; empty if it doesn't."""
    if sorted(window.replaces) != sorted(plan.replaces):
        return "replaces other files than its receipt"
    if len(set(window.replaces)) < len(window.replaces):
        return "replaces a file twice"
    planned = plan.offsets()
    held: dict[TopicPartition, list[OffsetRange]] = {}
    for part in window.partitions:
        held.setdefault(part.tp, []).append(part.range)
    for tp in sorted(held.keys() | planned.keys()):
        own, whole = sorted(held.get(tp, ())), sorted(planned.get(tp, ()))
        # A backfill leaves out what another segment held by then.
        is_part = kind is WindowKind.BACKFILL and not without(own, whole)
        if own != whole and not is_part:
            return f"has {_shown(whole)} of {tp}, but its receipt {_shown(own)}"
    # A plan of an earlier release has no ids.
    if kind is WindowKind.BACKFILL and "topics" in plan.model_fields_set:
        for topic in sorted({tp.topic for tp in held}):
            said, own_id = (each.get(topic) for each in (plan.topics, window.topics))
            if said != own_id:
                told = f"has id {said!r}" if said else "has no id"
                return f"says topic {topic} {told}, but its receipt says {own_id!r}"
    return ""


def _shown(ranges: Iterable[OffsetRange]) -> str:
    return ", ".join(map(str, ranges)) or "nothing"


class _SealedWindow(Protocol):
    @property
    def kind(self) -> WindowKind: ...

    @property
    def plan(self) -> WindowPlan: ...

    @property
    def receipt(self) -> Receipt: ...


class Accounts:
    """What windows must account for: filled receipt by receipt, so that none has to be kept.

    Args:
        windows: Sealed windows whose plans can be read.
    """

    def __init__(self, windows: Iterable[_SealedWindow]) -> None:
        self._accounts = [_Account(each) for each in windows]
        self._by_path: dict[str, list[_Account]] = {}
        self._by_source: dict[str, list[_Account]] = {}
        for account in self._accounts:
            for path in account.receipt.replaces:
                self._by_path.setdefault(path, []).append(account)
            for where in account.receipt.provenance:
                self._by_source.setdefault(where, []).append(account)

    def look(self, receipt: Receipt) -> None:
        """Take what a receipt has of replaced files."""
        sources = {id(each): each for each in self._by_source.get(receipt.where, ())}
        for account in sources.values():
            account.name(receipt)
        for file in receipt.files:
            for account in self._by_path.get(file.path, ()):
                account.add(file, receipt)
                sources[id(account)] = account
        for account in sources.values():
            account.add_gaps(receipt)

    def not_covered(self) -> Iterator[tuple[str, str]]:
        """Yield each window, by its receipt, that lacks offsets of a file that it replaces."""
        for account in self._accounts:
            if account.not_covered:
                yield account.receipt.where, account.not_covered

    def unaccounted(self, gone: Collection[str]) -> Iterator[tuple[str, str]]:
        """Yield each window, by its receipt, that doesn't account for the records of intact files.

        Args:
            gone: Folders of generations and windows of which a receipt was removed or given up, or
                wasn't looked at: what depends on them isn't judged.
        """
        for account in self._accounts:
            if problem := account.problem(gone):
                yield account.receipt.where, problem


@dataclass
class _Account:
    """One window, and what is known of the files that it replaces.

    Attributes:
        missing: Those of which no receipt was looked at.
        unseen: Receipts that the window names, and that weren't looked at.
        not_covered: Which of them has offsets that the window doesn't have; empty if none has.
    """

    window: _SealedWindow
    missing: set[str] = field(init=False)
    unseen: set[str] = field(init=False)
    not_covered: str = ""
    _ranges: dict[TopicPartition, list[OffsetRange]] = field(init=False)
    _files: int = 0
    _bytes: int = 0
    _records: Counter[TopicPartition] = field(default_factory=Counter)
    _gaps: _Gaps = field(default_factory=dict)
    _changed: str = ""
    _other: str = ""

    def __post_init__(self) -> None:
        self.missing, self.unseen = set(self.receipt.replaces), set(self.receipt.provenance)
        ranges: dict[TopicPartition, list[OffsetRange]] = {}
        for part in self.receipt.partitions:
            ranges.setdefault(part.tp, []).append(part.range)
        if self.window.kind is WindowKind.REPAIR:
            # What Kafka no longer had of a lost file isn't in its ranges.
            accepted = parse_ranges("acknowledged", self.receipt.acknowledged)
            for tp, more in accepted.items():
                ranges.setdefault(tp, []).extend(more)
        self._ranges = {tp: merge(each) for tp, each in ranges.items()}
        own = self.missing.intersection(file.path for file in self.receipt.files)
        if own:
            self.not_covered = f"replaces {min(own)}, which is its own"

    @property
    def receipt(self) -> Receipt:
        """The window's receipt."""
        return self.window.receipt

    def add(self, file: SealedFile, receipt: Receipt) -> None:
        """Take a replaced file."""
        self.missing.discard(file.path)
        self._files += 1
        self._bytes += file.bytes
        self._records.update(records_of([file]))
        hashes = self.window.plan.hashes
        # Plans of other windows have none.
        if hashes and hashes.get(file.path) != file.sha256:
            self._changed = self._changed or file.path
        self.not_covered = self.not_covered or self._uncovered(file, receipt)

    def _uncovered(self, file: SealedFile, receipt: Receipt) -> str:
        for content in file.contents:
            for at in (content.first, content.last):
                if not overlapping(self._ranges.get(content.tp, ()), OffsetRange(at, at + 1)):
                    return f"replaces {file.path} without having its offset {at:,} of {content.tp}"
            own, said = (each.topics.get(content.topic) for each in (self.receipt, receipt))
            # A forced backfill may have drained the topic made again.
            if self.window.kind is not WindowKind.BACKFILL and own != said:
                return f"replaces {file.path}, which has records of another topic {content.topic}"
        return ""

    def name(self, receipt: Receipt) -> None:
        """Take a receipt that the window names."""
        self.unseen.discard(receipt.where)
        if self.receipt.provenance[receipt.where] != receipt.sha256:
            self._other = self._other or receipt.where

    def add_gaps(self, receipt: Receipt) -> None:
        """Take the gaps of a receipt that has replaced files, or that the window names."""
        for part in receipt.partitions:
            for reason, ranges in part.gaps.items():
                self._gaps.setdefault((part.tp, reason), []).extend(ranges)
        if receipt.window:
            # What a repair couldn't drain of a lost file isn't in its ranges.
            accepted = parse_ranges("acknowledged", receipt.acknowledged)
            for tp, lost in accepted.items():
                self._gaps.setdefault((tp, GapReason.EXPIRED), []).extend(lost)

    def problem(self, gone: Collection[str]) -> str:
        """Describe what the window doesn't account for; empty if there is nothing."""
        kind, plan = self.window.kind, self.window.plan
        if not kind.supersedes:
            return ""
        for what, paths in (("replaces", self.missing), ("is made from", self.unseen)):
            for path in sorted(paths):
                if owner_of(path) not in gone:
                    return f"{what} {path}, which no receipt tells of"
        if self._other:
            return f"is made from another receipt than {self._other}"
        if self.missing or self.unseen:
            return ""
        if plan.replaced is not None:
            counted = Counter(
                {
                    TopicPartition(row["topic"], row["partition"]): row["records"]
                    for row in plan.replaced["records"]
                }
            )
            said = plan.replaced["files"], plan.replaced["bytes"], +counted
            if said != (self._files, self._bytes, +self._records):
                return "replaces other files, bytes or records than its plan counts"
        if kind is WindowKind.ERASURE and self._changed:
            return f"replaces {self._changed}, of which its plan has another SHA-256, or none"
        # Kafka may have other records for a reprocess, as somebody has accepted.
        return "" if kind is WindowKind.REPROCESS else self._unaccounted(kind, plan)

    def _unaccounted(self, kind: WindowKind, plan: WindowPlan) -> str:
        held, own = Counter(records_of(self.receipt.files)), _gaps_of(self.receipt)
        new = {key: without(each, self._gaps.get(key, ())) for key, each in own.items()}
        going: Counter[TopicPartition] = Counter()
        for (tp, reason), ranges in new.items():
            if kind is WindowKind.ERASURE and reason is GapReason.ERASED:
                going[tp] += count(ranges)
            elif kind is WindowKind.RETENTION:
                going[tp] += count(own[tp, reason]) if reason is GapReason.DELETED else 0
            elif ranges and reason is not GapReason.DELETED:
                return f"says of {_shown(ranges)} of {tp} that it is {reason}, which nobody said"
        for tp in sorted(self._records.keys() | held.keys() | going.keys()):
            if held[tp] + going[tp] != self._records[tp]:
                return (
                    f"replaces {self._records[tp]:,} records of {tp} by {held[tp]:,}, and says "
                    f"that {going[tp]:,} are gone"
                )
        named = [row["records"] for row in plan.erasures or ()]
        if kind is WindowKind.ERASURE and not max(named, default=0) <= going.total() <= sum(named):
            return f"erased {going.total():,} records, but its plan says {named}"
        return ""


def _gaps_of(receipt: Receipt) -> _Gaps:
    found: _Gaps = {}
    for part in receipt.partitions:
        for reason, ranges in part.gaps.items():
            found.setdefault((part.tp, reason), []).extend(ranges)
    return found
