"""What the operator that checks asks the core for: just what the drain after it is asked for."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.errors import SparkJobError
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain_airflow.observability import archive_events
from kafka_drain_airflow.operators.preflight import PreflightOperator
from tests.core_calls import MANUAL, CoreCalls, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

HERE = "kafka_drain_airflow.operators.preflight"
START, END = "2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"
WINDOW = {"mode": "window", "window_start": START, "window_end": END}
CLUSTER = FakeCluster({})
ACCEPTED = {TopicPartition("t", 0): [OffsetRange(1, 2)]}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline whose archive isn't there yet."""
    archive = str(tmp_path / "archive")
    return Pipeline(name="p", topics=["t"], archive=archive, kafka_conn_id="of_p")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, by which all is in order."""
    calls = CoreCalls(monkeypatch)
    calls.replace(f"{HERE}.kafka_cluster", CLUSTER)
    calls.replace(f"{HERE}.require_spark_connect")
    calls.replace("kafka_drain.drain.preflight.preflight", Planned(offsets=7))
    calls.replace("kafka_drain.windows.backfill_plan.plan_backfill", Planned(to_drain=5))
    return calls


def test_execute(core: CoreCalls, pipeline: Pipeline) -> None:
    """Of a drain, what the form accepts as lost is accepted."""
    task = PreflightOperator(task_id="t", pipeline=pipeline, acknowledge_expired=["t:0:1-2"])

    assert task.execute(MANUAL) == {"offsets": 7}

    assert core.given["preflight"][0] == (pipeline, CLUSTER)
    assert core.given["kafka_cluster"] == (("of_p",), {})
    assert core.named("preflight") == {"acknowledged": ACCEPTED}


@pytest.mark.parametrize("force", [False, True])
def test_execute_window(core: CoreCalls, pipeline: Pipeline, force: bool) -> None:
    """A window is planned as the drain will plan it."""
    fields: dict[str, Any] = {**WINDOW, "force": force, "acknowledge_expired": "t:0:1-2"}

    assert PreflightOperator(task_id="t", pipeline=pipeline, **fields).execute(MANUAL) == {
        "to_drain": 5
    }

    (planned, cluster, interval), named = core.given["plan_backfill"]
    assert (planned, cluster) == (pipeline, CLUSTER)
    assert (interval.start.isoformat(), interval.end.isoformat()) == (START, END)
    assert named == {"force": force, "acknowledged": ACCEPTED}


def test_execute_no_server(core: CoreCalls, pipeline: Pipeline) -> None:
    """A Spark Connect server that is away is found before anything is planned, and tried again."""
    core.replace(f"{HERE}.require_spark_connect", SparkJobError("nobody there"))

    with pytest.raises(SparkJobError, match="nobody there"):
        PreflightOperator(task_id="t", pipeline=pipeline).execute(MANUAL)

    assert core.given["require_spark_connect"] == ((pipeline,), {})
    assert "preflight" not in core.given


@pytest.mark.parametrize(
    ("fields", "is_refused"), [({}, True), ({"new_archive": True}, False), (WINDOW, False)]
)
def test_execute_archive_gone(
    core: CoreCalls,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
    fields: dict[str, Any],
    is_refused: bool,
) -> None:
    """Where Airflow knows of an archive that isn't there, none is planned unless that is meant."""
    monkeypatch.setattr(archive_events, "last_event", lambda *_: datetime.now(timezone.utc))
    task = PreflightOperator(task_id="t", pipeline=pipeline, **fields)

    if is_refused:
        with pytest.raises(AirflowFailException, match="holds no archive, but Airflow knows"):
            task.execute(MANUAL)
    else:
        task.execute(MANUAL)

    assert ("preflight" in core.given or "plan_backfill" in core.given) is not is_refused
