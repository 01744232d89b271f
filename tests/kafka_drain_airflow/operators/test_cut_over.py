"""Steps of a cut-over as tasks: what fails them, and what people are asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over.run import CutOver
from kafka_drain.cut_over.steps import CutOverStep
from kafka_drain.errors import CutOverError, LagError
from kafka_drain_airflow.operators.approval import can_approve
from kafka_drain_airflow.operators.cut_over import CutOverOperator, MarkToApproveOperator, approval
from tests.kafka_drain.archive.test_cut_overs import step
from tests.kafka_drain.golden import sealed_copy

CONTEXT: Any = {"run_id": "a run"}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline with a sealed archive and a cut-over; neither cluster is asked."""
    for name in ("KAFKA_DEFAULT", "KAFKA_B"):
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    archive = sealed_copy(tmp_path / "archive")
    cut_over = {"kafka_conn_id": "kafka_b", "run_name": "move", "groups": ["g"]}
    return Pipeline(name="p", topics=["t"], archive=str(archive.root), cut_over=cut_over)


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (None, None),
        # Only what passes by itself is tried again.
        (LagError("the target lacks 5"), LagError),
        (CutOverError("turn them off"), AirflowFailException),
    ],
)
def test_cut_over_operator(
    raised: Exception | None,
    error: type[Exception] | None,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task takes its step, with both connections, and returns what was seen."""
    asked: list[Any] = []

    def take(self: CutOver, which: CutOverStep, engine: object) -> Any:
        asked.append((which, self.run, self.request.run_name, self.target is not self.source))
        if raised is not None:
            raise raised
        groups = [{"group": "g", "read_again": 0, "offsets": []}]
        return step("groups", groups=groups)

    monkeypatch.setattr(CutOver, "take", take)
    operator = CutOverOperator(task_id="groups", pipeline=pipeline, step="groups")
    if error is not None:
        with pytest.raises(error, match=str(raised)):
            operator.execute(CONTEXT)
    else:
        result = operator.execute(CONTEXT)
        assert (result["groups"], result["records"], result["lag"]) == (["g"], 5, 0)
        assert "groups passed: the source ends at 5 offsets in 1 partitions" in result["saw"]
        assert result["back"] == ["turn the producers on again"]
    assert asked == [(CutOverStep.GROUPS, "a run", "move", True)]


def test_cut_over_operator_back(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the way back goes back, and doesn't only say how."""
    asked: list[bool] = []

    def go_back(self: CutOver, *, apply: bool) -> Any:
        asked.append(apply)
        return step("back")

    monkeypatch.setattr(CutOver, "go_back", go_back)
    result = CutOverOperator(task_id="back", pipeline=pipeline, step="back").execute(CONTEXT)
    assert (result["step"], asked) == ("back", [True])


def test_cut_over_operator_undeclared(pipeline: Pipeline) -> None:
    """A pipeline without a cut-over has no target."""
    bare = pipeline.model_copy(update={"cut_over": None})
    with pytest.raises(AirflowFailException, match="declares no cut_over"):
        CutOverOperator(task_id="mirror", pipeline=bare, step="mirror").execute(CONTEXT)


def test_mark_to_approve_operator() -> None:
    """Where Airflow can't ask, the task fails without retries until a person marks it."""
    operator = MarkToApproveOperator(
        task_id="approve", subject="stop the consumers", body="all was sent", retries=2
    )
    assert operator.retries == 0
    with pytest.raises(AirflowFailException) as raised:
        operator.execute(CONTEXT)
    for said in ("stop the consumers", "all was sent", "mark this task as success", "--back"):
        assert said in str(raised.value)


def test_approval_older_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Airflow whose provider can't ask gets the task that is marked."""
    monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.hitl", None)
    assert not can_approve()
    asked = approval("approve", subject="s", body="b", then="groups", back="back")
    assert isinstance(asked, MarkToApproveOperator)
