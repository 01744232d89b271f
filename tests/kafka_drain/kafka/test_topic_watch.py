"""Topics that vanish while a job runs are named, whatever the job's own error is."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.errors import KafkaDrainError, KafkaUnavailableError, SparkJobError, TopicError
from kafka_drain.kafka import topic_watch
from kafka_drain.kafka.topic_watch import TopicWatch, vanished
from tests.faults.injection import wait_for


@pytest.mark.parametrize(
    ("meant", "now", "says"),
    [
        ({}, {}, []),
        ({"a": "1"}, {"a": "1"}, []),
        ({"a": "1"}, {"a": "1", "b": "2"}, []),
        ({"a": "1"}, {}, ["topic a with id 1 was deleted"]),
        ({"a": ""}, {}, ["topic a was deleted"]),
        # A broker that gives no ids.
        ({"a": ""}, {"a": ""}, []),
        ({"a": ""}, {"a": "2"}, []),
        # Its log was rewritten, so an archive counts it as another one.
        ({"a": "1~2"}, {"a": "1"}, []),
        (
            {"a": "1"},
            {"a": "2"},
            [
                "topic a was deleted, and another of that name was made: its id was 1, it is now 2",
            ],
        ),
        (
            {"b": "1", "a": "1", "c": "1"},
            {"c": "1"},
            ["topic a with id 1 was deleted", "topic b with id 1 was deleted"],
        ),
    ],
    ids=str,
)
def test_vanished(meant: Mapping[str, str], now: Mapping[str, str], says: list[str]) -> None:
    """A topic is another one as soon as its id is; what has no id is only missed."""
    assert vanished(meant, now) == says


class Answers:
    """A cluster that gives prepared answers about topics, the last one for ever."""

    def __init__(self, *answers: dict[str, str] | KafkaDrainError) -> None:
        self.answers = list(answers)

    def look(self) -> KafkaDrainError | None:
        answer = self.answers[0]
        if not isinstance(answer, KafkaUnavailableError):
            return None
        if len(self.answers) > 1:
            self.answers.pop(0)
        return answer

    def ids_of(self, names: Any) -> dict[str, str]:
        assert set(names) == {"a"}
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaDrainError):
            raise answer
        return answer


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at once."""
    for name in ("LOOK_SECONDS", "CONFIRM_SECONDS"):
        monkeypatch.setattr(topic_watch, name, 0.001)


THERE = {"a": "1"}


def watch_of(*answers: dict[str, str] | KafkaDrainError) -> TopicWatch:
    return TopicWatch(Answers(*answers), THERE, "while it was read")  # type: ignore[arg-type]


def test_look_confirms() -> None:
    """One answer without a topic isn't enough: a broker may have just started."""
    assert watch_of({}, THERE).look() is None
    assert str(watch_of({}).look()) == "topic a with id 1 was deleted while it was read"


def test_look_names_all() -> None:
    """Each topic that vanished is named."""

    class Nothing(Answers):
        def ids_of(self, names: Any) -> dict[str, str]:
            return {}

    watch = TopicWatch(Nothing(), {"a": "", "b": ""}, "meanwhile")  # type: ignore[arg-type]

    assert str(watch.look()) == "topic a was deleted; topic b was deleted meanwhile"


@pytest.mark.parametrize("first", [KafkaUnavailableError("no answer"), THERE], ids=str)
def test_ending_stops(first: Any) -> None:
    """What runs is stopped, and its own error is the cause of the one that names the topic."""
    stopped = threading.Event()

    def job() -> None:
        with watch_of(first, {}).ending(stopped.set):
            assert stopped.wait(10)
            raise SparkJobError("killed")

    with pytest.raises(TopicError, match="topic a with id 1 was deleted") as raised:
        job()

    assert str(raised.value.__cause__) == "killed"


def test_ending_blames() -> None:
    """What failed by itself, before anybody looked, failed because of the topic too."""
    with pytest.raises(TopicError, match="was deleted"), watch_of({}).ending(lambda: None):
        raise SparkJobError("timeout")


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (SparkJobError("memory"), THERE),
        (SparkJobError("memory"), KafkaUnavailableError("no answer")),
        (TopicError("known already"), {}),
        (KafkaUnavailableError("left running"), {}),
    ],
    ids=str,
)
def test_ending_keeps_error(
    error: KafkaDrainError, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that has another reason, that says as much, or that must be kept, is raised."""
    # It comes before the first look, however busy the machine is.
    monkeypatch.setattr(topic_watch, "LOOK_SECONDS", 3600.0)
    watch = watch_of(answer)

    def job() -> None:
        with watch.ending(lambda: None, unless=(KafkaUnavailableError,)):
            raise error

    with pytest.raises(type(error), match=str(error)):
        job()


def test_ending_fine() -> None:
    """A job that ends well is left alone."""
    with watch_of(THERE).ending(pytest.fail):
        pass


def test_ending_kafka_away() -> None:
    """A Kafka that hasn't answered for long ends what waits for it, and is named."""
    watch = replace(watch_of(KafkaUnavailableError("b:1 refuses connections")), away_seconds=0.05)
    stopped = threading.Event()

    def job() -> None:
        with watch.ending(stopped.set):
            assert stopped.wait(10)
            raise SparkJobError("killed")

    with pytest.raises(
        KafkaUnavailableError, match=r"hasn't answered for 0 s.*b:1 refuses"
    ) as raised:
        job()

    assert str(raised.value.__cause__) == "killed"


@pytest.mark.parametrize(
    "looks",
    [
        [(0, True), (0, False), (3600, True), (0, False)],
        # Suspended during the first look that misses it.
        [(3600, True), (0, True), (0, False)],
    ],
    ids=["two outages", "suspended"],
)
def test_ending_kafka_back(looks: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Outages that end in between aren't added up, and what is before one isn't part of it."""
    now, left, stopped = [1.0], list(looks), list[None]()

    class Away(Answers):
        missed: KafkaDrainError | None = None

        def look(self) -> KafkaDrainError | None:
            seconds, is_away = left.pop(0) if left else (0, False)
            now[0] += seconds
            self.missed = KafkaUnavailableError("no answer") if is_away else None
            return self.missed

        def ids_of(self, names: Any) -> dict[str, str]:
            if self.missed is not None:
                raise self.missed
            return THERE

    monkeypatch.setattr(topic_watch, "time", SimpleNamespace(monotonic=lambda: now[0]))
    watch = TopicWatch(Away(), THERE, "while it was read")  # type: ignore[arg-type]

    with watch.ending(lambda: stopped.append(None)):
        wait_for(lambda: not left or bool(stopped), "looks")

    assert not stopped


def test_blame_names_an_outage() -> None:
    """What failed while Kafka was away says so, and remains the same kind of error."""
    error = watch_of(KafkaUnavailableError("b:1 refuses connections")).blame(SparkJobError("late"))

    assert type(error) is SparkJobError
    assert str(error) == "late. Kafka doesn't answer now: b:1 refuses connections"
