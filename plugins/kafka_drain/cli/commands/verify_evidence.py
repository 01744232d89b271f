"""`kafka-drain verify-evidence`: verify signed evidence offline."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from kafka_drain.cli.console import answer, print_fields, print_lines
from kafka_drain.cli.exit_codes import OK
from kafka_drain.errors import ConfigError, EvidenceError
from kafka_drain.evidence.envelope import Envelope
from kafka_drain.evidence.keys import PublicKey, trusted
from kafka_drain.evidence.verifying import Verified, compare_with_archive, verify_evidence
from kafka_drain.pages.evidence import evidence_page, said_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("file", help="a file of an archive's evidence/, a rotation, or a witness")
    parser.add_argument(
        "--public-key",
        metavar="KEY.pub",
        action="append",
        required=True,
        help="public key in PEM that you trust; can be repeated",
    )
    parser.add_argument(
        "--rotation",
        metavar="FILE",
        action="append",
        default=[],
        help="statement that a trusted key was replaced by another one; can be repeated, oldest "
        "first",
    )
    parser.add_argument(
        "--archive", help="also compare the receipts that the evidence names with this archive"
    )
    parser.add_argument("--html", metavar="FILE", help="also write what was signed as a page")


def run(options: argparse.Namespace) -> int:
    """Verify the evidence, and say what it proves and what it doesn't."""
    content = _content(options.file)
    rotations = [_envelope(path) for path in options.rotation]
    try:
        keys = trusted(map(PublicKey.read, options.public_key), rotations)
    except EvidenceError as error:
        raise EvidenceError(f"--rotation {error}") from error
    verified = verify_evidence(options.file, content, keys)
    if options.archive:
        verified = compare_with_archive(verified, options.archive)
    if options.html:
        try:
            Path(options.html).write_text(evidence_page(verified.to_dict()), encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{options.html} can't be written: {error.strerror}") from error
    answer(options, verified.to_dict(), lambda console: _show(console, verified))
    return OK


def _show(console: Console, verified: Verified) -> None:
    document = verified.to_dict()
    print_lines(console, [f"{verified.name}: the signature is correct", ""])
    fields = {name: document[name] for name in ("kind", "signed_at", "pipeline", "archive", "key")}
    print_fields({name: value for name, value in fields.items() if value} | said_of(document))(
        console
    )
    print_lines(console, ["", "proven:", *(f"- {text}" for text in verified.proven)])
    print_lines(console, ["", "not proven:", *(f"- {text}" for text in verified.not_proven)])


def _envelope(path: str) -> Envelope:
    try:
        return Envelope.parse(_content(path))
    except EvidenceError as error:
        raise EvidenceError(f"{path} {error}") from error


def _content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error.strerror}") from error
