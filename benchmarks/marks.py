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
    """Return the marks as a Markdown table, without the columns of targets if there are none."""
    rows = list(marks)
    words = {True: "yes", False: "**no**", None: ""}
    has_targets = any(mark.wanted for mark in rows)
    columns = ["what", "measured", *(["mark", "met"] if has_targets else []), "load average"]
    lines = [f"| {' | '.join(columns)} |", f"{'| --- ' * len(columns)}|"]
    for mark in rows:
        target = [mark.wanted, words[mark.met]] if has_targets else []
        lines.append(f"| {' | '.join([mark.what, mark.measured, *target, f'{mark.load:.1f}'])} |")
    return "\n".join(lines)
