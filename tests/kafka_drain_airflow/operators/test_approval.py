"""The settings of an approval, and whether this Airflow can ask a person."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException
from jinja2 import Template

from kafka_drain.config.verbs import APPROVABLE
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.operators.approval import (
    Approval,
    approval_task,
    can_approve,
    is_own_approval,
)

ROOT = Path(__file__).resolve().parents[3]
IS_ABLE = tuple(map(int, version("apache-airflow").split(".")[:2])) >= (3, 1)


@pytest.mark.parametrize("kinds", ["republish", ["drain"], ["republish", "Maintain"]])
def test_approval_refused(kinds: Any) -> None:
    """A kind that there isn't is refused, and so is a text in place of a list."""
    with pytest.raises(ConfigError, match="accepted: a list of republish, reprocess, maintain"):
        Approval(kinds=kinds)


def test_approval() -> None:
    """By default, each of them asks."""
    assert list(Approval().kinds) == list(APPROVABLE)
    assert (Approval().plan_hours, Approval().four_eyes) == (24, False)
    assert Approval(kinds=("maintain",)).kinds == ("maintain",)


@pytest.mark.parametrize(
    ("starter", "answer", "user", "expected"),
    [
        ("ann", "Approve", {"id": "1", "name": "ann"}, True),
        ("ann", "Approve", {"id": "2", "name": "bob"}, False),
        ("ann", "Reject", {"id": "1", "name": "ann"}, False),
        # Nobody has started it, or nobody has answered it in time.
        (None, "Approve", {"id": "1", "name": "ann"}, False),
        ("ann", "Approve", None, False),
    ],
)
def test_is_own_approval(
    starter: str | None, answer: str, user: dict[str, str] | None, expected: bool
) -> None:
    """It is one's own if the same user has started the run and approves it."""
    event = {"chosen_options": [answer], "responded_by_user": user}

    assert is_own_approval(starter, event, "Approve") is expected


def test_can_approve() -> None:
    """From Airflow 3.1 on, a person can be asked."""
    assert can_approve() is IS_ABLE


def test_approval_task() -> None:
    """On an Airflow that can't, the error says what to do; Airflow's operator is its own."""
    if not IS_ABLE:
        with pytest.raises(ConfigError, match=r"needs Airflow 3\.1 .* by its id \(plan_id\)"):
            approval_task(task_id="approve", subject="Really?", body="")
        return
    task: Any = approval_task(task_id="approve", subject="Really?", body="### Plan")

    assert (type(task).__name__, task.task_id, task.body) == (
        "FinalApprovalOperator", "approve", "### Plan",
    )  # fmt: skip


@pytest.mark.skipif(not IS_ABLE, reason="this Airflow can't ask a person")
@pytest.mark.parametrize(
    "event",
    [
        {"chosen_options": ["Reject"], "params_input": {}},
        {"error": "nobody has answered", "error_type": "timeout"},
    ],
)
def test_approval_task_final(event: dict[str, Any]) -> None:
    """A rejection that fails, or a question without an answer, isn't asked again by a retry."""
    task: Any = approval_task(task_id="approve", subject="?", body="", fail_on_reject=True)
    answered = {"responded_at": datetime.now(timezone.utc), "responded_by_user": None, **event}

    with pytest.raises(AirflowFailException, match="Nothing was done"):
        task.execute_complete({}, answered)


@pytest.mark.skipif(not IS_ABLE, reason="this Airflow can't ask a person")
@pytest.mark.parametrize(
    ("four_eyes", "user", "passes"),
    [(True, "ann", False), (True, "bob", True), (False, "ann", True)],
)
def test_approval_task_four_eyes(four_eyes: bool, user: str, passes: bool) -> None:
    """With four eyes, whoever has started a run can't approve it; somebody else can."""
    task: Any = approval_task(task_id="approve", subject="?", body="", four_eyes=four_eyes)
    context = {"dag_run": SimpleNamespace(triggering_user_name="ann")}
    answered = {
        "chosen_options": ["Approve"],
        "params_input": {},
        "responded_at": datetime.now(timezone.utc),
        "responded_by_user": {"id": "7", "name": user},
    }

    if passes:
        assert task.execute_complete(context, answered)["chosen_options"] == ["Approve"]
    else:
        with pytest.raises(AirflowFailException, match="ann has started this run, and may not"):
            task.execute_complete(context, answered)


@pytest.fixture
def asking(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What Airflow's server was asked to show; it shows the first question."""
    from airflow.providers.standard.operators import hitl
    from airflow.sdk.execution_time import task_runner

    asked: list[Any] = []

    def send(msg: Any) -> Any:
        asked.append(msg)
        return SimpleNamespace(body=asked[0].body)

    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **_: None)
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", SimpleNamespace(send=send), raising=False)
    return asked


def ask(task: Any, pushed: dict[str, object]) -> None:
    """Run a task that asks, and that waits for its answer then."""
    ti = SimpleNamespace(
        id="01234567-89ab-4cde-8f01-23456789abcd",
        map_index=-1,
        xcom_push=lambda key, value: pushed.update({key: value}),
    )
    context = {"ti": ti, "task_instance": ti, "dag": None, "params": {}}
    with pytest.raises(BaseException) as ended:
        task.execute(context)
    if isinstance(ended.value, AirflowFailException):
        raise ended.value
    assert type(ended.value).__name__ in ("TaskAwaitingInput", "TaskDeferred")


@pytest.mark.skipif(not IS_ABLE, reason="this Airflow can't ask a person")
def test_approval_task_of_plan(asking: list[Any]) -> None:
    """The shown plan's id is kept; if Airflow still shows an earlier plan, the task fails."""
    arguments: dict[str, Any] = {"task_id": "approve", "subject": "Really?"}
    users = [{"id": "7", "name": "ann"}]
    first: Any = approval_task(
        **arguments, body="plan x1", plan_id="x1", assigned_users=users, defaults=["Reject"]
    )
    pushed: dict[str, object] = {}

    ask(first, pushed)

    assert pushed == {"plan_id": "x1"}
    assert "plan_id" in first.template_fields
    [question] = asking
    assert (question.subject, question.body) == ("Really?", "plan x1")
    assert (question.options, question.defaults) == (["Approve", "Reject"], ["Reject"])
    assert question.multiple is False
    assert [(user.id, user.name) for user in question.assigned_users] == [("7", "ann")]
    assert str(question.ti_id) == "01234567-89ab-4cde-8f01-23456789abcd"

    second: Any = approval_task(**arguments, body="plan x2", plan_id="x2")
    with pytest.raises(AirflowFailException, match=r"not: Really\? plan x2\. Nothing was done"):
        ask(second, pushed)
    assert pushed == {"plan_id": "x1"}


@pytest.mark.skipif(not IS_ABLE, reason="this Airflow can't ask a person")
def test_approval_task_cleared(asking: list[Any]) -> None:
    """A question that isn't a plan's isn't asked either where Airflow would show an earlier one."""
    arguments: dict[str, Any] = {"task_id": "approve", "subject": "Really?"}

    ask(approval_task(**arguments, body="12 records"), {})
    ask(approval_task(**arguments, body="12 records"), {})

    assert len(asking) == 2
    with pytest.raises(AirflowFailException, match=r"of an earlier try .* 34 records\. Nothing"):
        ask(approval_task(**arguments, body="34 records"), {})


@pytest.mark.parametrize("hours", [-1, 720.1, float("nan")])
def test_approval_hours_refused(hours: Any) -> None:
    """Hours in which nobody could start a plan, or only an old one, are refused."""
    with pytest.raises(ConfigError, match="accepted: a number of hours, above 0 and up to 720"):
        Approval(plan_hours=hours)
    assert Approval(plan_hours=720).plan_hours == 720


def test_approval_is_imported_late(tmp_path: Path) -> None:
    """A DAG file without approvals doesn't import Airflow's operator."""
    code = (
        "import sys, kafka_drain_airflow; from kafka_drain_airflow import *\n"
        "create_dags(Pipeline(name='p', topics=['t'], archive='/a'))\n"
        "print('airflow.providers.standard.operators.hitl' in sys.modules)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ, "AIRFLOW_HOME": str(tmp_path), "PYTHONPATH": str(ROOT / "plugins")
        },
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip

    assert ended.stdout.splitlines()[-1] == "False", ended.stderr[-2000:]


@pytest.mark.skipif(not IS_ABLE, reason="this Airflow can't ask a person")
@pytest.mark.parametrize(
    ("answer", "sent"),
    [
        (None, "that nobody has approved"),
        ({"chosen_options": ["Reject"]}, "that nobody has approved"),
        ({"chosen_options": ["Approve"]}, "x1"),
    ],
)
def test_recipe_sends_what_was_approved(answer: Any, sent: str) -> None:
    """The recipe's last task has the plan's id only after an answer."""
    found = runpy.run_path(str(ROOT / "docs" / "recipes" / "approved_restore.py"))
    send: Any = found["approved_restore"]().get_task("send")

    def pull(task_ids: str, key: str = "return_value") -> Any:
        return "x1" if key == "plan_id" else answer

    assert Template(send.plan_id).render(ti=SimpleNamespace(xcom_pull=pull)) == sent


@pytest.mark.skipif(not IS_ABLE, reason="this Airflow can't ask a person")
def test_approval_task_waits() -> None:
    """The time that tasks may run isn't that within which a person has to answer."""
    with DAG("d", schedule=None, default_args={"execution_timeout": timedelta(hours=2)}):
        task: Any = approval_task(task_id="approve", subject="?", body="")

    assert getattr(task, "response_timeout", None) is None
    assert task.execution_timeout is None
