"""A mark: a measured figure and its target."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

__all__ = ["Mark", "Say", "markdown"]

Say = Callable[[str], None]


@dataclass(frozen=True)
class Mark:
    """One row of the table.

    Attributes:
        what: What was measured.
        measured: The figure, as text with its unit.
        wanted: The target; empty if there is none.
        met: Whether the figure meets the target; None if there is none.
        load: The machine's load average during the measurement.
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
