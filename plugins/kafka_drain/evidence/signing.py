"""Sign a run's results: into the archive's `evidence/`, and to the witness outside of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import WitnessDocument
from kafka_drain.archive.journal.files import read_journal
from kafka_drain.errors import ConfigError, EvidenceError
from kafka_drain.evidence.heads import compare_heads, heads_of
from kafka_drain.evidence.keys import PublicKey, SigningKey
from kafka_drain.evidence.statement import Kind, Statement
from kafka_drain.evidence.witness import TOPIC, Witness
from kafka_drain.evidence.witness_lines import (
    WitnessLine,
    check_lines,
    lines_about,
    next_statement,
    parse_lines,
)
from kafka_drain.findings import Finding, Reason
from kafka_drain.storage.json_files import write_text
from kafka_drain.storage.paths import read_bytes

#: The archive's folder of signed statements, by kind.
FOLDER = "evidence"


@dataclass(frozen=True)
class Signer:
    """A signing key and its witness.

    Attributes:
        former: Public keys that it replaced, which older lines of the witness are signed with.
        witness: The witness; None for none.
    """

    key: SigningKey
    former: Sequence[PublicKey] = field(default=())
    witness: Witness | None = None

    def without_kafka(self) -> Signer:
        """Return the same signer, without a witness that is a topic."""
        is_topic = self.witness is not None and self.witness.name.startswith(TOPIC)
        return replace(self, witness=None) if is_topic else self

    def lines(self, archive_id: str, pipeline: str, lines: Sequence[bytes]) -> list[WitnessLine]:
        """Return those of a witness's lines that are about an archive."""
        keys = {key.id: key.verify for key in (self.key.public, *self.former)}
        return lines_about(parse_lines(lines, keys), archive_id, pipeline)


def refuse_inside(archive: Archive, witness: Witness | None) -> None:
    """Refuse a witness inside the archive, where it would be rewritten with the rest.

    Raises:
        ConfigError: When it is.
    """
    if witness is not None and witness.name.startswith(f"{archive.root}/"):
        raise ConfigError(
            f"witness {witness.name} is inside the archive: whoever rewrites the archive would "
            "rewrite it too; name a file elsewhere, best on a machine that only allows appending"
        )


def check_witness(archive: Archive, signer: Signer, *, whole: bool) -> list[Finding]:
    """Compare an archive with its lines in the witness.

    Args:
        signer: The keys and the witness.
        whole: Whether to compare every line; otherwise the newest one.

    Raises:
        EvidenceError: When the witness can't be read.
        KafkaDrainError: A subclass, when a topic can't be read.
    """
    witness = signer.witness
    if witness is None:
        return []
    refuse_inside(archive, witness)
    archive_id, pipeline = archive.identity() or "", archive.snapshot().document.pipeline
    lines = signer.lines(archive_id, pipeline, witness.lines())
    problem = check_lines(lines) or _lacks(archive, witness, lines)
    if problem:
        return [Finding(Reason.WITNESS_DAMAGED, witness.name, problem)]
    other = [line for line in lines if line.statement.archive_id != archive_id]
    if other:
        detail = (
            f"line {other[0].number} is about an archive of pipeline {pipeline} with id "
            f"{other[0].statement.archive_id}, but this one has id {archive_id or 'none'}"
        )
        return [Finding(Reason.WITNESS_DIFFERS, "identity.json", detail)]
    seen = [line.statement.heads for line in (lines if whole else lines[-1:])]
    entries = read_journal(archive.root).newest
    return [
        Finding(Reason.WITNESS_DIFFERS, found.path, found.detail)
        for found in compare_heads(archive.root, seen, entries)
    ]


def _lacks(archive: Archive, witness: Witness, lines: Sequence[WitnessLine]) -> str:
    """Describe the lines that a witness lacks although this archive has sent them; empty if none.

    A missing mount must not look like a new witness, nor may its newest lines be cut off.
    """
    told = WitnessDocument.read_note(_note_path(archive))
    if told is None or told.witness != witness.name:
        return ""
    if told.line in {line.sha256 for line in lines}:
        return ""
    return (
        f"lacks the line with hash {told.line}, which this archive told it last: it was cut off, "
        "or isn't the same file or topic"
    )


def _note_path(archive: Archive) -> UPath:
    return archive.root / FOLDER / "witness.json"


def sign(
    archive: Archive,
    signer: Signer,
    kind: Kind,
    name: str,
    document: Mapping[str, Any],
    files: Sequence[str],
    now: datetime,
) -> str:
    """Sign a statement about an archive and write it to `evidence/<kind>/<name>.json`.

    Args:
        signer: The key.
        kind: The statement's kind.
        name: Name of the statement's file.
        document: The statement's document.
        files: Files that it is about, relative to the archive, which are hashed.

    Returns:
        The file's path.

    Raises:
        ArchiveError: When the archive can't be written.
    """
    statement = Statement(
        kind=kind,
        signed_at=now.isoformat(timespec="milliseconds"),
        archive_id=archive.identify(),
        pipeline=archive.snapshot().document.pipeline,
        heads=heads_of(read_journal(archive.root)),
        files={path: hashlib.sha256(read_bytes(archive.root / path)).hexdigest() for path in files},
        document=document,
    )
    readable = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    path = archive.root / FOLDER / kind / f"{readable}.json"
    write_text(path, signer.key.sign(statement).to_bytes().decode())
    return str(path)


def tell_witness(archive: Archive, signer: Signer, now: datetime) -> bool:
    """Append the archive's newest receipts to the witness, if it hasn't seen them.

    Only after a validation without errors: the witness must not confirm a rewritten archive.

    Returns:
        Whether a line was appended.

    Raises:
        EvidenceError: When the witness can't be read or written.
        KafkaDrainError: A subclass, when a topic can't.
    """
    if signer.witness is None:
        return False
    archive_id, pipeline = archive.identify(), archive.snapshot().document.pipeline
    heads = heads_of(read_journal(archive.root))
    about = Statement("witness", now.isoformat(timespec="milliseconds"), archive_id, pipeline)

    told: list[bytes] = []
    witness = signer.witness

    def next_line(lines: list[bytes]) -> bytes | None:
        known = signer.lines(archive_id, pipeline, lines)
        # It was checked when the validation began, which may be hours ago.
        if problem := check_lines(known) or _lacks(archive, witness, known):
            raise EvidenceError(f"witness {witness.name} was changed during this run: {problem}")
        statement = next_statement(known, heads, about)
        if statement is None:
            return None
        told.append(signer.key.sign(statement).to_bytes())
        return told[-1]

    is_told = signer.witness.append(next_line)
    if is_told:
        line = hashlib.sha256(told[-1]).hexdigest()
        WitnessDocument(witness=signer.witness.name, line=line).write(_note_path(archive))
    return is_told
