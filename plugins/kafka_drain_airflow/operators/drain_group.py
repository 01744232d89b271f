"""Drain the pipelines of a group with one Spark application."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow.connections import (
    NOT_DRAINED_KEY,
    schema_registry,
    spark_engine,
    terminal_errors_fail,
)
from kafka_drain_airflow.data_intervals import is_backfill
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.observability.archive_events import refuse_lost
from kafka_drain_airflow.observability.lineage import Lineage, drain_lineage, group_lineage
from kafka_drain_airflow.operators.bounded import bounded
from kafka_drain_airflow.operators.spark_job import SparkJobOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.drain.group import GroupJob
    from kafka_drain.kafka.cluster import KafkaCluster


class _Clusters(dict[str, "KafkaCluster"]):
    """Clusters by connection, made when they are asked for: one may not be there, others are."""

    def __missing__(self, conn_id: str) -> KafkaCluster:
        """Return a connection's cluster, and keep it.

        Raises:
            ConfigError: If the connection doesn't exist or a setting isn't accepted.
        """
        found = self[conn_id] = kafka_cluster(conn_id)
        return found


class DoneOperator(BaseOperator):
    """Does nothing, so it succeeds when all of its upstream tasks have succeeded.

    Airflow's EmptyOperator moves to a different package with each major version.
    """

    def execute(self, context: Context) -> None:
        """Do nothing."""


class KafkaDrainGroupOperator(SparkJobOperator):
    """Drain Kafka's current records of several pipelines, one after another in one Spark session.

    Checks each pipeline first, and holds each archive's lease. Doesn't start Spark if no pipeline
    has anything new. A failure in one pipeline doesn't stop the others; at the end the task fails
    and names the failed pipelines, and a retry drains only what is missing. A backfill run is
    refused: the validations after it would look at its interval only.

    Returns each pipeline's result, as `KafkaDrainOperator` returns it, by the pipeline's name.

    :param pipelines: the pipelines; they share Spark's connection and configuration
    """

    ui_color = "#d6eaf8"

    def __init__(self, *, pipelines: Sequence[Pipeline], **kwargs: Any) -> None:
        super().__init__(pipeline=pipelines[0], **kwargs)
        self.pipelines = list(pipelines)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the drains and log their progress.

        Raises:
            AirflowFailException: If the user has to change something first for every pipeline that
                failed; the message says what. If the run belongs to a backfill.
            SparkJobError: If a retry can help at least one of them.
        """
        from kafka_drain.drain.group import open_group, raise_failures, run_group
        from kafka_drain.spark.job import private_folder
        from kafka_drain_airflow.observability.metrics import tell_drain

        with terminal_errors_fail():
            _refuse_backfill(context, self.pipelines)
        with (
            terminal_errors_fail(),
            archive_access(self.pipelines[0]),
            spark_engine(self.pipelines[0]),
        ):
            clusters = _Clusters()
            with (
                private_folder() as folder,
                open_group(
                    self.pipelines,
                    clusters,
                    folder,
                    run=context["run_id"],
                    registry_of=schema_registry,
                    find=self.find_application,
                    check=lambda pipeline: refuse_lost(context, pipeline, is_meant=False),
                ) as group,
            ):
                self.say_plan(line for plan in group.plans.values() for line in plan.lines())
                for name, error in group.failures.items():
                    self.log.error("drain %s: not drained: %s", name, error)
                run_group(group, self.runner)
                for name, result in group.results.items():
                    tell_drain(name, result)
                self._lineage = self._told(group, clusters)
                if "ti" in context:
                    context["ti"].xcom_push(key=NOT_DRAINED_KEY, value=sorted(group.failures))
                raise_failures(group)
                return {name: bounded(result) for name, result in group.results.items()}

    def _told(self, group: GroupJob, clusters: dict[str, KafkaCluster]) -> Lineage:
        return group_lineage(
            drain_lineage(
                clusters[pipeline.kafka_conn_id].config.bootstrap_servers,
                group.plans[pipeline.name].topics,
                pipeline.archive,
                group.results[pipeline.name]["records"],
            )
            for pipeline in self.pipelines
            if pipeline.name in group.results
        )


def _refuse_backfill(context: Context, pipelines: Sequence[Pipeline]) -> None:
    from kafka_drain.errors import ConfigError

    if is_backfill(context):
        own = ", ".join(pipeline.name for pipeline in pipelines)
        raise ConfigError(
            "this is a backfill run, but a group drains from its cursors, and nothing of an "
            "interval. Nothing was drained; backfill the DAGs that drain its pipelines instead "
            f"(by default drain_<pipeline>): {own}"
        )
