"""Base of the operators that start Spark jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.output import listen, logging_level, say
from kafka_drain_airflow.connections import spark_connection
from kafka_drain_airflow.observability.task_links import ArchiveLink, SparkUiLink, show_archive
from kafka_drain_airflow.observability.task_progress import TaskProgress
from kafka_drain_airflow.operators.pipeline import PipelineOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import BaseOperatorLink
    from airflow.providers.openlineage.extractors import OperatorLineage

    from kafka_drain.spark.client_mode import SparkProcess
    from kafka_drain.spark.engine import FindingRunner, StartedApplication
    from kafka_drain.spark.submit import SparkApplication
    from kafka_drain_airflow.observability.lineage import Lineage


#: Key of an application's id in Airflow's task state store.
STATE_KEY = "spark_application"


class SparkJobOperator(PipelineOperator):
    """Runs kafka-drain's Spark applications through the pipeline's Spark connection.

    Its plan is shown among the rendered templates in Airflow's UI, as ``plan``.

    :param pipeline: the pipeline, or its keys as a dict, which may come from another task and whose
        texts may be templates (templated)
    """

    template_fields: Sequence[str] = (*PipelineOperator.template_fields, "plan")
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "md"}
    # By default, Airflow shows templates as they were before the task ran.
    overwrite_rtif_after_execution = True
    operator_extra_links: Collection[BaseOperatorLink] = (ArchiveLink(), SparkUiLink())
    #: Whether its runs are among the restores of its pipeline's archive.
    is_restore: ClassVar[bool] = False

    def __init__(self, *, pipeline: Pipeline | Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(pipeline=pipeline, **kwargs)
        self.plan = ""
        self._progress = TaskProgress(None)
        self._lineage: Lineage | None = None
        self._spark: SparkProcess | None = None
        self._state: Any = None

    def pre_execute(self, context: Any) -> None:
        """Show the task's archive, and start storing its progress."""
        super().pre_execute(context)
        show_archive(context, self)
        self._progress = TaskProgress(context.get("ti"))
        listen(self._hear)
        self._state = context.get("task_state_store")  # since Airflow 3.3

    def say_plan(self, lines: Iterable[str]) -> None:
        """Log the task's plan, and keep it for Airflow's UI."""
        said = list(lines)
        for line in said:
            say(line)
        self.plan = "\n".join(f"- {line}" for line in said)

    def _hear(self, line: str) -> None:
        """Log a line, and store the progress it reports."""
        self._progress.hear(line)
        self.log.log(logging_level(line), "%s", line)

    def get_openlineage_facets_on_complete(self, _: object) -> OperatorLineage[Any, Any] | None:
        """Return the task's inputs and outputs, for Airflow's OpenLineage provider."""
        return self._lineage.to_openlineage() if self._lineage else None

    def run_application(self, application: SparkApplication) -> None:
        """Run a Spark application to completion; its output goes to the task's log.

        In cluster mode, an application that an earlier try of this task started is followed.

        Raises:
            ConfigError: If the Spark connection doesn't exist, or sets an unsupported deploy mode.
            SparkJobError: If the application failed, or the Spark Connect server doesn't answer.
        """
        engine = self._engine()
        master = spark_connection(self.pipeline.spark_conn_id).master
        self.log.info("%s runs on %s", application.name, master)
        engine(application)

    def find_application(self, application: SparkApplication) -> StartedApplication | None:
        """Return the application that an earlier try of this task started, if it can be found.

        Raises:
            ConfigError: If the Spark connection doesn't exist, or sets an unsupported deploy mode.
            LockedError: If an application with other options drains the archive.
        """
        found = self._engine().find(application)
        if found is not None:
            self.log.info("found again: %s", found.id or "the result of an earlier try")
        return found

    @property
    def runner(self) -> FindingRunner:
        """The runner of this task's applications, which also finds those of earlier tries."""
        from kafka_drain.spark.engine import FindingRunner

        return FindingRunner(
            self.run_application,
            self.find_application,
            lambda one: self._engine().early(one),
            lambda: self._engine().stop(),
        )

    def _engine(self) -> SparkProcess:
        from kafka_drain.spark.runner import runner_for

        if self._spark is None:
            connection = spark_connection(self.pipeline.spark_conn_id)
            self._spark = runner_for(connection, self._hear, self._remember)
        return self._spark

    def _remember(self, application: str) -> None:
        """Show an application's id in Airflow's task state store; nothing is decided by it."""
        self.log.info("the driver runs in the cluster: %s", application)
        if self._state is None:
            return
        try:
            self._state.set(STATE_KEY, application)
        except Exception as error:  # whatever the configured backend raises
            self.log.warning("Airflow's task state store doesn't take its id: %s", error)

    def on_kill(self) -> None:
        """Stop the work: spark-submit, a Spark Connect server's query, or a cluster's driver."""
        if self._spark is not None:
            self._spark.stop()
