"""What isn't drained, measured against a fake cluster, and looked up in archives made by hand."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.archive.watermarks import observe, write_observations
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.watch import Watch
from kafka_drain.drain.backlog import Watched, look, measure
from kafka_drain.drain.urgency import Backlog
from kafka_drain.errors import ConfigError, DataLossError
from kafka_drain.offsets import TopicPartition
from kafka_drain.storage.lease import hold_lease
from tests.kafka_drain.drain.test_preflight import A0, A1, drained_archive
from tests.kafka_drain.fake_cluster import FakeCluster, Log

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
HOUR_MS = 3_600_000
T0 = TopicPartition("t", 0)


def before_now(hours: float) -> int:
    """Return a time in milliseconds."""
    return int(NOW.timestamp() * 1000 - hours * HOUR_MS)


#: One record every hour, offset 0 ten hours old.
HOURLY = {offset: before_now(10 - offset) for offset in range(10)}


def watched(cursor: int = 0, **changes: Any) -> Watched:
    arguments: dict[str, Any] = {
        "pipeline": "p",
        "kafka_conn_id": "kafka_default",
        "isolation_level": "read_committed",
        "watch": Watch(lag=5, hours_to_expiry=2),
        "cursor": {T0: cursor},
        "retention": {},
        "first": {},
        "first_at": 0.0,
    }
    return Watched(**{**arguments, **changes})


@pytest.mark.parametrize(
    ("log", "cursor", "lag", "expired", "cut"),
    [
        (Log(end=10), 0, 10, 0, 0),
        (Log(end=10), 4, 6, 0, 0),
        (Log(end=10), 10, 0, 0, 0),
        # A log that lost its end, or a topic that was recreated.
        (Log(end=3), 10, 0, 0, 7),
        # What is gone isn't drained by anybody.
        (Log(first=6, end=10), 4, 4, 2, 0),
        (Log(first=10, end=10), 4, 0, 6, 0),
        # What is behind an open transaction can't be drained, and isn't gone.
        (Log(end=10, stable=7), 4, 3, 0, 0),
        (Log(end=10, stable=4), 4, 0, 0, 0),
        (Log(end=10, stable=2), 4, 0, 0, 0),
        (Log(end=10, stable=4), 10, 0, 0, 0),
    ],
)
def test_measure_lag(log: Log, cursor: int, lag: int, expired: int, cut: int) -> None:
    """The lag is what a drain would read now; what is gone counts apart."""
    found = measure(FakeCluster({T0: log}), watched(cursor), NOW)

    assert found == Backlog(
        lag=lag, expired={T0: expired} if expired else {}, cut={T0: cut} if cut else {}
    )


@pytest.mark.parametrize(
    ("retention_hours", "hours", "cursor", "expiring"),
    [
        # Records older than 24 - 2 h: none.
        (24, 2, 0, 0),
        # Older than 7 h: offsets 0, 1 and 2.
        (9, 2, 0, 3),
        (9, 2, 2, 1),
        (9, 2, 3, 0),
        # Older than an hour before now: all but the last.
        (3, 2, 0, 9),
        # A retention shorter than the limit: all, at any time.
        (1, 2, 0, 10),
        (1, 2, 10, 0),
        # No retention by age, or no such limit.
        (None, 2, 0, 0),
        (1, None, 0, 0),
    ],
)
def test_measure_expiring(
    retention_hours: int | None, hours: float | None, cursor: int, expiring: int
) -> None:
    """Counts the undrained records that reach the age of `retention.ms` within the limit."""
    retention = {} if retention_hours is None else {"t": retention_hours * HOUR_MS}
    cluster = FakeCluster({T0: Log(end=10, times=HOURLY)})
    asked = watched(cursor, retention=retention, watch=Watch(lag=5, hours_to_expiry=hours))

    assert measure(cluster, asked, NOW).expiring == ({T0: expiring} if expiring else {})


def test_measure_expiring_behind_transaction() -> None:
    """Records behind an open transaction can't be drained, so they make no drain due."""
    cluster = FakeCluster({T0: Log(end=10, stable=1, times=HOURLY)})

    found = measure(cluster, watched(retention={"t": 9 * HOUR_MS}), NOW)

    assert (found.lag, found.expiring) == (1, {T0: 1})


@pytest.mark.parametrize(
    ("first_before", "seconds_ago", "first", "cursor", "reached"),
    [
        # 10 offsets in 100 s; 50 more to the cursor.
        (0, 100, 10, 60, {T0: 500.0}),
        (0, 100, 10, 10, {T0: 0.0}),
        # It has passed the cursor already.
        (0, 100, 10, 5, {T0: 0.0}),
        # Everything is drained.
        (0, 100, 10, 90, {}),
        # It doesn't move.
        (10, 100, 10, 60, {}),
        # No validation has seen it, or in the future by another clock.
        (None, 100, 10, 60, {}),
        (0, -5, 10, 60, {}),
    ],
)
def test_measure_reached_in(
    first_before: int | None,
    seconds_ago: float,
    first: int,
    cursor: int,
    reached: dict[TopicPartition, float],
) -> None:
    """If Kafka's first offset moves, it says when that reaches what isn't drained."""
    asked = watched(
        cursor,
        first={} if first_before is None else {T0: first_before},
        first_at=NOW.timestamp() - seconds_ago,
    )

    assert measure(FakeCluster({T0: Log(first=first, end=90)}), asked, NOW).reached_in == reached


def test_watched_as_json() -> None:
    """What a trigger gets is JSON, and says the same."""
    asked = watched(3, retention={"t": 5}, first={T0: 1}, first_at=2.5)

    assert Watched.from_dict(json.loads(json.dumps(asked.to_dict()))) == asked


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline with an archive that is drained to 20 of a-0 and to 5 of a-1."""
    drained_archive(tmp_path / "archive")
    return Pipeline(
        name="p",
        topics=["a"],
        archive=str(tmp_path / "archive"),
        watch={"hours_to_expiry": 2},
    )


@pytest.mark.parametrize(
    ("config", "retention"),
    [
        ({"retention.ms": "60000"}, {"a": 60000}),
        ({"retention.ms": "60000", "cleanup.policy": "compact,delete"}, {"a": 60000}),
        ({"retention.ms": "60000", "cleanup.policy": "compact"}, {}),
        ({"retention.ms": "-1"}, {}),
        ({}, {}),
    ],
)
def test_look(pipeline: Pipeline, config: dict[str, str], retention: dict[str, int]) -> None:
    """A look takes the cursor from the checkpoint, and retention from the topics."""
    cluster = FakeCluster({A0: Log(end=30), A1: Log(end=5)}, configs={"a": config})
    archive = Archive.at(pipeline.archive)
    seen = observe({}, {A0: KafkaBounds(2, 20, 20)}, "run", 1000.0)
    write_observations(archive, seen)

    found = look(pipeline, cluster, NOW)

    assert found.watched.cursor == {A0: 20, A1: 5}
    assert found.watched.retention == retention
    assert (found.watched.first, found.watched.first_at) == ({A0: 2}, 1000.0)
    assert found.backlog.lag == 10
    assert found.busy == ""


@pytest.mark.parametrize(("minutes_later", "is_busy"), [(0, True), (2, False)])
def test_look_lease_held(pipeline: Pipeline, minutes_later: int, is_busy: bool) -> None:
    """While a drain holds the lease, wherever it was started, none is to be started; it expires."""
    cluster = FakeCluster({A0: Log(end=30), A1: Log(end=5)})
    root = Archive.at(pipeline.archive).root
    with hold_lease(root, run="by hand"):
        now = datetime.now(timezone.utc) + timedelta(minutes=minutes_later)
        busy = look(pipeline, cluster, now).busy

    assert ("the archive is being written by" in busy and "run by hand" in busy) == is_busy


def test_look_refused(pipeline: Pipeline) -> None:
    """A look raises what a drain would be refused for."""
    with pytest.raises(DataLossError, match="retention has passed the cursor"):
        look(pipeline, FakeCluster({A0: Log(first=25, end=30), A1: Log(end=5)}), NOW)


def test_look_without_watch(pipeline: Pipeline) -> None:
    """A pipeline without limits can't be watched."""
    unwatched = pipeline.model_copy(update={"watch": None})
    with pytest.raises(ConfigError, match="pipeline 'p' has no watch"):
        look(unwatched, FakeCluster({A0: Log(end=30), A1: Log(end=5)}), NOW)


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_look_isolation(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """A watch counts what a drain would read: uncommitted records only if it reads these too."""
    monkeypatch.setattr("kafka_drain.drain.preflight.isolation_warnings", lambda *_: [])
    options = {"kafka.isolation.level": isolation}
    asked = pipeline.model_copy(update={"source_options": options})
    cluster = FakeCluster({A0: Log(end=30, stable=22), A1: Log(end=5)})

    found = look(asked, cluster, NOW)

    assert found.watched.isolation_level == isolation
    assert found.backlog.lag == (2 if isolation == "read_committed" else 10)


def test_look_observed_before(pipeline: Pipeline) -> None:
    """Only the first offsets of the last validation count, and only of what is drained now."""
    gone = TopicPartition("gone", 0)
    first = observe({}, {A0: KafkaBounds(1, 9, 9), A1: KafkaBounds(3, 4, 4)}, "one", 1000.0)
    later = observe({}, {A0: KafkaBounds(2, 20, 20), gone: KafkaBounds(7, 8, 8)}, "two", 2000.0)
    write_observations(Archive.at(pipeline.archive), {**first, **later})

    found = look(pipeline, FakeCluster({A0: Log(end=30), A1: Log(end=5)}), NOW).watched

    assert (found.first, found.first_at) == ({A0: 2}, 2000.0)
