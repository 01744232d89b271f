"""Inspect and signal processes of this machine by their id."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

__all__ = ["command_line", "last_lines", "members", "send", "start_of"]

_LINES_OF_LOG = 15


def command_line(pid: int) -> str:
    """Return the command line of a process; empty if it has exited."""
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


def members(group: int) -> list[int]:
    """Return the ids of the processes in a process group."""
    if sys.platform == "linux":
        pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    else:
        command = ["ps", "-A", "-o", "pid="]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        pids = [int(pid) for pid in run.stdout.split()]
    found = []
    for pid in pids:
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group:
                found.append(pid)
    return found


def start_of(pid: int) -> str:
    """Return an opaque string for the start time of a process; empty if it has exited.

    Process ids are reused, for example after a reboot or a restart of a container.
    """
    if sys.platform == "linux":
        try:
            # Field 22 in `man proc`; split after the name, which is in parentheses and arbitrary.
            ticks = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{ticks[19]}"
        except (OSError, IndexError):
            return ""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    return "-".join(run.stdout.split())


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process, if it is still there."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def last_lines(output: bytes) -> str:
    """Return the last lines of a log."""
    return "\n".join(output.decode(errors="replace").splitlines()[-_LINES_OF_LOG:])
