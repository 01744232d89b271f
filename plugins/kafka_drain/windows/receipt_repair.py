"""Repair sealed documents: restore those that the journal names, move aside the others.

Sealed means named: by the journal, by a later receipt, or by the window that contains compacted
segments. A receipt that nothing names was never sealed: a power failure, or a kill on a file
system without hard links, left it half written.
"""

from __future__ import annotations

import json
import os
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from upath import UPath

from kafka_drain.archive import erasures
from kafka_drain.archive.copies import read_copy
from kafka_drain.archive.documents import ArchiveDocument, GenerationDocument, HeadDocument
from kafka_drain.archive.generation import Generation, number_of
from kafka_drain.archive.journal.digests import digest_of
from kafka_drain.archive.journal.entries import REMOVED, Tip, lags, parse_entry
from kafka_drain.archive.journal.files import read_journal
from kafka_drain.archive.journal.identity import generation_differs, ids_by_topic
from kafka_drain.archive.receipts import (
    MisplacedError,
    Receipt,
    ReceiptError,
    parse_receipt,
    receipt_at,
    receipt_name,
)
from kafka_drain.archive.snapshot import Snapshot
from kafka_drain.archive.soundness import settings_differ
from kafka_drain.clock import utc_now
from kafka_drain.errors import ArchiveError
from kafka_drain.output import Level, Line, say
from kafka_drain.storage.immutability import Retention
from kafka_drain.storage.json_files import create_text
from kafka_drain.storage.paths import is_local, list_folder, read_bytes, read_if_there, sync_folder
from kafka_drain.storage.sealed_json import SEALED_END

# Each fix can reveal further damage: below a journal entry, or before a receipt.
ROUNDS = 5


class FileState(Enum):
    """The state in which a file was found."""

    SOUND = "is intact"
    MISSING = "is missing"
    CHANGED = "differs from what was sealed"
    UNREADABLE = "can't be read"
    COPIED = "is a copy of another folder"
    OLDER = "is older than the newest entries"


class RepairAction(Enum):
    """The action to take."""

    LEAVE = "left as it is"
    RESTORE = "restored from its copy"
    SET_ASIDE = "moved aside"
    REFUSE = "to be restored by hand"


def judge_sealed(
    seen: FileState, *, is_named: bool, has_copy: bool, may_forget: bool
) -> RepairAction:
    """Return the action for a receipt, or for a document that receipts depend on.

    Args:
        seen: The state in which it was found.
        is_named: Whether anything records that it was sealed.
        has_copy: Whether the archive has a copy with the recorded hash.
        may_forget: Whether the user accepts that sealed files without a copy are forgotten, and
            nothing that is left was sealed after this one.
    """
    if seen is FileState.SOUND:
        return RepairAction.LEAVE
    if is_named and has_copy:
        return RepairAction.RESTORE
    if seen is FileState.UNREADABLE and (may_forget or not is_named):
        return RepairAction.SET_ASIDE
    # A missing or changed file is forgotten when the journal is recreated.
    return RepairAction.REFUSE if is_named and not may_forget else RepairAction.LEAVE


def may_be_sealed_entry(number: int, *, known: int, has_head: bool) -> bool:
    """Return whether anything may refer to the journal's newest entry, which can't be read.

    Args:
        known: Highest number of entries in journal.json, or at the sealing of a receipt.
        has_head: Whether there is a journal.json; without one, there can't be more than one entry.
    """
    return known >= number or (not has_head and number > 1)


def may_be_sealed_receipt(
    name: str, tip: Tip | None, *, is_followed: bool, is_open: bool, is_sure: bool
) -> bool:
    """Return whether a generation's receipt may have been sealed even if nothing has its hash.

    Args:
        name: The receipt.
        tip: The generation's newest receipt in the journal; None if that names none.
        is_followed: Whether a later receipt can be read.
        is_open: Whether drains append to the generation: then its batches can be sealed again.
        is_sure: Whether the journal names everything that was sealed.
    """
    return is_followed or (tip is not None and name < tip.name) or not (is_open and is_sure)


def hash_named(
    name: str, tip: Tip | None, following: tuple[str, str | None], by_window: str | None
) -> str | None:
    """Return the hash that a generation's receipt must have; None if nothing records it.

    Args:
        name: The receipt.
        tip: The generation's newest receipt in the journal; None if that names none.
        following: The predecessor that the next receipt refers to, and its hash.
        by_window: The hash in the receipt of a window that contains what was compacted.
    """
    if tip is not None and tip.name == name:
        return tip.sha256
    if following[0] == name and following[1] is not None:
        return following[1]
    return by_window


@dataclass(frozen=True, slots=True)
class DocumentRepair:
    """A damaged file and the action for it.

    Attributes:
        where: The file, relative to the archive.
        seen: The state in which it was found.
        step: The action to take.
        is_named: Whether anything records that it was sealed.
        content: The content to restore.
        way_out: The user's way out if a repair can't fix it.
    """

    where: str
    seen: FileState
    step: RepairAction
    is_named: bool
    content: bytes = b""
    way_out: str = ""

    def line(self, root: UPath) -> Line:
        """Return a line of text for the user."""
        level = Level.ERROR if self.step is RepairAction.REFUSE else Level.PLAIN
        return Line(f"repair {root}: {self}", level)

    def __str__(self) -> str:
        told = f"{self.where} {self.seen.value}"
        if self.step is RepairAction.RESTORE:
            source = "the newest entry" if self.seen is FileState.OLDER else "its copy"
            return f"{told}: restores it from {source}"
        if self.step is RepairAction.SET_ASIDE:
            why = "its seal is forgotten" if self.is_named else "nothing names it"
            return f"{told}, and {why}: moves it aside"
        return f"can't fix: {told}; {self.way_out or 'restore it from a copy'}"


@dataclass(frozen=True)
class DocumentRepairPlan:
    """The actions of a repair for damaged sealed documents.

    Attributes:
        repairs: The action for each damaged file.
    """

    root: UPath
    repairs: Sequence[DocumentRepair]

    @property
    def to_do(self) -> list[DocumentRepair]:
        """The actions that a repair can take."""
        return [repair for repair in self.repairs if repair.step is not RepairAction.REFUSE]

    def lines(self) -> list[Line]:
        """Return the actions as lines of text for the user."""
        return [repair.line(self.root) for repair in self.repairs]


def plan_document_repair(root: UPath, *, forget: bool = False) -> DocumentRepairPlan:
    """Plan the repair of damaged sealed documents, without changing anything.

    Args:
        forget: Whether to forget documents that have no copy and after which nothing was sealed.

    Raises:
        LockedError: When the journal keeps changing while it is read.
    """
    return DocumentRepairPlan(root, _Look(root, forget).look())


def repair_documents(root: UPath, *, forget: bool = False) -> None:
    """Restore named documents from their copies, move aside unreadable ones that nothing names.

    The caller holds the leases of the archive, of its maintenance and of its windows. If killed, it
    can simply be run again.

    Raises:
        ArchiveError: When the archive isn't writable.
    """
    told: set[DocumentRepair] = set()
    for _ in range(ROUNDS):
        plan = plan_document_repair(root, forget=forget)
        for repair in plan.repairs:
            if repair not in told:
                say(repair.line(root))
                told.add(repair)
        if not plan.to_do:
            return
        for repair in plan.to_do:
            _carry_out(root, repair)


def _carry_out(root: UPath, repair: DocumentRepair) -> None:
    path = root / repair.where
    if repair.seen is not FileState.MISSING:
        say(f"repair {root}: renamed {repair.where} to {_set_aside(path, repair.seen)}")
    if repair.step is not RepairAction.RESTORE:
        return
    retention = _retention(root) if _is_receipt(repair.where) else None
    if not create_text(path, repair.content.decode("utf-8"), retention):
        raise ArchiveError(f"{path} was just written by another run; repair again")


def _copied(folder: str) -> DocumentRepair:
    return DocumentRepair(folder, FileState.COPIED, RepairAction.SET_ASIDE, is_named=False)


def _is_receipt(where: str) -> bool:
    return "/receipts/" in where or where.endswith("/receipt.json")


def _retention(root: UPath) -> Retention | None:
    """Return the lock of a receipt that is written now; archive.json was restored before."""
    try:
        locks = Snapshot(root).document.immutability
    except ArchiveError:
        # It has no copy: only a new journal can help, after the receipts.
        return None
    return None if locks is None else locks.from_now(utc_now())


def _set_aside(path: UPath, seen: FileState) -> str:
    """Rename a file so that it isn't taken for a receipt or document; return the new name."""
    kinds = {FileState.UNREADABLE: "torn", FileState.COPIED: "copy"}
    kind = kinds.get(seen, "changed")
    name = f".{path.name}.{kind}-{datetime.now(timezone.utc):%Y%m%dT%H%M%S.%fZ}"
    # A folder that contains only hidden files counts as never started. Receipts stay visible.
    if seen is not FileState.COPIED and path.name not in ("generation.json", "plan.json"):
        name = name.removeprefix(".")
    aside = path.with_name(name)
    try:
        if is_local(path):
            os.rename(str(path), str(aside))
            sync_folder(path.parent)
        else:
            path.fs.mv(path.path, aside.path, recursive=seen is FileState.COPIED)
    except OSError as error:
        raise ArchiveError(
            f"{path} can't be renamed: {error.strerror or error}; check that this user has write "
            "access to its folder"
        ) from error
    return name


class _Look:
    """One pass over the sealed documents and over everything that names them."""

    def __init__(self, root: UPath, forget: bool) -> None:
        self._root = root
        self._forget = forget
        self._journal = read_journal(root)
        self._noted = self._journal.noted
        # Files that a damaged journal doesn't name may still have been sealed.
        self._is_sure = forget or not self._journal.problems
        self._named_by_windows: dict[str, str] = {}
        self._repairs: list[DocumentRepair] = []

    def look(self) -> list[DocumentRepair]:
        """Return the damaged files."""
        torn = self._torn_entry()
        if torn is not None and torn.step is RepairAction.SET_ASIDE:
            # What the entries below it name only shows once it is moved aside.
            return [torn]
        if (head := self._older_head()) is not None:
            return [head]
        if copied := [*self._copied_generations(), *self._copied_windows()]:
            return copied
        self._look_at_document("archive.json", is_suspected=True)
        numbers = {int(name.rpartition("/")[2]) for name in self._noted.tips}
        there = sorted(numbers.union(_generations(self._root)))
        generations = [Generation(self._root, number) for number in there]
        for generation in generations:
            self._look_at_beginning(generation.folder, generation.name, "generation.json")
        self._look_at_windows()
        self._look_at_erasures()
        following: str | None = None
        for generation in reversed(generations):
            is_open = generation is generations[-1]
            following = self._look_at_receipts(generation, following, is_open=is_open)
        return self._repairs

    def _older_head(self) -> DocumentRepair | None:
        """Find a journal.json that is too old, although all entries after it are there.

        An archive that was copied while it was used may have one.
        """
        journal = self._journal
        only = {where for where, _ in journal.problems} == {"journal"}
        if not only or not lags(journal.head, journal.newest) or journal.sha256 is None:
            return None
        renewed = HeadDocument(entries=journal.newest, sha256=journal.sha256).content()
        content = json.dumps(renewed, indent=2).encode()
        return DocumentRepair("journal.json", FileState.OLDER, RepairAction.RESTORE, True, content)

    def _copied_generations(self) -> Iterator[DocumentRepair]:
        """Find folders that by their generation.json are a copy of another one's."""
        there = _generations(self._root)
        for number in there:
            generation = Generation(self._root, number)
            where = f"{generation.name}/generation.json"
            if generation.name in self._noted.tips or where in self._noted.documents:
                continue
            content = read_if_there(self._root / where)
            with suppress(ArchiveError):
                said = GenerationDocument.parse(self._root / where, content or b"").generation
                if said != number and said in there:
                    yield _copied(generation.name)

    def _copied_windows(self) -> Iterator[DocumentRepair]:
        """Find folders whose receipt is that of another window, which is there too."""
        for key in Snapshot(self._root).folders:
            if key in self._noted.windows:
                continue
            where = f"windows/{key}/receipt.json"
            content = read_if_there(self._root / where)
            try:
                receipt_at(content or b"", where)
            except MisplacedError as error:
                own = error.receipt.where if error.receipt is not None else where
                if read_if_there(self._root / own) == content:
                    yield _copied(f"windows/{key}")
            except ReceiptError:
                continue

    def _torn_entry(self) -> DocumentRepair | None:
        """Find a half-written newest entry: neither journal.json nor a receipt refers to it.

        What it was going to note still exists, and is noted again.
        """
        newest = self._journal.newest
        where = f"journal/{newest:012d}.json"
        if where not in {where for where, _ in self._journal.problems}:
            return None
        try:
            parse_entry(read_bytes(self._root / where))
        except FileNotFoundError:
            return None
        except ValueError:
            head = self._journal.head
            known = max([head.entries if head else 0, *self._entries_known()])
            is_named = may_be_sealed_entry(newest, known=known, has_head=head is not None)
            step = judge_sealed(
                FileState.UNREADABLE, is_named=is_named, has_copy=False, may_forget=False
            )
            return DocumentRepair(where, FileState.UNREADABLE, step, is_named)
        return None

    def _entries_known(self) -> list[int]:
        """Return the number of journal entries at the sealing of each receipt."""
        wheres = [f"windows/{key}/receipt.json" for key in Snapshot(self._root).folders]
        for number in _generations(self._root):
            generation = Generation(self._root, number)
            wheres += [generation.receipt_where(name) for name in generation.receipt_names()[-2:]]
        found = []
        for where in wheres:
            content = read_if_there(self._root / where)
            try:
                found.append(parse_receipt(content or b"").journal)
            except ReceiptError:
                continue
        return found

    def _look_at_beginning(self, folder: UPath, name: str, document: str) -> None:
        """Check the document that a folder starts with."""
        where = f"{name}/{document}"
        others = list_folder(folder)
        is_in_use = any(not other.startswith(".") and other != document for other in others)
        is_sealed = bool({"receipt.json", "receipts"}.intersection(others))
        way_out = ""
        if self._is_sure and not is_sealed and where not in self._noted.documents:
            way_out = f"restore it from a copy, or remove {name}, which contains nothing sealed"
        self._look_at_document(
            where,
            is_suspected=is_in_use,
            may_forget=self._forget and not is_sealed,
            way_out=way_out,
        )

    def _look_at_windows(self) -> None:
        for key in sorted(self._noted.windows.union(Snapshot(self._root).folders)):
            name = f"windows/{key}"
            self._look_at_beginning(self._root / name, name, "plan.json")
            where = f"{name}/receipt.json"
            # Without a journal, a receipt that is fully written may have been sealed long ago.
            is_whole = (read_if_there(self._root / where) or b"").endswith(SEALED_END)
            content = self._look_at_document(
                where,
                is_suspected=is_whole and not self._journal.newest,
                may_forget=self._forget,
            )
            if content is not None:
                self._named_by_windows |= parse_receipt(content).provenance

    def _look_at_erasures(self) -> None:
        noted = {path for path in self._noted.documents if path.startswith(f"{erasures.FOLDER}/")}
        names = list_folder(self._root / erasures.FOLDER)
        for where in sorted(noted.union(erasures.noted_paths(names))):
            self._look_at_document(where, may_forget=self._forget)

    def _look_at_document(
        self,
        where: str,
        *,
        is_suspected: bool = False,
        may_forget: bool = False,
        way_out: str = "",
    ) -> bytes | None:
        """Check a document that the journal notes by its hash; see `_look_at`."""
        noted = self._noted.documents.get(where)
        if noted == REMOVED:
            return None
        is_suspected = is_suspected or not self._is_sure
        return self._look_at(where, noted, is_suspected, may_forget, way_out)

    def _look_at_receipts(
        self, generation: Generation, following: str | None, *, is_open: bool
    ) -> str | None:
        """Check a generation's receipts, from the newest to the oldest.

        Args:
            following: The hash by which the next generation's first receipt names this
                generation's last one.
            is_open: Whether drains append to it: then a batch whose receipt nothing names is
                proven and sealed again.

        Returns:
            The hash by which this generation's first receipt names its predecessor.
        """
        tip = self._noted.tips.get(generation.name)
        names = sorted({*generation.receipt_names(), *([tip.name] if tip else [])})
        before: tuple[str, str | None] = (names[-1] if names else "", following)
        is_followed = False
        while names:
            name = names.pop()
            where = generation.receipt_where(name)
            sha256 = hash_named(name, tip, before, self._named_by_windows.get(where))
            is_suspected = may_be_sealed_receipt(
                name, tip, is_followed=is_followed, is_open=is_open, is_sure=self._is_sure
            )
            may_forget = self._forget and not is_followed
            content = self._look_at(where, sha256, is_suspected, may_forget)
            before, following = ("", None), None
            if content is None:
                continue
            receipt, is_followed = parse_receipt(content), True
            if receipt.first_batch == 0:
                is_forgotten = self._noted.forgotten.get(where) == receipt.previous
                following = None if is_forgotten else receipt.previous
                continue
            before = (receipt_name(receipt.first_batch - 1), receipt.previous)
            if self._noted.forgotten.get(where) == receipt.previous:
                before = ("", None)
            elif before[0] not in names:
                insort(names, before[0])
        return following

    def _look_at(
        self,
        where: str,
        sha256: str | None,
        is_suspected: bool,
        may_forget: bool,
        way_out: str = "",
    ) -> bytes | None:
        """Check a file.

        Args:
            where: The file, relative to the archive.
            sha256: The recorded hash; None if there is none.
            is_suspected: Whether to assume that it was sealed if a file of that name exists.
            may_forget: Whether nothing that is left was sealed after it, so it may be forgotten.
            way_out: The user's way out if a repair can't fix it.

        Returns:
            The content after the repair; None if that isn't known.
        """
        content = read_if_there(self._root / where)
        seen = self._see(where, content, sha256)
        if seen is FileState.SOUND:
            return content
        copy = read_copy(self._root, where) if sha256 is not None else None
        step = judge_sealed(
            seen,
            is_named=sha256 is not None or (seen is FileState.UNREADABLE and is_suspected),
            has_copy=self._see(where, copy, sha256) is FileState.SOUND,
            # A different document that can be read counts from then on.
            may_forget=may_forget or (self._forget and seen is FileState.CHANGED),
        )
        if step is not RepairAction.LEAVE:
            is_named = sha256 is not None or is_suspected
            self._repairs.append(DocumentRepair(where, seen, step, is_named, copy or b"", way_out))
        if step is RepairAction.RESTORE:
            return copy
        return content if seen is FileState.CHANGED else None

    def _see(self, where: str, content: bytes | None, sha256: str | None) -> FileState:
        """Return the state of a file, including the parts that its digest doesn't cover."""
        seen = _see(where, content, sha256)
        if content is None or seen is not FileState.SOUND:
            return seen
        try:
            differs = self._differs(where, content)
        except ArchiveError:
            return FileState.UNREADABLE
        return FileState.CHANGED if differs else FileState.SOUND

    def _differs(self, where: str, content: bytes) -> str:
        """Return the contradiction between a document and receipts where its digest doesn't reach.

        Raises:
            ArchiveError: When it can't be read.
        """
        if where == "archive.json":
            document = ArchiveDocument.parse(self._root / where, content)
            ids = ids_by_topic(self._topic_ids())
            return settings_differ(self._root, document, self._noted.documents, ids)
        folder, _, name = where.rpartition("/")
        number = number_of(folder.rpartition("/")[2])
        if name != "generation.json" or number is None:
            return ""
        opened = GenerationDocument.parse(self._root / where, content)
        newest = self._newest_of(Generation(self._root, number))
        if newest is None:
            return ""
        topics, starts = opened.known_topics, opened.first_offsets()
        return generation_differs(opened.generation, topics, starts, newest)

    def _newest_of(self, generation: Generation) -> Receipt | None:
        """Return the newest receipt of a generation; None if there is none, or it is damaged."""
        names = generation.receipt_names()[-1:]
        content = read_if_there(self._root / generation.receipt_where(names[0])) if names else None
        try:
            return parse_receipt(content) if content is not None else None
        except ReceiptError:
            return None

    def _topic_ids(self) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
        """Yield, for each generation, the topic ids in its newest receipt and its document."""
        for number in _generations(self._root):
            generation = Generation(self._root, number)
            newest = self._newest_of(generation)
            opened: Mapping[str, str] = {}
            with suppress(ArchiveError):
                opened = generation.read_document().topics
            yield newest.topics if newest else {}, opened


def _see(where: str, content: bytes | None, sha256: str | None) -> FileState:
    """Return the state of a file whose hash must be `sha256`; None accepts any hash."""
    if content is None:
        return FileState.MISSING
    try:
        found = digest_of(where, content)
    except ValueError:
        return FileState.UNREADABLE
    return FileState.SOUND if sha256 in (None, found) else FileState.CHANGED


def _generations(root: UPath) -> list[int]:
    """Return the numbers of the generations that have a folder, oldest first."""
    entries = list_folder(root / "generations")
    found = (number_of(name) for name, is_folder in entries.items() if is_folder)
    return sorted(number for number in found if number is not None)
