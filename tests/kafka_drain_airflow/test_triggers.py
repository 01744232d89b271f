"""The wait in the triggerer: what it asks, when it ends, and what it survives."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.config.watch import Watch
from kafka_drain.drain.backlog import Watched
from kafka_drain.errors import ConfigError, KafkaUnavailableError
from kafka_drain.offsets import TopicPartition
from kafka_drain_airflow import triggers
from kafka_drain_airflow.triggers import BacklogTrigger
from tests.kafka_drain.fake_cluster import FakeCluster, Log


def watched(name: str, conn_id: str = "kafka_default") -> dict[str, Any]:
    """A pipeline that drained topic `name` to offset 0, with a limit of 10."""
    tp = TopicPartition(name, 0)
    limits = Watch(lag=10)
    return Watched(name, conn_id, "read_committed", limits, {tp: 0}, {}, {}, 0.0).to_dict()


class Clusters:
    """Kafka's ends by topic, behind connections; counts how often a connection was opened."""

    def __init__(self, **ends: int) -> None:
        self.ends = ends
        self.down: set[str] = set()
        self.opened: list[str] = []

    def __call__(self, conn_id: str) -> Any:
        self.opened.append(conn_id)
        if conn_id in self.down:
            raise KafkaUnavailableError("no response")
        if conn_id == "unknown":
            raise ConfigError("there is no such connection")
        return FakeCluster(
            {TopicPartition(name, 0): Log(end=end) for name, end in self.ends.items()}
        )


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Clusters:
    """Topics `a` and `b` with 3 records each."""
    made = Clusters(a=3, b=3)
    monkeypatch.setattr(triggers, "kafka_cluster", made)
    return made


def trigger_of(*asked: dict[str, Any], seconds: float = 60) -> BacklogTrigger:
    until = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return BacklogTrigger(list(asked), until.isoformat(), poll_seconds=0.01)


def event_of(trigger: BacklogTrigger) -> Any:
    async def first() -> Any:
        return [event.payload async for event in trigger.run()]

    (payload,) = asyncio.run(first())
    return payload


def test_trigger_serializes() -> None:
    """What Airflow stores makes the same trigger again."""
    path, arguments = trigger_of(watched("a")).serialize()

    assert path == "kafka_drain_airflow.triggers.BacklogTrigger"
    assert BacklogTrigger(**arguments).serialize() == (path, arguments)


def test_trigger_waits_for_limit(clusters: Clusters) -> None:
    """It ends when a limit is reached, names the pipeline, and keeps its connection meanwhile."""
    trigger = trigger_of(watched("a"), watched("b"))
    assert trigger.reasons() == {}

    clusters.ends["b"] = 10
    trigger._clusters.clear()

    assert event_of(trigger) == {"b": "a lag of 10 offsets reached the limit of 10"}
    assert trigger.reasons() == trigger.reasons()
    assert clusters.opened == ["kafka_default"] * 2


def test_trigger_ends_when_time_is_over(clusters: Clusters) -> None:
    """Without a reason it ends on time; with nothing to ask as well."""
    assert event_of(trigger_of(watched("a"), seconds=0.05)) == {}
    assert event_of(trigger_of(seconds=0.05)) == {}
    assert event_of(trigger_of(watched("a"), seconds=-1)) == {}


@pytest.mark.parametrize(("poll", "longest"), [(60, 30), (7, 7)])
def test_trigger_pauses(poll: float, longest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks as often as it should, and doesn't sleep past its own end."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(triggers.asyncio, "sleep", sleep)
    trigger = trigger_of(watched("a"), seconds=30)
    trigger.poll_seconds = poll
    monkeypatch.setattr(trigger, "reasons", lambda: {"a": "due"} if slept else {})

    assert event_of(trigger) == {"a": "due"}
    [pause] = slept
    assert longest / 2 < pause <= longest


def test_trigger_broker_down(clusters: Clusters, capsys: pytest.CaptureFixture[str]) -> None:
    """A broker that is down is asked once for all its pipelines, and again; so are the others."""
    clusters.ends["c"] = 10
    clusters.down.add("kafka_default")
    trigger = trigger_of(watched("a"), watched("b"), watched("c", "other"))

    assert [*trigger.reasons()] == ["c"]
    assert [*trigger.reasons()] == ["c"]
    assert clusters.opened.count("kafka_default") == 2
    # Airflow prints what triggers log.
    assert capsys.readouterr().out.count("no response") == 1

    clusters.down.clear()
    clusters.ends["b"] = 10
    assert [*trigger.reasons()] == ["b", "c"]


def test_trigger_broker_leaves(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that was lost is opened again, and each loss is said once."""
    trigger, said = trigger_of(watched("a")), list[str]()
    warn = SimpleNamespace(warning=lambda text, *given: said.append(text % given))
    monkeypatch.setattr(BacklogTrigger, "log", warn)

    def lose() -> None:
        def latest(*_: object) -> Any:
            raise KafkaUnavailableError("it has left")

        with monkeypatch.context() as patch:
            patch.setattr(FakeCluster, "latest", latest)
            trigger.reasons()
            trigger.reasons()

    trigger.reasons()
    lose()
    assert trigger.reasons() == {}
    assert len(clusters.opened) > 1
    lose()

    assert len(said) == 2
    assert all("it has left" in line for line in said)


def test_trigger_one_pipeline_wrong(clusters: Clusters) -> None:
    """A pipeline that can't be asked hides no other, whatever is wrong with it."""
    clusters.ends["b"] = 10
    gone = watched("gone")

    assert [*trigger_of(watched("a", "unknown"), gone, watched("b")).reasons()] == ["b"]
    # Another error than that the broker is down says nothing of its other pipelines.
    assert [*trigger_of(gone, watched("b"), watched("a", "unknown")).reasons()] == ["b"]
