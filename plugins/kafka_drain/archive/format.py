"""The archive's format: its versions, and sealed documents: value, bytes and hash at once.

Keys may be added within a version, and are ignored by older releases of the same version; if the
meaning of a key changes, so does the version (`docs/format.md`).

A kind of sealed document is a frozen dataclass; its fields are the file's keys, in order. So a new
key is a new field, and nothing else. Opens nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Generic, TypeVar

from typing_extensions import Self

from kafka_drain.storage.sealed_json import SealError, check_seal, hash_of, seal
from kafka_drain.storage.typed_json import OPTIONAL, Complete, DocumentError, Readable, dump, parse

#: The version that this release writes of all documents, but archives with erased records.
FORMAT_VERSION = 1
#: The version of the archive.json of an archive from which records were erased. Releases that don't
#: know erasures would drain these offsets again; each release refuses an archive.json that it
#: doesn't know before it does anything else.
ERASED_VERSION = 2
#: The versions that it reads: the current one and its predecessor, if any.
READABLE = tuple(version for version in (FORMAT_VERSION - 1, FORMAT_VERSION) if version >= 1)

Version = Annotated[int, Readable(READABLE)]
ArchiveVersion = Annotated[int, Readable((*READABLE, ERASED_VERSION))]

D = TypeVar("D", bound="SealedDocument")


@dataclass(frozen=True, slots=True)
class Sealed(Generic[D]):
    """A document as it is sealed.

    Attributes:
        value: The document, which has its hash.
        content: The bytes of its file.
    """

    value: D
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class SealedDocument(Complete):
    """A sealed document.

    Attributes:
        format_version: Version of its format.
        sha256: Its own hash; empty until it is sealed.
    """

    format_version: Version = FORMAT_VERSION
    sha256: str = field(default="", compare=False, metadata=OPTIONAL)

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Parse a file's bytes and verify their hash.

        Raises:
            SealError: When a byte was changed.
            DocumentError: When it isn't such a document; a VersionError if of another version.
        """
        check_seal(content)
        return parse(cls, content)

    @classmethod
    def parse_named(cls, content: bytes, name: str, kind: str, error: type[ValueError]) -> Self:
        """Parse a file's bytes and verify their hash; say which file isn't as it was sealed.

        Args:
            name: Name of the file.
            kind: The kind of document, with an article.
            error: The error to raise.
        """
        try:
            return cls.parse(content)
        except SealError as damage:
            raise error(f"{name} is damaged: {damage}; restore it from a copy") from damage
        except DocumentError as other:
            raise error(
                f"{name} isn't {kind} known to this release: it {other}, or use the release that "
                "wrote it"
            ) from other

    def document(self) -> dict[str, Any]:
        """Return the sealed keys, as JSON types."""
        document = dump(self)
        document.pop("sha256", None)
        return document

    def to_bytes(self) -> bytes:
        """Return the bytes of its file."""
        return seal(self.document())

    def sealed(self) -> Sealed[Self]:
        """Return the document with its hash, and the bytes of its file."""
        content = self.to_bytes()
        return Sealed(replace(self, sha256=hash_of(content)), content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(SealedDocument):
    """A sealed document of a chain.

    Attributes:
        number: Its number, from 1.
        previous: Hash of the link before; None for the first one, and after one that is lost.
    """

    number: int
    previous: str | None
