"""`kafka-drain unlock`: show who holds an archive's leases, and remove leftover ones."""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console

from kafka_drain.archive.archive import Archive
from kafka_drain.cli.commands.arguments import add_archive
from kafka_drain.cli.console import answer, complain, print_fields, say
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.errors import ArchiveError, LockedError
from kafka_drain.maintenance.unlock import list_leases, remove_lease
from kafka_drain.output import Level, Line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    parser.add_argument(
        "--remove",
        action="store_true",
        help="remove leases that expired or are from the future, if they aren't renewed for a "
        "minute; keeps those whose holder may still be running",
    )


def run(options: argparse.Namespace) -> int:
    """Show the leases in an archive, or remove those that are no longer renewed."""
    shown: list[dict[str, Any]] = []
    kept = 0
    archive = Archive.at(options.archive)
    for held in list_leases(archive.root):
        document = held.to_dict()
        if options.remove:
            try:
                remove_lease(held)
                document["state"] = "removed"
            except (ArchiveError, LockedError) as error:
                complain(f"kafka-drain unlock: {error}")
                document["state"] = "kept: its holder may still be running"
                kept += 1
        shown.append(document)
    if not shown:
        # A killed first drain may have left a lease but no archive.
        archive.require()
        say(f"{options.archive}: no lease is held")
    elif not options.remove:
        hint = "dry run: nothing was changed; pass --remove to remove leases that aren't renewed"
        say(Line(hint, Level.WARNING))

    def show(console: Console) -> None:
        for document in shown:
            print_fields(document)(console)

    answer(options, {"leases": shown}, show)
    return FAILED if kept else OK
