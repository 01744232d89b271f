"""`kafka-drain inspect`: show the contents of an archive."""

from __future__ import annotations

import argparse

from rich.console import Console

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.inspection import inspect_archive
from kafka_drain.cli.commands.arguments import add_archive
from kafka_drain.cli.console import answer, new_table, print_lines, print_table
from kafka_drain.cli.exit_codes import OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)


def run(options: argparse.Namespace) -> int:
    """Show the contents of an archive."""
    document = inspect_archive(Archive.at(options.archive))

    def show(console: Console) -> None:
        print_lines(
            console,
            [
                f"{document['archive']}: pipeline {document['pipeline']}, Kafka cluster "
                f"{document['cluster_id']}"
            ],
        )
        for generation in document["generations"]:
            print_lines(
                console,
                [
                    f"generation {generation['generation']}: {generation['format']}, opened "
                    f"{generation['opened_at']} ({generation['reason']}), "
                    f"{generation['batches']:,} batches, {generation['files']:,} files, "
                    f"{generation['bytes'] / 1e6:,.1f} MB"
                ],
            )
            table = new_table(
                console,
                *("topic", "partition", "start", "end", "offsets"),
                numbers=("partition", "start", "end", "offsets"),
            )
            for row in generation["partitions"]:
                numbers = (f"{row[name]:,}" for name in ("start", "end", "offsets"))
                table.add_row(row["topic"], str(row["partition"]), *numbers)
            print_table(console, table)
        print_lines(
            console,
            [
                f"window {window['window']}: {window['format']}, {window['records']:,} records, "
                f"{window['files']:,} files, {window['bytes'] / 1e6:,.1f} MB"
                for window in document["windows"]
            ],
        )

    answer(options, document, show)
    return OK
