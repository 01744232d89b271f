"""The output of a run: lines that tell its user what happens.

A command prints them to standard error, and a task of Airflow logs them. Elsewhere, they go to
Python's logger `kafka_drain`. Opens nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

log = logging.getLogger("kafka_drain")


class Level(Enum):
    """Meaning of a line to its reader; the values of a finding's severity are among them."""

    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    ERROR = "error"


class Line(str):
    """A line of output that carries what it means: its words decide nothing.

    Attributes:
        level: Its meaning to its reader.
    """

    level: Level = Level.PLAIN

    def __new__(cls, text: str, level: Level = Level.PLAIN) -> Line:
        """Make the line."""
        line = super().__new__(cls, text)
        line.level = level
        return line


def level_of(line: str) -> Level:
    """Return a line's level; a line without one is plain."""
    return line.level if isinstance(line, Line) else Level.PLAIN


_LOGGING = {Level.WARNING: logging.WARNING, Level.ERROR: logging.ERROR}


class SparkUiLine(Line):
    """A line that says where the UI of a Spark application is.

    Attributes:
        address: Its URL.
    """

    address: str

    def __new__(cls, text: str, address: str) -> SparkUiLine:
        """Make the line."""
        line = str.__new__(cls, text)
        line.address = address
        return line


class OutageLine(Line):
    """A line about a server that something waits for.

    Attributes:
        is_over: Whether it answers again.
    """

    is_over: bool

    def __new__(cls, text: str, *, is_over: bool) -> OutageLine:
        """Make the line: a warning, until it is over."""
        line = str.__new__(cls, text)
        line.is_over = is_over
        line.level = Level.PLAIN if is_over else Level.WARNING
        return line


def logging_level(line: str) -> int:
    """Return the level at which Python's `logging` logs a line."""
    return _LOGGING.get(level_of(line), logging.INFO)


def _log(line: str) -> None:
    log.log(logging_level(line), "%s", line)


#: The receiver of this process's lines. Not a context's variable: threads say lines as well.
_listener: Callable[[str], object] = _log


def say(line: str) -> None:
    """Pass a line on to whoever listens in this process; else log it."""
    _listener(line)


def listen(hear: Callable[[str], object]) -> None:
    """Pass this process's lines to a function from now on, with what they carry.

    Args:
        hear: Called in the thread that says a line.
    """
    global _listener  # noqa: PLW0603
    _listener = hear


@contextmanager
def heard_by(hear: Callable[[str], object]) -> Iterator[None]:
    """Pass this process's lines to a function within the context, with what they carry."""
    before = _listener
    listen(hear)
    try:
        yield
    finally:
        listen(before)
