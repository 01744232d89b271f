"""Draw time spans as bars on one axis. Opens nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from kafka_drain.pages.drawings import Box, Drawing, DrawnLine, Label

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
#: Possible distances between two tick marks, in milliseconds.
_STEPS = [
    *(_SECOND * n for n in (1, 5, 15, 30)),
    *(_MINUTE * n for n in (1, 5, 15, 30)),
    *(_HOUR * n for n in (1, 3, 6, 12)),
    *(_DAY * n for n in (1, 2, 7, 14, 28, 91, 182, 364, 1820, 3640, 36400)),
]
#: Timestamps from the year 9000 on aren't drawn: Python's calendar ends soon after.
HIGHEST = int(datetime(9000, 1, 1, tzinfo=timezone.utc).timestamp() * 1000)
#: Maximum number of tick marks on an axis.
MARKS = 8


@dataclass(frozen=True, slots=True)
class Stretch:
    """A bar on the axis.

    Attributes:
        name: Label beside it.
        words: Tooltip.
        first: Its start in Unix milliseconds.
        last: Its end.
        colour: CSS class of its colour.
    """

    name: str
    words: str
    first: int
    last: int
    colour: str


def is_of_calendar(milliseconds: int | None) -> bool:
    """Return whether a timestamp can be drawn: Kafka's may be any number, or -1 for none."""
    return milliseconds is not None and 0 <= milliseconds < HIGHEST


def time_axis(stretches: Sequence[Stretch], label: str) -> Drawing:
    """Return a drawing with a row for each time span.

    Args:
        stretches: The spans from top to bottom; at least one, all within the calendar.
        label: Accessible description.
    """
    left, top, width, height = 190, 4, 760, 14
    first = min(one.first for one in stretches)
    last = max(*(one.last for one in stretches), first + 1)
    under = top + len(stretches) * height

    def place(moment: int) -> float:
        return left + width * (moment - first) / (last - first)

    lines, boxes, labels = [], [], []
    for mark in marks(first, last):
        x = place(mark)
        lines.append(DrawnLine(x, top, x, under))
        labels.append(Label(_mark_text(mark, last - first), x, under + 14, "middle"))
    for number, one in enumerate(stretches):
        y = top + number * height
        name = one.name if len(one.name) < 28 else f"{one.name[:26]}…"
        labels.append(Label(name, left - 8, y + 10, "end"))
        x = min(place(one.first), left + width - 2)
        # Give each bar a minimum width, so that a single instant is visible.
        long = max(place(one.last) - place(one.first), 2)
        boxes.append(Box(x, y, long, height - 3, one.colour, one.words))
    return Drawing(label, left + width + 60, under + 22, lines, boxes, labels)


def marks(first: int, last: int) -> list[int]:
    """Return at most `MARKS` round times within a range."""
    step = next((s for s in _STEPS if (last - first) // s < MARKS), _STEPS[-1])
    return list(range(-(-first // step) * step, last + 1, step))[:MARKS]


def _mark_text(moment: int, length: int) -> str:
    at = _EPOCH + timedelta(milliseconds=moment)
    if length < MARKS * _MINUTE:
        return f"{at:%H:%M:%S}"
    if length < MARKS * _DAY:
        return f"{at:%m-%d %H:%M}"
    return f"{at:%Y-%m-%d}"
