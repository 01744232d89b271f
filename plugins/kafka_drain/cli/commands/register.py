"""`kafka-drain register`: make an Iceberg table hold exactly an archive's sealed files."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import add_archive
from kafka_drain.cli.console import answer, print_fields
from kafka_drain.cli.exit_codes import OK
from kafka_drain.cli.options import add_options, options_from
from kafka_drain.config.table import TableOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    add_options(parser, TableOptions, required=TableOptions.model_fields)


def run(options: argparse.Namespace) -> int:
    """Register what was sealed, and remove what was replaced or deleted."""
    # Not at the top: `--help` needs no pyiceberg.
    from kafka_drain.iceberg import register_in_catalog

    archive, asked = Archive.at(options.archive), options_from(options, TableOptions)
    found = register_in_catalog(archive, asked)
    document = {"archive": str(archive.root), "catalog": asked.catalog, **found.to_dict()}
    # An id has no thousands.
    shown = document | {"snapshot_id": str(found.snapshot_id or "none")}
    answer(options, document, print_fields(shown))
    return OK
