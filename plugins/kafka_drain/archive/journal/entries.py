"""The journal of an archive: what was sealed, in the order of its sealing. Opens nothing.

A receipt proves its own bytes and, by the hash that the next one holds, the one before. It can't
prove that there was a next one, and a window's receipt has no neighbours. So each sealing is noted
in one more place: an entry of the journal, sealed as a receipt is, with the hash of the entry
before. What the journal says was sealed has to be there as it was.

Each entry holds what is new; each sixteenth one holds all, so that a reader needs no more than
the newest sixteen, however old the archive is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from kafka_drain.archive.format_version import FORMAT_VERSION, require_readable
from kafka_drain.storage.sealed_json import SealError, seal, unseal

__all__ = [
    "REMOVED",
    "UNREADABLE",
    "WHOLE_EVERY",
    "Entry",
    "Head",
    "Journal",
    "Noted",
    "Tip",
    "Verdict",
    "first_needed",
    "fold_journal",
    "judge_document",
    "judge_head",
    "judge_known",
    "judge_tip",
    "next_whole",
    "parse_entry",
    "parse_head",
]


#: Each so many entries, one says all that was sealed so far.
WHOLE_EVERY = 16

#: Instead of a hash: a receipt that another one stands for, and that was removed on purpose.
REMOVED = "removed"
#: Instead of a hash: a document whose bytes can't be read as what it is.
UNREADABLE = "unreadable"


class Verdict(Enum):
    """What the journal and the archive say together of a document."""

    SOUND = auto()
    NEW = auto()
    MISSING = auto()
    CHANGED = auto()
    #: A finding of its own, where the document is read.
    UNREADABLE = auto()


def judge_document(noted: str | None, seen: str | None) -> Verdict:
    """Compare what was noted of a document with what is there.

    Args:
        noted: Its hash, or REMOVED; None where the journal doesn't name it.
        seen: Its hash, or UNREADABLE; None where it isn't there.
    """
    if noted == REMOVED:
        # Killed between the note and the removal, it is still there; what stands for it is too.
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
    """The newest receipt of a generation; by its hash it vouches for those before it.

    Attributes:
        name: Its file.
        receipts: How many there are, it included.
        sha256: The hash that it ends in.
    """

    name: str
    receipts: int
    sha256: str


def judge_tip(noted: Tip | None, names: Sequence[str], seen: str | None) -> Verdict:
    """Compare what was noted of a generation's receipts with what is there.

    Args:
        noted: Its newest receipt when it was noted; None where the journal doesn't name any.
        names: The receipts that are there, oldest first.
        seen: Hash of the receipt that was noted, or UNREADABLE; None where it isn't there.
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
    """What was sealed.

    Attributes:
        tips: The newest receipt of each generation, by the generation's folder.
        documents: SHA-256 of each other document, by its path relative to the archive: of windows
            receipt and plan, of generations what decides how they are read, and whose the archive
            is.
        forgotten: SHA-256 of each receipt and document that is lost and that somebody has given
            up, by its path, or by that of the receipt that was sealed after it.
    """

    tips: Mapping[str, Tip] = field(default_factory=dict)
    documents: Mapping[str, str] = field(default_factory=dict)
    forgotten: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tips or self.documents or self.forgotten)

    def plus(self, more: Noted) -> Noted:
        """Return all of both, in whatever order they were noted.

        The later tip of a generation stands, the first hash of a document, and a removal above all.
        """
        news = self.news(more)
        return Noted(
            {**self.tips, **news.tips},
            {**self.documents, **news.documents},
            {**self.forgotten, **news.forgotten},
        )

    def news(self, more: Noted) -> Noted:
        """Return what `more` says that isn't noted here."""
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

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "receipts": {
                folder: {"newest": tip.name, "receipts": tip.receipts, "sha256": tip.sha256}
                for folder, tip in sorted(self.tips.items())
            },
            "documents": dict(sorted(self.documents.items())),
            "forgotten": dict(sorted(self.forgotten.items())),
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Noted:
        """Read what `to_dict` returned."""
        tips = {
            folder: Tip(row["newest"], row["receipts"], row["sha256"])
            for folder, row in document["receipts"].items()
        }
        return cls(tips, dict(document["documents"]), dict(document.get("forgotten", {})))


@dataclass(frozen=True)
class Entry:
    """An entry of the journal.

    Attributes:
        number: Its number, from 1.
        previous: SHA-256 of the entry before; None where there is none.
        is_whole: Whether it holds all that was sealed so far, and not only what is new.
        noted: What was sealed.
        at: When, in UTC.
        sha256: The entry's own hash; empty before it was sealed.
    """

    number: int
    previous: str | None
    is_whole: bool
    noted: Noted
    at: str
    sha256: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """Name of its file: twelve digits, so that names sort like numbers."""
        return f"{self.number:012d}.json"

    def to_bytes(self) -> bytes:
        """Return the sealed entry, as it stands in its file."""
        return seal(
            {
                "format_version": FORMAT_VERSION,
                "entry": self.number,
                "previous": self.previous,
                "whole": self.is_whole,
                "at": self.at,
                **self.noted.to_dict(),
            }
        )


def parse_entry(content: bytes) -> Entry:
    """Parse an entry and check its own hash.

    Raises:
        ValueError: When a byte was changed, or it isn't an entry.
    """
    try:
        document = unseal(content)
        require_readable(document["format_version"])
        return Entry(
            number=document["entry"],
            previous=document["previous"],
            is_whole=document["whole"],
            noted=Noted.from_dict(document),
            at=document["at"],
            sha256=document["sha256"],
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"isn't an entry that this release knows ({error!r})") from error
    except SealError as error:
        raise ValueError(str(error)) from error


def first_needed(newest: int) -> int:
    """Return the number of the newest entry that holds all, up to the newest one."""
    return newest - (newest - 1) % WHOLE_EVERY


def next_whole(newest: int) -> int:
    """Return the first number after the newest one whose entry holds all."""
    return first_needed(newest) + WHOLE_EVERY


@dataclass(frozen=True, slots=True)
class Head:
    """What `journal.json` says, beside the journal: how far it had got.

    Attributes:
        entries: Number of the entry that was the newest.
        sha256: Its hash.
    """

    entries: int
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {"entries": self.entries, "sha256": self.sha256}


def parse_head(document: Mapping[str, Any]) -> Head:
    """Read what `to_dict` returned.

    Raises:
        ValueError: When it isn't that.
    """
    entries, sha256 = document["entries"], document["sha256"]
    if type(entries) is not int or not isinstance(sha256, str):
        raise ValueError(f"entries {entries!r} and sha256 {sha256!r}")
    return Head(entries, sha256)


def judge_known(newest: int, known: int) -> str:
    """Say whether a journal ends before the receipts say that it had got; empty when it doesn't.

    Args:
        newest: Number of the newest entry; 0 for none.
        known: How many entries a receipt, at least, was sealed after.
    """
    if known <= newest:
        return ""
    return f"ends at entry {newest:,}; a receipt was sealed after entry {known:,}"


def judge_head(head: Head | None, newest: int, hashes: Mapping[int, str]) -> str:
    """Say why a journal isn't whole at its end; empty when it is.

    A run that is killed between an entry and the head leaves the head one behind, or none beside
    the first entry; nothing leaves it ahead.

    Args:
        head: What `journal.json` says; None where it isn't there.
        newest: Number of the newest entry; 0 for none.
        hashes: Hashes of the newest entries, by number.
    """
    if head is None:
        return "journal.json, which says where it ends, isn't there" if newest > 1 else ""
    if head.entries > newest:
        return f"ends at entry {newest:,}; journal.json says {head.entries:,}"
    if head.entries in hashes and hashes[head.entries] != head.sha256:
        return f"entry {head.entries:,} isn't the one that journal.json names"
    return ""


@dataclass(frozen=True)
class Journal:
    """A journal as it was read.

    Attributes:
        newest: Number of its newest entry; 0 where nothing was noted yet.
        sha256: That entry's hash; None where there is none.
        noted: All that was sealed; where the journal is damaged, what can be told of it.
        problems: What is wrong with the journal itself, with the file, relative to the archive.
        head: What `journal.json` says.
    """

    newest: int = 0
    sha256: str | None = None
    noted: Noted = field(default_factory=Noted)
    problems: Sequence[tuple[str, str]] = ()
    head: Head | None = None


def fold_journal(contents: Iterable[tuple[int, bytes | None]], head: Head | None) -> Journal:
    """Put a journal together from the newest entry that holds all, and those after it.

    Args:
        contents: Number and bytes of each, in order; None for one that isn't there.
        head: What `journal.json` says; None where it isn't there.
    """
    newest, previous, noted = 0, None, Noted()
    problems: list[tuple[str, str]] = []
    hashes: dict[int, str] = {}
    for number, content in contents:
        where = f"journal/{number:012d}.json"
        newest = number
        if content is None:
            problems.append((where, "isn't there; later entries are"))
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
            problems.append((where, "isn't the successor of the entry before"))
        noted = noted.plus(entry.noted)
        previous = entry.sha256
        hashes[number] = entry.sha256
    cut = judge_head(head, newest, hashes)
    if cut:
        problems.append(("journal", cut))
    return Journal(newest, hashes.get(newest), noted, tuple(problems), head)
