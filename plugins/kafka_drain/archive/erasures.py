"""The requests to erase records, in `erasures/`: salted hashes of what they name, never that."""

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
from kafka_drain.storage.paths import list_folder

#: The archive's folder of erasures.
FOLDER = "erasures"

_NAME = re.compile(r"(\d{4,})\.json")


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
        root: The archive's folder.
        number: Its number, from 1.
        document: What it asks for.
        lifted: Who lifted it, and when; None if it is in force.
        done: What it has been carried out on; None for nothing yet.
    """

    root: UPath
    number: int
    document: ErasureDocument
    lifted: ErasureLiftedDocument | None = None
    done: ErasureDoneDocument | None = None

    @property
    def name(self) -> str:
        """Its number as in its files' names."""
        return f"{self.number:04d}"

    def __str__(self) -> str:
        return f"erasure {self.number} ({self.document.request})"

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
        """Write what it has been carried out on; a later run replaces it."""
        done.write(self.root / FOLDER / f"{self.name}.done.json")
        return replace(self, done=done)

    def lift(self, lifted: ErasureLiftedDocument) -> bool:
        """Record that it is no longer in force; return False if that was recorded before."""
        return lifted.create(self.root / FOLDER / f"{self.name}.lifted.json")


def read_erasures(root: UPath) -> list[Erasure]:
    """Return an archive's erasures, oldest first, lifted or not.

    Raises:
        ArchiveError: When a document was changed.
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
                    ErasureDoneDocument.read(folder / done) if done in names else None,
                )
            )
    return found


def in_force(erasures: Iterable[Erasure]) -> list[Erasure]:
    """Return those of some erasures that weren't lifted."""
    return [erasure for erasure in erasures if erasure.lifted is None]


def create_erasure(root: UPath, document: ErasureDocument) -> Erasure:
    """Write a new request, with the next number; the caller holds the maintenance lease."""
    number = 1 + max((erasure.number for erasure in read_erasures(root)), default=0)
    while not document.create(root / FOLDER / f"{number:04d}.json"):
        number += 1
    return Erasure(root, number, document)
