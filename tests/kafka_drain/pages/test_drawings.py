"""Charts and drawings, and the library that draws charts."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from kafka_drain.archive.history import History
from kafka_drain.pages import drawings
from kafka_drain.pages.drawings import Bar, Chart, ChartPoint, bar_chart
from kafka_drain.pages.rendering import script
from tests.kafka_drain.archive.test_history import run


@pytest.mark.parametrize(
    ("values", "beside"),
    [
        ([0], ["0", "1"]),
        ([1], ["0", "1"]),
        ([3], ["0", "2", "5"]),
        ([700, 90], ["0", "500", "1,000"]),
    ],
)
def test_bar_chart_axis(values: list[int], beside: list[str]) -> None:
    """A chart has round numbers beside it, also when all bars are 0."""
    drawing = bar_chart([Bar(value, "x", "words", "covered") for value in values], "label", "batch")

    assert [label.text for label in drawing.labels if label.anchor == "end"] == beside
    assert len(drawing.lines) == len(beside)


def test_bar_chart_bars() -> None:
    """A bar is as high as its value, one of 0 can be seen, and none is outside."""
    bars = [Bar(value, str(value), f"{value} of them", "alt") for value in (0, 50, 100)]

    drawing = bar_chart(bars, "label", "batch")

    assert [(box.height, box.words) for box in drawing.boxes] == [
        (1, "0 of them"),
        (80, "50 of them"),
        (160, "100 of them"),
    ]
    assert {box.y + box.height for box in drawing.boxes} == {172}
    assert all(box.x > 90 and box.x + box.width < 890 for box in drawing.boxes)


def test_bar_chart_names_as_there_is_room() -> None:
    """Of many bars so many have their name below them that the names don't meet."""
    drawing = bar_chart([Bar(1, str(n), "", "alt") for n in range(100)], "label", "batch")

    names = [label for label in drawing.labels if label.anchor == "middle"]
    assert [name.text for name in names][:3] == ["0", "7", "14"]
    assert names[1].x - names[0].x >= 55


VENDOR = Path(drawings.__file__).with_name("vendor")
#: uPlot 1.6.32, as its package has it.
FILES = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.mark.parametrize("name", FILES)
def test_vendored_unchanged(name: str) -> None:
    """The library is the released one, byte by byte, and its licence lies beside it."""
    assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == FILES[name]
    assert "The MIT License" in (VENDOR / "LICENSE-uPlot.txt").read_text(encoding="utf-8")


def test_script_of_charts() -> None:
    """The script holds the library as it is, and neither asks anybody nor ends its tag."""
    text = script("charts.js")

    assert (VENDOR / "uPlot.iife.min.js").read_text(encoding="utf-8") in text
    assert "</" not in text
    assert not [word for word in ("fetch(", "XMLHttpRequest", "import(", "eval(") if word in text]


def test_chart() -> None:
    """Times are distances; each colour has its meaning, and each bar its colour."""
    points = [
        ChartPoint(100, 5, "damaged"),
        ChartPoint(40, 7, "covered"),
        ChartPoint(100, 1, "covered"),
    ]

    chart = Chart.of("Bytes", points, {"covered": "sealed"}, "bytes")

    assert json.loads(chart.json) == {
        "label": "Bytes",
        "unit": "bytes",
        "start": 40,
        "steps": [0, 60, 1],
        "values": [7, 5, 1],
        "kinds": [["covered", "sealed"], ["bad", "damaged"]],
        "kind": [0, 1, 0],
    }


def test_chart_of_a_year() -> None:
    """A year of hours takes 200 kB in a page."""
    history = History()
    for hour in range(24 * 30):
        history.add_run(run(hour))
    points = [ChartPoint(point.sealed_at, 123_456, "covered") for point in history.points]

    size = len(Chart.of("x", points, {}).json)

    assert size / len(points) * 8_760 < 200_000
