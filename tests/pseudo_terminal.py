"""A process at a pseudo terminal of a given width, and what somebody sees there in the end."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: A process and all that it has started are ended when they take longer: no test is that slow.
LIMIT_SECONDS = 120.0

#: What would tell rich another terminal.
_VARIABLES = "COLUMNS LINES NO_COLOR FORCE_COLOR COLORTERM TTY_COMPATIBLE TTY_INTERACTIVE".split()

_PARTS = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


@dataclass(frozen=True)
class Seen:
    """What came of a process.

    Attributes:
        code: Its exit code.
        out: What it wrote to standard output, where that was a pipe.
        sent: What it sent to the terminal, escape codes and all.
    """

    code: int
    out: str
    sent: str

    @property
    def lines(self) -> list[str]:
        """The lines on the terminal in the end, without colours; long ones aren't wrapped."""
        return screen(self.sent)


def screen(sent: str) -> list[str]:
    """Return the lines that a terminal shows, of text and the few codes that rich sends."""
    lines, row, column = [""], 0, 0
    for found in _PARTS.finditer(sent):
        number, code, control, text = found.groups()
        if text:
            lines[row] = lines[row][:column].ljust(column) + text + lines[row][column + len(text) :]
            column += len(text)
        elif control == "\r":
            column = 0
        elif control == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif code == "A":
            row -= int(number)
        elif code == "K":
            assert number == "2"
            lines[row] = ""
        else:
            # Colours; the cursor shown and hidden.
            assert code in "mhl", found[0]
    return [line.rstrip() for line in lines][: -1 if not lines[-1] else None]


def at_terminal(
    arguments: Sequence[object],
    *,
    columns: int = 80,
    environment: Mapping[str, str] | None = None,
    pipes_out: bool = False,
    interrupt_at: str = "",
) -> Seen:
    """Run Python with arguments at a terminal.

    Args:
        arguments: Of Python.
        columns: Width of the terminal.
        environment: Variables beside those of this process.
        pipes_out: Whether standard output is a pipe; what it took must be short.
        interrupt_at: What is on the terminal when somebody presses Ctrl-C; empty for never. A
            process at a terminal takes that, also where ours was started to ignore it, as
            `nohup make test &` is.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    path = [str(ROOT / "plugins"), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(path)}
    for name in _VARIABLES:
        variables.pop(name, None)
    with _interrupts_taken():
        started = subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            cwd=ROOT,
            env={**variables, **(environment or {})},
            stdin=theirs,
            stdout=subprocess.PIPE if pipes_out else theirs,
            stderr=theirs,
            start_new_session=True,
        )
    with started as process:
        os.close(theirs)
        limit = threading.Timer(LIMIT_SECONDS, os.killpg, (process.pid, signal.SIGKILL))
        limit.start()
        sent = b""
        for part in _parts_of(ours):
            sent += part
            if interrupt_at and interrupt_at.encode() in sent:
                os.killpg(process.pid, signal.SIGINT)
                interrupt_at = ""
        out = process.stdout.read() if process.stdout else b""
        process.wait()
        limit.cancel()
    return Seen(process.returncode, out.decode(), sent.decode())


@contextmanager
def _interrupts_taken() -> Iterator[None]:
    """Start processes that end by an interrupt; they would ignore it where this one does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _parts_of(terminal: int) -> Iterator[bytes]:
    """Yield what is sent until the last process has left the terminal."""
    try:
        while part := os.read(terminal, 1 << 16):
            yield part
    except OSError:
        # Linux says so by EIO.
        pass
    finally:
        os.close(terminal)
