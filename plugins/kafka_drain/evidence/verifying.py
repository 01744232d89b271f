"""Verify signed evidence offline: with nothing but the file and a public key."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kafka_drain.errors import ConfigError, EvidenceError
from kafka_drain.evidence.envelope import Envelope, Verifier
from kafka_drain.evidence.keys import PublicKey
from kafka_drain.evidence.statement import LIMITS, MEANINGS, NOT_COMPARED, Statement
from kafka_drain.evidence.witness_lines import WitnessLine, check_lines, parse_lines

#: How each envelope begins and ends.
_BEGINS, _ENDS = b'{"payload":"', b"}]}"


@dataclass(frozen=True)
class Verified:
    """Evidence with a correct signature.

    Attributes:
        name: The file.
        sha256: SHA-256 of the file.
        key_id: Id of the key that signed it, of the newest line in a witness.
        statement: The signed statement; in a witness, the newest one.
        lines: All lines of a witness; empty for a single statement.
        unfinished: Number of lines of a witness that a killed run has begun; not among `lines`.
        compared: Results of the comparison with the archive; None if it wasn't compared.
    """

    name: str
    sha256: str
    key_id: str
    statement: Statement
    lines: tuple[WitnessLine, ...] = ()
    compared: tuple[str, ...] | None = None
    unfinished: int = 0

    @property
    def proven(self) -> list[str]:
        """The claims that the evidence proves."""
        what = MEANINGS[self.statement.kind]
        if self.lines:
            what = f"{len(self.lines):,} lines, none changed or removed between them, each {what}"
        signed = f"the owner of key {self.key_id} has signed {what}; no byte was changed since"
        if self.compared is None:
            return [signed]
        return [signed, "the archive still has every receipt that is named, with the same hash"]

    @property
    def not_proven(self) -> list[str]:
        """The claims that it doesn't prove."""
        begun = (
            f"what {self.unfinished:,} unfinished lines were to say, which killed runs have left"
        )
        return [
            *LIMITS,
            *([begun] if self.unfinished else []),
            *([NOT_COMPARED] if self.compared is None else []),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        said = self.statement
        return {
            "file": self.name,
            "sha256": self.sha256,
            "verified": True,
            "key": self.key_id,
            "kind": said.kind,
            "signed_at": said.signed_at,
            "archive": said.archive_id,
            "pipeline": said.pipeline,
            "lines": len(self.lines) or 1,
            "heads": dict(said.heads),
            "files": dict(said.files),
            "proven": self.proven,
            "not_proven": self.not_proven,
            "document": dict(said.document),
        }


def verify_evidence(name: str, content: bytes, keys: Mapping[str, PublicKey]) -> Verified:
    """Verify a signed statement, or all lines of a witness.

    Args:
        name: The file, for display.
        keys: Trusted public keys, by id.

    Raises:
        EvidenceError: When a byte was changed, or none of the keys has signed it.
    """
    verifiers: dict[str, Verifier] = {id_: key.verify for id_, key in keys.items()}
    try:
        if content.count(b"\n") > 1:
            return _verify_witness(name, content, verifiers)
        envelope = Envelope.parse(content)
        statement = Statement.parse(envelope.verify(verifiers))
        # A witness's only line has to be its first.
        _require_whole(parse_lines([content], verifiers))
    except EvidenceError as error:
        raise EvidenceError(f"{name} {error}") from error
    return Verified(name, hashlib.sha256(content).hexdigest(), envelope.key_id, statement)


def _verify_witness(name: str, content: bytes, keys: Mapping[str, Verifier]) -> Verified:
    whole = content.splitlines(keepends=True)
    lines = parse_lines(whole, keys)
    known = {line.number for line in lines}
    bad = [number for number in range(1, len(whole) + 1) if number not in known]
    for number in bad:
        # What it hides, if anything, is found by the hash in a later line.
        if number == len(whole) or not _is_unfinished(whole[number - 1]):
            raise EvidenceError(f"has a line {number} that isn't signed evidence, or was changed")
    _require_whole(lines)
    newest = lines[-1]
    digest = hashlib.sha256(content).hexdigest()
    return Verified(
        name, digest, newest.key_id, newest.statement, tuple(lines), unfinished=len(bad)
    )


def _require_whole(lines: list[WitnessLine]) -> None:
    for archive_id in dict.fromkeys(line.statement.archive_id for line in lines):
        about = [line for line in lines if line.statement.archive_id == archive_id]
        problem = check_lines(about)
        if problem:
            raise EvidenceError(f"isn't whole: {problem}")


def _is_unfinished(line: bytes) -> bool:
    """Return whether a line begins as an envelope does, and ends early: its run was killed."""
    content = line.rstrip(b"\n")
    start = content[: len(_BEGINS)]
    return bool(start) and _BEGINS.startswith(start) and not content.endswith(_ENDS)


def compare_with_archive(verified: Verified, path: str) -> Verified:
    """Compare the receipts that evidence names with those of an archive.

    Raises:
        EvidenceError: When the archive doesn't have them, or with other hashes.
        ConfigError: When the evidence isn't about an archive.
        ArchiveError: When the folder isn't an archive.
    """
    # Not at the top: without an archive, nothing of this is needed.
    from kafka_drain.archive.archive import Archive
    from kafka_drain.archive.journal.files import read_journal
    from kafka_drain.evidence.heads import compare_heads

    if verified.statement.kind == "rotation":
        raise ConfigError(f"{verified.name} is about a key, not an archive; leave --archive out")
    archive = Archive.at(path)
    archive.require()
    said = [line.statement for line in verified.lines] or [verified.statement]
    id_ = archive.identity() or "none"
    mine = [statement for statement in said if statement.archive_id == id_]
    if not mine:
        raise EvidenceError(
            f"{verified.name} is about archive {verified.statement.archive_id}, but {path} has id "
            f"{id_}"
        )
    entries = read_journal(archive.root).newest
    found = compare_heads(archive.root, [statement.heads for statement in mine], entries)
    if found:
        shown = "; ".join(f"{each.path} {each.detail}" for each in found[:5])
        raise EvidenceError(f"{path} isn't the archive that {verified.name} is about: {shown}")
    paths = dict.fromkeys(path for statement in mine for path in statement.heads)
    return replace(verified, compared=tuple(paths))
