"""Checks before a drain: is everything available and consistent, and what will be drained?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.options import PreflightOptions
from kafka_drain_airflow.connections import require_spark_connect, terminal_errors_fail
from kafka_drain_airflow.data_intervals import window_interval
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.observability.archive_events import refuse_lost
from kafka_drain_airflow.operators.bounded import bounded
from kafka_drain_airflow.operators.pipeline import PipelineOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class PreflightOperator(PipelineOperator):
    """Check that a drain or a window can run, and log its plan. Changes nothing.

    Returns the plan: pipeline, archive, generation, topics, offsets, start, end, warnings; for a
    window: archive, window, start, end, offsets, to_drain, ahead, covered_by.

    :param pipeline: the pipeline, or its keys as a dict (templated)
    :param acknowledge_expired: expired offsets to accept, as ``topic:partition:start-end``
        (templated)
    :param mode: ``window`` to drain a window in a run that isn't a backfill run (templated)
    :param window_start: start of the window, ISO 8601; None for the run's data interval (templated)
    :param window_end: exclusive end of the window (templated)
    :param force: whether to drain the window's own files again (templated)
    :param new_archive: whether to begin a new archive though Airflow knows of one that was
        validated there, and is gone (templated)
    """

    template_fields: Sequence[str] = (
        *PipelineOperator.template_fields,
        *PreflightOptions.model_fields,
    )
    ui_color = "#e8f4f8"

    def __init__(
        self,
        *,
        pipeline: Pipeline | Mapping[str, Any],
        acknowledge_expired: Sequence[str] | str | None = None,
        mode: str | None = None,
        window_start: str | None = None,
        window_end: str | None = None,
        force: bool | str = False,
        new_archive: bool | str = False,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(pipeline=pipeline, **kwargs)
        self.set_options(PreflightOptions, given)

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the checks.

        Raises:
            AirflowFailException: If the user has to change something first; the message says what.
            KafkaUnavailableError: If Kafka doesn't answer; a retry may help.
            SparkJobError: If the pipeline's Spark Connect server doesn't; a retry may help.
        """
        from kafka_drain.drain.preflight import DrainPlan, preflight
        from kafka_drain.windows.backfill_plan import BackfillPlan, plan_backfill

        plan: BackfillPlan | DrainPlan
        with terminal_errors_fail(), archive_access(self.pipeline):
            options = self.options(PreflightOptions)
            interval = window_interval(context, options)
            require_spark_connect(self.pipeline)
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            if interval is None:
                refuse_lost(context, self.pipeline, is_meant=options.new_archive)
                plan = preflight(self.pipeline, cluster, acknowledged=options.acknowledged)
            else:
                plan = plan_backfill(
                    self.pipeline,
                    cluster,
                    interval,
                    force=options.force,
                    acknowledged=options.acknowledged,
                )
        for line in plan.lines():
            self.log.info("%s", line)
        return bounded(plan.to_dict())
