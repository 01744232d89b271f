"""`kafka-drain rewrap`: give an archive's data keys another master key."""

from __future__ import annotations

import argparse

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.keys import plan_rewrap
from kafka_drain.cli.commands.arguments import add_apply, add_archive
from kafka_drain.cli.console import answer, print_fields, say
from kafka_drain.cli.exit_codes import OK
from kafka_drain.config.encryption import KMS_NAMES, Encryption
from kafka_drain.output import Level, Line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    parser.add_argument(
        "--kms", choices=KMS_NAMES, required=True, help="where the new master key is"
    )
    parser.add_argument("--key", required=True, help="the new master key's name, not the key")
    add_apply(parser)


def run(options: argparse.Namespace) -> int:
    """Show the data keys with another master key, or wrap them with the given one."""
    archive = Archive.at(options.archive)
    archive.require()
    plan = plan_rewrap(archive.root, Encryption(kms=options.kms, key=options.key))
    if options.apply:
        plan.apply()
    else:
        plan.check_kept()
        say(Line("dry run: nothing was changed; pass --apply to wrap them", Level.WARNING))
    figures = {
        "archive": str(archive.root),
        "data_keys": len(plan.due) + plan.kept,
        "rewrapped" if options.apply else "to_rewrap": len(plan.due),
    }
    answer(options, figures, print_fields(figures))
    return OK
