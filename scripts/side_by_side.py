"""Run commands in parallel: `python -m scripts.side_by_side [--at-once N] NAME=COMMAND…`.

Without `--at-once`, all commands run at the same time; with it, at most N do. Each line of output
is prefixed with the command's name. Commands run in a shell, so `a && b` works. After all commands
have finished, repeats what pytest said of failed tests, and exits with 1 if any command failed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

__all__ = ["main"]

#: Time limit for commands to exit after they are interrupted.
LAST_SECONDS = 30.0

#: How pytest's lines about a failed test begin, and how many of a command's last ones are repeated.
FAILURES = ("E   ", "FAILED ", "ERROR ")
REPEATED = 40


def main(arguments: Sequence[str]) -> int:
    """Run the commands, and return the exit code."""
    options = _parser().parse_args(arguments)
    named = dict(command.partition("=")[::2] for command in options.commands)
    width = max(map(len, named))
    began = time.monotonic()
    running = _Running()
    with ThreadPoolExecutor(options.at_once or len(named)) as pool:
        runs = {
            name: pool.submit(running.run, name, f"{name:{width}} | ", command)
            for name, command in named.items()
        }
        try:
            codes = {name: run.result() for name, run in runs.items()}
        except BaseException:
            # Interrupt, as a terminal would: tests then stop what they started, such as brokers.
            pool.shutdown(wait=False, cancel_futures=True)
            running.end()
            raise
    for name, code in codes.items():
        # In parallel, thousands of other lines may have followed.
        for line in running.failures[name] if code else ():
            print(f"{name:{width}} | {line}", end="")
        print(f"{name:{width}} | {'passed' if code == 0 else f'failed, exit code {code}'}")
    print(f"{time.monotonic() - began:.0f} s in total", flush=True)
    return int(any(codes.values()))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="side_by_side")
    parser.add_argument("--at-once", type=int, metavar="N", help="maximum number run in parallel")
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    return parser


class _Running:
    """The commands that are currently running.

    Attributes:
        failures: By name, the last lines of a command about its failed tests.
    """

    def __init__(self) -> None:
        self.failures: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=REPEATED))
        self._processes: set[subprocess.Popen[str]] = set()
        self._is_over = False
        self._lock = threading.Lock()

    def run(self, name: str, prefix: str, command: str) -> int:
        """Run a command, print its lines, and return its exit code."""
        with self._lock:
            if self._is_over:
                return 1
            process = subprocess.Popen(
                command,
                shell=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                # In its own process group, so that its children can be stopped with it.
                start_new_session=True,
            )
            self._processes.add(process)
        _print_lines(prefix, process, self.failures[name])
        code = process.wait()
        self._processes.discard(process)
        return code

    def end(self) -> None:
        """Stop all running commands, and don't start any more."""
        with self._lock:
            self._is_over = True
            left = list(self._processes)
        for process in left:
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Interrupt a command and its children, and kill them if they don't exit."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, number)
            process.wait(LAST_SECONDS)


def _print_lines(prefix: str, process: subprocess.Popen[str], failures: deque[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(FAILURES):
            failures.append(line)
        # In a single call, so that lines of different commands don't mix.
        sys.stdout.write(prefix + line)
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
