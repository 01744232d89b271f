"""Take the steps of a cut-over, ask people in between, and go back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowFailException,
    AirflowSkipException,
    BaseOperator,
)

from kafka_drain.errors import ConfigError
from kafka_drain_airflow.connections import spark_engine, terminal_errors_fail
from kafka_drain_airflow.evidence_connection import evidence_signer
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.operators.approval import asks_earlier_question, can_approve
from kafka_drain_airflow.operators.spark_job import SparkJobOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.archive.documents import CutOverDocument
    from kafka_drain.cut_over.run import CutOver
    from kafka_drain.republish.engines.select import Engines

#: The answers to an approval.
CONTINUE, GO_BACK = "Continue", "Go back"
#: XCom of an approval: its answer. A branch that skips tasks returns nothing.
ANSWER_KEY = "answer"


class CutOverOperator(SparkJobOperator):
    """Take one step of a pipeline's cut-over, or go back.

    What the step saw is kept in the archive, also if it is refused, and signed with the pipeline's
    evidence key. A retry or a cleared task takes the step again.

    Returns what it saw: step, lag, records, runs, groups, saw, back.

    :param pipeline: the pipeline, whose ``cut_over`` settings apply
    :param step: the step, such as ``producers_off``; ``back`` to go back
    """

    ui_color = "#d1f2eb"

    #: Ids of the approvals, one of whose answers leads here; the factory sets them.
    asked_by: Sequence[str] = ()

    def __init__(self, *, step: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.step = step
        self._engines: Engines | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Take the step.

        Raises:
            AirflowFailException: If it is refused, or the user has to change something first; the
                message says what, and how to go back.
            LagError: If the target still lacks too many records; a retry mirrors again.
            KafkaUnavailableError: If a cluster doesn't answer; a retry may help.
            AirflowSkipException: If no approval was answered so that this follows.
        """
        from kafka_drain.cut_over.run import summary
        from kafka_drain.cut_over.steps import BACK, CutOverStep

        self._skip_unasked(context)
        with self._cut_over(str(context.get("run_id"))) as (cut_over, engines):
            if self.step == BACK:
                document = cut_over.go_back(apply=True)
                assert document is not None
            else:
                document = cut_over.take(CutOverStep(self.step), engines)
        return _summary(document) | {"saw": summary(document)}

    def _skip_unasked(self, context: Context) -> None:
        """Skip what nobody has chosen: Airflow runs each branch of an approval that was marked."""
        if not self.asked_by:
            return
        pull = context["ti"].xcom_pull
        answers = [pull(task_ids=task_id, key=ANSWER_KEY) for task_id in self.asked_by]
        # Approvals that an earlier release has asked say only where they lead.
        leads = [pull(task_ids=task_id) or () for task_id in self.asked_by]
        if GO_BACK not in answers and not any(self.task_id in each for each in leads):
            raise AirflowSkipException(
                f"no approval was answered with {GO_BACK}; one that is marked as success leads on. "
                f"Nothing was changed; to go back, clear an approval and answer {GO_BACK}"
            )

    @contextmanager
    def _cut_over(self, run: str) -> Iterator[tuple[CutOver, Engines]]:
        from kafka_drain.archive.archive import Archive
        from kafka_drain.clock import utc_now
        from kafka_drain.cut_over.request import CutOverRequest
        from kafka_drain.cut_over.run import CutOver
        from kafka_drain.republish.engines.select import Engines
        from kafka_drain.spark.job import private_folder

        with (
            terminal_errors_fail(),
            archive_access(self.pipeline),
            spark_engine(self.pipeline),
            private_folder() as folder,
        ):
            settings = self.pipeline.cut_over
            if settings is None:
                raise ConfigError(
                    f"pipeline {self.pipeline.name!r} declares no cut_over; name the target's "
                    "connection there"
                )
            target = kafka_cluster(settings.kafka_conn_id)
            archive = Archive.at(self.pipeline.archive)
            self._engines = Engines(str(archive.root), target, self.pipeline, folder, self.runner)
            cut_over = CutOver(
                archive,
                self.pipeline,
                kafka_cluster(self.pipeline.kafka_conn_id),
                target,
                CutOverRequest.of(settings),
                run,
                utc_now,
                evidence_signer(self.pipeline),
            )
            with self._engines:
                yield cut_over, self._engines

    def on_kill(self) -> None:
        """Stop the senders; the step can be taken again."""
        if self._engines is not None:
            self._engines.stop()
        super().on_kill()


def _summary(document: CutOverDocument) -> dict[str, Any]:
    return {
        "step": document.step,
        "lag": document.lag,
        "records": document.records,
        "runs": document.runs,
        "groups": None if document.groups is None else [row.group for row in document.groups],
        "back": document.back,
    }


class MarkToApproveOperator(BaseOperator):
    """Fail until a person marks this task as successful, which approves what follows.

    For Airflow before 3.1, which can't ask. Airflow then clears the tasks that waited for it, and
    notes in its audit log who has approved.

    :param subject: the question (templated)
    :param body: the observation, and the advice (templated)
    """

    template_fields: Sequence[str] = ("subject", "body")
    ui_color = "#f9e79f"

    def __init__(self, *, subject: str, body: str, **kwargs: Any) -> None:
        # A retry can't approve.
        super().__init__(**{**kwargs, "retries": 0})
        self.subject = subject
        self.body = body

    def execute(self, context: Context) -> None:
        """Ask.

        Raises:
            AirflowFailException: Always; says what to do.
        """
        raise AirflowFailException(_to_mark(self.subject, self.body))


def _to_mark(subject: str, body: str) -> str:
    """Return a question that Airflow can't ask, and how to answer it."""
    return (
        f"{subject}\n{body}\nTo approve, mark this task as success. To go back, run "
        "`kafka-drain cut-over … --back --apply`."
    )


def approval(task_id: str, *, subject: str, body: str, then: str, back: str) -> BaseOperator:
    """Return the task that asks people whether to continue.

    Args:
        task_id: The task's id.
        subject: The question.
        body: The observation, and the advice; a template, in Markdown.
        then: Id of the task that follows if they continue.
        back: Id of the task that goes back; unused if Airflow can't ask.
    """
    if not can_approve():
        return MarkToApproveOperator(task_id=task_id, subject=subject, body=body)
    from airflow.providers.standard.operators.hitl import HITLBranchOperator

    class CutOverApprovalOperator(HITLBranchOperator):
        """Airflow's `HITLBranchOperator`, which keeps its answer, and asks what was seen last."""

        def execute(self, context: Context) -> Any:
            if asks_earlier_question(self, context["ti"].id):
                raise AirflowFailException(
                    f"Airflow still asks the question of an earlier try of task {self.task_id}, "
                    f"not this one.\n{_to_mark(self.subject, str(self.body))}"
                )
            return super().execute(context)

        def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
            answer = event.get("chosen_options")
            context["ti"].xcom_push(key=ANSWER_KEY, value=answer[0] if answer else None)
            return super().execute_complete(context, event)

    asks: BaseOperator = CutOverApprovalOperator(
        task_id=task_id,
        # As in `approval_task`.
        execution_timeout=None,
        subject=subject,
        body=body,
        options=[CONTINUE, GO_BACK],
        options_mapping={CONTINUE: then, GO_BACK: back},
    )
    return asks
