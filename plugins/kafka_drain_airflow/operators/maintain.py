"""Roll, compact and delete by age, once a day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_drain_airflow.connections import (
    archive_access,
    kafka_cluster,
    terminal_errors_fail,
)
from kafka_drain_airflow.observability.archive_events import tell_replaced
from kafka_drain_airflow.operators.apply import ApplyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

__all__ = ["MaintainOperator"]


class MaintainOperator(ApplyOperator):
    """Keep an archive in order: close the open generation when it is due, put small files together.

    Closes the generation between two drains, when its manifest has more lines than
    ``max_manifest_lines`` or it is older than ``max_generation_days``. Then rewrites small files of
    closed generations and of windows as files of ``target_file_bytes``, sorted by offset, proves
    them, and removes the small ones. With ``retention_days``, deletes files whose newest record is
    older, and seals that. It can be killed at any point: the next run goes on.

    Where files were replaced or deleted, the archive's asset gets an event that says so, by the
    alias among the outlets.

    Returns archive, rolled, windows (that were sealed), files_removed, and files_before,
    bytes_before, files_after and bytes_after; in a dry run what it would do.

    :param pipeline: the pipeline
    :param apply: whether to do it; otherwise only the plan is logged (templated)
    """

    acts_untold = True
    ui_color = "#eeeeee"

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the maintenance; its progress goes to the task's log.

        Raises:
            AirflowFailException: When something has to be changed first; says what.
            SparkJobError: When Spark failed; a retry starts again.
            LockedError: When another maintenance is at it; a retry may help.
            KafkaUnavailableError: When Kafka doesn't answer; a retry may help.
        """
        from kafka_drain.maintenance.maintain import plan_maintenance, run_maintenance

        with terminal_errors_fail(), archive_access(self.pipeline):
            if not self.applies():
                plan = plan_maintenance(self.pipeline)
                self.say_plan(plan.lines())
                self.say_dry_run()
                return plan.to_dict()
            figures = run_maintenance(
                self.pipeline,
                kafka_cluster(self.pipeline.kafka_conn_id),
                self.run_application,
                run=context["run_id"],
                say=self.say,
            )
        # Also without a window: a run that was killed has sealed what this one has removed.
        if figures["files_removed"]:
            tell_replaced(self.outlets, context, self.pipeline, figures)
        return figures
