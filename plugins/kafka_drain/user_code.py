"""Call code of users so that it can't end the process: whoever leaves has failed.

`except Exception` doesn't see `sys.exit`, and nothing sees `os._exit`. A process that ends with 0
counts as one that has succeeded, to a shell and to Airflow, whatever it hasn't done.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_exit = os._exit
_held = threading.local()


class LeftError(Exception):
    """Raised in place of what would have ended the process."""


class _ExitCalled(BaseException):
    """Raised by `os._exit`, so that an `except Exception` of the user's doesn't see it either."""


@contextmanager
def held() -> Iterator[None]:
    """Call code of users in the body.

    Not told apart from Ctrl-C, and passed on: a KeyboardInterrupt in the main thread. Not seen: a
    library in C that ends the process, and code that has imported `_exit` by name before.

    Raises:
        LeftError: When it leaves by SystemExit, KeyboardInterrupt or os._exit; says by which.
    """
    os._exit = _exit_or_raise
    before = getattr(_held, "process", None)
    _held.process = os.getpid()
    try:
        yield
    except BaseException as error:
        if not leaves(error, is_main=threading.current_thread() is threading.main_thread()):
            raise
        by = "os._exit" if isinstance(error, _ExitCalled) else type(error).__name__
        raise LeftError(f"left by {by}") from None
    finally:
        _held.process = before


def leaves(error: BaseException, *, is_main: bool) -> bool:
    """Return whether an error means that code has left, rather than that it was interrupted.

    Args:
        is_main: Whether it ran in the main thread, in which Python raises KeyboardInterrupt for a
            signal.
    """
    if isinstance(error, KeyboardInterrupt):
        return not is_main
    return not isinstance(error, Exception)


def _exit_or_raise(status: int) -> NoReturn:
    # A process that the code has forked is its own.
    if getattr(_held, "process", None) == os.getpid():
        raise _ExitCalled(status)
    _exit(status)
