"""What a demo prints: its steps, the lines of its tasks, and why it failed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

__all__ = ["DemoFailed", "console", "say", "step"]

console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)


class DemoFailed(Exception):
    """Raised when one of the demo's figures isn't as expected."""


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print a step's name when it starts and its duration when it ends."""
    began = time.monotonic()
    console.print(f"\n[bold]{text}[/bold]")
    yield
    console.print(f"  [dim]{time.monotonic() - began:.0f} s[/dim]")


def say(line: str) -> None:
    """Print a line of a task's output."""
    console.print(f"  {line}", markup=False)
