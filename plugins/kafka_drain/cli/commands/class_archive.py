"""`kafka-drain class-archive`: make Spark start faster on this machine."""

from __future__ import annotations

import argparse

from kafka_drain.cli.console import answer, print_fields
from kafka_drain.cli.exit_codes import OK
from kafka_drain.spark.cds_training import write_class_archive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments: none."""


def run(options: argparse.Namespace) -> int:
    """Write the CDS archive of this machine, if it doesn't exist yet."""
    document = write_class_archive()
    answer(options, document, print_fields(document))
    return OK
