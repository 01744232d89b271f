"""The settings of an approval, and whether this Airflow can ask a person."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

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
