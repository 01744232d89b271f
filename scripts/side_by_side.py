"""Run commands at the same time: `python -m scripts.side_by_side NAME=COMMAND…`.

Each line of their output comes with the command's name before it. What a command of several parts
(`a && b`) means, a shell says. Ends with 1 as soon as all have ended and one of them has failed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["main"]

#: So long commands have for their end when they are interrupted.
LAST_SECONDS = 30.0


def main(arguments: Sequence[str]) -> int:
    """Run the commands, and return the exit code."""
    named = [argument.partition("=")[::2] for argument in arguments]
    width = max(len(name) for name, _ in named)
    began = time.monotonic()
    started = {
        name: subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            # A group of its own: what it has started ends with it.
            start_new_session=True,
        )
        for name, command in named
    }
    threads = [
        threading.Thread(target=_print_lines, args=(f"{name:{width}} | ", process))
        for name, process in started.items()
    ]
    try:
        for thread in threads:
            thread.start()
        codes = {name: process.wait() for name, process in started.items()}
    except BaseException:
        # As a terminal would: tests end what they have started, such as brokers.
        for process in started.values():
            _end(process)
        raise
    finally:
        for thread in threads:
            thread.join()
    for name, code in codes.items():
        print(f"{name:{width}} | {'passed' if code == 0 else f'failed, exit code {code}'}")
    print(f"{time.monotonic() - began:.0f} s in all", flush=True)
    return int(any(codes.values()))


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt a command with all that it has started, and kill what doesn't care."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(LAST_SECONDS)


def _print_lines(prefix: str, process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        # In one call: lines of two commands don't mix.
        sys.stdout.write(prefix + line)
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
