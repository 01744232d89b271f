"""Processes of our own code that start at once: forks of one that has done the imports."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from multiprocessing.process import BaseProcess
from typing import Any

import kafka_drain
from kafka_drain.cli.main import COMMANDS

__all__ = ["fork", "kill_points", "run_forked"]

PATIENCE = 300.0
#: Of so many changes of an archive, one at which a process is killed; `make soak` tries each.
KILL_EVERY = int(os.environ.get("TESTS_KILL_EVERY", "3"))

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        *(f"kafka_drain.cli.commands.{name.replace('-', '_')}" for name in COMMANDS),
        # What a child imports as its main module.
        "pytest",
    ]
)


def kill_points() -> Iterator[int]:
    """Yield the changes, counted from 1, at which a process is killed: until it isn't any more."""
    return count(1, KILL_EVERY)


def fork(target: Callable[..., object], *arguments: Any) -> BaseProcess:
    """Start a function of a module in a process of its own.

    Args:
        target: The function; its process ends with 0 when it returns.
        arguments: What it is given; has to be picklable.
    """
    with _our_path() as before:
        process = _FORKS.Process(
            target=_call, args=(str(kafka_drain.__file__), before, target, arguments)
        )
        process.start()
    return process


@contextmanager
def _our_path() -> Iterator[str | None]:
    """Let the server, if it starts, import what this process does, not what is installed.

    Yields the path that there was before.
    """
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield before
    finally:
        _set_path(before)


def _set_path(path: str | None) -> None:
    if path is None:
        os.environ.pop("PYTHONPATH", None)
    else:
        os.environ["PYTHONPATH"] = path


def _call(
    imported: str, path: str | None, target: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    """Run a function in a fork, whose own processes get the path that ours get.

    Raises:
        AssertionError: When the server imports another kafka_drain than this process.
    """
    assert kafka_drain.__file__ == imported, f"{kafka_drain.__file__} isn't {imported}"
    _set_path(path)
    target(*arguments)


def run_forked(target: Callable[..., object], *arguments: Any) -> int:
    """Run a function as `fork` does, wait for its end, and return its exit code."""
    process = fork(target, *arguments)
    process.join(PATIENCE)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"{target.__name__}{arguments} didn't end in {PATIENCE:g} s")
    return process.exitcode
