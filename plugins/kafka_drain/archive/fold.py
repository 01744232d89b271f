"""The live, replaced and deleted files of an archive: a fold over the receipts of its windows.

The receipts of generations only add files. Those of windows add files and replace others, so they
decide about every file; the order of sealing doesn't matter, because no two windows replace the
same file: who seals a window refuses that, under the lease of all windows. Opens nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from kafka_drain.archive.receipts import Receipt, SealedFile
from kafka_drain.gaps import GapReason
from kafka_drain.offsets import OffsetRange, TopicPartition, merge, subtract

#: A partition, and the id of the topic that its offsets belong to.
Partition = tuple[TopicPartition, str]


class WindowKind(str, Enum):
    """Why a window was written; the value is the `kind` of its plan."""

    BACKFILL = "backfill"
    REPAIR = "repair"
    REPROCESS = "reprocess"
    COMPACTION = "compact"
    RETENTION = "retention"
    ERASURE = "erase"

    @property
    def supersedes(self) -> bool:
        """Whether it replaces intact files, which are removed; a repair replaces damaged ones."""
        return self.is_maintained or self is WindowKind.REPROCESS

    @property
    def is_maintained(self) -> bool:
        """Whether maintenance creates it; until it is sealed, it can be discarded."""
        return self in (WindowKind.COMPACTION, WindowKind.RETENTION, WindowKind.ERASURE)


class Fate(Enum):
    """The state of a sealed file after all windows."""

    #: Readers get it.
    LIVE = auto()
    #: A repair, or a forced backfill, holds its records instead. The file, perhaps damaged, may
    #: stay: only that backfill removes it, along with its whole window.
    REPLACED = auto()
    #: It was intact when a window replaced it, so maintenance or a reprocess removes it.
    GONE = auto()


class _SealedWindow(Protocol):
    """The part of a sealed window that the fold needs."""

    @property
    def key(self) -> str:
        """The window's name."""

    @property
    def kind(self) -> WindowKind:
        """Why it was written."""

    @property
    def supersedes(self) -> bool:
        """Whether its kind supersedes intact files; known even if its plan is lost."""

    @property
    def receipt(self) -> Receipt:
        """Its receipt."""


class _HasPath(Protocol):
    @property
    def path(self) -> str: ...


W = TypeVar("W", bound=_SealedWindow)
F = TypeVar("F", bound=_HasPath)


@dataclass(frozen=True)
class Fold(Generic[W]):
    """The state of an archive's files after some sealed windows.

    Attributes:
        windows: The windows, by name.
        deleted: Files, relative to the archive, to be treated as gone although no window replaces
            them yet.
    """

    windows: tuple[W, ...]
    deleted: frozenset[str] = frozenset()

    def only(self, keys: Collection[str]) -> Fold[W]:
        """Return the fold of some of the windows."""
        wanted = frozenset(keys)
        return replace(self, windows=tuple(w for w in self.windows if w.key in wanted))

    def without(self, paths: Iterable[str]) -> Fold[W]:
        """Return the fold after some files are deleted."""
        return replace(self, deleted=self.deleted.union(paths))

    def but(self, keys: Collection[str]) -> Fold[W]:
        """Return the fold of the other windows."""
        return self.only({*self.keys}.difference(keys))

    @property
    def keys(self) -> list[str]:
        """The windows' names."""
        return [window.key for window in self.windows]

    def of_kind(self, *kinds: WindowKind) -> list[W]:
        """Return the windows of some kinds."""
        return [window for window in self.windows if window.kind in kinds]

    def of_interval(self, interval: str) -> Fold[W]:
        """Return the windows of a data interval, given the name of its first one."""
        return self.only([key for key in self.keys if is_of_interval(key, interval)])

    def standing_for(self, interval: str) -> Fold[W]:
        """Return the windows that hold the records of a data interval: its own, and repairs."""
        return self.with_repairs(self.of_interval(interval).keys)

    @property
    def superseding(self) -> list[W]:
        """The windows that supersede intact files."""
        return [window for window in self.windows if window.supersedes]

    @cached_property
    def receipts(self) -> tuple[Receipt, ...]:
        """The windows' receipts."""
        return tuple(window.receipt for window in self.windows)

    @property
    def by_time(self) -> list[Receipt]:
        """The windows' receipts in the order of sealing."""
        return sorted(self.receipts, key=lambda receipt: receipt.sealed_at)

    @cached_property
    def replaced(self) -> frozenset[str]:
        """All files that aren't live, relative to the archive."""
        return self.deleted | replaced_by(self.receipts)

    @cached_property
    def gone(self) -> frozenset[str]:
        """The files that were intact when they were replaced: nothing needs them any more."""
        return self.deleted | replaced_by(window.receipt for window in self.superseding)

    @property
    def drained_again(self) -> frozenset[str]:
        """The files whose records windows have read again from Kafka, or deleted."""
        return frozenset(path for receipt in self.receipts for path in receipt.drained_again)

    @property
    def live_files(self) -> dict[str, SealedFile]:
        """The windows' own files that readers get, by path, in the order of sealing."""
        return {f.path: f for receipt in self.by_time for f in self.live(receipt.files)}

    @cached_property
    def gone_by_owner(self) -> Mapping[str, int]:
        """The number of gone files of each generation and window, by its folder."""
        return Counter(map(owner_of, self.gone))

    def fate(self, path: str) -> Fate:
        """Return the fate of a sealed file."""
        if path in self.gone:
            return Fate.GONE
        return Fate.REPLACED if path in self.replaced else Fate.LIVE

    def live(self, files: Iterable[F]) -> list[F]:
        """Return those of some files that readers get."""
        return [file for file in files if file.path not in self.replaced]

    def holds_records(self, receipt: Receipt) -> bool:
        """Return whether readers get any file of a segment."""
        return any(file.path not in self.replaced for file in receipt.files)

    def has_all_of(self, newest: Receipt) -> bool:
        """Return whether windows have replaced all files of a generation; given its newest receipt.

        Then no reader gets any of them. A generation that has no files holds explained gaps.
        """
        owner = f"generations/{newest.generation:04d}"
        return newest.files_so_far.files == self.gone_by_owner.get(owner, 0)

    def covers(self, newest: Receipt) -> bool:
        """Return whether windows cover all offsets of a generation; given its newest receipt."""
        return not any(
            subtract(
                OffsetRange(part.start_so_far, part.range.end),
                self.held.get((part.tp, newest.topics.get(part.tp.topic, "")), ()),
            )
            for part in newest.partitions
        )

    def is_gone(self, receipt: Receipt) -> bool:
        """Return whether a segment had files, and all are gone; one without files proves gaps."""
        return bool(receipt.files) and all(file.path in self.gone for file in receipt.files)

    def replaced_by_whole(self, damaged: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Return the replaced files whose records windows still hold.

        A damaged window vouches for nothing that it replaces, unless another one has repaired it in
        turn. Readers skip such a file all the same: its records would be there only in part.

        Args:
            damaged: By window, those of its files that are gone or changed.
        """
        replaced: frozenset[str] = frozenset()
        while True:
            whole = (w for w in self.windows if replaced.issuperset(damaged.get(w.key, ())))
            more = replaced_by(window.receipt for window in whole)
            if more == replaced:
                return replaced
            replaced = more

    def relied_on(self, there: Collection[str]) -> Fold[W]:
        """Return the windows that readers depend on once some superseded files are removed.

        These are the windows that supersede the files; if another window replaces a window's own
        files, be it a repair, that one is included too, and so on.
        """
        found: dict[str, W] = {}
        asked = set(there)
        while asked:
            more = {
                window.key: window
                for window in (self.windows if found else self.superseding)
                if window.key not in found and not asked.isdisjoint(window.receipt.replaces)
            }
            found |= more
            asked = {file.path for window in more.values() for file in window.receipt.files}
        return self.only(found)

    def taken(self, paths: Collection[str]) -> dict[str, frozenset[str]]:
        """Return those of the given files that windows have replaced, by window."""
        wanted = frozenset(paths)
        found = {
            window.key: wanted.intersection(window.receipt.replaces) for window in self.windows
        }
        return {key: files for key, files in found.items() if files}

    def with_repairs(self, keys: Collection[str]) -> Fold[W]:
        """Return some windows, and the repairs that hold records of theirs.

        These repairs replace files of the windows or of such a repair; or the windows have replaced
        files of theirs, and a killed run hasn't removed them.
        """
        repairs = [w for w in self.windows if w.receipt.replaces and w.kind is WindowKind.REPAIR]
        found = self.only(keys)
        while True:
            held = {file.path for receipt in found.receipts for file in receipt.files}
            more = {
                w.key
                for w in repairs
                if held.intersection(w.receipt.replaces)
                or any(file.path in found.replaced for file in w.receipt.files)
            }
            if more.issubset(found.keys):
                return found
            found = self.only(more.union(found.keys))

    @cached_property
    def held(self) -> Mapping[Partition, list[OffsetRange]]:
        """The offsets that windows cover, either with records or with explained gaps.

        Those of a window whose files are all replaced stay: other windows hold them now.
        """
        return held_by(self.receipts)

    def held_of(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the offsets that windows cover in topics with the given ids; see `held`."""
        return of_topic_ids(self.held, topic_ids)

    @cached_property
    def erased(self) -> Mapping[Partition, list[OffsetRange]]:
        """The offsets whose records were erased on request; no window may bring them back."""
        found: dict[Partition, list[OffsetRange]] = {}
        for receipt in self.receipts:
            for part in receipt.partitions:
                if ranges := part.gaps.get(GapReason.ERASED):
                    key = part.tp, receipt.topics.get(part.tp.topic, "")
                    found.setdefault(key, []).extend(ranges)
        return {key: merge(ranges) for key, ranges in found.items()}

    def erased_of(self, topic_ids: Mapping[str, str]) -> dict[TopicPartition, list[OffsetRange]]:
        """Return the erased offsets in topics with the given ids."""
        return of_topic_ids(self.erased, topic_ids)

    def of_topics(self, topic_ids: Mapping[str, str]) -> Fold[W]:
        """Return the windows that cover offsets of a topic with one of the given ids."""
        return self.only(
            [
                receipt.window
                for receipt in self.receipts
                if any(
                    receipt.topics.get(part.tp.topic, "") == topic_ids.get(part.tp.topic, "")
                    for part in receipt.partitions
                )
            ]
        )


def of_topic_ids(
    held: Mapping[Partition, list[OffsetRange]], topic_ids: Mapping[str, str]
) -> dict[TopicPartition, list[OffsetRange]]:
    """Return the offsets that belong to topics with the given ids."""
    return {
        tp: ranges
        for (tp, topic_id), ranges in held.items()
        if topic_id == topic_ids.get(tp.topic, "")
    }


def is_of_interval(key: str, interval: str) -> bool:
    """Return whether a window is the first one of a data interval, or has replaced it since."""
    return key == interval or key.startswith(f"{interval}_")


def replaced_by(windows: Iterable[Receipt]) -> frozenset[str]:
    """Return the files that windows replace, relative to the archive."""
    return frozenset(path for receipt in windows for path in receipt.replaces)


def held_by(receipts: Iterable[Receipt]) -> dict[Partition, list[OffsetRange]]:
    """Return the offsets that segments cover, either with records or with explained gaps."""
    found: dict[Partition, list[OffsetRange]] = {}
    for receipt in receipts:
        for part in receipt.partitions:
            key = part.tp, receipt.topics.get(part.tp.topic, "")
            found.setdefault(key, []).append(part.range)
    return {key: merge(ranges) for key, ranges in found.items()}


def owner_of(path: str) -> str:
    """Return the folder of the generation or window that a file or document belongs to."""
    return "/".join(path.split("/")[:2])


def owners_replaced(windows: Iterable[Receipt]) -> dict[str, frozenset[str]]:
    """Return, by window, the owners of the files that it replaces, directly or transitively."""
    direct = {receipt.window: frozenset(map(owner_of, receipt.replaces)) for receipt in windows}
    found: dict[str, frozenset[str]] = {}
    for window, owners in direct.items():
        reached: set[str] = set()
        waiting = set(owners)
        while waiting:
            owner = waiting.pop()
            reached.add(owner)
            waiting |= direct.get(owner.removeprefix("windows/"), frozenset()) - reached
        found[window] = frozenset(reached)
    return found
