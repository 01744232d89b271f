"""Charts as plain values, which `templates/draw.js` draws, and the same numbers as a table.

Opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

#: The page's colours (variables of `page.css`) by the CSS class of a bar.
_COLOURS = {"damaged": "bad", "unproven": "control", "content_unknown": "warn"}


@dataclass(frozen=True, slots=True)
class Point:
    """One bar.

    Attributes:
        at: Its place on the axis of time, in seconds since 1970.
        value: Its height.
        colour: CSS class of its colour.
    """

    at: int
    value: float
    colour: str


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart that a browser draws: bars over time, in UTC.

    Attributes:
        label: Accessible description.
        json: Its values, for `data-chart`.
    """

    label: str
    json: str

    @classmethod
    def of(
        cls, label: str, points: Iterable[Point], words: dict[str, str], unit: str = ""
    ) -> Chart:
        """Return a chart of points.

        Args:
            label: Accessible description.
            points: The bars; at least one.
            words: Meaning of each CSS class among them, for the legend.
            unit: `bytes`, or empty for numbers.
        """
        shown = sorted(points, key=lambda point: point.at)
        colours = sorted({point.colour for point in shown})
        content = {
            "label": label,
            "unit": unit,
            # The points' distances take less than half the bytes of their times.
            "start": shown[0].at,
            # Of several bars at one second, a browser would show one.
            "steps": [0, *(max(b.at - a.at, 1) for a, b in pairwise(shown))],
            "values": [point.value for point in shown],
            "kinds": [[_COLOURS.get(name, name), words.get(name, name)] for name in colours],
            "kind": [colours.index(point.colour) for point in shown],
        }
        return cls(label, json.dumps(content, separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers of a chart, for readers without script.

    Attributes:
        names: Names of the columns.
        rows: Texts, row by row.
    """

    names: Sequence[str]
    rows: Sequence[Sequence[str]]
