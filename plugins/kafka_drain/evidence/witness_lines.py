"""The lines of a witness: a signed chain of an archive's newest receipts. Opens nothing.

Each line is an envelope whose document has the hash of an earlier line of the same archive. So a
line in the middle can't be changed or removed, whoever has the key; whoever may cut the witness
can remove its newest lines, and whoever has the key as well can write others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_drain.errors import EvidenceError
from kafka_drain.evidence.envelope import Envelope, Verifier
from kafka_drain.evidence.statement import Statement


@dataclass(frozen=True)
class WitnessLine:
    """A line of a witness.

    Attributes:
        number: Its number among all lines, from 1.
        key_id: Id of the key that it names.
        sha256: Hash of its bytes, which later lines name.
        previous: Hash of an earlier line; None in an archive's first line.
        is_signed: Whether its signature is by a known key, and correct.
        is_of_known_key: Whether the key that it names is known.
    """

    number: int
    statement: Statement
    key_id: str
    sha256: str
    previous: str | None
    is_signed: bool
    is_of_known_key: bool


def parse_lines(lines: Iterable[bytes], keys: Mapping[str, Verifier]) -> list[WitnessLine]:
    """Parse the lines of a witness; lines that aren't, such as an unfinished one, are left out.

    What they hid is found by the hash in a later line.

    Args:
        keys: Known public keys, by id.
    """
    found = []
    for number, line in enumerate(lines, 1):
        try:
            envelope = Envelope.parse(line)
            statement = Statement.parse(envelope.payload)
        except EvidenceError:
            continue
        if statement.kind != "witness":
            continue
        try:
            envelope.verify(keys)
            is_signed = True
        except EvidenceError:
            is_signed = False
        previous = statement.document.get("previous")
        found.append(
            WitnessLine(
                number=number,
                statement=statement,
                key_id=envelope.key_id,
                sha256=hashlib.sha256(line).hexdigest(),
                previous=None if previous is None else str(previous),
                is_signed=is_signed,
                is_of_known_key=envelope.key_id in keys,
            )
        )
    return found


def lines_about(lines: Iterable[WitnessLine], archive_id: str, pipeline: str) -> list[WitnessLine]:
    """Return the lines about an archive: those with its id, or of its pipeline."""
    return [
        line
        for line in lines
        if line.statement.archive_id == archive_id or line.statement.pipeline == pipeline
    ]


def check_lines(lines: Sequence[WitnessLine]) -> str:
    """Describe the error in the lines about one archive; empty if there is none.

    A line of a key that isn't known, such as one before a rotation, has to be covered by the hash
    in a later line, as anybody can write one. The newest line must be signed by a known key. Two
    validations at the same moment may both follow one line, or both begin; but no line is repeated
    later, which would make an older state the newest.

    Args:
        lines: The lines, oldest first.
    """
    earlier: set[str] = set()
    before: WitnessLine | None = None
    for line in lines:
        problem = _check_line(line, lines[0], before, earlier)
        if problem:
            return f"line {line.number} {problem}"
        earlier.add(line.sha256)
        before = line
    if before is not None and not before.is_signed:
        return f"line {before.number}, the newest, is signed by the unknown key {before.key_id}"
    named: set[str | None] = set()
    for line in reversed(lines):
        if not line.is_signed and line.sha256 not in named:
            return (
                f"line {line.number} is signed by the unknown key {line.key_id}, and no line of a "
                "known key stands for it: somebody has added it, or a former key isn't given"
            )
        named.add(line.previous)
    return ""


def _check_line(
    line: WitnessLine, first: WitnessLine, before: WitnessLine | None, earlier: Container[str]
) -> str:
    if line.is_of_known_key and not line.is_signed:
        return "has a wrong signature"
    if before is None:
        gone = "follows a line that is gone: the beginning is missing"
        return "" if line.previous is None else gone
    if line.sha256 in earlier:
        return "" if line.sha256 == before.sha256 else "repeats an earlier line"
    if line.previous is None:
        is_same = dict(line.statement.heads) == dict(first.statement.heads)
        return "" if is_same else "begins a new chain, expected the hash of an earlier line"
    return "" if line.previous in earlier else "follows a line that was changed or removed"


def next_statement(
    lines: Sequence[WitnessLine], heads: Mapping[str, str], statement: Statement
) -> Statement | None:
    """Return the statement of an archive's next line; None if there is nothing new.

    Args:
        lines: The lines about the archive, oldest first.
        heads: Its newest receipts.
        statement: The archive and the time; the rest is filled in.
    """
    if not heads or (lines and dict(lines[-1].statement.heads) == dict(heads)):
        return None
    previous = lines[-1].sha256 if lines else None
    return Statement(
        kind="witness",
        signed_at=statement.signed_at,
        archive_id=statement.archive_id,
        pipeline=statement.pipeline,
        heads=heads,
        document={"previous": previous},
    )
