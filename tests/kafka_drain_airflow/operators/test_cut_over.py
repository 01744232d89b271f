"""Steps of a cut-over as tasks: what fails them, and what people are asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.cut_over.run import CutOver
from kafka_drain.cut_over.steps import CutOverStep
from kafka_drain.errors import CutOverError, LagError
from kafka_drain.republish.engines.select import Engines
from kafka_drain_airflow.operators.approval import can_approve
from kafka_drain_airflow.operators.cut_over import CutOverOperator, MarkToApproveOperator, approval
from tests.core_calls import noted_engines
from tests.kafka_drain.archive.test_cut_overs import step
from tests.kafka_drain.golden import sealed_copy

HERE = "kafka_drain_airflow.operators.cut_over"
CONTEXT: Any = {"run_id": "a run"}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """A pipeline with a sealed archive and a cut-over; neither cluster is asked."""
    for name, port in (("KAFKA_DEFAULT", 1), ("KAFKA_B", 2)):
        connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": f"127.0.0.1:{port}"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", json.dumps(connection))
    monkeypatch.setattr(f"{HERE}.evidence_signer", lambda of: f"the signer of {of.name}")
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
        clusters = self.source.config, self.target.config
        asked.append((which, self.run, self.request.run_name, self.signer))
        asked.append(tuple(config.bootstrap_servers for config in clusters))
        asked.append((str(self.archive.root), self.pipeline, engine))
        if raised is not None:
            raise raised
        groups = [{"group": "g", "read_again": 0, "offsets": []}]
        return step("groups", groups=groups)

    made = noted_engines(monkeypatch, "kafka_drain.republish.engines.select.Engines")
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
    assert asked == [
        (CutOverStep.GROUPS, "a run", "move", "the signer of p"),
        ("127.0.0.1:1", "127.0.0.1:2"),
        (pipeline.archive, pipeline, *made),
    ]
    # The mirror sends to the target.
    [engines] = made
    root, target, of, _, runner = engines.given
    assert (root, target.config.bootstrap_servers) == (pipeline.archive, "127.0.0.1:2")
    assert (of, runner.run) == (pipeline, operator.run_application)


def test_cut_over_operator_back(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The task of the way back goes back, and doesn't only say how."""
    asked: list[bool] = []

    def go_back(self: CutOver, *, apply: bool) -> Any:
        asked.append(apply)
        return step("back")

    monkeypatch.setattr(CutOver, "go_back", go_back)
    result = CutOverOperator(task_id="back", pipeline=pipeline, step="back").execute(CONTEXT)
    assert (result["step"], asked) == ("back", [True])


def test_cut_over_operator_killed(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is killed stops the mirror's senders, and then Spark."""
    order: list[str] = []
    operator = CutOverOperator(task_id="mirror", pipeline=pipeline, step="mirror")
    operator.on_kill()
    monkeypatch.setattr(CutOver, "take", lambda *_: operator.on_kill() or step("mirror"))
    monkeypatch.setattr(Engines, "stop", lambda _: order.append("senders"))
    operator._spark = SimpleNamespace(stop=lambda: order.append("spark"))  # type: ignore[assignment]

    operator.execute(CONTEXT)

    assert order == ["senders", "spark"]


@pytest.mark.parametrize(
    ("said", "is_skipped"),
    [
        ({("a", "answer"): "Continue", ("b", "answer"): "Go back"}, False),
        # Approval b was marked as success.
        ({("a", "answer"): "Continue"}, True),
        # In an earlier release, approvals returned which tasks follow.
        ({("b", ""): ["back"]}, False),
        ({("a", ""): ["groups"], ("b", ""): ["hand_over"]}, True),
    ],
)
def test_cut_over_operator_skipped(
    said: dict[tuple[str, str], Any],
    is_skipped: bool,
    pipeline: Pipeline,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The way back is skipped unless an approval was answered with it."""
    went: list[bool] = []
    monkeypatch.setattr(CutOver, "go_back", lambda *_, apply: went.append(apply) or step("back"))
    ti = SimpleNamespace(xcom_pull=lambda task_ids, key="": said.get((task_ids, key)))
    operator = CutOverOperator(task_id="back", pipeline=pipeline, step="back")
    operator.asked_by = ["a", "b"]
    context: Any = {**CONTEXT, "ti": ti}

    if is_skipped:
        with pytest.raises(AirflowSkipException, match="Nothing was changed"):
            operator.execute(context)
    else:
        operator.execute(context)

    assert went == ([] if is_skipped else [True])


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


@pytest.mark.skipif(not can_approve(), reason="this Airflow can't ask a person")
def test_approval_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Airflow would show an earlier observation, the task says the last one, and fails."""
    from airflow.providers.standard.operators import hitl

    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)
    shown = "kafka_drain_airflow.operators.approval.shown_question"
    ti = SimpleNamespace(id="1", map_index=-1)
    context: Any = {"ti": ti, "task_instance": ti, "dag": None, "params": {}}

    def ask(body: str) -> BaseException:
        asks = approval("approve", subject="stop them", body=body, then="groups", back="back")
        with pytest.raises(BaseException) as ended:
            asks.execute(context)
        return ended.value

    # Nothing was shown before, or the same.
    for before in (None, "5 records"):
        monkeypatch.setattr(shown, lambda *_, body=before: body)
        assert type(ask("5 records")).__name__ in ("TaskAwaitingInput", "TaskDeferred")

    failed = ask("7 records")

    assert isinstance(failed, AirflowFailException)
    for said in ("question of an earlier try of task approve", "stop them\n7 records", "--back"):
        assert said in str(failed)
    assert "To approve, mark this task as success" in str(failed)


def test_approval_older_airflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """An Airflow whose provider can't ask gets the task that is marked."""
    monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.hitl", None)
    assert not can_approve()
    asked = approval("approve", subject="s", body="b", then="groups", back="back")
    assert isinstance(asked, MarkToApproveOperator)
