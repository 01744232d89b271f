"""Republish an archive's committed files to Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_drain.errors import ConfigError
from kafka_drain_airflow.connections import kafka_cluster, listed, terminal_errors_fail
from kafka_drain_airflow.operators.spark_job import SparkJobOperator, private_folder

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.kafka_cluster import KafkaCluster
    from kafka_drain.republishing.plan import RepublishPlan

__all__ = ["RepublishToKafkaOperator"]


class RepublishToKafkaOperator(SparkJobOperator):
    """Send the records of the files that the manifest commits to Kafka, each to its partition.

    Returns the plan, with records, seconds and records_per_second when it was not a dry run.

    :param pipeline: the pipeline whose archive is republished
    :param target_topic: target of all records; None sends each to the topic it came from
        (templated)
    :param engine: ``worker`` sends from this process and keeps timestamps; ``spark`` uses Spark's
        own Kafka sink, which can't (templated)
    :param topics: source topics to send; none for all (templated)
    :param is_dry_run: only log the plan; `dry_run` is a method of Airflow's operators (templated)
    """

    template_fields: Sequence[str] = ("target_topic", "engine", "topics", "is_dry_run")
    ui_color = "#fdebd0"

    def __init__(
        self,
        *,
        target_topic: str | None = None,
        engine: str = "worker",
        topics: Sequence[str] | str = (),
        is_dry_run: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.target_topic = target_topic
        self.engine = engine
        self.topics = topics
        self.is_dry_run = is_dry_run

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Plan, and unless it is a dry run, send.

        Raises:
            AirflowFailException: When something has to be changed first; says what. Nothing was
                sent, or it says how much.
            DeliveryError: When Kafka didn't acknowledge each record.
            KafkaUnavailableError: When Kafka doesn't answer; a retry may help.
        """
        from kafka_drain.archive import Archive
        from kafka_drain.republishing.plan import make_plan

        with terminal_errors_fail():
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            plan = make_plan(
                Archive.at(self.pipeline.archive),
                cluster,
                engine=self.engine,
                target_topic=self.target_topic or None,
                topics=listed(self.topics),
                say=self._say,
            )
            for line in plan.lines():
                self._say(line)
            if self._plan_only():
                self._say("dry run: nothing was sent")
                return plan.to_dict()
            return plan.to_dict() | self._send(plan, cluster, context)

    def _plan_only(self) -> bool:
        # A template renders to text unless the DAG renders native objects.
        written = str(self.is_dry_run).lower()
        if written not in ("true", "false"):
            raise ConfigError(
                f"dry_run = {self.dry_run!r} is not acceptable; accepted: true, false"
            )
        return written == "true"

    def _send(self, plan: RepublishPlan, cluster: KafkaCluster, context: Context) -> dict[str, Any]:
        if plan.engine == "worker":
            from kafka_drain.republishing.worker import republish_in_worker

            return republish_in_worker(plan, cluster, self._say)

        from kafka_drain.republishing.spark import finish_republish, prepare_republish

        with private_folder() as folder:
            job = prepare_republish(plan, self.pipeline, cluster, folder)
            return self.submit(job.application, lambda: finish_republish(job), context)

    def _say(self, line: str) -> None:
        self.log.info("%s", line)
