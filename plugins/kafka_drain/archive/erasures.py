"""The requests to erase records, in `erasures/`: salted hashes of what they name, never that.

<number>.json          a request, written once; the journal has its digest
<number>.lifted.json   it is no longer in force, written once; the journal has its digest
<number>.done.json     what it has been carried out on, sealed; without it, all is searched again
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from upath import UPath

from kafka_drain.archive.documents import (
    ErasureDocument,
    ErasureDoneDocument,
    ErasureLiftedDocument,
)
from kafka_drain.archive.journal.digests import ERASURES
from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.findings import Finding, Reason
from kafka_drain.storage.json_files import write_text
from kafka_drain.storage.paths import list_folder, read_bytes
from kafka_drain.storage.sealed_json import SealError
from kafka_drain.storage.typed_json import DocumentError

#: The archive's folder of erasures.
FOLDER = ERASURES

_NAME = re.compile(r"(\d{4,})\.json")
_NUMBERED = re.compile(r"(\d{4,})\.")
_DONE = re.compile(r"(\d{4,})\.done\.json")
#: Names of files that are written once.
_NOTED = re.compile(r"\d{4,}(\.lifted)?\.json")


def key_hash(salt: bytes, key: bytes) -> str:
    """Return the hash of a record's key, in hexadecimal digits."""
    return hmac.digest(salt, b"key\0" + key, "sha256").hex()


def header_hash(salt: bytes, name: str, value: bytes) -> str:
    """Return the hash of a header, in hexadecimal digits; the name's length separates the two."""
    encoded = name.encode()
    content = b"header\0" + len(encoded).to_bytes(4, "big") + encoded + value
    return hmac.digest(salt, content, "sha256").hex()


@dataclass(frozen=True)
class Erasure:
    """A request to erase records.

    Attributes:
        number: Its number, from 1.
        document: The request.
        lifted: The note that lifts it; None if it is in force.
        done: Its result so far; None for nothing yet.
    """

    root: UPath
    number: int
    document: ErasureDocument
    lifted: ErasureLiftedDocument | None = None
    done: ErasureDoneDocument | None = None

    def __str__(self) -> str:
        return f"erasure {self.number} ({self.document.request})"

    def accept(self) -> None:
        """Write the request: from now on it is in force. The caller holds the maintenance lease.

        Raises:
            LockedError: When another run, which had lost its lease, has taken the number.
        """
        if not self.document.create(self.root / path_of(self.number)):
            raise LockedError(
                f"{self.root}: another run accepted {self} at the same time. A retry may help"
            )

    def has_searched(self, owner: str, receipt: str) -> bool:
        """Return whether it has been carried out on a segment.

        Args:
            owner: Number of the segment's generation, or name of its window.
            receipt: Name of the receipt in the generation; empty for a window.
        """
        if self.done is None:
            return False
        if not receipt:
            return owner in self.done.searched
        return receipt <= self.done.generations.get(owner, "")

    def finish(self, done: ErasureDoneDocument) -> Erasure:
        """Write its result so far; a later run replaces it."""
        write_text(self.root / path_of(self.number, ".done"), done.to_bytes().decode())
        return replace(self, done=done)

    def lift(self, lifted: ErasureLiftedDocument) -> bool:
        """Record that it is no longer in force; return False if that was recorded before."""
        return lifted.create(self.root / path_of(self.number, ".lifted"))


def read_erasures(root: UPath) -> list[Erasure]:
    """Return an archive's erasures, oldest first, lifted or not.

    What one has been carried out on counts only as it was sealed: otherwise all is searched again,
    and validation says so.

    Raises:
        ArchiveError: When a document isn't one known to this release.
    """
    folder = root / FOLDER
    names = list_folder(folder)
    found = []
    for name in sorted(names):
        if matched := _NAME.fullmatch(name):
            stem = matched[1]
            lifted, done = f"{stem}.lifted.json", f"{stem}.done.json"
            found.append(
                Erasure(
                    root,
                    int(stem),
                    ErasureDocument.read(folder / name),
                    ErasureLiftedDocument.read(folder / lifted) if lifted in names else None,
                    _done_as_sealed(folder / done) if done in names else None,
                )
            )
    return found


def _done_as_sealed(path: UPath) -> ErasureDoneDocument | None:
    try:
        return parse_done(path, read_bytes(path))
    except ArchiveError:
        return None


def parse_done(path: UPath, content: bytes) -> ErasureDoneDocument:
    """Parse the result of an erasure.

    Raises:
        ArchiveError: When a byte was changed, or it is another erasure's.
    """
    try:
        done = ErasureDoneDocument.parse(content)
    except SealError as error:
        raise ArchiveError(f"{path} was changed: {error}") from error
    except DocumentError as error:
        raise ArchiveError(f"{path} {error}") from error
    matched = _DONE.fullmatch(path.name)
    if matched and done.erasure != int(matched[1]):
        raise ArchiveError(f"{path} is that of erasure {done.erasure}")
    return done


def path_of(number: int, which: str = "") -> str:
    """Return the path of a document of a request to erase records, relative to the archive.

    Args:
        which: `.done` or `.lifted`; empty for the request itself.
    """
    return f"{FOLDER}/{number:04d}{which}.json"


def noted_paths(names: Iterable[str]) -> list[str]:
    """Return the documents that the journal names, relative to the archive, of those in the folder.

    Args:
        names: Names of the folder's files.
    """
    return sorted(f"{FOLDER}/{name}" for name in filter(_NOTED.fullmatch, names))


def parse_noted(root: UPath, path: str, content: bytes) -> None:
    """Refuse a document of an erasure that this release can't read.

    Raises:
        ArchiveError: Says why.
    """
    is_lifting = path.endswith(".lifted.json")
    kind = ErasureLiftedDocument if is_lifting else ErasureDocument
    kind.parse(root / path, content)


def changed_done(root: UPath, names: Iterable[str]) -> list[Finding]:
    """Return a warning for each note of what an erasure was carried out on that was changed.

    Args:
        names: Names of the files in the folder of erasures.
    """
    findings = []
    for name in sorted(filter(_DONE.fullmatch, names)):
        path = root / FOLDER / name
        try:
            parse_done(path, read_bytes(path))
        except ArchiveError as error:
            detail = str(error).removeprefix(f"{path} ")
            findings.append(Finding(Reason.NOTE_UNREADABLE, f"{FOLDER}/{name}", detail))
    return findings


def in_force(erasures: Iterable[Erasure]) -> list[Erasure]:
    """Return those of some erasures that weren't lifted."""
    return [erasure for erasure in erasures if erasure.lifted is None]


def next_erasure(root: UPath, document: ErasureDocument) -> Erasure:
    """Return a new request with the next number; it isn't written before `accept`."""
    # A number of which only the end was written isn't free either.
    taken = map(_NUMBERED.match, list_folder(root / FOLDER))
    number = 1 + max((int(match[1]) for match in taken if match), default=0)
    return Erasure(root, number, document)
