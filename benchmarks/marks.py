"""A mark: what has to be reached, and what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["Mark", "Say", "markdown"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Mark:
    """One line of the table.

    Attributes:
        what: What was measured.
        measured: The figure, as text with its unit.
        wanted: The mark; empty where there is none and the figure stands for itself.
        met: Whether the figure reaches the mark; None where there is none.
        load: The machine's load average when it was measured.
    """

    what: str
    measured: str
    wanted: str
    met: bool | None
    load: float


def markdown(marks: Iterable[Mark]) -> str:
    """Return the marks as a Markdown table."""
    lines = [
        "| what | measured | mark | met | load average |",
        "| --- | --- | --- | --- | --- |",
    ]
    words = {True: "yes", False: "**no**", None: ""}
    lines += [
        f"| {m.what} | {m.measured} | {m.wanted} | {words[m.met]} | {m.load:.1f} |" for m in marks
    ]
    return "\n".join(lines)
