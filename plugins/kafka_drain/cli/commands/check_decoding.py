"""`kafka-drain check-decoding`: decode what a republish has sent with the target's schemas."""

from __future__ import annotations

import argparse

from kafka_drain.cli.commands.arguments import (
    add_archive,
    add_kafka,
    add_state,
    archive_from,
    cluster_from,
)
from kafka_drain.cli.commands.registry_arguments import add_registry, required_registry
from kafka_drain.cli.console import answer, print_fields, say_lines
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.output import Line, level_of
from kafka_drain.republish.verifying.decoding_check import check_run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_state(parser)
    add_kafka(parser)
    add_registry(parser, "the target's Schema Registry")
    parser.add_argument(
        "--run", required=True, metavar="RUN", help="the run's name, or its folder in republish/"
    )


def run(options: argparse.Namespace) -> int:
    """Read a finished run's records back, and decode them on both sides."""
    registry = required_registry(options)
    archive = archive_from(options)
    check = check_run(archive, options.run, cluster_from(options), registry)
    say_lines(Line(line, level_of(line)) for line in check.lines())
    document = {"run": options.run, **check.content()}
    answer(options, document, print_fields(document))
    return OK if check.is_exact else FAILED
