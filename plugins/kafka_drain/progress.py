"""Progress of long work: done of total, rate, time left. Opens nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Progress", "ProgressLine", "Ticker", "duration_text", "read_progress_line"]

_LINE = re.compile(
    r"(?P<what>\S.*): (?P<done>[\d,]+) of (?P<total>[\d,]+) (?P<unit>[a-z ]+) "
    r"\((?P<percent>\d+) %\)"
    r"(?:, (?P<rate>[\d,.e+-]+/(?:s|min)))?(?:, (?P<left>.+) left)?$"
)


def duration_text(seconds: float) -> str:
    """Write a time as people say it: `42 s`, `3 min 20 s`, `2 h 5 min`, `3 days 4 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400:,} days {whole % 86400 // 3600} h"


@dataclass
class Progress:
    """How far a piece of work has got.

    Attributes:
        unit: What is counted, in the plural.
        total: How many there will be.
        clock: Seconds; replaced in tests.
    """

    unit: str
    total: int
    clock: Callable[[], float] = time.monotonic
    done: int = 0
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    @property
    def seconds(self) -> float:
        """Seconds since the work began; never 0."""
        return max(self.clock() - self.started, 1e-3)

    def line(self, done: int) -> str:
        """Note how much is done and return the line for the log."""
        # Work that was found on the way belongs to the total.
        self.done, self.total = done, max(self.total, done)
        percent = 100 * done // self.total if self.total else 100
        text = f"{done:,} of {self.total:,} {self.unit} ({percent} %)"
        if done:
            rate = done / self.seconds
            text += f", {rate:,.0f}/s" if rate >= 1 else f", {60 * rate:.2g}/min"
            if done < self.total:
                text += f", {duration_text((self.total - done) / rate)} left"
        return text


@dataclass(frozen=True)
class ProgressLine:
    """What a line of progress says.

    Attributes:
        what: The work: what stands before the colon.
        done: How many are done.
        total: How many there will be.
        unit: What is counted.
        percent: Whole percents; 100 when all is done, never before.
        rate: Such as `8,367/s`; empty when none is known.
        left: Time left, such as `14 s`; empty when none is known.
    """

    what: str
    done: int
    total: int
    unit: str
    percent: int
    rate: str
    left: str


def read_progress_line(line: str) -> ProgressLine | None:
    """Read `<what>: ` and a line of `Progress`; None for any other line."""
    found = _LINE.match(line.rstrip())
    if found is None:
        return None
    return ProgressLine(
        what=found["what"],
        done=int(found["done"].replace(",", "")),
        total=int(found["total"].replace(",", "")),
        unit=found["unit"],
        percent=int(found["percent"]),
        rate=found["rate"] or "",
        left=found["left"] or "",
    )


class Ticker:
    """Says how far a piece of work has got, at most every two seconds.

    Args:
        what: Begins each line.
        progress: The work.
        say: Takes the lines.
    """

    SECONDS = 2.0

    def __init__(self, what: str, progress: Progress, say: Callable[[str], None]) -> None:
        self._what = what
        self._progress = progress
        self._say = say
        self._shown = progress.clock()

    def at(self, done: int) -> None:
        """Note how much is done."""
        if self._progress.clock() - self._shown >= self.SECONDS:
            self._shown = self._progress.clock()
            self._say(f"{self._what}: {self._progress.line(done)}")
