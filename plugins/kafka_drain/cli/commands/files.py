"""`kafka-drain files`: list the committed data files."""

from __future__ import annotations

import argparse

from rich.console import Console

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import committed_files
from kafka_drain.cli.commands.arguments import add_archive
from kafka_drain.cli.console import answer
from kafka_drain.cli.exit_codes import OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)
    parser.add_argument(
        "--sealed", action="store_true", help="only files whose records a receipt proves"
    )


def run(options: argparse.Namespace) -> int:
    """List the files that readers take."""
    files = committed_files(Archive.at(options.archive), include_unsealed=not options.sealed)

    def show(_: Console) -> None:
        for file in files:
            print(file["path"])

    answer(options, files, show)
    return OK
