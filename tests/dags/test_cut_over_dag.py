"""The DAG of a cut-over, as Airflow loads it: with approvals, and without where it can't ask."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_1_PLUS

from tests.airflow_program import answer_of
from tests.dags.test_dags import LOAD_BAG, run_python

DAG_FILE = """
{first}
from kafka_drain_airflow import Pipeline, create_dags

cut_over = {{"kafka_conn_id": "kafka_b", "max_lag": 77, **{more}}}
create_dags(Pipeline(name="p", topics=["t"], archive="/a", cut_over=cut_over))
"""
#: As if this Airflow were older.
OLDER = "import sys; sys.modules['airflow.providers.standard.operators.hitl'] = None"
#: Runs the task `back` after approvals that were answered, or marked as success without an answer.
GO_BACK = """
import json, os
from datetime import datetime, timezone
from types import SimpleNamespace
from airflow.providers.common.compat.sdk import DownstreamTasksSkipped
from kafka_drain.cut_over.run import CutOver
from kafka_drain_airflow import Pipeline, create_dags

connection = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:1"}}
for name in ("KAFKA_DEFAULT", "KAFKA_B"):
    os.environ[f"AIRFLOW_CONN_{name}"] = json.dumps(connection)
went = []
CutOver.go_back = lambda self, *, apply: went.append(apply) or SimpleNamespace(
    step="back", verdict="passed", lag=0, records=0, runs=0, groups=None, back=[], ends=[]
)
pipeline = Pipeline(name="p", topics=["t"], archive="/a", cut_over={"kafka_conn_id": "kafka_b"})
dag = create_dags(pipeline)["cut_over_p"]
back = dag.get_task("back")
answers = {}

class TaskInstance:
    map_index, id = -1, "1"

    def __init__(self, task, said):
        self.task, self.task_id, self.said = task, task.task_id, said

    def xcom_push(self, key, value):
        self.said[self.task_id, key] = value

    def xcom_pull(self, task_ids, key="return_value"):
        return self.said.get((task_ids, key))

def answer(task_id, chosen, said):
    task = dag.get_task(task_id)
    ti = TaskInstance(task, said)
    context = {"ti": ti, "task_instance": ti, "task": task, "dag": dag, "dag_run": None}
    event = {"chosen_options": [chosen], "params_input": {}, "responded_by_user": None}
    event["responded_at"] = datetime.now(timezone.utc)
    try:
        said[task_id, "return_value"] = task.execute_complete(context, event)
    except DownstreamTasksSkipped:
        # Airflow's task runner takes this for a success, and pushes no result.
        pass

for last in ("Continue", None, "Go back"):
    said = {}
    for task_id in ("approve_producers_off", "approve_groups"):
        answer(task_id, "Continue", said)
    if last:
        answer("approve_hand_over", last, said)
    ti = TaskInstance(back, said)
    went.clear()
    try:
        back.execute({"run_id": "a run", "ti": ti})
        ended = "done"
    except Exception as error:
        ended = type(error).__name__
    answers[str(last)] = [list(went), ended]
print(json.dumps(answers))
"""
#: The checklist, in order.
ORDER = """
    mirror approve_producers_off producers_off preflight drain validate last_drain last_mirror
    approve_groups groups verify approve_hand_over hand_over
""".split()


def load(factory: pytest.TempPathFactory, first: str = "", more: str = "{}") -> dict[str, Any]:
    """Load a DAG file, in a process of its own."""
    folder = factory.mktemp("dags")
    (folder / "cut_over.py").write_text(DAG_FILE.format(first=first, more=more))
    found: dict[str, Any] = run_python(LOAD_BAG, Path(folder), factory.mktemp("airflow"))
    return found


@pytest.mark.skipif(not AIRFLOW_V_3_1_PLUS, reason="Airflow can't ask people before 3.1")
def test_cut_over_dag(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Each step follows the one before it; each approval leads on, or back."""
    bag = load(tmp_path_factory)
    assert bag["errors"] == {}
    dag = bag["dags"]["cut_over_p"]
    tasks = dag["tasks"]

    assert set(tasks) == {*ORDER, "back"}
    for task, follows in zip(ORDER, [*ORDER[1:], ""], strict=True):
        expected = {follows} - {""} | ({"back"} if task.startswith("approve_") else set())
        assert set(tasks[task]["downstream"]) == expected
    approvals = [task for task in ORDER if task.startswith("approve_")]
    assert {tasks[task]["class"] for task in approvals} == {"CutOverApprovalOperator"}
    assert tasks["back"]["trigger_rule"] == "none_failed_min_one_success"
    assert dag["schedule"][0] == "NullTimetable"
    for said in ("at most 77 offsets", "Back is possible until the hand-over", "kafka_b"):
        assert said in dag["doc_md"]


@pytest.mark.skipif(not AIRFLOW_V_3_1_PLUS, reason="Airflow can't ask people before 3.1")
def test_cut_over_dag_back_not_asked_for(tmp_path: Path) -> None:
    """Only the answer *Go back* leads back; an approval that is marked as success leads on."""
    assert answer_of(GO_BACK, home=tmp_path) == {
        "Continue": [[], "AirflowSkipException"],
        "None": [[], "AirflowSkipException"],
        "Go back": [[True], "done"],
    }


def test_cut_over_dag_older_airflow(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where Airflow can't ask, a person marks the approval; the terminal goes back."""
    bag = load(tmp_path_factory, OLDER)
    assert bag["errors"] == {}
    tasks = bag["dags"]["cut_over_p"]["tasks"]

    assert set(tasks) == set(ORDER)
    for task, follows in pairwise(ORDER):
        assert tasks[task]["downstream"] == [follows]
    assert tasks["approve_groups"]["class"] == "MarkToApproveOperator"
    assert "--back --apply" in bag["dags"]["cut_over_p"]["doc_md"]


def test_cut_over_dag_mistakes(tmp_path_factory: pytest.TempPathFactory) -> None:
    """An option that would leave records out is refused when the file is loaded."""
    bag = load(tmp_path_factory, more="{'mirror': {'topics': ['t']}}")
    [error] = bag["errors"].values()
    assert "mirror has topics, which a cut-over doesn't take" in error
