"""A task in which a person approves what was seen; since Airflow 3.1."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from kafka_drain.config.checks import refuse
from kafka_drain.config.places import calling_line
from kafka_drain.config.verbs import APPROVABLE, MOST_HOURS
from kafka_drain.errors import ConfigError

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperator

#: XCom of a task that asks: id of the plan that it shows.
ASKED_KEY = "plan_id"
#: The answer that approves, as Airflow's `ApprovalOperator` has it.
APPROVE = "Approve"


@dataclass(frozen=True)
class Approval:
    """Settings of the DAGs that do only what a person has approved.

    From Airflow 3.1 on, these DAGs have a task `approve` between plan and action. On earlier ones
    they do nothing without the id of a plan, which the run before has frozen.

    Attributes:
        kinds: Any of `republish`, `reprocess`, `maintain` and `erase`.
        plan_hours: Hours within which a plan may be started after it was made.
        options: Arguments of Airflow's `ApprovalOperator`, such as `assigned_users`, `notifiers`,
            `response_timeout`, `defaults` and `fail_on_reject`.
        four_eyes: Whether nobody may approve what a run does that they have started themselves.

    Raises:
        ConfigError: If a kind is unknown, or no plan can be started within these hours.
    """

    kinds: Collection[str] = APPROVABLE
    plan_hours: float = 24
    options: Mapping[str, Any] = field(default_factory=dict)
    four_eyes: bool = False

    def __post_init__(self) -> None:
        """Refuse a text, which is a collection too, kinds that there aren't, and other hours."""
        unknown = [self.kinds] if isinstance(self.kinds, str) else set(self.kinds) - set(APPROVABLE)
        hours: object = self.plan_hours
        wrong = None
        if unknown:
            wrong = refuse("kinds", self.kinds, f"a list of {', '.join(APPROVABLE)}")
        elif not isinstance(hours, (int, float)) or not 0 < hours <= MOST_HOURS:
            accepted = f"a number of hours, above 0 and up to {MOST_HOURS}"
            wrong = refuse("plan_hours", hours, accepted)
        if wrong is not None:
            line = calling_line((__name__,))
            raise ConfigError(f"Approval ({line}): {wrong}" if line else str(wrong))


def can_approve() -> bool:
    """Return whether this Airflow can ask a person: 3.1 or later, with its standard provider."""
    return _operator() is not None


def approval_task(
    *,
    subject: str,
    body: str,
    four_eyes: bool = False,
    plan_id: str | None = None,
    **options: Any,
) -> BaseOperator:
    """Return a task that waits until a person approves; if they reject, what follows is skipped.

    Args:
        subject: The question, in one line (templated).
        body: The details, in Markdown (templated).
        four_eyes: Whether it fails if who approves has started the run, too.
        plan_id: Id of the plan that the body shows, which becomes the task's XCom `plan_id`
            (templated): what follows carries out that one, also if another was made meanwhile.
        options: Other arguments of Airflow's `ApprovalOperator`, such as `task_id`.

    Raises:
        ConfigError: If this Airflow can't ask a person; see `can_approve`.
    """
    operator = _operator()
    if operator is None:
        raise ConfigError(
            "an approval needs Airflow 3.1 or later and apache-airflow-providers-standard 1.9 or "
            "later; on earlier ones, approve a plan by its id (plan_id)"
        )
    kind = _with_final_answer(operator)
    kind = _with_four_eyes(kind) if four_eyes else kind
    if plan_id is not None:
        kind, options = _of_plan(kind), {**options, "plan_id": plan_id}
    # Airflow's operator would take that of `default_args` for the time to answer.
    options = {"execution_timeout": None, **options}
    task: BaseOperator = kind(subject=subject, body=body, **options)
    return task


def is_own_approval(starter: str | None, event: Mapping[str, Any], approve: str) -> bool:
    """Return whether who started a run has approved what it does.

    Args:
        starter: Name of the user who started it; None for a scheduled one.
        event: The answer, as Airflow's operator gets it.
        approve: The option that approves.
    """
    user = event.get("responded_by_user") or {}
    is_approved = list(event.get("chosen_options") or ()) == [approve]
    return is_approved and starter is not None and starter == user.get("name")


def _with_final_answer(operator: Any) -> Any:
    from airflow.providers.standard.exceptions import HITLRejectException, HITLTimeoutError

    class FinalApprovalOperator(operator):  # type: ignore[misc]
        """Airflow's `ApprovalOperator`, which doesn't ask again after a rejection or in vain."""

        def execute(self, context: Any) -> Any:
            if asks_earlier_question(self, context["ti"].id):
                raise AirflowFailException(
                    f"Airflow still asks the question of an earlier try of task {self.task_id}, "
                    f"not: {self.subject} {self.body}. Nothing was done; trigger a new run"
                )
            self.note_shown(context)
            return super().execute(context)

        def note_shown(self, context: Any) -> None:
            """Note what is shown, if what follows needs it."""

        def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
            try:
                return super().execute_complete(context, event)
            except (HITLRejectException, HITLTimeoutError) as error:
                # A retry would ask the same question again.
                raise AirflowFailException(f"{error}. Nothing was done") from error

    return FinalApprovalOperator


def _with_four_eyes(operator: Any) -> Any:
    class FourEyesApprovalOperator(operator):  # type: ignore[misc]
        """Airflow's `ApprovalOperator`, which fails if who approves has started the run."""

        def execute_complete(self, context: Any, event: dict[str, Any]) -> Any:
            starter = context["dag_run"].triggering_user_name
            if is_own_approval(starter, event, self.APPROVE):
                raise AirflowFailException(
                    f"{starter} has started this run, and may not approve it (four_eyes). Nothing "
                    f"was done; clear task {self.task_id}, and let somebody else answer"
                )
            return super().execute_complete(context, event)

    return FourEyesApprovalOperator


def _of_plan(operator: Any) -> Any:
    class PlanApprovalOperator(operator):  # type: ignore[misc]
        """Airflow's `ApprovalOperator`, which keeps the id of the plan that it shows."""

        template_fields = (*operator.template_fields, "plan_id")

        def __init__(self, *, plan_id: str, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.plan_id = plan_id

        def note_shown(self, context: Any) -> None:
            # Not when it is answered: its fields are rendered again then.
            context["ti"].xcom_push(key=ASKED_KEY, value=self.plan_id)

    return PlanApprovalOperator


def asks_earlier_question(asks: Any, ti_id: Any) -> bool:
    """Return whether Airflow shows another question than the task asks now: an earlier try's."""
    return shown_question(asks, ti_id) not in (None, asks.body)


def shown_question(asks: Any, ti_id: Any) -> str | None:
    """Ask Airflow's server to show a question; return the body that it shows, None if unknown.

    A task instance that was cleared keeps the question of its earlier tries, whatever is asked
    now (`upsert_hitl_detail` of Airflow's server); the operator doesn't look at it.
    """
    from airflow.sdk.api.datamodels._generated import HITLUser
    from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

    question = CreateHITLDetailPayload(
        ti_id=ti_id,
        options=asks.options,
        subject=asks.subject,
        body=asks.body,
        defaults=asks.defaults,
        params=asks.serialized_params,
        multiple=asks.multiple,
        assigned_users=[
            HITLUser(id=user["id"], name=user["name"]) for user in asks.assigned_users or ()
        ],
    )
    answer = SUPERVISOR_COMMS.send(msg=question)
    body: str | None = getattr(answer, "body", None)
    return body


def _operator() -> Any:
    try:
        from airflow.providers.standard.operators.hitl import ApprovalOperator
    except (ImportError, AirflowException):  # the latter is Airflow 2's, if the provider is there
        return None
    return ApprovalOperator
