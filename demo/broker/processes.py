"""Processes of this machine by their id."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["command_line", "last_lines", "send"]

_LINES_OF_LOG = 15


def command_line(pid: int) -> str:
    """Return the arguments of a process; empty when it has ended."""
    if sys.platform == "linux":
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return ""
    run = subprocess.run(
        ["ps", "-ww", "-o", "command=", "-p", str(pid)],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    return run.stdout


def send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def last_lines(output: bytes) -> str:
    return "\n".join(output.decode(errors="replace").splitlines()[-_LINES_OF_LOG:])
