"""A snapshot of an archive: its documents, windows and receipts, each read only once.

A snapshot caches what it has read. To see changes, for example under the lease, take a new one.
No other module reads `archive.json` or lists `windows/`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from upath import UPath

from kafka_drain.archive.copies import copy_path, read_copy
from kafka_drain.archive.documents import ArchiveDocument, GenerationDocument, WindowPlan
from kafka_drain.archive.fold import Fold, WindowKind, is_of_interval
from kafka_drain.archive.generation import Generation, number_of
from kafka_drain.archive.index import FEW, Index, IndexFileError, Skipped, parse_index
from kafka_drain.archive.journal.digests import digest_of
from kafka_drain.archive.journal.entries import REMOVED, Journal
from kafka_drain.archive.journal.files import read_journal
from kafka_drain.archive.receipts import Receipt, ReceiptError
from kafka_drain.archive.window import Window, is_key
from kafka_drain.errors import ArchiveError
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage.paths import exists, list_folder, quoted, read_bytes, require_reachable
from kafka_drain.storage.typed_json import VersionError

#: Number of a generation's newest receipts that are kept in memory: what a validation charts.
KEPT_RECEIPTS = 50

#: File name of the index.
INDEX = "index.json"

#: Names in an archive's folder that only an archive has.
SEALED_PARTS = frozenset({"generations", "windows", "journal", "journal.json"})
#: Advice if archive.json is lost, and the archive's own copy of it.
RESTORE_DOCUMENT = (
    "restore archive.json from a backup or from a copy of the archive, or write it as "
    "docs/format.md shows: each receipt has its pipeline, cluster_id and topics, and a validation "
    "compares it with them"
)

#: Names of the windows that supersede intact files, sealed or not.
_NUMBERED = re.compile(
    rf"(?:{'|'.join(kind.value for kind in WindowKind if kind.supersedes)})_(\d+)"
)


@dataclass(frozen=True)
class Copies:
    """The archive's own copies of documents, which stand in for damaged ones in a validation.

    Attributes:
        noted: The digests in the journal: a copy counts only with the digest that is noted.
    """

    root: UPath
    noted: Mapping[str, str]

    def read(self, where: str) -> bytes | None:
        """Return the content of the copy of a document; None if it can't stand in for it."""
        content, noted = read_copy(self.root, where), self.noted.get(where)
        try:
            found = content is not None and noted and digest_of(where, content) == noted
        except ValueError:
            return None
        return content if found else None


def _stand_in(root: UPath, where: str, error: ArchiveError, copies: Copies | None) -> bytes:
    """Return the copy that stands in for a damaged document.

    Args:
        where: The document, relative to the archive.
        error: Its damage.
        copies: The copies; None if none may stand in.

    Raises:
        ArchiveError: When there is no such copy, or the document is of another release.
    """
    if isinstance(error.__cause__, VersionError):
        raise error
    found = copies.read(where) if copies is not None else None
    if found is not None:
        return found
    if copies is None and copy_path(root, where).is_file():
        what = str(error).removesuffix("; restore it from a copy")
        raise ArchiveError(
            f"{what}; run `kafka-drain repair {quoted(root)} --apply`, which restores it from the "
            "archive's own copy"
        ) from error
    raise error


@dataclass(frozen=True)
class SnapshotGeneration(Generation):
    """A generation with a cached `generation.json`.

    Attributes:
        copies: Copies that may stand in for a damaged `generation.json`; None for none.
    """

    copies: Copies | None = field(default=None, compare=False)

    @property
    def document(self) -> GenerationDocument:
        """The content of `generation.json`, or of the copy that stands in for it.

        Raises:
            ArchiveError: When it is missing, was changed, or is another generation's.
        """
        return self._document[0]

    @property
    def damage(self) -> str:
        """The damage to `generation.json` if a copy stands in for it; otherwise empty."""
        return self._document[1]

    @cached_property
    def _document(self) -> tuple[GenerationDocument, str]:
        where = f"{self.name}/generation.json"
        try:
            return self.read_document(), ""
        except ArchiveError as error:
            content = _stand_in(self.root, where, error, self.copies)
            return self.parse_document(copy_path(self.root, where), content), str(error)

    @cached_property
    def starting_offsets(self) -> Mapping[TopicPartition, int]:
        """The generation's starting offsets; raises like `document`."""
        return self.document.first_offsets()

    @cached_property
    def _receipt_names(self) -> list[str]:
        return super().receipt_names()

    def receipt_names(self) -> list[str]:
        """Return the names of the receipts, oldest first, as they were at the first call."""
        return self._receipt_names

    @cached_property
    def _newest(self) -> dict[str, Receipt]:
        return {}

    def read_receipt(self, name: str) -> Receipt:
        """Read a receipt; the newest ones are kept, older ones are read each time.

        Raises:
            ReceiptError: When it differs from what was sealed.
        """
        if name not in self._receipt_names[-KEPT_RECEIPTS:]:
            return super().read_receipt(name)
        if name not in self._newest:
            self._newest[name] = super().read_receipt(name)
        return self._newest[name]


@dataclass(frozen=True)
class SnapshotWindow(Window):
    """A window with cached plan and receipt.

    Attributes:
        copies: Copies that may stand in for a damaged `plan.json`; None for none.
    """

    copies: Copies | None = field(default=None, compare=False)

    @cached_property
    def plan_bytes(self) -> bytes | None:
        """The content of the file `plan.json`; None if there is none."""
        return self.read_plan_bytes()

    @cached_property
    def plan(self) -> WindowPlan:
        """The parsed `plan.json`, or the copy that stands in for it.

        Raises:
            ArchiveError: When it is missing, or was changed.
        """
        where = f"{self.name}/plan.json"
        try:
            if self.copies is not None and self._was_changed(where, self.copies.noted):
                raise ArchiveError(f"{self.root / where} isn't the plan that was sealed")
            return self.parse_plan(self.plan_bytes)
        except ArchiveError as error:
            return self.parse_plan(_stand_in(self.root, where, error, self.copies))

    def _was_changed(self, where: str, noted: Mapping[str, str]) -> bool:
        """Return whether the journal has another digest of the plan than the file."""
        if self.plan_bytes is None or noted.get(where, REMOVED) == REMOVED:
            return False
        try:
            return digest_of(where, self.plan_bytes) != noted[where]
        except ValueError:
            return True

    @cached_property
    def kind(self) -> WindowKind:
        """Why it was written, according to its plan.

        A plan of an earlier release doesn't say. Then its name does: only windows that supersede
        intact files start with their kind.

        Raises:
            ArchiveError: Like `plan` if neither says, or when the kind is of a newer release.
        """
        try:
            said = self.plan.kind
        except ArchiveError:
            said = None
        if said is not None:
            try:
                return WindowKind(said)
            except ValueError as error:
                raise ArchiveError(
                    f"{self.folder / 'plan.json'} has kind {said!r}, expected one of "
                    f"{', '.join(kind.value for kind in WindowKind)}; use the release that wrote it"
                ) from error
        named = (kind for kind in WindowKind if self.key.startswith(f"{kind.value}_"))
        kind = next((kind for kind in named if kind.supersedes), None)
        if kind is not None:
            return kind
        return WindowKind.REPAIR if self.plan.interval is None else WindowKind.BACKFILL

    @property
    def _kind_if_known(self) -> WindowKind | None:
        try:
            return self.kind
        except ArchiveError:
            return None

    @property
    def supersedes(self) -> bool:
        """Whether its kind supersedes intact files; False if neither plan nor name says its kind.

        Then its plan is lost, which is a finding of its own.
        """
        return self._kind_if_known is not None and self._kind_if_known.supersedes

    @property
    def has_plan(self) -> bool:
        """Whether its plan, or a copy that stands in for it, can be read, and its kind is known."""
        try:
            self.plan  # noqa: B018 - read now
        except ArchiveError:
            return False
        return self._kind_if_known is not None

    @property
    def is_maintained(self) -> bool:
        """Whether maintenance created it; False like `supersedes`."""
        return self._kind_if_known is not None and self._kind_if_known.is_maintained

    @cached_property
    def _read(self) -> Receipt | ReceiptError | None:
        try:
            return self.read_receipt()
        except FileNotFoundError:
            return None
        except ReceiptError as error:
            return error

    @property
    def is_sealed(self) -> bool:
        """Whether the window has a receipt."""
        return self._read is not None

    @property
    def is_readable(self) -> bool:
        """Whether the window has a receipt that isn't damaged."""
        return isinstance(self._read, Receipt)

    @property
    def receipt(self) -> Receipt:
        """The window's receipt.

        Raises:
            ReceiptError: When it differs from what was sealed, or doesn't exist.
        """
        if isinstance(self._read, Receipt):
            return self._read
        raise self._read or ReceiptError(f"window {self.key} isn't sealed")

    def can_continue(self, plan: Mapping[str, Any]) -> bool:
        """Return whether it was never sealed, and its plan says all of this.

        Raises:
            ArchiveError: When it has no plan, or it was changed.
        """
        return not self.is_sealed and self.plan.content().items() >= plan.items()

    @property
    def is_begun(self) -> bool:
        """Whether its folder isn't empty, as it is if the run was killed right at the start."""
        return self.is_sealed or self.plan_bytes is not None or _holds_something(self.folder)


class Snapshot:
    """The state of an archive at one moment.

    Each property is read on first access.

    Attributes:
        skipped: Parts left out because the index says enough of them; None for none.
        from_copies: Whether copies stand in for damaged documents, which validation reports.
    """

    def __init__(
        self, root: UPath, skipped: Skipped | None = None, *, from_copies: bool = False
    ) -> None:
        self.root = root
        self.skipped = skipped
        self.from_copies = from_copies

    def without(self, skipped: Skipped) -> Snapshot:
        """Return a snapshot of the same moment, without the skipped segments."""
        found = Snapshot(self.root, skipped, from_copies=self.from_copies)
        for name in (
            *("_document", "journal", "index", "_all_generations", "_all_folders"),
            *("_generation_folders", "_window_folders"),
        ):
            if name in self.__dict__:
                found.__dict__[name] = self.__dict__[name]
        return found

    def again(self) -> Snapshot:
        """Return a new snapshot whose journal is read first, before anything that it names."""
        snapshot = Snapshot(self.root, from_copies=self.from_copies)
        snapshot.journal  # noqa: B018 - read now
        return snapshot

    @property
    def document(self) -> ArchiveDocument:
        """The content of `archive.json`, or of the copy that stands in for it.

        Raises:
            ArchiveError: When the folder isn't an archive, or has a newer format.
            StoreUnavailableError: When its object store doesn't respond.
        """
        return self._document[0]

    def refuse_other_pipeline(self, name: str) -> None:
        """Refuse to change the archive for another pipeline, whose settings aren't meant for it.

        Raises:
            ArchiveError: When it belongs to another one, or isn't an archive.
        """
        if self.document.pipeline != name:
            raise ArchiveError(
                f"{self.root} is the archive of pipeline {self.document.pipeline!r}, not of "
                f"{name!r}; give each pipeline an archive of its own"
            )

    @property
    def damage(self) -> str:
        """The damage to `archive.json` if a copy stands in for it; otherwise empty."""
        return self._document[1]

    @cached_property
    def _document(self) -> tuple[ArchiveDocument, str]:
        require_reachable(self.root)
        try:
            return self._read_document(), ""
        except ArchiveError as error:
            content = _stand_in(self.root, "archive.json", error, self._copies)
            path = copy_path(self.root, "archive.json")
            return ArchiveDocument.parse(path, content), str(error)

    @cached_property
    def _copies(self) -> Copies | None:
        return Copies(self.root, self.journal.noted.documents) if self.from_copies else None

    def _read_document(self) -> ArchiveDocument:
        try:
            return ArchiveDocument.read(self.root / "archive.json")
        except FileNotFoundError as error:
            if copy_path(self.root, "archive.json").is_file():
                raise ArchiveError(f"{self.root} is missing its archive.json") from error
            there = list_folder(self.root)
            is_there = bool(there) or exists(self.root)
            seen = "is a folder without archive.json" if is_there else "doesn't exist"
            todo = RESTORE_DOCUMENT if SEALED_PARTS & there.keys() else "check the path"
            raise ArchiveError(
                f"{self.root} {seen}, expected an archive created by a drain; {todo}"
            ) from error
        except NotADirectoryError as error:
            raise ArchiveError(f"{self.root} isn't a folder; check the archive's path") from error

    @cached_property
    def journal(self) -> Journal:
        """The journal of sealed segments."""
        return read_journal(self.root)

    @cached_property
    def index(self) -> Index | None:
        """The index, if it is sound: journal and listings agree with all that it names.

        None also for an archive that is small, and if an offset of what it names may be in a
        generation after it. Without an index, everything is read. Validation reports a false one.
        """
        if self.is_small:
            return None
        try:
            found = parse_index(read_bytes(self.root / INDEX))
        except (FileNotFoundError, IndexFileError):
            return None
        later = [each for each in self._all_generations if each.number > found.last]
        numbers = {generation.number for generation in self._all_generations}
        if self.journal.problems or not later or not found.rows:
            return None
        if not found.agrees(self.journal.noted, numbers, self._all_folders.keys()):
            return None
        try:
            is_continued = all(
                found.is_continued_by(
                    generation.document.topics or self.topic_ids(generation),
                    generation.starting_offsets,
                )
                for generation in later
            )
        except ArchiveError:
            # A finding of its own.
            return None
        return found if is_continued else None

    @property
    def is_small(self) -> bool:
        """Whether it has so few generations and windows that it needs no index."""
        return len(self._all_generations) <= FEW and len(self._all_folders) <= FEW

    @property
    def has_few_generations(self) -> bool:
        """Whether it has so few generations that these alone need no index."""
        return len(self._all_generations) <= FEW

    @cached_property
    def generations(self) -> tuple[SnapshotGeneration, ...]:
        """The generations, oldest first, without those that are left out.

        Raises:
            ArchiveError: When the folder isn't an archive.
        """
        gone = self.skipped.generations if self.skipped else frozenset()
        return tuple(each for each in self._all_generations if each.number not in gone)

    @cached_property
    def _all_generations(self) -> tuple[SnapshotGeneration, ...]:
        self.document  # noqa: B018 - a folder that isn't an archive has no generations
        folders = map(number_of, self._generation_folders)
        numbers = sorted(number for number in folders if number is not None)
        found = tuple(SnapshotGeneration(self.root, number, self._copies) for number in numbers)
        # A drain that was killed right at the start may have left an empty folder as the newest.
        is_begun = not found or _holds_something(found[-1].folder)
        return found if is_begun else found[:-1]

    @property
    def open_generation(self) -> SnapshotGeneration | None:
        """The generation that drains append to; None if none was opened."""
        return self.generations[-1] if self.generations else None

    @cached_property
    def folders(self) -> Mapping[str, SnapshotWindow]:
        """All folders in `windows/`, sorted by name, even empty ones; takes a single listing.

        Without those that are left out.
        """
        gone = self.skipped.windows if self.skipped else frozenset()
        return {key: window for key, window in self._all_folders.items() if key not in gone}

    @property
    def window_names(self) -> frozenset[str]:
        """The names of all windows, sealed or not, also of those that are left out."""
        return frozenset(self._all_folders)

    @cached_property
    def _all_folders(self) -> Mapping[str, SnapshotWindow]:
        keys = sorted(filter(is_key, self._window_folders))
        return {key: SnapshotWindow(self.root, key, self._copies) for key in keys}

    @cached_property
    def _generation_folders(self) -> list[str]:
        return _folders_in(self.root / "generations")

    @cached_property
    def _window_folders(self) -> list[str]:
        return _folders_in(self.root / "windows")

    @property
    def ignored(self) -> list[str]:
        """Folders that by their names are neither a generation nor a window, such as copies."""
        generations = [name for name in self._generation_folders if number_of(name) is None]
        windows = [name for name in self._window_folders if not is_key(name)]
        return [
            *(f"generations/{name}" for name in sorted(generations)),
            *(f"windows/{name}" for name in sorted(windows)),
        ]

    def any_window(self, key: str) -> SnapshotWindow:
        """Return a window by name, even one that is left out."""
        return self._all_folders[key]

    @cached_property
    def windows(self) -> tuple[SnapshotWindow, ...]:
        """The windows whose folders aren't empty, by name."""
        return tuple(window for window in self.folders.values() if window.is_begun)

    @property
    def sealed(self) -> list[SnapshotWindow]:
        """The windows that have a receipt, even a damaged one."""
        return [window for window in self.folders.values() if window.is_sealed]

    @property
    def unsealed(self) -> list[SnapshotWindow]:
        """The windows that were begun, and have no receipt."""
        return [window for window in self.windows if not window.is_sealed]

    def continuing(self, plan: Mapping[str, Any], kind: WindowKind) -> SnapshotWindow | None:
        """Return a window that was begun with a plan and never sealed; None if there is none.

        Args:
            kind: Why it was begun: others may have the same plan, and their receipt says more.

        Raises:
            ArchiveError: When an unsealed window has no plan, or it was changed.
        """
        found = (window for window in self.unsealed if window.can_continue(plan))
        return next((window for window in found if window.kind is kind), None)

    @property
    def sealed_at(self) -> str | None:
        """Time of the newest seal, in ISO 8601; None if nothing is sealed. Skips damaged windows.

        Raises:
            ReceiptError: When the newest receipt of a generation is damaged.
        """
        receipts = [generation.last_receipt() for generation in self.generations]
        sealed = [*filter(None, receipts), *self.readable_fold.receipts]
        return max((receipt.sealed_at for receipt in sealed), default=None)

    @property
    def next_number(self) -> int:
        """The next free number for a window that supersedes intact files."""
        found = map(_NUMBERED.match, self._all_folders)
        return 1 + max((int(numbered[1]) for numbered in found if numbered), default=0)

    def of_interval(self, interval: str) -> list[SnapshotWindow]:
        """Return the windows of a data interval, sealed or not, given the name of its first one."""
        return [window for window in self.windows if is_of_interval(window.key, interval)]

    def is_sealed(self, key: str) -> bool:
        """Return whether there is a window of that name, and it has a receipt."""
        return key in self.folders and self.folders[key].is_sealed

    @cached_property
    def fold(self) -> Fold[SnapshotWindow]:
        """The fold of all sealed windows.

        Raises:
            ReceiptError: When a window's receipt is damaged: it may replace any file.
        """
        if damaged := [window for window in self.sealed if not window.is_readable]:
            damaged[0].receipt  # noqa: B018 - raises
        return self.readable_fold

    @cached_property
    def readable_fold(self) -> Fold[SnapshotWindow]:
        """The fold of the windows with intact receipts.

        Only for validation: it reports the damaged ones, and still judges everything else.
        """
        return Fold(tuple(window for window in self.folders.values() if window.is_readable))

    def generation(self, number: int) -> SnapshotGeneration:
        """Return a generation, even if it is left out."""
        return next(each for each in self._all_generations if each.number == number)

    def topic_ids(self, generation: SnapshotGeneration) -> dict[str, str]:
        """Return the ids of a generation's topics.

        Archives of version 0.1 have them only in its receipts and, until the topics are made again
        or their logs rewritten, in `archive.json`.
        """
        own: Mapping[str, str] = generation.document.topics
        with suppress(ReceiptError):
            receipt = None if own else generation.last_receipt()
            own = receipt.topics if receipt else own
        return {**self.document.topics, **own}

    @property
    def topics_now(self) -> dict[str, str]:
        """The ids of the archive's topics.

        A roll that was killed may have said those of the generation that it opened in that one's
        document only.
        """
        newest = self.open_generation
        # The checks of what is sealed tell of a damaged one.
        with suppress(ArchiveError):
            return self.topic_ids(newest) if newest else dict(self.document.topics)
        return dict(self.document.topics)

    def topic_incarnations(self) -> dict[tuple[str, str], int]:
        """Return the first generation of each topic incarnation, by topic name and id.

        If a topic was recreated, the lower number is the older incarnation.
        """
        first: dict[tuple[str, str], int] = {}
        index = self.index
        known = {row.generation for row in index.generations} if index else frozenset()
        for row in index.topics if index else ():
            first[row.topic, row.topic_id] = row.generation
        for generation in self._all_generations:
            if generation.number not in known:
                for topic in generation.document.topics.items():
                    first[topic] = min(first.get(topic, generation.number), generation.number)
        return first


def _folders_in(folder: UPath) -> list[str]:
    """Return the folders in a folder, without hidden ones: on HDFS, a lease has one."""
    entries = list_folder(folder)
    return [name for name, is_folder in entries.items() if is_folder and name[0] != "."]


def _holds_something(folder: UPath) -> bool:
    return any(not name.startswith(".") for name in list_folder(folder))
