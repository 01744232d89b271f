"""Drain Kafka to the archive with Spark: from the cursor, or a window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_drain.drain.options import DrainOptions
from kafka_drain_airflow.connections import schema_registry, spark_engine, terminal_errors_fail
from kafka_drain_airflow.data_intervals import started_because, window_interval
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.observability.archive_events import refuse_lost
from kafka_drain_airflow.observability.lineage import drain_lineage
from kafka_drain_airflow.operators.bounded import bounded
from kafka_drain_airflow.operators.spark_job import SparkJobOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.config.pipeline import Pipeline
    from kafka_drain.intervals import Interval
    from kafka_drain.kafka.cluster import KafkaCluster


class KafkaDrainOperator(SparkJobOperator):
    """Drain Kafka's current records with one `Trigger.AvailableNow` query, and return its result.

    Repeats the preflight checks first, and doesn't start Spark if nothing is new. Holds the
    archive's lease while it writes, so a second drain is refused.

    In a backfill run it drains the run's data interval instead: the part that no receipt covers is
    read in one batch, proven and sealed as a window. Several windows may be drained in parallel.

    Returns archive, batches, offsets, records, seconds, offsets_per_second, offsets_behind_latest,
    start, end, spark_version, session_seconds and, if values are decoded, values; for a window:
    archive, window, start, end, offsets, to_drain, ahead, covered_by, records and receipt.

    :param pipeline: the pipeline, or its keys as a dict (templated)
    :param log_level: log level of Spark's Kafka and sink classes for this run, such as ``DEBUG``;
        None for the pipeline's setting (templated)
    :param acknowledge_expired: expired offsets to accept and skip, as
        ``topic:partition:start-end`` (templated)
    :param mode: ``window`` to drain a window in a run that isn't a backfill run (templated)
    :param window_start: start of the window, ISO 8601; None for the run's data interval (templated)
    :param window_end: exclusive end of the window (templated)
    :param force: drain the window's own files again and replace them (templated)
    :param new_archive: begin a new archive though Airflow knows of one that was validated there,
        and is gone (templated)
    """

    template_fields: Sequence[str] = (*SparkJobOperator.template_fields, *DrainOptions.model_fields)
    ui_color = "#d6eaf8"

    def __init__(
        self,
        *,
        log_level: str | None = None,
        acknowledge_expired: Sequence[str] | str | None = None,
        mode: str | None = None,
        window_start: str | None = None,
        window_end: str | None = None,
        force: bool | str = False,
        new_archive: bool | str = False,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.set_options(DrainOptions, given)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the drain and log its progress.

        Raises:
            AirflowFailException: If the user has to change something first; the message says what.
            SparkJobError: If Spark failed; a retry resumes after the last committed batch.
            KafkaUnavailableError: If Kafka doesn't answer; a retry may help.
            LockedError: If another drain holds the archive's lease; a retry may help.
        """
        with terminal_errors_fail(), archive_access(self.pipeline), spark_engine(self.pipeline):
            options = self.options(DrainOptions)
            interval = window_interval(context, options)
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            pipeline = self.pipeline
            if reason := started_because(context):
                self.log.info("started beside the schedule: %s", reason)
            if options.log_level:
                pipeline = pipeline.with_log_level(options.log_level)
            if interval is None:
                refuse_lost(context, pipeline, is_meant=options.new_archive)
                return self._drain(pipeline, cluster, options, context)
            return self._drain_window(pipeline, cluster, options, interval, context)

    def _drain(
        self, pipeline: Pipeline, cluster: KafkaCluster, options: DrainOptions, context: Context
    ) -> dict[str, Any]:
        from kafka_drain.drain.drain import run_drain
        from kafka_drain_airflow.observability.metrics import tell_drain

        plan, result = run_drain(
            pipeline,
            cluster,
            self.runner,
            run=context["run_id"],
            show=self.say_plan,
            acknowledged=options.acknowledged,
            registry=schema_registry(pipeline),
        )
        tell_drain(pipeline.name, result)
        self._lineage = drain_lineage(
            cluster.config.bootstrap_servers, plan.topics, pipeline.archive, result["records"]
        )
        return bounded(result)

    def _drain_window(
        self,
        pipeline: Pipeline,
        cluster: KafkaCluster,
        options: DrainOptions,
        interval: Interval,
        context: Context,
    ) -> dict[str, Any]:
        from kafka_drain.windows.backfill import run_backfill
        from kafka_drain.windows.backfill_plan import plan_backfill

        # Not preflight's plan: another run may have sealed some of it since.
        plan = plan_backfill(
            pipeline,
            cluster,
            interval,
            force=options.force,
            acknowledged=options.acknowledged,
        )
        self.say_plan(plan.lines())
        if plan.nothing_to_do:
            return plan.to_dict() | {"records": 0, "receipt": None}
        result = run_backfill(plan, pipeline, cluster, self.runner, run=context["run_id"])
        self._lineage = drain_lineage(
            cluster.config.bootstrap_servers,
            {tp.topic for tp in plan.ranges},
            pipeline.archive,
            result["records"],
        )
        return result
