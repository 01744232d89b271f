"""Lines of output go to whoever listens in the process, else to Python's logging."""

from __future__ import annotations

import logging
import threading

import pytest

from kafka_drain.output import Level, Line, OutageLine, SparkUiLine, heard_by, level_of, say


def test_say_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Where nobody listens, lines are logged at the level of what they mean."""
    with caplog.at_level(logging.INFO, "kafka_drain"):
        for level in Level:
            say(Line(f"{level.value} %s", level))
        say("text")

    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "plain %s"),
        ("INFO", "good %s"),
        ("WARNING", "warning %s"),
        ("ERROR", "error %s"),
        ("INFO", "text"),
    ]


def test_say_heard(caplog: pytest.LogCaptureFixture) -> None:
    """Who listens gets the lines with what they carry, from any thread; nothing is logged."""
    outer: list[str] = []
    inner: list[str] = []
    lines = [SparkUiLine("ui", "http://x"), OutageLine("away", is_over=False)]
    with caplog.at_level(logging.INFO, "kafka_drain"), heard_by(outer.append):
        say("before")
        with heard_by(inner.append):
            other = threading.Thread(target=lambda: [say(line) for line in lines])
            other.start()
            other.join()
        say("after")

    assert outer == ["before", "after"]
    assert [line is said for line, said in zip(lines, inner, strict=True)] == [True, True]
    assert caplog.records == []


def test_heard_by_failed() -> None:
    """Whoever listened before does so again, also after an error."""
    heard: list[str] = []
    with heard_by(heard.append):
        with pytest.raises(ValueError, match="x"), heard_by(print):
            raise ValueError("x")
        say("again")

    assert heard == ["again"]


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("text", Level.PLAIN),
        (Line("text"), Level.PLAIN),
        (Line("text", Level.ERROR), Level.ERROR),
        (OutageLine("away", is_over=False), Level.WARNING),
        (OutageLine("back", is_over=True), Level.PLAIN),
    ],
)
def test_level_of(line: str, level: Level) -> None:
    """Only a line that carries one has another level than plain."""
    assert level_of(line) is level
