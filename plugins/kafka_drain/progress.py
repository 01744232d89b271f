"""Progress of long-running work: done of total, rate, time left. Opens nothing."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from kafka_drain.output import Line, say

#: When each request to a store began that a thread waits for, by thread; without those of fsspec,
#: whose own thread has them.
STORE_REQUESTS: dict[int, float] = {}

_LINE = re.compile(
    r"(?P<what>\S.*): (?P<done>[\d,]+) of (?P<total>[\d,]+) (?P<unit>[a-z ]+) "
    r"\((?P<percent>\d+) %\)"
    r"(?:, (?P<rate>[\d,.e+-]+/(?:s|min)))?(?:, (?P<left>.+) left)?$"
)


def duration_text(seconds: float) -> str:
    """Format a duration for display: `42 s`, `3 min 20 s`, `2 h 5 min`, `3 days 4 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 2 * 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400:,} days {whole % 86400 // 3600} h"


class ProgressLine(Line):
    """A progress line that carries its values, so that this process needn't parse it.

    Attributes:
        what: The work; the text before the colon.
        job: Its first word, such as `drain`.
        name: The rest, such as a pipeline's name; empty if there is none.
        done: Number of units done.
        total: Expected number of units.
        unit: Unit that is counted.
        percent: Whole percents, rounded down; 100 only when everything is done.
        rate: Such as `8,367/s`; empty if unknown.
        left: Time left, such as `14 s`; empty if unknown.
    """

    what: str
    job: str
    name: str
    done: int
    total: int
    unit: str
    percent: int
    rate: str
    left: str

    def __new__(
        cls, what: str, done: int, total: int, unit: str, rate: str = "", left: str = ""
    ) -> ProgressLine:
        """Create the line."""
        percent = 100 * done // total if total else 100
        text = f"{what}: {done:,} of {total:,} {unit} ({percent} %)"
        text += f", {rate}" if rate else ""
        line = str.__new__(cls, text + (f", {left} left" if left else ""))
        line.job, _, line.name = what.partition(" ")
        line.what, line.done, line.total, line.unit = what, done, total, unit
        line.percent, line.rate, line.left = percent, rate, left
        return line


@dataclass
class Progress:
    """The progress of a piece of work.

    Attributes:
        unit: Unit that is counted, in the plural.
        total: Expected number of units.
        clock: Returns seconds; replaced in tests.
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
        """Seconds since the work started; never 0."""
        return max(self.clock() - self.started, 1e-3)

    def line(self, what: str, done: int) -> ProgressLine:
        """Record the number of units done of the work `what`, and return the log line."""
        # Work discovered along the way raises the total.
        self.done, self.total = done, max(self.total, done)
        rate = left = ""
        if done:
            per_second = done / self.seconds
            rate = f"{per_second:,.0f}/s" if per_second >= 1 else f"{60 * per_second:.2g}/min"
            if done < self.total:
                left = duration_text((self.total - done) / per_second)
        return ProgressLine(what, done, self.total, self.unit, rate, left)


def read_progress_line(line: str) -> ProgressLine | None:
    """Parse a progress line written by another process; None for any other line."""
    found = _LINE.match(line.rstrip())
    if found is None:
        return None
    done, total = (int(found[name].replace(",", "")) for name in ("done", "total"))
    return ProgressLine(
        found["what"], done, total, found["unit"], found["rate"] or "", found["left"] or ""
    )


class Ticker:
    """Reports the progress of a piece of work, at most every two seconds.

    Args:
        what: Prefix of each line.
        progress: The work.
    """

    SECONDS = 2.0

    def __init__(self, what: str, progress: Progress) -> None:
        self._what = what
        self._progress = progress
        self._shown = progress.clock()

    def at(self, done: int) -> None:
        """Log the number of units done, at most every `SECONDS`."""
        if self._progress.clock() - self._shown >= self.SECONDS:
            self._shown = self._progress.clock()
            say(self._progress.line(self._what, done))
