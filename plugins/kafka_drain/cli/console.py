"""What the commands of `kafka-drain` print, for people and for pipes.

Where standard error is a terminal, lines of progress are drawn as a bar; where standard output is
one, lists are tables that fit it. Elsewhere both are plain lines, which scripts can read.
Colours follow NO_COLOR, FORCE_COLOR and TERM, as rich does.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kafka_drain.cli.progress_bar import Screen, styled

__all__ = [
    "answer",
    "complain",
    "end_progress",
    "fits_screen",
    "is_watched",
    "new_table",
    "print_fields",
    "print_lines",
    "print_table",
    "say",
    "say_lines",
    "say_table",
]


@lru_cache(maxsize=1)
def _errors(stream: TextIO) -> Console:
    return Console(file=stream, highlight=False)


@lru_cache(maxsize=1)
def _screen(console: Console) -> Screen:
    return Screen(console)


def is_watched() -> bool:
    """Tell whether standard error is a terminal, where lines of progress become a bar."""
    return sys.stderr.isatty() and _errors(sys.stderr).is_interactive


def say(line: str) -> None:
    """Print a line, or progress, to standard error."""
    console = _errors(sys.stderr)
    if is_watched():
        _screen(console).say(line)
    elif console.color_system:
        console.print(styled(line), soft_wrap=True)
    else:
        print(line, file=sys.stderr, flush=True)


def say_lines(lines: Iterable[str]) -> None:
    """Print some lines to standard error."""
    for line in lines:
        say(line)


def say_table(
    lines: Iterable[str], headers: Sequence[str], rows: Iterable[Sequence[str | int]]
) -> None:
    """Print a list to standard error: as a table where that is a terminal, else as its lines.

    Args:
        lines: What is printed in a log, a line a row.
        headers: Of the table's columns.
        rows: What stands in them; a column is right-aligned where the first row has a number.
    """
    if not is_watched():
        for line in lines:
            say(line)
        return
    console, listed = _errors(sys.stderr), list(rows)
    first = listed[0] if listed else ()
    numbers = [name for name, value in zip(headers, first, strict=False) if isinstance(value, int)]
    table = new_table(console, *headers, numbers=numbers)
    for row in listed:
        table.add_row(*(f"{v:,}" if isinstance(v, int) else Text(v) for v in row))
    end_progress(keep=False)
    print_table(console, table)


def complain(line: str) -> None:
    """Print why a command failed to standard error, and leave the bar as far as it got."""
    console = _errors(sys.stderr)
    end_progress(keep=True)
    if console.color_system:
        console.print(Text(line, "red"), soft_wrap=True)
    else:
        print(line, file=sys.stderr, flush=True)


def end_progress(*, keep: bool) -> None:
    """End the bar, where there is one: leave it as it stands, or take it away."""
    if is_watched():
        _screen(_errors(sys.stderr)).close(keep=keep)


def answer(options: argparse.Namespace, document: Any, show: Callable[[Console], None]) -> None:
    """Print the answer: JSON when it was asked for, else as people read it."""
    end_progress(keep=False)
    if options.json:
        print(json.dumps(document, indent=2))
        return
    # Away from a terminal a line is as long as it has to be.
    show(Console(width=None if sys.stdout.isatty() else 240, highlight=False))


def fits_screen(console: Console) -> bool:
    """Tell whether lines shall be as wide as a terminal; in a pipe they are as long as they are."""
    return console.is_terminal and console.file.isatty()


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines of an answer, coloured by what they say."""
    for line in lines:
        console.print(styled(line), soft_wrap=True)


def new_table(console: Console, *headers: str, numbers: Sequence[str] = ()) -> Table:
    """Return a table without rows.

    Args:
        console: Where it will be printed.
        headers: Of its columns.
        numbers: Headers of the columns that are right-aligned in a terminal.
    """
    table = Table()
    is_wide = fits_screen(console)
    for header in headers:
        if not is_wide:
            table.add_column(header)
        elif header in numbers:
            table.add_column(header, justify="right", no_wrap=True, overflow="fold")
        else:
            # A name that is cut off names nothing.
            table.add_column(header, overflow="fold")
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table; where the terminal is too narrow for it, with less around the words."""
    if fits_screen(console) and _width(console, table) > console.width:
        table.box, table.padding = box.SIMPLE_HEAD, 0
        if _width(console, table) > console.width:
            for column in table.columns:
                column.no_wrap = False
    console.print(table)


def _width(console: Console, table: Table) -> int:
    """Return how wide a table has to be for no word in it to be broken."""
    return Measurement.get(console, console.options.update(max_width=10_000), table).minimum


def print_fields(document: Mapping[str, Any]) -> Callable[[Console], None]:
    """Return what prints a document's fields, a line each."""

    def show(console: Console) -> None:
        if fits_screen(console):
            _show_fields(console, document)
            return
        for name, value in document.items():
            written = f"{value:,}" if isinstance(value, int) else value
            print_lines(console, [f"{name.replace('_', ' '):<24}{written}"])

    return show


def _show_fields(console: Console, document: Mapping[str, Any]) -> None:
    width = max(map(len, document), default=0)
    for name, value in document.items():
        label = Text(f"{name.replace('_', ' '):<{width}}  ", "bold")
        written = _written(value)
        if isinstance(written, Text):
            lines = Text("\n" + " " * len(label)).join(written.split("\n"))
            # The terminal wraps it, as it does lines.
            console.print(Text().append_text(label).append_text(lines), soft_wrap=True)
        else:
            row = Table.grid()
            row.add_row(label, written)
            console.print(row)


def _fields(document: Mapping[str, Any]) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in document.items():
        grid.add_row(name.replace("_", " "), _written(value))
    return grid


def _written(value: Any) -> Text | Table:
    """Write a value as people read it: lists of documents as tables, nothing as `none`."""
    if isinstance(value, Mapping) and value:
        return _fields(value)
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], Mapping):
        table = Table(*(str(name) for name in value[0]))
        for row in value:
            table.add_row(*(_written(field) for field in row.values()))
        return table
    if isinstance(value, (list, tuple)):
        return Text("\n".join(map(str, value)) or "none")
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, (int, float)):
        return Text(f"{value:,}")
    return Text("none" if value is None else str(value) or "-")
