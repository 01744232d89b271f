"""The contract of engines: submit, poll, cancel, find again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_drain.errors import ConfigError, SparkJobError
from kafka_drain.spark.engine import (
    FindingRunner,
    StartedApplication,
    find_again,
    run_on,
    started_early,
    stop_running,
)

APPLICATION: Any = object()


@dataclass
class Recorder:
    """An engine that notes what is asked of it; its application says `news` and ends."""

    news: list[Any]
    found: StartedApplication | None = None
    asked: list[str] = field(default_factory=list)

    def find(self, _: Any) -> StartedApplication | None:
        return self.found

    def submit(self, _: Any) -> str:
        self.asked.append("submit")
        return "new"

    def poll(self, application_id: str) -> bool:
        self.asked.append(f"poll {application_id}")
        news = self.news.pop(0)
        if isinstance(news, BaseException):
            raise news
        return bool(news)

    def cancel(self, application_id: str) -> None:
        self.asked.append(f"cancel {application_id}")


@pytest.mark.parametrize(
    ("found", "asked"),
    [
        (None, ["submit", "poll new", "poll new"]),
        (StartedApplication("old"), ["poll old", "poll old"]),
    ],
)
def test_run_on_found_or_submitted(found: StartedApplication | None, asked: list[str]) -> None:
    """What is found again isn't submitted a second time, only followed."""
    engine = Recorder([False, True], found)

    run_on(engine, APPLICATION)

    assert engine.asked == asked


@pytest.mark.parametrize(
    ("error", "cancels"),
    [
        (SparkJobError("failed"), False),
        # Whoever was asked refuses to say how it is.
        (ConfigError("401"), False),
        (KeyboardInterrupt(), True),
        (ValueError(), True),
    ],
)
def test_run_on_error(error: BaseException, cancels: bool) -> None:
    """An interrupted run ends its application; one that failed, or can't be asked, doesn't."""
    engine = Recorder([error])

    with pytest.raises(type(error)):
        run_on(engine, APPLICATION)

    assert ("cancel new" in engine.asked) is cancels


def test_find_again_runners() -> None:
    """A plain function finds nothing; a runner that can, is asked."""
    found = StartedApplication("old")

    assert find_again(lambda _: None, APPLICATION) is None
    assert find_again(finding(found), APPLICATION) is found


def test_started_early_runners() -> None:
    """A plain function starts nothing early; a runner that can, does for as long as the context."""
    said: list[str] = []
    runner = finding(None, said)

    with started_early(lambda _: None, APPLICATION):
        pass
    with started_early(runner, APPLICATION):
        said.append("runs")

    assert said == ["starts", "runs", "ends"]


def finding(found: StartedApplication | None, said: list[str] | None = None) -> FindingRunner:
    said = [] if said is None else said

    @contextmanager
    def early(_: Any) -> Iterator[None]:
        said.append("starts")
        yield
        said.append("ends")

    return FindingRunner(lambda _: None, lambda _: found, early)


def test_run_on_started() -> None:
    """An id is told before the first poll; what has ended before has none to tell."""
    engine = Recorder([True])
    run_on(engine, APPLICATION, engine.asked.append)
    assert engine.asked == ["submit", "new", "poll new"]

    ended = Recorder([True], StartedApplication(""))
    run_on(ended, APPLICATION, ended.asked.append)
    assert ended.asked == ["poll "]


def test_run_on_started_fails() -> None:
    """Whoever can't note the id leaves no application running that nobody knows."""
    engine = Recorder([])

    def fail(_: str) -> None:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        run_on(engine, APPLICATION, fail)

    assert engine.asked == ["submit", "cancel new"]


def test_stop_running_runners() -> None:
    """A plain function can't be stopped; a runner that can, is."""
    stopped: list[str] = []
    runner = FindingRunner(
        lambda _: None, lambda _: None, started_early, lambda: stopped.append("x")
    )

    stop_running(lambda _: None)
    stop_running(runner)

    assert stopped == ["x"]
