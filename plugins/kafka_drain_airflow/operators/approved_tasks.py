"""The tasks of a DAG that sends, replaces or deletes: alone, or after a person's approval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeVar

from airflow.providers.common.compat.sdk import BaseOperator, Param

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.config.verbs import Approvable
from kafka_drain.errors import ConfigError
from kafka_drain_airflow.forms import PLAN_ID
from kafka_drain_airflow.operators.apply import ApplyOperator
from kafka_drain_airflow.operators.approval import (
    APPROVE,
    ASKED_KEY,
    Approval,
    approval_task,
    can_approve,
)

T = TypeVar("T", bound=BaseOperator)

#: Forms used to have `dry_run` instead of `apply`; `--conf` still accepts it until 0.4.
DRY_RUN = {"is_dry_run": "{{ params.get('dry_run') }}"}

#: The form's plan id, as a quoted literal: native rendering must not take it for anything else.
_FORMS_PLAN = f"{{{{ {PLAN_ID} | pprint }}}}"

#: A result of task `plan`.
_PLANNED = "{{{{ ti.xcom_pull(task_ids='plan')['{}'] }}}}"

#: The plan that task `approve` has shown: task `plan` may have run again since. Only if a person
#: has approved it: a task that somebody marks as success has no answer.
_APPROVED = (
    f"{{{{ ti.xcom_pull(task_ids='approve', key='{ASKED_KEY}') "
    f"if (ti.xcom_pull(task_ids='approve') or {{}}).get('chosen_options') == ['{APPROVE}'] }}}}"
)


class Tasks(Protocol):
    """Creates the tasks of a DAG."""

    def task(self, operator: type[T], task_id: str, **own: Any) -> T:
        """Create a task."""


class Asks(Enum):
    """A way for a DAG to learn that its plan may be carried out."""

    #: By the form: *Apply*, or *Apply* and the id of a plan.
    FORM = "form"
    #: By the id of a plan alone, which a run before has frozen.
    PLAN = "plan"
    #: By a person's answer to its task `approve`.
    PERSON = "person"


def asks(*, needs_approval: bool, can_ask: bool) -> Asks:
    """Decide the way in which a DAG learns that its plan may be carried out.

    Args:
        needs_approval: Whether the DAG does only what a person has approved.
        can_ask: Whether this Airflow can ask a person.
    """
    if not needs_approval:
        return Asks.FORM
    return Asks.PERSON if can_ask else Asks.PLAN


@dataclass(frozen=True)
class Way:
    """The composition of a DAG's tasks.

    Attributes:
        kind: The DAG's verb; the last task's id.
        asks: Its way to learn that its plan may be carried out.
        approval: The settings of the approval, if it needs one.
    """

    kind: Approvable
    asks: Asks
    approval: Approval

    def params(self, params: Mapping[str, Param]) -> dict[str, Param]:
        """Return the form's fields, without those that would pass by the approval."""
        hidden = {
            Asks.FORM: (),
            # Abandoning has no plan to approve.
            Asks.PLAN: ("apply", "abandon"),
            Asks.PERSON: ("apply", "abandon", "plan_id"),
        }[self.asks]
        return {name: param for name, param in params.items() if name not in hidden}

    def doc(self, who: str = "A run") -> str:
        """Return a sentence or two for the DAG's documentation.

        Args:
            who: The runs, as the subject of a sentence.
        """
        hours = f"{self.approval.plan_hours:g} hours"
        return {
            Asks.FORM: f"{who} without *Apply* is a dry run: it only logs its plan, and freezes "
            f"it for {hours}. With *Apply* and the plan's id, exactly this plan is carried out.",
            Asks.PLAN: f"A run without a plan's id only logs its plan, and freezes it for {hours}. "
            "With the id, exactly this plan is carried out, or the run says what has changed.",
            Asks.PERSON: "Task `plan` freezes what would be done, task `approve` shows it and "
            f"waits for a person, and exactly this plan is carried out, within {hours}. If it is "
            "rejected, nothing is done.",
        }[self.asks]

    def tasks(
        self,
        of: Tasks,
        operator: type[ApplyOperator],
        pipeline: Pipeline,
        fields: Mapping[str, Any],
        *,
        can_freeze: str = "{{ true }}",
        **arguments: Any,
    ) -> ApplyOperator:
        """Create the tasks in the current DAG; return the one that carries out the plan.

        Args:
            of: Creates a task.
            operator: Operator that plans and carries out.
            fields: The operator's arguments of the form.
            can_freeze: Template of whether a dry run's plan is frozen if nobody has to approve it.
            arguments: Other arguments of the task that carries out the plan.
        """
        last: dict[str, Any] = {"pipeline": pipeline, **arguments}
        hours = self.approval.plan_hours
        if self.asks is Asks.FORM:
            last |= {**fields, **DRY_RUN, "plan_id": _FORMS_PLAN}
            return of.task(operator, self.kind, **last, freeze=can_freeze, plan_hours=hours)
        asked = {name: value for name, value in fields.items() if name not in ("apply", "plan_id")}
        asked |= {"freeze": True, "plan_hours": hours}
        if self.asks is Asks.PLAN:
            apply = f"{{{{ true if {PLAN_ID} else false }}}}"
            task = of.task(operator, self.kind, **last, **asked, apply=apply, plan_id=_FORMS_PLAN)
            task.needs_plan = True
            return task
        plan = of.task(operator, "plan", pipeline=pipeline, **asked, apply=False)
        approve = approval_task(
            task_id="approve",
            subject=f"{self.kind.replace('_', ' ').capitalize()} {pipeline.name}?",
            body=f"{_PLANNED.format('approval')}\n\nPlan `{_PLANNED.format('plan_id')}`",
            plan_id=_PLANNED.format("plan_id"),
            four_eyes=self.approval.four_eyes,
            **self.approval.options,
        )
        do = of.task(operator, self.kind, **last, apply=True, plan_id=_APPROVED)
        do.needs_plan = True
        plan >> approve >> do
        return do


def way_of(approval: Approval | None, kind: Approvable) -> Way:
    """Return the composition of a DAG's tasks in this Airflow."""
    needs = approval is not None and kind in approval.kinds
    # Airflow's operator is imported only if it is needed.
    can_ask = needs and can_approve()
    if approval is not None and approval.four_eyes and needs and not can_ask:
        raise ConfigError(
            "Approval(four_eyes=True) needs Airflow 3.1 or later and "
            "apache-airflow-providers-standard 1.9 or later: earlier ones don't say who answers"
        )
    return Way(kind, asks(needs_approval=needs, can_ask=can_ask), approval or Approval())
