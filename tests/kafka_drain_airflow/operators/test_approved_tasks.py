"""The tasks and forms of DAGs that do only what was approved: nothing passes by the approval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jinja2.nativetypes import NativeEnvironment

from kafka_drain.config.verbs import APPROVABLE
from kafka_drain_airflow.forms import PLAN_ID
from tests.airflow_program import answer_of

WAYS = ("FORM", "PLAN", "PERSON")

ASK = """
import json
from airflow.providers.common.compat.sdk import DAG
from kafka_drain_airflow import Approval, Pipeline, create_dags
from kafka_drain_airflow import dag_factory
from kafka_drain_airflow.operators.approval import can_approve
from kafka_drain_airflow.operators.approved_tasks import Asks, Way, asks, way_of

def told(dag):
    return {
        "params": sorted(dag.params),
        "doc": dag.doc_md,
        "tasks": {
            task.task_id: {
                "class": type(task).__name__,
                "kinds": [kind.__name__ for kind in type(task).__mro__],
                "downstream": sorted(task.downstream_task_ids),
                **{
                    name: getattr(task, name)
                    for name in (
                        *("apply", "is_dry_run", "freeze", "plan_id", "plan_hours", "needs_plan"),
                    )
                    if hasattr(task, name)
                },
                "body": getattr(task, "body", None),
                "abandon": getattr(task, "abandon", None),
                "fails": getattr(task, "fail_on_reject", None),
            }
            for task in dag.tasks
        },
    }

answers = {"ways": {}, "asks": {}, "can_approve": can_approve()}
for needs in (False, True):
    for can in (False, True):
        answers["asks"][f"{needs} {can}"] = asks(needs_approval=needs, can_ask=can).name
for way in Asks:
    if way is Asks.PERSON and not can_approve():
        continue
    dag_factory.way_of = lambda approval, kind, way=way: Way(
        kind, way, Approval(plan_hours=8, four_eyes=True, options={"fail_on_reject": True})
    )
    pipeline = Pipeline(
        name=f"p_{way.value}",
        topics=["t"],
        archive=f"/archive/{way.value}",
        erase_conn_id="erase",
    )
    dags = create_dags(pipeline)
    answers["ways"][way.name] = {
        dag_id.partition("_")[0]: told(dag) for dag_id, dag in dags.items()
    }
only = Approval(kinds=["maintain"])
answers["kinds"] = {
    kind: way_of(approval, kind).asks.name
    for approval in (only,) for kind in ("republish", "reprocess", "maintain", "erase")
}
answers["none"] = way_of(None, "maintain").asks.name
print(json.dumps(answers))
"""


#: Runs of an Airflow that asks for a plan's id; prints what they would apply, or why nothing.
BLANK = """
import json
from jinja2.nativetypes import NativeEnvironment
from kafka_drain.config.verbs import APPROVABLE
from kafka_drain.errors import ConfigError
from kafka_drain_airflow import Approval, Pipeline, create_dags, dag_factory
from kafka_drain_airflow.operators.approved_tasks import Asks, Way

dag_factory.way_of = lambda approval, kind: Way(kind, Asks.PLAN, Approval())
native = NativeEnvironment()
native.filters["pprint"] = repr
answers = {}
for number, plan_id in enumerate([" ", "\\t", "None"]):
    pipeline = Pipeline(name=f"p{number}", topics=["t"], archive=f"/a{number}", erase_conn_id="e")
    dags = create_dags(pipeline)
    for kind in APPROVABLE:
        [task] = dags[f"{kind}_p{number}"].tasks
        for name in ("apply", "plan_id"):
            template = native.from_string(getattr(task, name))
            setattr(task, name, template.render(params={"plan_id": plan_id}))
        try:
            told = f"applies {task.applies()}, plan {task.approved_plan()}"
        except ConfigError as error:
            told = str(error)
        answers[f"{kind} {plan_id!r}"] = told
print(json.dumps(answers))
"""
#: Task `plan` runs again, alone, while a person reads what the first one has planned.
PLANNED_AGAIN = """
import json
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.providers.standard.operators import hitl
from kafka_drain.config.verbs import APPROVABLE
from kafka_drain_airflow import Approval, Pipeline, create_dags
from kafka_drain_airflow.operators import approval

class TaskInstance:
    id, map_index, task_id = "1", -1, "approve"

    def __init__(self):
        self.said = {}

    def xcom_push(self, key, value):
        self.said[self.task_id, key] = value

    def xcom_pull(self, task_ids, key="return_value"):
        return self.said.get((task_ids, key))

def planned(ti, plan_id):
    ti.said["plan", "return_value"] = {"plan_id": plan_id, "approval": f"Shows {plan_id}"}

pipeline = Pipeline(name="p", topics=["t"], archive="/archive", erase_conn_id="erase")
dags = create_dags(pipeline, approval=Approval())
answers = {}
for kind in APPROVABLE:
    dag, ti, shown = dags[f"{kind}_p"], TaskInstance(), {}
    context = {"ti": ti, "task_instance": ti, "dag": dag, "params": {}}
    hitl.upsert_hitl_detail = lambda **detail: shown.update(detail)
    approval.shown_question = lambda asks, ti_id: asks.body
    approve, do = dag.get_task("approve"), dag.get_task(kind)
    planned(ti, "first")
    for name in approve.template_fields:
        setattr(approve, name, approve.render_template(getattr(approve, name), context))
    try:
        approve.execute(context)
    except BaseException as waits:
        waited = type(waits).__name__
    planned(ti, "second")
    carried_out = {}
    for answer in (None, "Reject", "Approve"):
        ti.said["approve", "return_value"] = answer and {"chosen_options": [answer]}
        carried_out[str(answer)] = str(do.render_template(do.plan_id, context))
    # Cleared, with the tasks after it: Airflow keeps the question.
    approval.shown_question = lambda asks, ti_id: "Shows first"
    approve.body = "Shows second"
    try:
        approve.execute(context)
    except AirflowFailException as refused:
        waited += f"; then {refused}"
    answers[kind] = [shown["body"], carried_out, waited]
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The DAGs of each way."""
    return answer_of(ASK, home=tmp_path_factory.mktemp("airflow"))


def dag_of(answers: Any, way: str, kind: str) -> Any:
    if way not in answers["ways"]:
        pytest.skip("this Airflow can't ask a person")
    return answers["ways"][way][kind]


@pytest.mark.parametrize(
    ("needs", "can", "way"),
    [
        (False, False, "FORM"),
        (False, True, "FORM"),
        (True, False, "PLAN"),
        (True, True, "PERSON"),
    ],
)
def test_asks(needs: bool, can: bool, way: str, answers: Any) -> None:
    """A person is asked if that is needed and possible; otherwise a plan's id is."""
    assert answers["asks"][f"{needs} {can}"] == way


def test_way_of(answers: Any) -> None:
    """An approval is for the DAGs that it names."""
    asked = "PERSON" if answers["can_approve"] else "PLAN"

    assert answers["kinds"] == {
        **dict.fromkeys(("republish", "reprocess", "erase"), "FORM"),
        "maintain": asked,
    }
    assert answers["none"] == "FORM"


@pytest.mark.parametrize("kind", APPROVABLE)
@pytest.mark.parametrize(
    ("way", "hidden"),
    [
        ("FORM", set()),
        ("PLAN", {"apply", "abandon"}),
        ("PERSON", {"apply", "abandon", "plan_id"}),
    ],
)
def test_form_passes_by_nothing(way: str, hidden: set[str], kind: str, answers: Any) -> None:
    """A form has no field that would do something that wasn't approved."""
    every = set(dag_of(answers, "FORM", kind)["params"])

    assert set(dag_of(answers, way, kind)["params"]) == every - hidden
    assert {"apply", "plan_id"} <= every


@pytest.mark.parametrize("kind", APPROVABLE)
def test_tasks_of_person(kind: str, answers: Any) -> None:
    """A plan is frozen, shown and carried out; no task has a value from the form that acts."""
    dag = dag_of(answers, "PERSON", kind)
    plan, approve, do = (dag["tasks"][task_id] for task_id in ("plan", "approve", kind))

    assert len(dag["tasks"]) == 3
    assert (plan["downstream"], approve["downstream"]) == (["approve"], [kind])
    assert (plan["apply"], plan["freeze"], plan["plan_hours"]) == (False, True, 8)
    assert (plan["is_dry_run"], plan["plan_id"], plan["abandon"] or False) == (None, None, False)
    assert approve["class"] == "PlanApprovalOperator"
    assert "FourEyesApprovalOperator" in approve["kinds"]
    assert approve["fails"] is True
    assert approve["body"] == (
        "{{ ti.xcom_pull(task_ids='plan')['approval'] }}\n\n"
        "Plan `{{ ti.xcom_pull(task_ids='plan')['plan_id'] }}`"
    )
    assert (do["apply"], do["is_dry_run"], do["freeze"]) == (True, None, False)
    assert approve["plan_id"] == "{{ ti.xcom_pull(task_ids='plan')['plan_id'] }}"
    assert do["plan_id"].startswith("{{ ti.xcom_pull(task_ids='approve', key='plan_id') if ")
    assert do["needs_plan"] is True
    assert "within 8 hours" in dag["doc"]


@pytest.mark.parametrize("kind", APPROVABLE)
@pytest.mark.parametrize(
    ("plan_id", "acts"), [(None, False), ("", False), ("republish-20260101T000000Z-0123", True)]
)
def test_tasks_of_plan(kind: str, plan_id: str | None, acts: bool, answers: Any) -> None:
    """Without the id of a plan nothing is done, also by a scheduled run; one is frozen."""
    [task] = dag_of(answers, "PLAN", kind)["tasks"].values()
    native = NativeEnvironment()
    native.filters["pprint"] = repr
    rendered = {
        name: native.from_string(task[name]).render(params={"plan_id": plan_id})
        for name in ("apply", "plan_id")
    }

    assert rendered == {"apply": acts, "plan_id": plan_id}
    assert (task["freeze"], task["is_dry_run"]) == (True, None)


def test_tasks_of_plan_blank(tmp_path: Path) -> None:
    """A blank in place of a plan's id passes by no approval."""
    told = answer_of(BLANK, home=tmp_path)

    assert len(told) == 3 * len(APPROVABLE)
    for case, said in told.items():
        assert "does only what was approved" in said, (case, said)


def test_planned_again(answers: Any, tmp_path: Path) -> None:
    """What a person has seen and approved is carried out, also if `plan` was cleared meanwhile.

    Without an answer, as of a task that is marked as success, nothing is; nor is a question asked
    where Airflow would show an earlier one.
    """
    if not answers["can_approve"]:
        pytest.skip("this Airflow can't ask a person")

    told = answer_of(PLANNED_AGAIN, home=tmp_path)

    for kind in APPROVABLE:
        body, carried_out, waited = told[kind]
        assert waited.partition(";")[0] in ("TaskAwaitingInput", "TaskDeferred")
        assert "still asks the question of an earlier try" in waited
        assert body == "Shows first\n\nPlan `first`"
        assert carried_out == {"None": "", "Reject": "", "Approve": "first"}, kind


@pytest.mark.parametrize("kind", APPROVABLE)
def test_tasks_of_form(kind: str, answers: Any) -> None:
    """Without an approval there is one task, as before, which also takes the id of a plan."""
    [task] = dag_of(answers, "FORM", kind)["tasks"].values()

    assert task["plan_id"] == f"{{{{ {PLAN_ID} | pprint }}}}"
    assert task["is_dry_run"] == "{{ params.get('dry_run') }}"
    assert "params.apply" in task["apply"]


@pytest.mark.parametrize(
    ("params", "freezes"),
    [
        ({"from_batch": "7"}, True),
        ({"from_time": "2026-01-01"}, True),
        ({"from_offsets": ["t:0:1"]}, True),
        ({}, False),
        ({"from_batch": "7", "abandon": True}, False),
    ],
)
def test_reprocess_freezes(params: dict[str, Any], freezes: bool, answers: Any) -> None:
    """A dry run of a new reprocess freezes its plan; one that was started has its own."""
    [task] = dag_of(answers, "FORM", "reprocess")["tasks"].values()
    form = {"from_batch": None, "from_time": None, "from_offsets": None, "abandon": False, **params}

    assert NativeEnvironment().from_string(task["freeze"]).render(params=form) is freezes
