"""The journal of an archive: a record of everything sealed, in order. Opens nothing.

A receipt proves its own content and, through the hash that it holds, its predecessor. It can't
prove that a successor existed, and a window's receipt has no neighbours. So each sealing is also
recorded in a second place: an entry of the journal, sealed like a receipt, with the hash of the
previous entry. Whatever the journal says was sealed must exist unchanged.

An entry holds only what is new, but every sixteenth entry holds everything, so that a reader needs
at most the newest sixteen, however old the archive is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Annotated

from pydantic import Field

from kafka_drain.archive.format import SealedDocument
from kafka_drain.archive.journal.identity import ACCEPTED
from kafka_drain.storage.typed_json import ADDED, DocumentError

#: Interval, in entries, at which an entry holds everything sealed so far.
WHOLE_EVERY = 16

#: Replaces a hash: the receipt was replaced by another one and removed deliberately.
REMOVED = "removed"
#: A document's value in an entry. What is noted without a document has no hash to differ from.
Value = Annotated[str, Field(pattern=rf"^([0-9a-f]{{64}}|{REMOVED}|{ACCEPTED})$")]
#: Replaces a hash: the document can't be parsed.
UNREADABLE = "unreadable"


class Verdict(Enum):
    """The result of comparing a document with the journal."""

    SOUND = auto()
    NEW = auto()
    MISSING = auto()
    CHANGED = auto()
    #: Gets its own finding when the document is read.
    UNREADABLE = auto()


def judge_document(noted: str | None, seen: str | None) -> Verdict:
    """Compare the journal's note of a document with the actual file.

    Args:
        noted: Hash in the journal, or REMOVED; None if the journal doesn't name it.
        seen: Hash of the file, or UNREADABLE; None if the file is missing.
    """
    if noted == REMOVED:
        # If a run was killed between note and removal, it still exists, and so does its successor.
        return Verdict.SOUND
    if seen == UNREADABLE:
        return Verdict.UNREADABLE
    if noted is None:
        return Verdict.SOUND if seen is None else Verdict.NEW
    if seen is None:
        return Verdict.MISSING
    return Verdict.SOUND if seen == noted else Verdict.CHANGED


@dataclass(frozen=True, slots=True)
class Tip:
    """The newest receipt of a generation, which vouches for its predecessors by their hashes.

    Attributes:
        name: File name of the receipt.
        receipts: Number of receipts, including this one.
        sha256: The hash at its end.
    """

    name: Annotated[str, Field(alias="newest", pattern=r"^[0-9]+\.json$")]
    receipts: Annotated[int, Field(ge=1)]
    sha256: str


def judge_tip(noted: Tip | None, names: Sequence[str], seen: str | None) -> Verdict:
    """Compare the journal's note of a generation's receipts with the actual files.

    Args:
        noted: The newest receipt in the journal; None if the journal doesn't name any.
        names: Names of the existing receipts, oldest first.
        seen: Hash of the noted receipt, or UNREADABLE; None if it is missing.
    """
    if noted is None:
        return Verdict.NEW if names else Verdict.SOUND
    before = sum(name <= noted.name for name in names)
    if seen is None or before < noted.receipts:
        return Verdict.MISSING
    if seen == UNREADABLE:
        return Verdict.UNREADABLE
    if seen != noted.sha256 or before > noted.receipts:
        return Verdict.CHANGED
    return Verdict.NEW if len(names) > before else Verdict.SOUND


@dataclass(frozen=True)
class Noted:
    """Sealed receipts and documents, as noted in the journal.

    Attributes:
        tips: The newest receipt of each generation, by the generation's folder.
        documents: SHA-256 of each other document, by its path relative to the archive: receipt and
            plan of windows, what determines how generations are read, and the archive's identity.
        forgotten: SHA-256 of each lost receipt or document that was given up, by its path, or by
            the path of the receipt that was sealed after it.
    """

    tips: Mapping[str, Tip] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)
    forgotten: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tips or self.documents or self.forgotten)

    @property
    def windows(self) -> set[str]:
        """Names of the windows of which something is noted, even if only that it was removed."""
        return {path.split("/")[1] for path in self.documents if path.startswith("windows/")}

    @property
    def generations(self) -> set[str]:
        """Folders of the generations whose documents are noted."""
        ends = "/generation.json"
        return {path.removesuffix(ends) for path in self.documents if path.endswith(ends)}

    @property
    def gone(self) -> set[str]:
        """Folders of generations and windows of which something was removed, or given up."""
        removed = (path for path, value in self.documents.items() if value == REMOVED)
        return {"/".join(path.split("/")[:2]) for path in (*removed, *self.forgotten)}

    def plus(self, more: Noted) -> Noted:
        """Return the union of both, regardless of the order in which they were noted.

        For a generation the later tip wins, for a document the first hash, and a removal over all.
        """
        news = self.news(more)
        return Noted(
            {**self.tips, **news.tips},
            {**self.documents, **news.documents},
            {**self.forgotten, **news.forgotten},
        )

    def news(self, more: Noted) -> Noted:
        """Return the part of `more` that isn't noted here yet."""
        tips = {
            folder: tip
            for folder, tip in more.tips.items()
            if folder not in self.tips or self.tips[folder].name < tip.name
        }
        documents = {
            path: value
            for path, value in more.documents.items()
            if path not in self.documents or (value == REMOVED and self.documents[path] != REMOVED)
        }
        forgotten = {p: value for p, value in more.forgotten.items() if p not in self.forgotten}
        return Noted(tips, documents, forgotten)


def given_up(noted: Noted, there: Noted) -> dict[str, str]:
    """Return the hashes of noted files that are missing or changed, by path.

    Args:
        noted: The journal's notes.
        there: The sealed files that exist.
    """
    lost = {}
    for folder, tip in noted.tips.items():
        left = there.tips.get(folder)
        if left is None or left.name < tip.name or (left.name == tip.name and left != tip):
            lost[f"{folder}/receipts/{tip.name}"] = tip.sha256
    for path, value in noted.documents.items():
        if value not in (ACCEPTED, REMOVED, there.documents.get(path)):
            lost[path] = value
    return lost


@dataclass(frozen=True, slots=True)
class Entry(SealedDocument):
    """An entry of the journal.

    Attributes:
        number: Number of the entry, starting at 1.
        previous: SHA-256 of the previous entry; None if there is none.
        is_whole: Whether it holds everything sealed so far, rather than only what is new.
        at: Time of the entry, in UTC.
        tips: The newest receipts, as `Noted` has them; also documents and forgotten.
    """

    number: Annotated[int, Field(alias="entry")]
    previous: str | None
    is_whole: Annotated[bool, Field(alias="whole")]
    at: str
    tips: Annotated[Mapping[str, Tip], Field(alias="receipts")]
    documents: Mapping[str, Value]
    # Entries of older releases have none.
    forgotten: Mapping[str, str] = field(default_factory=dict, metadata=ADDED)

    @classmethod
    def of(cls, number: int, previous: str | None, is_whole: bool, noted: Noted, at: str) -> Entry:
        """Return an entry of sealed documents."""
        return cls(
            number,
            previous,
            is_whole,
            at,
            tips=dict(sorted(noted.tips.items())),
            documents=dict(sorted(noted.documents.items())),
            forgotten=dict(sorted(noted.forgotten.items())),
        )

    @property
    def noted(self) -> Noted:
        """The sealed receipts and documents."""
        return Noted(self.tips, self.documents, self.forgotten)

    @property
    def name(self) -> str:
        """File name: twelve digits, so that names sort like numbers."""
        return f"{self.number:012d}.json"


def parse_entry(content: bytes) -> Entry:
    """Parse an entry and verify its own hash.

    Raises:
        ValueError: When a byte was changed, or it isn't an entry.
    """
    try:
        return Entry.parse(content)
    except DocumentError as error:
        raise ValueError(f"not an entry known to this release (it {error})") from error


def first_needed(newest: int) -> int:
    """Return the number of the last entry, up to the newest one, that holds everything."""
    return newest - (newest - 1) % WHOLE_EVERY


def next_whole(newest: int) -> int:
    """Return the number of the next entry after the newest one that holds everything."""
    return first_needed(newest) + WHOLE_EVERY


@dataclass(frozen=True, slots=True)
class Head:
    """The content of `journal.json`: the end of the journal, kept outside of it.

    Attributes:
        entries: Number of the newest entry when it was written.
        sha256: Hash of that entry.
    """

    entries: int
    sha256: str


def judge_known(newest: int, known: int) -> str:
    """Return the error of a journal that lacks entries known to a receipt; empty for none.

    Args:
        newest: Number of the newest entry; 0 for none.
        known: Highest number of journal entries recorded in a receipt.
    """
    if known <= newest:
        return ""
    return f"ends at entry {newest:,}, but a receipt was sealed after entry {known:,}"


def lags(head: Head | None, newest: int) -> bool:
    """Return whether a head is further behind the newest entry than a killed run leaves it."""
    return head is not None and head.entries < newest - 1


def judge_head(head: Head | None, newest: int, hashes: Mapping[int, str]) -> str:
    """Describe why a journal is incomplete at its end; empty if it is complete.

    If a run is killed between writing an entry and the head, the head is one entry behind, or
    missing after the first entry; it is never ahead.

    Args:
        head: Content of `journal.json`; None if it is missing.
        newest: Number of the newest entry; 0 for none.
        hashes: Hashes of the newest entries, by number.
    """
    if head is None:
        return "journal.json, which records its end, is missing" if newest > 1 else ""
    if head.entries > newest:
        return f"ends at entry {newest:,}, but journal.json says {head.entries:,}"
    if lags(head, newest):
        return (
            f"journal.json says {head.entries:,} entries, but there are {newest:,}: it can lag by "
            "one, so it is an older one"
        )
    if head.entries in hashes and hashes[head.entries] != head.sha256:
        return f"entry {head.entries:,} isn't the one that journal.json names"
    return ""


@dataclass(frozen=True)
class Journal:
    """The journal as read.

    Attributes:
        newest: Number of its newest entry; 0 if nothing has been noted yet.
        sha256: Hash of that entry; None if there is none.
        noted: Everything that was sealed; if the journal is damaged, as much as can be read.
        problems: Problems of the journal itself, each with the file, relative to the archive.
        head: Content of `journal.json`.
    """

    newest: int = 0
    sha256: str | None = None
    noted: Noted = field(default_factory=Noted)
    problems: Sequence[tuple[str, str]] = ()
    head: Head | None = None


def fold_journal(contents: Iterable[tuple[int, bytes | None]], head: Head | None) -> Journal:
    """Assemble a journal from the newest entry that holds everything, and its successors.

    Args:
        contents: Number and content of each entry, in order; None for a missing entry.
        head: Content of `journal.json`; None if it is missing.
    """
    newest, previous, noted = 0, None, Noted()
    problems: list[tuple[str, str]] = []
    hashes: dict[int, str] = {}
    for number, content in contents:
        where = f"journal/{number:012d}.json"
        newest = number
        if content is None:
            problems.append((where, "is missing, but later entries exist"))
            previous = None
            continue
        try:
            entry = parse_entry(content)
        except ValueError as error:
            problems.append((where, f"is damaged: {error}"))
            previous = None
            continue
        if entry.number != number or entry.is_whole != (number == first_needed(number)):
            problems.append((where, f"holds entry {entry.number}"))
        elif previous is not None and entry.previous != previous:
            problems.append((where, "doesn't follow the previous entry"))
        noted = noted.plus(entry.noted)
        previous = entry.sha256
        hashes[number] = entry.sha256
    cut = judge_head(head, newest, hashes)
    if cut:
        problems.append(("journal", cut))
    return Journal(newest, hashes.get(newest), noted, tuple(problems), head)
