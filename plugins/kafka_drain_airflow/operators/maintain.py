"""Roll generations, compact files and delete by age, once a day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_drain_airflow.connections import spark_engine, terminal_errors_fail
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.observability.archive_events import tell_replaced
from kafka_drain_airflow.operators.apply import ApplyOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class MaintainOperator(ApplyOperator):
    """Maintain an archive: close the open generation when it is due, and compact small files.

    Closes the generation between two drains when its manifest has more than ``max_manifest_lines``
    lines or it is older than ``max_generation_days``. Then rewrites small files of closed
    generations and of windows as files of ``target_file_bytes``, sorted by offset, proves them, and
    removes the small files. With ``retention_days``, deletes files whose newest record is older and
    seals the deletion; with ``max_future_days``, a record dated later than that after its drain
    counts as of the time of the drain. First, it reads a share of the sealed files again, so that
    each is read once in ``scrub_days``; damage fails the run at its end. It can be killed at any
    point: the next run resumes its work.

    If files were replaced or deleted, the archive's asset gets an event with the details, through
    the alias among the outlets.

    Returns archive, rolled, windows (the ones it sealed), files_removed, and files_before,
    bytes_before, files_after and bytes_after, and of the replaced files that the store still locks
    locked_files and locked_until, scrubbed_files and scrubbed_bytes (read again), and
    oldest_read_at; in a dry run, the plan, and if it was frozen, also plan_id,
    expires_at and approval.

    :param pipeline: the pipeline, or its keys as a dict (templated)
    :param apply: whether to apply the plan; otherwise it is only logged (templated)
    """

    acts_untold = True
    ui_color = "#eeeeee"

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the maintenance and log its progress.

        Raises:
            AirflowFailException: If the user has to change something first; the message says what.
            SparkJobError: If Spark failed; a retry starts again.
            LockedError: If another maintenance is running; a retry may help.
            KafkaUnavailableError: If Kafka doesn't answer; a retry may help.
        """
        with terminal_errors_fail(), archive_access(self.pipeline), spark_engine(self.pipeline):
            figures = self._maintain(context)
        # Even if no window was sealed: this run may remove files that a killed run has replaced.
        if figures.get("files_removed"):
            tell_replaced(self.outlets, context, self.pipeline, figures)
        return figures

    def _maintain(self, context: Context) -> dict[str, Any]:
        from kafka_drain.clock import utc_now
        from kafka_drain.maintenance.approved import freeze_maintenance
        from kafka_drain.maintenance.maintain import plan_maintenance, run_maintenance

        if (plan_id := self.approved_plan()) is not None:
            return self._approved(context, plan_id)
        within = self.frozen_for()
        if self.applies():
            return run_maintenance(
                self.pipeline,
                kafka_cluster(self.pipeline.kafka_conn_id),
                self.runner,
                run=context["run_id"],
            )
        if within is None:
            plan, frozen = plan_maintenance(self.pipeline), None
        else:
            plan, frozen = freeze_maintenance(self.pipeline, now=utc_now(), lifetime=within)
        self.say_plan(plan.lines())
        self.say_dry_run(frozen)
        return plan.to_dict() | (frozen.summary() if frozen else {})

    def _approved(self, context: Context, plan_id: str) -> dict[str, Any]:
        """Carry out a plan that was frozen, or check that it could be."""
        from kafka_drain.clock import utc_now
        from kafka_drain.maintenance.approved import plan_approved, run_approved

        plan, frozen, decision = plan_approved(self.pipeline, plan_id, now=utc_now())
        self.say_plan(plan.lines())
        if not self.carries_out(frozen, decision):
            return plan.to_dict()
        return run_approved(
            self.pipeline,
            kafka_cluster(self.pipeline.kafka_conn_id),
            self.runner,
            frozen,
            run=context["run_id"],
        )
