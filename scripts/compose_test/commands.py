"""Run commands on this machine."""

from __future__ import annotations

import shlex
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from scripts.compose_test.errors import CommandError

__all__ = ["answers", "output_of", "run_watched"]

_LINES = 20


def output_of(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    seconds: float = 60,
) -> str:
    """Run a command and return its standard output.

    Args:
        command: Program and arguments.
        environment: Its environment; None for this process's environment.
        folder: Its working folder; None for this process's.
        seconds: Time limit.

    Raises:
        CommandError: If the program is missing, fails or takes too long; with the last lines of
            both output streams.
    """
    shown = shlex.join(command)
    try:
        ended = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except OSError as error:
        raise CommandError(f"`{shown}` can't be run: {error}") from error
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"`{shown}` took longer than {seconds:g} s") from error
    if ended.returncode:
        printed = f"{ended.stdout}\n{ended.stderr}".strip().splitlines()
        raise _failed(shown, ended.returncode, printed[-_LINES:])
    return ended.stdout


def _failed(shown: str, status: int, lines: Iterable[str]) -> CommandError:
    return CommandError("\n  ".join([f"`{shown}` ended with {status}:", *lines]))


def run_watched(
    command: Sequence[str],
    watch: Callable[[str], object],
    *,
    environment: Mapping[str, str],
    seconds: float,
) -> None:
    """Run a long-running command and pass on each line of both its output streams.

    Args:
        command: Program and arguments.
        watch: Called with each line as it is printed, without the line end.
        environment: Its environment.
        seconds: Time limit.

    Raises:
        CommandError: If it fails or takes too long; with its last lines.
    """
    shown = shlex.join(command)
    last: deque[str] = deque(maxlen=_LINES)
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        too_long = threading.Event()

        def end() -> None:
            # In this order, so that the reason is known by the time the output ends.
            too_long.set()
            process.kill()

        limit = threading.Timer(seconds, end)
        limit.start()
        try:
            for line in process.stdout or ():
                last.append(line.rstrip())
                watch(line.rstrip())
            status = process.wait()
        finally:
            limit.cancel()
            process.kill()
    if too_long.is_set():
        raise CommandError("\n  ".join([f"`{shown}` took longer than {seconds:g} s:", *last]))
    if status:
        raise _failed(shown, status, last)


def answers(command: Sequence[str], environment: Mapping[str, str] | None = None) -> str | None:
    """Return a command's output; None if the program is missing or fails."""
    try:
        return output_of(command, environment=environment, seconds=30).strip()
    except CommandError:
        return None
