"""Drain Kafka to the archive with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_drain_airflow.connections import kafka_cluster, listed, terminal_errors_fail
from kafka_drain_airflow.operators.spark_job import SparkJobOperator, private_folder

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

__all__ = ["KafkaDrainOperator"]


class KafkaDrainOperator(SparkJobOperator):
    """Drain what Kafka holds now with one `Trigger.AvailableNow` query, and return its result.

    Checks first what preflight checks. Starts no Spark when nothing is new. Holds the
    archive's lease while it writes: a second drain is refused.

    Returns archive, batches, offsets, records, seconds, offsets_per_second,
    offsets_behind_latest, start, end, spark_version and session_seconds.

    :param pipeline: the pipeline
    :param log_level: level of Spark's Kafka and sink classes for this run, such as ``DEBUG``; None
        for the pipeline's (templated)
    :param acknowledge_expired: expired offsets that are accepted and skipped, as
        ``topic:partition:start-end`` (templated)
    """

    template_fields: Sequence[str] = ("log_level", "acknowledge_expired")
    ui_color = "#d6eaf8"

    def __init__(
        self,
        *,
        log_level: str | None = None,
        acknowledge_expired: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.log_level = log_level
        self.acknowledge_expired = acknowledge_expired

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the drain; its progress goes to the task's log.

        Raises:
            AirflowFailException: When something has to be changed first; says what.
            SparkJobError: When Spark failed; a retry goes on where the last batch ended.
            KafkaUnavailableError: When Kafka doesn't answer; a retry may help.
            LockedError: When another drain holds the archive's lease; a retry may help.
        """
        from kafka_drain.draining import finish_drain, nothing_new, open_drain

        with terminal_errors_fail(), private_folder() as folder:
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            pipeline = self.pipeline
            if self.log_level:
                pipeline = pipeline.with_log_level(self.log_level)
            with open_drain(
                pipeline,
                cluster,
                folder,
                run=context["run_id"],
                say=self.log.warning,
                acknowledge_expired=listed(self.acknowledge_expired),
            ) as job:
                if job.plan.nothing_new:
                    self.log.info("drain %s: nothing new, Spark isn't started", self.pipeline.name)
                    return nothing_new(job.plan)
                return self.submit(job.application, lambda: finish_drain(job), context)
