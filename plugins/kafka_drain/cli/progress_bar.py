"""Draw standard error on a terminal: coloured lines, with a progress bar below them.

The bar is drawn from the same lines of progress that a log gets, whether this process or Spark
wrote them. It is drawn without a thread, so that processes can be forked meanwhile.
"""

from __future__ import annotations

from threading import RLock

from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kafka_drain.output import Level, level_of
from kafka_drain.progress import ProgressLine

_STYLES = {
    Level.PLAIN: "",
    Level.GOOD: "green",
    Level.WARNING: "yellow",
    Level.ERROR: "red",
}

#: Minimum width of the bar in columns; below it, the figures beside the bar are shortened.
_SHORTEST_BAR = 10


def styled(line: str) -> Text:
    """Return a line in the colour of its meaning."""
    return Text(line, _STYLES[level_of(line)])


def bar(at: ProgressLine, width: int) -> Table:
    """Return a bar with its figures, in one line of the given width."""
    longest_name = max(width // 3, 8)
    left = f", {at.left} left" if at.left else ""
    counted = f"{at.percent} %, {at.done:,} of {at.total:,} {at.unit}"
    rate = f", {at.rate}" if at.rate else ""
    room = width - min(len(at.what), longest_name) - _SHORTEST_BAR - 2
    facts = (f"{counted}{rate}{left}", f"{counted}{left}", f"{at.percent} %{left}")
    row = Table.grid(padding=(0, 1, 0, 0), expand=True)
    row.add_column(no_wrap=True, overflow="ellipsis", max_width=longest_name)
    row.add_column(ratio=1)
    row.add_column(no_wrap=True, justify="right")
    # If there is nothing to do, everything is done.
    drawn = ProgressBar(total=max(at.total, 1), completed=at.done if at.total else 1)
    fact = next((fact for fact in facts if len(fact) <= room), f"{at.percent} %")
    row.add_row(Text(at.what, "bold"), drawn, fact)
    return row


class Screen:
    """Prints lines, and draws a bar for lines of progress.

    Args:
        console: The console of standard error.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None
        self._at: ProgressLine | None = None
        self._ended: tuple[str, int] | None = None
        # A lease is renewed by its own thread, which may print too.
        self._lock = RLock()

    def say(self, line: str) -> None:
        """Print a line, or update the bar."""
        with self._lock:
            if not isinstance(line, ProgressLine):
                self._say_other(line)
            # Jobs report 100 % twice: when they detect it, and at their end.
            elif line.percent < 100 or self._ended != (line.what, line.done):
                self._move(line)

    def close(self, *, keep: bool) -> None:
        """Leave the bar on the screen, or remove it."""
        with self._lock:
            if self._live is None or self._at is None:
                return
            at, self._at = self._at, None
            live, self._live = self._live, None
            live.stop()
            if keep:
                self._console.print(bar(at, self._console.width))

    def _say_other(self, line: str) -> None:
        # Other work may have started; work that is still running will redraw its bar.
        self.close(keep=False)
        # Leave wrapping to the terminal, so that copied paths contain no line break.
        self._console.print(styled(line), soft_wrap=True)

    def _move(self, at: ProgressLine) -> None:
        if self._at and at.what != self._at.what:
            self.close(keep=False)
        self._draw(at)
        self._ended = (at.what, at.done) if at.percent == 100 else None
        if self._ended:
            self.close(keep=True)

    def _draw(self, at: ProgressLine) -> None:
        self._at = at
        if self._live is None:
            self._live = Live(
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
            # If the process is killed, the terminal must not be left without a cursor.
            self._console.show_cursor(True)
        self._live.update(bar(at, self._console.width), refresh=True)
