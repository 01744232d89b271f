"""Charts as lines, boxes and labels."""

from __future__ import annotations

import pytest

from kafka_drain.pages.drawings import Bar, bar_chart


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
