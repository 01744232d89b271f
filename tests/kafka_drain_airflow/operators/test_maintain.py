"""What the operator that maintains asks the core for, and what it tells of replaced files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_drain.archive.frozen_plan import PlanDecision
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.output import heard_by
from kafka_drain_airflow.observability.archive_events import replaced_alias
from kafka_drain_airflow.operators.maintain import MaintainOperator
from tests.core_calls import MANUAL, CoreCalls, Frozen, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

CLUSTER = FakeCluster({})


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline."""
    archive = str(tmp_path / "archive")
    return Pipeline(name="p", topics=["t"], archive=archive, kafka_conn_id="of_p")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which removes three files whenever it is asked to."""
    calls = CoreCalls(monkeypatch)
    calls.replace("kafka_drain_airflow.operators.maintain.kafka_cluster", CLUSTER)
    done = {"windows": ["compact_0001"], "files_removed": 3}
    calls.replace("kafka_drain.maintenance.maintain.plan_maintenance", Planned(windows=1))
    calls.replace("kafka_drain.maintenance.maintain.run_maintenance", done)
    calls.replace(
        "kafka_drain.maintenance.approved.freeze_maintenance", (Planned(windows=1), Frozen())
    )
    approved = Planned(windows=1), Frozen(), PlanDecision.RUN
    calls.replace("kafka_drain.maintenance.approved.plan_approved", approved)
    calls.replace("kafka_drain.maintenance.approved.run_approved", done)
    calls.replace("kafka_drain_airflow.operators.maintain.tell_replaced")
    return calls


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        # As before 0.2, with a warning.
        ({"apply": True}, ["run_maintenance"]),
        ({"apply": "true"}, ["run_maintenance"]),
        ({"apply": False}, ["plan_maintenance"]),
        ({"apply": False, "freeze": True, "plan_hours": "2"}, ["freeze_maintenance"]),
        ({"apply": True, "plan_id": "x1"}, ["plan_approved", "run_approved"]),
        ({"apply": False, "plan_id": "x1"}, ["plan_approved"]),
        ({"apply": True, "plan_id": "None"}, ["run_maintenance"]),
        ({"apply": False, "plan_id": ""}, ["plan_maintenance"]),
    ],
)
def test_execute(
    core: CoreCalls, pipeline: Pipeline, fields: dict[str, Any], asked: list[str]
) -> None:
    """Only Apply changes anything; a plan's id counts before all else."""
    alias = replaced_alias(pipeline)
    task = MaintainOperator(task_id="t", pipeline=pipeline, outlets=[alias], **fields)

    said: list[str] = []
    with heard_by(said.append):
        figures = task.execute(MANUAL)

    assert any("dry run: nothing was changed" in line for line in said) is (
        fields["apply"] is False
    )
    acts = asked[-1].startswith("run_")
    called = [name for name in core.order if name not in ("kafka_cluster", "tell_replaced")]
    assert called == asked
    assert figures["windows"] == (["compact_0001"] if acts else 1)
    assert ("plan_id" in figures) is ("freeze" in fields)
    assert ("tell_replaced" in core.given) is acts
    if asked == ["freeze_maintenance"]:
        assert core.named("freeze_maintenance")["lifetime"] == timedelta(hours=2)
    if acts:
        assert core.given["kafka_cluster"] == (("of_p",), {})
        (maintained, cluster, runner, *frozen), named = core.given[asked[-1]]
        assert (maintained, cluster, frozen) == (pipeline, CLUSTER, [Frozen()] * (len(asked) - 1))
        assert runner.run == task.run_application
        assert named == {"run": "manual 1"}
        assert core.given["tell_replaced"] == (([alias], MANUAL, pipeline, figures), {})


@pytest.mark.parametrize(
    ("done", "is_told"),
    [
        # Files that a run before has replaced, and was killed.
        ({"windows": [], "files_removed": 2}, True),
        ({"windows": ["compact_0001"], "files_removed": 0}, False),
        ({"windows": [], "files_removed": 0}, False),
    ],
)
def test_execute_tells_removed(
    core: CoreCalls, pipeline: Pipeline, done: dict[str, Any], is_told: bool
) -> None:
    """Others are told when files are gone, whoever has replaced them."""
    core.replace("kafka_drain.maintenance.maintain.run_maintenance", done)

    MaintainOperator(task_id="t", pipeline=pipeline, apply=True).execute(MANUAL)

    assert ("tell_replaced" in core.given) is is_told


def test_execute_carried_out_already(core: CoreCalls, pipeline: Pipeline) -> None:
    """A plan that was carried out isn't carried out again."""
    seen = Planned(windows=1), Frozen(), PlanDecision.DO_NOTHING
    core.replace("kafka_drain.maintenance.approved.plan_approved", seen)
    task = MaintainOperator(task_id="t", pipeline=pipeline, apply=True, plan_id="x1")

    task.execute({**MANUAL, "dag_run": SimpleNamespace(run_type="scheduled", conf={})})

    assert core.given["plan_approved"][0] == (pipeline, "x1")
    assert "run_approved" not in core.given
