"""Code of users can't end the process that calls it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

import pytest

from kafka_drain.user_code import LeftError, held, leaves


def by_sys_exit() -> NoReturn:
    sys.exit(0)


def by_os_exit() -> NoReturn:
    try:
        os._exit(0)
    except Exception:
        raise AssertionError("as little seen by the user's own code as an exit") from None


def by_generator_exit() -> NoReturn:
    raise GeneratorExit


@pytest.mark.parametrize(
    ("leave", "by"),
    [
        (by_sys_exit, "SystemExit"),
        (by_os_exit, "os._exit"),
        (by_generator_exit, "GeneratorExit"),
    ],
)
def test_held(leave: Callable[[], None], by: str) -> None:
    """Leaving is an error that says by what; code inside code is held as well."""
    with pytest.raises(LeftError, match=f"^left by {by}$"), held():
        leave()

    def inside() -> None:
        with held():
            pass
        leave()

    with pytest.raises(LeftError), held():
        inside()


def test_held_other_errors() -> None:
    """Other errors pass as they are."""
    with pytest.raises(KeyError), held():
        raise KeyError("x")
    with held():
        pass


@pytest.mark.parametrize(
    ("error", "in_main", "elsewhere"),
    [
        (SystemExit(0), True, True),
        (SystemExit(1), True, True),
        (GeneratorExit(), True, True),
        (KeyboardInterrupt(), False, True),
        (KeyError(), False, False),
        (MemoryError(), False, False),
    ],
)
def test_leaves(error: BaseException, in_main: bool, elsewhere: bool) -> None:
    """Ctrl-C interrupts the main thread; a KeyboardInterrupt in another one is code that leaves."""
    assert leaves(error, is_main=True) is in_main
    assert leaves(error, is_main=False) is elsewhere


def test_held_in_thread() -> None:
    """A KeyboardInterrupt in a thread is no Ctrl-C."""
    seen: list[Exception] = []

    def work() -> None:
        try:
            with held():
                raise KeyboardInterrupt
        except LeftError as error:
            seen.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [str(error) for error in seen] == ["left by KeyboardInterrupt"]


FORKS = """
import os, sys, threading
from kafka_drain.user_code import held
with held():
    child = os.fork()
    if not child:
        os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3
    thread = threading.Thread(target=lambda: os._exit(4))
    thread.start()
    thread.join()
"""


def test_held_leaves_others_alone() -> None:
    """A process that the code has forked, and another thread, end as they always do."""
    path = os.pathsep.join(p for p in sys.path if p)
    ended = subprocess.run(
        [sys.executable, "-c", FORKS], env={**os.environ, "PYTHONPATH": path}, check=False
    )
    assert ended.returncode == 4
