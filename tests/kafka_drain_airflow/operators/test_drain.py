"""What the operator that drains asks the core for: each field of the form has its effect."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain_airflow.observability import archive_events
from kafka_drain_airflow.operators.drain import KafkaDrainOperator
from tests.core_calls import MANUAL, CoreCalls, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

T0 = TopicPartition("t", 0)
START, END = "2026-01-01T00:00:00+00:00", "2026-01-01T01:00:00+00:00"
WINDOW = {"mode": "window", "window_start": START, "window_end": END}
CLUSTER = FakeCluster({})


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline whose archive isn't there yet."""
    archive = str(tmp_path / "archive")
    return Pipeline(name="p", topics=["t"], archive=archive, kafka_conn_id="of_p")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which has drained three records of topic t."""
    calls = CoreCalls(monkeypatch)
    calls.replace("kafka_drain_airflow.operators.drain.kafka_cluster", CLUSTER)
    calls.replace("kafka_drain_airflow.operators.drain.schema_registry", "the registry")
    drained = Planned(topics={"t": "its id"}), {"records": 3, "seconds": 1.0}
    calls.replace("kafka_drain.drain.drain.run_drain", drained)
    calls.replace("kafka_drain.windows.backfill_plan.plan_backfill", window(left=5))
    calls.replace("kafka_drain.windows.backfill.run_backfill", {"records": 5})
    calls.replace("kafka_drain_airflow.observability.metrics.tell_drain")
    return calls


def window(left: int) -> Planned:
    """Return the plan of a window with some offsets left to drain."""
    ranges = {T0: [OffsetRange(0, left)]} if left else {}
    return Planned(nothing_to_do=not left, ranges=ranges, to_drain=left)


def test_execute(core: CoreCalls, pipeline: Pipeline) -> None:
    """A drain has the form's fields, the run's name and the registry; its result is told."""
    fields = {"acknowledge_expired": ["t:0:1-2"], "log_level": "DEBUG"}
    task = KafkaDrainOperator(task_id="drain", pipeline=pipeline, **fields)

    assert task.execute(MANUAL) == {"records": 3, "seconds": 1.0}

    (drained, cluster, runner), named = core.given["run_drain"]
    assert drained == pipeline.with_log_level("DEBUG")
    assert cluster is CLUSTER
    assert core.given["kafka_cluster"] == (("of_p",), {})
    assert runner.run == task.run_application
    assert core.given["schema_registry"] == ((drained,), {})
    assert named["run"] == "manual 1"
    assert named["acknowledged"] == {T0: [OffsetRange(1, 2)]}
    assert named["registry"] == "the registry"
    assert core.given["tell_drain"] == (("p", {"records": 3, "seconds": 1.0}), {})
    assert task._lineage is not None
    assert list(task._lineage.outputs.values()) == [3]
    named["show"](["10 offsets"])
    assert task.plan == "- 10 offsets"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("acknowledged", [(), ("t:0:1-2",)])
def test_execute_window(
    core: CoreCalls, pipeline: Pipeline, force: bool, acknowledged: tuple[str, ...]
) -> None:
    """A window is planned with the form's fields, and drained under the run's name."""
    fields = {"force": force, "acknowledge_expired": acknowledged, "log_level": "DEBUG"}
    task = KafkaDrainOperator(task_id="drain", pipeline=pipeline, **WINDOW, **fields)

    assert task.execute(MANUAL) == {"records": 5}

    (planned, asked, interval), named = core.given["plan_backfill"]
    assert (planned, asked) == (pipeline.with_log_level("DEBUG"), CLUSTER)
    assert (interval.start.isoformat(), interval.end.isoformat()) == (START, END)
    assert named == {
        "force": force,
        "acknowledged": {T0: [OffsetRange(1, 2)]} if acknowledged else {},
    }
    (plan, drained, cluster, runner), named = core.given["run_backfill"]
    assert (plan, drained, cluster) == (window(left=5), pipeline.with_log_level("DEBUG"), CLUSTER)
    assert runner.run == task.run_application
    assert named == {"run": "manual 1"}
    assert "run_drain" not in core.given
    assert task.plan == "- what is planned"
    assert task._lineage is not None
    assert {name: n for (_, name), n in task._lineage.outputs.items()} == {pipeline.archive: 5}
    assert [name for _, name in task._lineage.inputs] == ["t"]


def test_execute_window_of_backfill(core: CoreCalls, pipeline: Pipeline) -> None:
    """A backfill's run drains its data interval, whatever the mode."""
    at = {"data_interval_start": datetime(2026, 1, 1, tzinfo=timezone.utc)}
    at["data_interval_end"] = datetime(2026, 1, 1, 1, tzinfo=timezone.utc)
    context: Any = {**MANUAL, **at, "dag_run": SimpleNamespace(run_type="backfill", conf={})}

    KafkaDrainOperator(task_id="drain", pipeline=pipeline).execute(context)

    interval = core.given["plan_backfill"][0][2]
    assert (interval.start.isoformat(), interval.end.isoformat()) == (START, END)
    assert "run_drain" not in core.given


def test_execute_window_nothing_left(core: CoreCalls, pipeline: Pipeline) -> None:
    """A window of which everything is archived starts nothing."""
    core.replace("kafka_drain.windows.backfill_plan.plan_backfill", window(left=0))

    done = KafkaDrainOperator(task_id="drain", pipeline=pipeline, **WINDOW).execute(MANUAL)

    assert (done["records"], done["receipt"], done["to_drain"]) == (0, None, 0)
    assert "run_backfill" not in core.given


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
    """Where Airflow knows of an archive that isn't there, none is begun unless that is meant."""
    monkeypatch.setattr(archive_events, "last_event", lambda *_: datetime.now(timezone.utc))
    task = KafkaDrainOperator(task_id="drain", pipeline=pipeline, **fields)

    if is_refused:
        with pytest.raises(AirflowFailException, match="holds no archive, but Airflow knows"):
            task.execute(MANUAL)
    else:
        task.execute(MANUAL)

    assert ("run_drain" in core.given or "run_backfill" in core.given) is not is_refused
