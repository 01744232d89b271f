"""`kafka-drain inspect`: show what an archive holds."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table

from kafka_drain.archive import Archive
from kafka_drain.commands.arguments import add_archive
from kafka_drain.exit_codes import OK
from kafka_drain.inspection import inspect_archive
from kafka_drain.terminal import answer

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_archive(parser)


def run(options: argparse.Namespace) -> int:
    """Show what an archive holds."""
    document = inspect_archive(Archive.at(options.archive))

    def show(console: Console) -> None:
        console.print(
            f"{document['archive']}: pipeline {document['pipeline']}, Kafka cluster "
            f"{document['cluster_id']}",
            markup=False,
        )
        for generation in document["generations"]:
            console.print(
                f"generation {generation['generation']}: {generation['format']}, opened "
                f"{generation['opened_at']} ({generation['reason']}), "
                f"{generation['batches']:,} batches, {generation['files']:,} files, "
                f"{generation['bytes'] / 1e6:,.1f} MB",
                markup=False,
            )
            table = Table("topic", "partition", "start", "end", "offsets")
            for row in generation["partitions"]:
                numbers = (f"{row[name]:,}" for name in ("start", "end", "offsets"))
                table.add_row(row["topic"], str(row["partition"]), *numbers)
            console.print(table)
        for window in document["windows"]:
            console.print(
                f"window {window['window']}: {window['format']}, {window['records']:,} records, "
                f"{window['files']:,} files, {window['bytes'] / 1e6:,.1f} MB",
                markup=False,
            )

    answer(options, document, show)
    return OK
