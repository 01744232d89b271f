"""`kafka-drain size`: what a pipeline needs, from what it drains."""

from __future__ import annotations

import argparse
from dataclasses import asdict

from rich.console import Console

from kafka_drain.cli.console import answer, new_table, print_lines, print_table
from kafka_drain.cli.exit_codes import OK
from kafka_drain.sizing import MEASURED_CORES, Between, Load, Size, size_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add = parser.add_argument
    add("--records-per-second", type=float, required=True, help="records of all partitions")
    add("--record-bytes", type=float, required=True, help="mean size of key, value and headers")
    add("--partitions", type=int, required=True, help="partitions that get records all the time")
    add("--retention-days", type=float, required=True, help="days that the archive keeps")
    add("--minutes", type=float, default=60, help="from a drain to the next (%(default)s)")
    add(
        "--restore-cores",
        type=int,
        default=MEASURED_CORES,
        help="of a restore, on one machine or on a cluster's workers (%(default)s)",
    )


def run(options: argparse.Namespace) -> int:
    """Print the resources that a pipeline needs."""
    load = Load(
        records_per_second=options.records_per_second,
        record_bytes=options.record_bytes,
        partitions=options.partitions,
        retention_days=options.retention_days,
        minutes=options.minutes,
        restore_cores=options.restore_cores,
    )
    size = size_of(load)

    def show(console: Console) -> None:
        table = new_table(console, "what", "likely", "from", "to", numbers=("likely", "from", "to"))
        for row in rows(load, size):
            table.add_row(*row)
        print_table(console, table)
        print_lines(console, ["from and to: what measurements leave possible; see docs/sizing.md"])

    answer(options, {"load": asdict(load), "size": asdict(size)}, show)
    return OK


def rows(load: Load, size: Size) -> list[tuple[str, str, str, str]]:
    """Return the rows of the table: what, the likely figure, the lowest and the highest."""
    return [
        ("cores of a drain", f"{size.cores:,}", "", ""),
        ("memory of a drain, GiB", f"{size.memory_mib / 1024:,.1f}", "", ""),
        _between("seconds of a drain", size.drain_seconds),
        _between("archive, GB", size.archive_bytes.times(1e-9)),
        ("new files a day", f"{size.new_files:,.0f}", "", ""),
        _between("files once compacted", size.kept_files),
        ("receipts", f"{size.receipts:,.0f}", "", ""),
        ("requests to a store a day", f"{size.requests:,.0f}", "", ""),
        _between(f"hours to restore a day, {load.restore_cores:,} cores", size.restore_hours),
    ]


def _between(what: str, figure: Between) -> tuple[str, str, str, str]:
    return what, _text(figure.likely), _text(figure.low), _text(figure.high)


def _text(value: float) -> str:
    digits = 2 if value < 1 else 1 if value < 100 else 0
    return f"{value:,.{digits}f}"
