"""Charts and drawings as plain values.

`templates/draw.js` draws charts, beside the same numbers as a table; `templates/parts.html` renders
drawings as SVG. Opens nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

#: The page's colours (variables of `page.css`) by the CSS class of a bar.
_COLOURS = {"damaged": "bad", "unproven": "control", "content_unknown": "warn"}


@dataclass(frozen=True, slots=True)
class ChartPoint:
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
        cls, label: str, points: Iterable[ChartPoint], words: dict[str, str], unit: str = ""
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


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle.

    Attributes:
        x: Its left edge.
        y: Its upper edge.
        width: Its extent to the right.
        height: Its extent downwards.
        colour: CSS class of its colour.
        words: Tooltip.
    """

    x: float
    y: float
    width: float
    height: float
    colour: str
    words: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """Text in a drawing.

    Attributes:
        x: Position of its anchor.
        y: Position of its baseline.
        anchor: The part of the text that is at `x`: start, middle or end.
        words: Tooltip; empty for none.
    """

    text: str
    x: float
    y: float
    anchor: str = "start"
    words: str = ""


@dataclass(frozen=True, slots=True)
class DrawnLine:
    """A line from one point to another."""

    x1: float
    y1: float
    x2: float
    y2: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """The elements of a drawing, in drawing order.

    Attributes:
        label: Accessible description.
        width: Total width.
        height: Total height.
        boxes: Rectangles.
        labels: Texts.
    """

    label: str
    width: float
    height: float
    lines: Sequence[DrawnLine] = ()
    boxes: Sequence[Box] = ()
    labels: Sequence[Label] = ()


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing as part of a page.

    Attributes:
        heading: Heading above it.
        caption: Caption below it; empty for none.
        chart: A chart that browsers with scripts draw in place of the drawing; None for none.
        table: The numbers of the chart; None for none.
    """

    heading: str
    drawing: Drawing
    caption: str = ""
    chart: Chart | None = None
    table: Table | None = None


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar of a chart.

    Attributes:
        value: Its height.
        name: Its label on the axis; only every nth is shown if there is little room.
        words: Tooltip.
        colour: CSS class of its colour.
    """

    value: int
    name: str
    words: str
    colour: str


def bar_chart(
    bars: Sequence[Bar], label: str, axis: str, write: Callable[[int], str] = "{:,}".format
) -> Drawing:
    """Return a bar chart with round numbers on its scale.

    Args:
        bars: The bars from left to right; at least one.
        label: Accessible description.
        axis: Meaning of the bars' names.
        write: Formats a value for the scale.
    """
    left, top, width, height = 90, 12, 800, 160
    highest = _round_up(max(bar.value for bar in bars))
    lines, boxes, labels = [], [], []
    for value in (0, highest // 2, highest) if highest > 1 else (0, 1):
        y = top + height - height * value / highest
        lines.append(DrawnLine(left, y, left + width, y))
        labels.append(Label(write(value), left - 8, y + 4, "end"))
    step = min(width / len(bars), 60)
    every, under = ceil(55 / step), top + height + 18
    for number, bar in enumerate(bars):
        tall = max(height * bar.value / highest, 1)
        x = left + (number + 0.1) * step
        boxes.append(Box(x, top + height - tall, 0.8 * step, tall, bar.colour, bar.words))
        if number % every == 0:
            labels.append(Label(bar.name, left + (number + 0.5) * step, under, "middle"))
    labels.append(Label(axis, 0, under))
    return Drawing(label, left + width + 10, under + 8, lines, boxes, labels)


def _round_up(number: int) -> int:
    """Return the next 1, 2 or 5 times a power of ten."""
    power = int("1" + "0" * (len(str(max(number, 1))) - 1))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= number)
