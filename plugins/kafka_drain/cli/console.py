"""Print the output of `kafka-drain` commands, for users and for pipes.

If standard error is a terminal, lines of progress are drawn as a bar; if standard output is a
terminal, lists are tables that fit it. Otherwise both are plain lines that scripts can read.
Colours follow NO_COLOR, FORCE_COLOR and TERM, as in rich.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from kafka_drain.cli.progress_bar import Screen, styled


class _Console(Console):
    """A console that leaves it to its caller what a pipe without a reader means."""

    def on_broken_pipe(self) -> None:
        """Raise the error, instead of ending the process with 1."""
        raise BrokenPipeError


@contextmanager
def _if_read(stream: TextIO) -> Iterator[None]:
    """Write in the body; if nobody reads the stream any more, let all that follows go nowhere.

    A reader such as `head` may end before a command does, whose work and exit code don't change.
    """
    try:
        yield
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@lru_cache(maxsize=1)
def _errors(stream: TextIO) -> Console:
    return _Console(file=stream, highlight=False)


@lru_cache(maxsize=1)
def _screen(console: Console) -> Screen:
    return Screen(console)


def is_watched() -> bool:
    """Return whether standard error is a terminal, where lines of progress become a bar."""
    return sys.stderr.isatty() and _errors(sys.stderr).is_interactive


def say(line: str) -> None:
    """Print a line, or progress, to standard error."""
    console = _errors(sys.stderr)
    with _if_read(sys.stderr):
        if is_watched():
            _screen(console).say(line)
        elif console.color_system:
            console.print(styled(line), soft_wrap=True)
        else:
            print(line, file=sys.stderr)


def say_lines(lines: Iterable[str]) -> None:
    """Print lines to standard error."""
    for line in lines:
        say(line)


def say_table(
    lines: Iterable[str], headers: Sequence[str], rows: Iterable[Sequence[str | int]]
) -> None:
    """Print a list to standard error: as a table on a terminal, otherwise as its lines.

    Args:
        lines: Lines for a log, one for each row.
        headers: The table's column headers.
        rows: The table's rows; a column is right-aligned if the first row has a number in it.
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
    """Print why a command failed to standard error; leave the bar where it stopped."""
    console = _errors(sys.stderr)
    end_progress(keep=True)
    with _if_read(sys.stderr):
        if console.color_system:
            console.print(Text(line, "red"), soft_wrap=True)
        else:
            print(line, file=sys.stderr)


def end_progress(*, keep: bool) -> None:
    """End the bar, if there is one: leave it on the screen, or remove it."""
    if is_watched():
        _screen(_errors(sys.stderr)).close(keep=keep)


def answer(options: argparse.Namespace, document: Any, show: Callable[[Console], None]) -> None:
    """Print the answer: as JSON if requested, otherwise formatted for the user."""
    end_progress(keep=False)
    with _if_read(sys.stdout):
        if options.json:
            print(json.dumps(document, indent=2))
        else:
            # Outside a terminal, lines may be as long as necessary.
            show(_Console(width=None if sys.stdout.isatty() else 1 << 16, highlight=False))


def answer_line(document: Any) -> None:
    """Print one of many answers as a line of JSON, at once."""
    print(json.dumps(document), flush=True)


def fits_screen(console: Console) -> bool:
    """Return whether output must fit the terminal's width; lines in a pipe may be any length."""
    return console.is_terminal and console.file.isatty()


def print_lines(console: Console, lines: Iterable[str]) -> None:
    """Print lines of an answer, coloured by their meaning."""
    for line in lines:
        console.print(styled(line), soft_wrap=True)


def new_table(console: Console, *headers: str, numbers: Sequence[str] = ()) -> Table:
    """Return a table without rows.

    Args:
        console: The console that it will be printed on.
        headers: The column headers.
        numbers: Headers of the columns to right-align on a terminal.
    """
    table = Table()
    is_wide = fits_screen(console)
    for header in headers:
        if not is_wide:
            table.add_column(header)
        elif header in numbers:
            table.add_column(header, justify="right", no_wrap=True, overflow="fold")
        else:
            # Wrap instead of truncating: a truncated name is useless.
            table.add_column(header, overflow="fold")
    return table


def print_table(console: Console, table: Table) -> None:
    """Print a table; with a lighter frame if the terminal is too narrow for it.

    Its text is shown as it is: names and commands may have brackets, which aren't rich's markup.
    """
    if fits_screen(console) and _width(console, table) > console.width:
        table.box, table.padding = box.SIMPLE_HEAD, 0
        if _width(console, table) > console.width:
            for column in table.columns:
                column.no_wrap = False
    console.print(table, markup=False)


def _width(console: Console, table: Table) -> int:
    """Return the smallest width at which no word of a table is broken."""
    options = console.options.update(max_width=10_000, markup=False)
    return Measurement.get(console, options, table).minimum


def print_fields(document: Mapping[str, Any]) -> Callable[[Console], None]:
    """Return a function that prints a document's fields, one line each."""

    def show(console: Console) -> None:
        if fits_screen(console):
            _show_fields(console, document)
            return
        for name, value in document.items():
            written = _written(value) if isinstance(value, (bool, int)) else value
            print_lines(console, [f"{name.replace('_', ' '):<23} {written}"])

    return show


def _show_fields(console: Console, document: Mapping[str, Any]) -> None:
    width = max(map(len, document), default=0)
    for name, value in document.items():
        label = Text(f"{name.replace('_', ' '):<{width}}  ", "bold")
        written = _written(value)
        if isinstance(written, Text):
            lines = Text("\n" + " " * len(label)).join(written.split("\n"))
            # Leave wrapping to the terminal, as with lines.
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
    """Format a value for the user: lists of documents as tables, empty values as `none`."""
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
