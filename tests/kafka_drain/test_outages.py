"""What a command says of a server that doesn't answer, and when."""

from __future__ import annotations

import asyncio
import threading
from contextvars import copy_context
from types import SimpleNamespace

import pytest
from fsspec import asyn

from kafka_drain import outages
from kafka_drain.errors import KafkaDrainError, KafkaUnavailableError
from kafka_drain.outages import ServerWatch, _Watched, slow_requests, told_of_outages, watch
from kafka_drain.output import Level, Line
from kafka_drain.progress import STORE_REQUESTS
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


def test_slow_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A request to an object store or an HDFS is told once it takes long, until it has ended."""
    clock = SimpleNamespace(monotonic=lambda: clock.now, now=100.0)
    monkeypatch.setattr(outages, "time", clock)
    begun, end = threading.Event(), asyncio.Event()

    async def request() -> None:
        begun.set()
        await end.wait()

    loop, look = asyn.get_loop(), slow_requests()
    asking = threading.Thread(target=asyn.sync, args=(loop, request))
    asking.start()
    assert begun.wait(10)
    assert look() is None
    clock.now = 110.0
    assert "has taken 10 s so far: unless it lists many files" in str(look())
    loop.call_soon_threadsafe(end.set)
    asking.join()
    wait_for(lambda: look() is None, "the task's end")

    monkeypatch.setitem(STORE_REQUESTS, 1, 90.0)
    assert "has taken 20 s so far" in str(look())


def test_told_of_slow_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store isn't said to answer again: the request that took long may have failed."""
    monkeypatch.setattr(outages, "LOOK_SECONDS", 0.01)
    said: list[str] = []

    with told_of_outages(said.append):
        STORE_REQUESTS[1] = 0.0
        wait_for(lambda: bool(said), "a line")
        del STORE_REQUESTS[1]
        wait_for(lambda: len(said) == 2, "the end")

    assert said[0].startswith("waiting: a request to a store has taken ")
    assert said[1].startswith("the request to a store has ended, after ")


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
