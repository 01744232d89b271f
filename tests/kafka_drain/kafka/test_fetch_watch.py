"""The wait for a consumer that may pass aborted records in silence."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from kafka_drain.errors import KafkaUnavailableError
from kafka_drain.kafka import fetch_watch
from kafka_drain.kafka.fetch_watch import FetchWatch
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import heard_by

TP = TopicPartition("t", 3)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds."""
    now = [100.0]
    monkeypatch.setattr(fetch_watch.time, "monotonic", lambda: now[0])
    return now


def report(**next_offsets: int) -> str:
    """Return a consumer's report of a topic's partitions."""
    partitions = {name[1:]: {"next_offset": at} for name, at in next_offsets.items()}
    return json.dumps({"topics": {"t": {"partitions": {"-1": {}, **partitions}}}})


def test_settings() -> None:
    """The consumer reports to the watch, several times before it counts as quiet."""
    watch = FetchWatch()

    assert watch.settings["stats_cb"] == watch.hear
    assert 0 < watch.settings["statistics.interval.ms"] < fetch_watch.QUIET_SECONDS * 1000 / 2


def test_require_quiet(clock: list[float]) -> None:
    """Nothing for 20 seconds is an outage, of which partition and offset are named."""
    watch = FetchWatch()
    clock[0] += 20
    watch.require(TP, 7)

    clock[0] += 0.1
    with pytest.raises(KafkaUnavailableError, match="within 20 s when reading t-3 from offset 7;"):
        watch.require(TP, 7)


def test_require_fetching(clock: list[float]) -> None:
    """As long as the next offset moves, it waits, and says so every 20 seconds."""
    watch, said = FetchWatch(), list[str]()
    with heard_by(said.append):
        for fetched in range(1, 9):
            clock[0] += 15
            watch.hear(report(p3=fetched, p4=-1001))
            watch.require(TP, 7)
    assert said == ["t-3 from offset 7: records of aborted transactions are being passed"] * 4

    watch.hear(report(p3=8, p4=-1001))
    clock[0] += 21
    watch.hear(report(p3=8, p4=-1001))
    with pytest.raises(KafkaUnavailableError):
        watch.require(TP, 7)


class Polled:
    """A consumer that has some messages, each after so many seconds."""

    def __init__(self, clock: list[float], waits: Sequence[tuple[float, Any]]) -> None:
        self._clock = clock
        self._waits = list(waits)

    def poll(self, seconds: float) -> Any:
        wait, message = self._waits[0] if self._waits else (seconds, None)
        if wait > seconds or message is None:
            self._clock[0] += seconds
            if self._waits:
                self._waits[0] = (wait - seconds, message)
            return None
        self._clock[0] += wait
        self._waits.pop(0)
        return message


class Message:
    """A record, or an event."""

    def __init__(self, code: int | None = None) -> None:
        self._code = code

    def error(self) -> Any:
        code = self._code
        return None if code is None else type("Error", (), {"code": lambda _: code})()


@pytest.mark.parametrize(
    ("code", "is_progress"),
    [(None, True), (fetch_watch.KafkaError._PARTITION_EOF, True), (30, False)],
)
def test_poll(clock: list[float], code: int | None, is_progress: bool) -> None:
    """Records and ends of partitions are progress; errors that come again and again aren't."""
    consumer: Any = Polled(clock, [(15.0, Message(code)), (15.0, Message())])
    watch = FetchWatch()

    assert watch.poll(consumer, TP, 7).error() is None or code is not None
    if is_progress:
        assert watch.poll(consumer, TP, 7).error() is None
    else:
        with pytest.raises(KafkaUnavailableError, match="t-3 from offset 7;"):
            watch.poll(consumer, TP, 7)
