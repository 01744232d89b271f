"""`kafka-drain check-decoding`: decode what a republish has sent with the target's schemas."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import add_archive, add_kafka, cluster_from
from kafka_drain.cli.commands.registry_arguments import add_registry, required_registry
from kafka_drain.cli.console import answer, print_fields, say, say_lines
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.errors import ConfigError
from kafka_drain.progress import Line, level_of
from kafka_drain.republish.planning.runs import RepublishRun
from kafka_drain.republish.verifying.decoding import check_decoding
from kafka_drain.republish.verifying.offset_map import OffsetMap
from kafka_drain.schemas.capture import read_document
from kafka_drain.schemas.decoders import Decoders, kept_schemas, registered_schemas
from kafka_drain.schemas.subjects import Subjects


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_kafka(parser)
    add_registry(parser, "the target's Schema Registry")
    parser.add_argument(
        "--run", required=True, metavar="RUN", help="key of the run, its folder in republish/"
    )


def run(options: argparse.Namespace) -> int:
    """Read a finished run's records back, and decode them on both sides."""
    archive = Archive.at(options.archive)
    folder = RepublishRun(archive.root, options.run)
    plan, written = folder.plan(), folder.offset_map()
    if plan is None or written is None or not folder.has_ended:
        raise ConfigError(
            f"{archive.root} has no finished run {options.run}; expected the name of a folder in "
            "republish/"
        )
    registry = required_registry(options)
    check = check_decoding(
        plan,
        OffsetMap.from_bytes(written),
        cluster_from(options),
        Decoders(registered_schemas(Subjects(registry))),
        Decoders(kept_schemas(read_document(archive.root))),
        say,
    )
    say_lines(Line(line, level_of(line)) for line in check.lines())
    document = {
        "run": options.run,
        "exact": check.is_exact,
        "records": check.records,
        "decoded": check.decoded,
        "expected": check.expected,
        "without": check.without,
        "failed": check.failed,
    }
    answer(options, document, print_fields(document))
    return OK if check.is_exact else FAILED
