"""Statements about an archive, to be signed. Opens nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from kafka_drain.errors import EvidenceError

Kind = Literal["validation", "republish", "drill", "cut-over", "witness", "rotation"]

FORMAT_VERSION = 1

#: The proof of each kind's signature beyond its bytes: the content of its document.
MEANINGS: Mapping[str, str] = {
    "validation": "the report of a validation, and the archive's newest receipts at its end",
    "republish": "the receipt of a republish whose target was read back and compared",
    "drill": "the result of a restore that was tried, and the archive's newest receipts then",
    "cut-over": "what a step of a cut-over saw, and the archive's newest receipts then",
    "witness": "the archive's newest receipts at one moment, in a chain of such lines",
    "rotation": "another key that the owner of this one signs with from then on",
}

#: Claims that no signature proves.
LIMITS = (
    "that what the signer saw was true: it saw the archive's files, and what Kafka answered",
    "that nobody else had the private key when it was signed",
    "that the time is right: it is by the signer's clock",
    "that this is the newest statement, or that none was withheld: compare it with a witness",
)
#: A claim that a statement without a look at the archive doesn't prove either.
NOT_COMPARED = "that the archive is still as it was: pass --archive to compare its receipts"


@dataclass(frozen=True)
class Statement:
    """A statement about an archive.

    Attributes:
        kind: Its subject.
        signed_at: When it was signed, in ISO 8601.
        archive_id: The archive's id; empty for a rotation.
        pipeline: Name of its pipeline; empty for a rotation.
        heads: Hash at the end of the newest receipt of each generation and of the newest entry of
            the journal, by path relative to the archive.
        files: SHA-256 of files that the statement is about, by path relative to the archive.
        document: The report, receipt or result itself.
    """

    kind: Kind
    signed_at: str
    archive_id: str = ""
    pipeline: str = ""
    heads: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the statement as it is signed."""
        document = {
            "format_version": FORMAT_VERSION,
            "kind": self.kind,
            "signed_at": self.signed_at,
            "archive": {"id": self.archive_id, "pipeline": self.pipeline},
            "heads": dict(self.heads),
            "files": dict(self.files),
            "document": dict(self.document),
        }
        text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        # Names of topics may hold half a surrogate pair, which isn't text.
        return text.encode("utf-8", "backslashreplace")

    @classmethod
    def parse(cls, payload: bytes) -> Statement:
        """Parse signed bytes.

        Raises:
            EvidenceError: When they aren't a statement that this release reads; the text follows
                the file's name.
        """
        try:
            document = json.loads(payload)
            version, kind = document["format_version"], document["kind"]
            if version != FORMAT_VERSION or kind not in get_args(Kind):
                raise EvidenceError(
                    f"has a correct signature, but its kind {kind!r} in version {version!r} isn't "
                    "known; use a newer release"
                )
            return cls(
                kind=kind,
                signed_at=str(document["signed_at"]),
                archive_id=str(document["archive"]["id"]),
                pipeline=str(document["archive"]["pipeline"]),
                heads=dict(document["heads"]),
                files=dict(document["files"]),
                document=dict(document["document"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise EvidenceError(
                f"has a correct signature, but holds no statement ({error!r})"
            ) from error
