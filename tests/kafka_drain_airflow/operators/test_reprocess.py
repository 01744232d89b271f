"""What the operator that reprocesses asks the core for, and what it tells of replaced files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plan import PlanDecision
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.offsets import TopicPartition
from kafka_drain.output import heard_by
from kafka_drain.windows.reprocess.plan import Cut
from kafka_drain_airflow.observability.archive_events import replaced_alias
from kafka_drain_airflow.operators.reprocess import ReprocessOperator
from tests.core_calls import MANUAL, CoreCalls, Frozen, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

CORE = "kafka_drain.windows.reprocess"
CLUSTER = FakeCluster({})
START = {"from_offsets": ["t:0:5"]}
CUT = Cut(offsets={TopicPartition("t", 0): 5})


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline."""
    archive = str(tmp_path / "archive")
    return Pipeline(name="p", topics=["t"], archive=archive, kafka_conn_id="of_p")


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which replaces three files whenever it is asked to."""
    calls = CoreCalls(monkeypatch)
    calls.replace("kafka_drain_airflow.operators.reprocess.kafka_cluster", CLUSTER)
    done = {"removed_files": 3, "removed_bytes": 30}
    calls.replace(f"{CORE}.run.plan_reprocess", Planned(windows=1))
    calls.replace(f"{CORE}.run.run_reprocess", done)
    calls.replace(f"{CORE}.approved.freeze_reprocess", (Planned(windows=1), Frozen()))
    calls.replace(
        f"{CORE}.approved.plan_approved", (Planned(windows=1), Frozen(), PlanDecision.RUN)
    )
    calls.replace(f"{CORE}.approved.run_approved", done)
    calls.replace(f"{CORE}.abandon.plan_abandon", Planned(unsealed=1))
    calls.replace(f"{CORE}.abandon.abandon_reprocess")
    calls.replace("kafka_drain_airflow.operators.reprocess.tell_replaced")
    return calls


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({**START, "apply": True}, ["plan_reprocess", "run_reprocess"]),
        ({"apply": True}, ["plan_reprocess", "run_reprocess"]),
        ({**START, "apply": False}, ["plan_reprocess"]),
        (START, ["plan_reprocess"]),
        ({**START, "apply": False, "freeze": True, "plan_hours": "2"}, ["freeze_reprocess"]),
        ({**START, "apply": True, "freeze": True}, ["plan_reprocess", "run_reprocess"]),
        ({"apply": True, "plan_id": "x1"}, ["plan_approved", "run_approved"]),
        ({"apply": False, "plan_id": "x1"}, ["plan_approved"]),
        ({"apply": True, "abandon": True}, ["plan_abandon", "abandon_reprocess"]),
        ({"apply": False, "abandon": True}, ["plan_abandon"]),
        ({"abandon": True, "plan_id": "None", "apply": "False"}, ["plan_abandon"]),
    ],
)
def test_execute(
    core: CoreCalls, pipeline: Pipeline, fields: dict[str, Any], asked: list[str]
) -> None:
    """Only Apply changes anything; what is abandoned isn't drained."""
    alias = replaced_alias(pipeline)
    task = ReprocessOperator(task_id="t", pipeline=pipeline, outlets=[alias], **fields)

    said: list[str] = []
    with heard_by(said.append):
        figures = task.execute(MANUAL)

    is_dry = len(asked) == 1
    assert any("dry run: nothing was changed" in line for line in said) is is_dry
    replaces = asked[-1].startswith("run_")
    called = [name for name in core.order if name not in ("kafka_cluster", "tell_replaced")]
    assert called == asked
    assert (figures.get("removed_files", 0) == 3) is replaces
    assert ("plan_id" in figures) is (asked == ["freeze_reprocess"])
    assert ("tell_replaced" in core.given) is replaces
    if len(asked) == 2:
        assert core.named(asked[1]) == {"run": "manual 1"}
    what = {
        "plan_abandon": (Archive.at(pipeline.archive),),
        "plan_approved": (pipeline, CLUSTER, "x1"),
    }
    cut = CUT if "from_offsets" in fields else None
    assert core.given[asked[0]][0] == what.get(asked[0], (pipeline, CLUSTER, cut))
    if asked == ["freeze_reprocess"]:
        assert core.named("freeze_reprocess")["lifetime"] == timedelta(hours=2)
    if asked[-1] == "abandon_reprocess":
        assert core.given["abandon_reprocess"][0] == (Planned(unsealed=1),)
    if replaces:
        plan, made, cluster, runner, *frozen = core.given[asked[1]][0]
        assert (plan, made, cluster) == (Planned(windows=1), pipeline, CLUSTER)
        assert runner.run == task.run_application
        assert frozen == ([Frozen()] if "plan_id" in fields else [])
        assert core.given["kafka_cluster"] == (("of_p",), {})
        assert figures == {"windows": 1, "removed_files": 3, "removed_bytes": 30}
        assert core.given["tell_replaced"] == (([alias], MANUAL, pipeline, figures), {})


@pytest.mark.parametrize("removed", [0, 1])
def test_execute_tells_removed(core: CoreCalls, pipeline: Pipeline, removed: int) -> None:
    """Others are told when files were replaced, and only then."""
    core.replace(f"{CORE}.run.run_reprocess", {"removed_files": removed, "removed_bytes": 0})

    ReprocessOperator(task_id="t", pipeline=pipeline, apply=True, **START).execute(MANUAL)

    assert ("tell_replaced" in core.given) is bool(removed)


def test_execute_carried_out_already(core: CoreCalls, pipeline: Pipeline) -> None:
    """A plan that was carried out isn't carried out again, and has replaced nothing."""
    seen = Planned(windows=1), Frozen(), PlanDecision.DO_NOTHING
    core.replace(f"{CORE}.approved.plan_approved", seen)

    task = ReprocessOperator(task_id="t", pipeline=pipeline, apply=True, plan_id="x1")

    assert task.execute(MANUAL) == {"windows": 1, "removed_files": 0, "removed_bytes": 0}
    assert "run_approved" not in core.given


@pytest.mark.parametrize(("batch", "expected"), [(7, (4, 7)), ("1:7", (1, 7))])
def test_execute_from_batch(
    batch: str | int, expected: tuple[int, int], core: CoreCalls, pipeline: Pipeline
) -> None:
    """A batch without a generation is one of the newest generation."""
    core.replace(f"{CORE}.state.newest_generation", 4)

    ReprocessOperator(task_id="t", pipeline=pipeline, from_batch=batch).execute(MANUAL)

    assert core.given["plan_reprocess"][0][2] == Cut(batch=expected)
