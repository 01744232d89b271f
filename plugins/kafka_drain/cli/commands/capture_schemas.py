"""`kafka-drain capture-schemas`: keep the schemas that an archive's records use."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.schema_seals import SEALS, accept_schemas, check_schemas
from kafka_drain.cli.commands.arguments import add_archive, add_dry_run
from kafka_drain.cli.commands.plan_answer import acts, say_dry_run
from kafka_drain.cli.commands.registry_arguments import add_registry, required_registry
from kafka_drain.cli.console import answer, print_fields, say_lines
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.clock import now_text, utc_now
from kafka_drain.output import Level, Line, level_of
from kafka_drain.schemas.capture import OF_SETTINGS, capture_schemas


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_registry(parser, "the Schema Registry of the records")
    parser.add_argument(
        "--subject",
        dest="subjects",
        action="append",
        default=[],
        help="also keep this subject; can be repeated",
    )
    parser.add_argument(
        "--reseal",
        action="store_true",
        help="ask no registry: seal the schemas that are kept as they are, after schema_changed or "
        "schema_seal_lost was found and nothing can be restored",
    )
    add_dry_run(parser)


def run(options: argparse.Namespace) -> int:
    """Read the ids of newly sealed records, and keep their subjects."""
    archive = Archive.at(options.archive)
    if options.reseal:
        return _reseal(options, archive)
    registry = required_registry(options)
    found = capture_schemas(
        archive, registry, now=utc_now(), subjects=options.subjects, writes=acts(options)
    )
    say_lines(Line(line, level_of(line)) for line in found.lines(archive.root))
    versions = [version for subject in found.document.subjects for version in subject.versions]
    document = {
        "archive": str(archive.root),
        "subjects": len(found.document.subjects),
        "versions": len(versions),
        "new": len(found.new),
        "missing_ids": list(found.missing),
    }
    shown = document | {"missing_ids": len(found.missing)}
    answer(options, document, print_fields(shown))
    say_dry_run(options, "keep them")
    # A login that may read no settings keeps all schemas.
    is_whole = all(note.startswith(OF_SETTINGS) for note in found.document.notes)
    return OK if is_whole else FAILED


def _reseal(options: argparse.Namespace, archive: Archive) -> int:
    archive.require()
    newest = SEALS.newest(archive.root)
    findings = check_schemas(archive.root, {}, newest, whole=False)
    say_lines(Line(f"accepted: {finding}", Level.WARNING) for finding in findings)
    if acts(options):
        accept_schemas(archive.root, at=now_text())
    document = {"archive": str(archive.root), "accepted": len(findings)}
    answer(options, document, print_fields(document))
    say_dry_run(options, "seal them as they are")
    return OK
