"""Run blocking work in a thread, so that something else can be done while it lasts."""

from __future__ import annotations

from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")

#: Longest wait at a time, so that signals are heard.
_TURN_SECONDS = 1.0


class Background(Generic[T]):
    """Runs a function in a thread, which doesn't keep the process from ending.

    Args:
        work: The function.
    """

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._results: list[T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._work())
        except BaseException as error:  # raised again in the thread that waits
            self._error = error

    def ended(self, seconds: float) -> bool:
        """Wait up to this long; return whether the work has finished, or raise its error."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._error is not None:
            raise self._error
        return True

    def wait(self) -> T:
        """Wait for the work's end; return its result, or raise its error."""
        while not self.ended(_TURN_SECONDS):
            pass
        return self.result()

    def result(self) -> T:
        """Return the result of the finished work."""
        return self._results[0]
