"""What the commands of `kafka-drain` print."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console

__all__ = ["answer", "print_fields", "say"]


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def answer(options: argparse.Namespace, document: Any, show: Callable[[Console], None]) -> None:
    """Print the answer: JSON when it was asked for, else as people read it."""
    if options.json:
        print(json.dumps(document, indent=2))
        return
    # Away from a terminal a line is as long as it has to be.
    show(Console(width=None if sys.stdout.isatty() else 240, highlight=False))


def print_fields(document: dict[str, Any]) -> Callable[[Console], None]:
    def show(console: Console) -> None:
        for name, value in document.items():
            written = f"{value:,}" if isinstance(value, int) else value
            console.print(f"{name.replace('_', ' '):<24}{written}", markup=False)

    return show
