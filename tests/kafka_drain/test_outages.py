"""What a command says of a server that doesn't answer, and when."""

from __future__ import annotations

from contextvars import copy_context

import pytest

from kafka_drain import outages
from kafka_drain.errors import KafkaDrainError, KafkaUnavailableError
from kafka_drain.outages import ServerWatch, _Watched, told_of_outages, watch
from kafka_drain.output import Level, Line
from tests.faults.injection import wait_for

AWAY = KafkaUnavailableError("b:9092 refuses connections")


@pytest.mark.parametrize(
    ("looks", "said"),
    [
        ([(4, None), (8, None)], [None, None]),
        ([(4, AWAY), (8, AWAY)], [f"waiting: {AWAY}", None]),
        (
            [(4, AWAY), (60, AWAY), (64, AWAY), (70, AWAY)],
            [f"waiting: {AWAY}", None, f"still waiting after 1 min 0 s: {AWAY}", None],
        ),
        (
            [(4, AWAY), (8, None), (12, None), (16, AWAY)],
            [f"waiting: {AWAY}", "Kafka at b answers again, after 4 s", None, f"waiting: {AWAY}"],
        ),
    ],
    ids=["answers", "away", "long", "again"],
)
def test_watched_news(
    looks: list[tuple[float, KafkaDrainError | None]], said: list[str | None]
) -> None:
    """An outage is said at its first look, each minute, and at its end; a warning until then."""
    watched = _Watched("Kafka at b", lambda: None)

    lines = [watched.news(now, missed) for now, missed in looks]

    assert lines == said
    assert [(line.level is Level.WARNING, line.is_over) for line in lines if line] == [
        (line.endswith(str(AWAY)), "again" in line) for line in said if line
    ]


def test_watch_says_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """What doesn't answer is said as a warning; the wait is ended once, after its time."""
    monkeypatch.setattr(outages, "LOOK_SECONDS", 0.01)
    said: list[str] = []
    ended: list[KafkaDrainError] = []
    watching = ServerWatch(said.append)
    looks = iter([None, AWAY, AWAY])

    watching.add("Kafka at b", lambda: next(looks), after=0.0, end=ended.append)

    wait_for(lambda: bool(ended), "the end")
    watching.close()
    assert ended == [AWAY]
    assert said == [f"waiting: {AWAY}"]
    assert isinstance(said[0], Line)
    assert said[0].level is Level.WARNING


def test_watch_named_twice() -> None:
    """A server that two clients use is watched once, or each line would be there twice."""
    watching = ServerWatch(print)

    for name in ("Kafka at b", "Kafka at c", "Kafka at b"):
        watching.add(name, lambda: None)

    watching.close()
    assert [watched.name for watched in watching._watched] == ["Kafka at b", "Kafka at c"]


def test_told_of_outages_within_its_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who opened the context hears of it, and nobody after that."""
    monkeypatch.setattr(outages, "LOOK_SECONDS", 0.01)
    said: list[str] = []
    looks: list[None] = []

    def look() -> KafkaDrainError:
        looks.append(None)
        return AWAY

    def body() -> None:
        watch("unheard", look)
        assert not looks
        with told_of_outages(said.append):
            watch("Kafka at b", look)
            wait_for(lambda: bool(said), "a line")

    copy_context().run(body)

    assert said == [f"waiting: {AWAY}"]
