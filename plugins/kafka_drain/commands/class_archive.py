"""`kafka-drain class-archive`: let Spark start faster on this machine."""

from __future__ import annotations

import argparse

from kafka_drain.class_archive_writing import write_class_archive
from kafka_drain.exit_codes import OK
from kafka_drain.terminal import answer, print_fields

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments: none."""


def run(options: argparse.Namespace) -> int:
    """Write the class archive of this machine, where there is none."""
    document = write_class_archive()
    answer(options, document, print_fields(document))
    return OK
