"""What the operator that reprocesses asks the core for, and what it tells of replaced files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.frozen_plan import PlanDecision
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.output import heard_by
from kafka_drain_airflow.observability.archive_events import replaced_alias
from kafka_drain_airflow.operators.reprocess import ReprocessOperator
from tests.core_calls import MANUAL, CoreCalls, Frozen, Planned
from tests.kafka_drain.fake_cluster import FakeCluster

CORE = "kafka_drain.windows.reprocess"
START = {"from_offsets": ["t:0:5"]}


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    """A pipeline."""
    return Pipeline(name="p", topics=["t"], archive=str(tmp_path / "archive"))


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> CoreCalls:
    """The core, which replaces three files whenever it is asked to."""
    calls = CoreCalls(monkeypatch)
    calls.replace("kafka_drain_airflow.operators.reprocess.kafka_cluster", FakeCluster({}))
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
        ({**START, "apply": False, "freeze": True}, ["freeze_reprocess"]),
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
    if replaces:
        assert core.given["tell_replaced"] == (([alias], MANUAL, pipeline, figures), {})
    if asked[0] == "plan_abandon":
        assert core.given["plan_abandon"] == ((Archive.at(pipeline.archive),), {})


@pytest.mark.parametrize("removed", [0, 1])
def test_execute_tells_removed(core: CoreCalls, pipeline: Pipeline, removed: int) -> None:
    """Others are told when files were replaced, and only then."""
    core.replace(f"{CORE}.run.run_reprocess", {"removed_files": removed, "removed_bytes": 0})

    ReprocessOperator(task_id="t", pipeline=pipeline, apply=True, **START).execute(MANUAL)

    assert ("tell_replaced" in core.given) is bool(removed)
