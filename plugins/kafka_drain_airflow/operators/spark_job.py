"""What the operators that start Spark jobs share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException

from kafka_drain.config.pipeline import Pipeline
from kafka_drain_airflow.connections import check_spark_connection
from kafka_drain_airflow.observability.task_links import ArchiveLink, SparkUiLink, show_archive
from kafka_drain_airflow.observability.task_progress import TaskProgress

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.providers.common.compat.sdk import BaseOperatorLink, Context
    from airflow.providers.openlineage.extractors import OperatorLineage

    from kafka_drain.spark.submit import SparkApplication
    from kafka_drain_airflow.observability.lineage import Lineage

__all__ = ["SparkJobOperator", "private_folder"]


@contextmanager
def private_folder() -> Iterator[Path]:
    """Make a folder that only this user can read, and remove it with what is in it."""
    with tempfile.TemporaryDirectory(prefix="kafka-drain-") as folder:
        yield Path(folder)


class SparkJobOperator(SparkSubmitOperator):
    """Submits one of kafka-drain's Spark applications through the pipeline's Spark connection.

    What it planned is among its rendered templates in Airflow's UI, as ``plan``.

    :param pipeline: the pipeline
    """

    template_fields: Sequence[str] = ("plan",)
    template_fields_renderers: ClassVar[dict[str, str]] = {"plan": "md"}
    # Airflow shows a template as it was before the task ran, unless it is told otherwise.
    overwrite_rtif_after_execution = True
    operator_extra_links: Collection[BaseOperatorLink] = (ArchiveLink(), SparkUiLink())

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(
            conn_id=pipeline.spark_conn_id, driver_memory=pipeline.driver_memory, **kwargs
        )
        self.pipeline = pipeline
        self.plan = ""
        self._progress = TaskProgress(None)
        self._lineage: Lineage | None = None

    def pre_execute(self, context: Any) -> None:
        """Let the archive's button be there while the task runs."""
        super().pre_execute(context)
        show_archive(context, self)

    def say_plan(self, lines: Iterable[str]) -> None:
        """Log what a task is going to do, and keep it for Airflow's UI."""
        said = list(lines)
        for line in said:
            self.say(line)
        self.plan = "\n".join(f"- {line}" for line in said)

    def say(self, line: str) -> None:
        """Log a line, and take in how far the task has got."""
        self._progress.hear(line)
        self.log.info("%s", line)

    def get_openlineage_facets_on_complete(self, _: object) -> OperatorLineage[Any, Any] | None:
        """Return what the task has read and written: Airflow's OpenLineage provider asks for it."""
        return self._lineage.to_openlineage() if self._lineage else None

    def _get_hook(self) -> SparkSubmitHook:
        """Return the hook, which lets the task's progress hear what spark-submit says."""
        hook = super()._get_hook()
        log_lines, progress = hook._process_spark_submit_log, self._progress

        def listen(itr: Iterator[Any]) -> None:
            log_lines(progress.through(itr))

        hook._process_spark_submit_log = listen  # type: ignore[method-assign]
        return hook

    def submit(
        self,
        application: SparkApplication,
        finish: Callable[[], dict[str, Any]],
        context: Context,
    ) -> dict[str, Any]:
        """Run an application, wait for its end, and return its result.

        Args:
            application: What to run.
            finish: Reads the result; raises what the application says went wrong.
            context: The task's context.

        Raises:
            AirflowException: As `run_application` does.
        """
        self.run_application(application, finish, context)
        return finish()

    def run_application(
        self, application: SparkApplication, explain: Callable[[], object], context: Context
    ) -> None:
        """Run an application and wait for its end.

        Args:
            application: What to run.
            explain: Called when spark-submit fails; raises what the application says went wrong.
            context: The task's context.

        Raises:
            AirflowException: When spark-submit ended with an error and left no result.
            ConfigError: When the Spark connection doesn't exist, or asks for another deploy mode.
        """
        check_spark_connection(self.pipeline.spark_conn_id)
        self.name = application.name
        self.application = str(application.path)
        self.application_args = application.arguments
        self.conf = application.conf
        self.jars = ",".join(application.jars)
        self.py_files = str(application.py_files)
        self.env_vars = application.environment
        self._progress = TaskProgress(context.get("ti"))
        # It would submit the application before this one again.
        self._hook = None
        try:
            super().execute(context)
        except AirflowException:
            # The result says what went wrong; without one, the hook's error has to do.
            explain()
            raise

    def on_kill(self) -> None:
        """End spark-submit, where it was started."""
        if self._hook is not None:
            super().on_kill()
