"""The steps of a run, each printed with its duration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Steps", "say"]


def say(line: str) -> None:
    """Print a line and flush it."""
    print(line, flush=True)


@dataclass
class Steps:
    """The steps of a run, in order.

    Attributes:
        done: Name, seconds and outcome of each finished step.
    """

    done: list[tuple[str, float, str]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Run a step: print when it starts and how it ended, and record its duration.

        Errors are printed here, because the removal of the stack that follows may fail too.
        """
        say(f"{name} …")
        began = time.monotonic()
        outcome, reason = "ok", ""
        try:
            yield
        except BaseException as error:
            outcome, reason = "failed", f": {type(error).__name__}: {error}"
            raise
        finally:
            seconds = time.monotonic() - began
            self.done.append((name, seconds, outcome))
            say(f"{name}: {outcome}, {seconds:.1f} s{reason}")

    def table(self) -> str:
        """Return the steps as a table, in seconds."""
        total = sum(seconds for _, seconds, _ in self.done)
        outcome = "ok" if all(outcome == "ok" for *_, outcome in self.done) else "failed"
        rows = [*self.done, ("total", total, outcome)]
        width = max(len(name) for name, *_ in rows)
        return "\n".join(
            f"{name:<{width}}  {seconds:7.1f} s  {outcome}" for name, seconds, outcome in rows
        )
