"""Try a restore of an archive: a drill, and a check that one has passed recently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException

from kafka_drain.config.drill import Drill
from kafka_drain.drills.options import DrillOptions
from kafka_drain.errors import DeliveryError
from kafka_drain_airflow.connections import terminal_errors_fail
from kafka_drain_airflow.evidence_connection import evidence_signer
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.operators.pipeline import PipelineOperator
from kafka_drain_airflow.operators.spark_job import SparkJobOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.republish.engines.select import Engines


class DrillOperator(SparkJobOperator):
    """Restore a sample of an archive to scratch topics, verify and decode it, and remove them.

    Everything runs on the worker; no Spark application is started. A drill that fails still keeps
    its result in the archive. If it is killed, the next one removes its topics.

    Returns the result: drill, verdict, sample, records, rto_seconds, rpo_seconds and more.

    :param pipeline: the pipeline, whose ``drill`` settings apply, or its keys as a dict (templated)
    :param sample: the sample to restore instead of the pipeline's setting (templated)
    :param seed: seed of a random day; None for a random one, which the result names (templated)
    """

    template_fields: Sequence[str] = (
        *SparkJobOperator.template_fields,
        *DrillOptions.model_fields,
    )
    ui_color = "#e8daef"

    def __init__(
        self, *, sample: str | None = None, seed: int | str | None = None, **kwargs: Any
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.set_options(DrillOptions, given)
        self._engines: Engines | None = None

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the drill.

        Raises:
            AirflowFailException: If the drill failed; names the first problem.
            DeliveryError: If it failed by something that may pass; a retry runs another drill.
            LockedError: If another drill of the archive is running; a retry may help.
        """
        from kafka_drain.archive.archive import Archive
        from kafka_drain.clock import utc_now
        from kafka_drain.drills.drill import DrillRequest, run_drill
        from kafka_drain.republish.engines.select import Engines
        from kafka_drain.spark.job import private_folder

        settings = self.pipeline.drill or Drill()
        with terminal_errors_fail(), archive_access(self.pipeline), private_folder() as folder:
            options = self.options(DrillOptions)
            cluster = kafka_cluster(settings.kafka_conn_id or self.pipeline.kafka_conn_id)
            archive = Archive.at(self.pipeline.archive)
            self._engines = Engines(str(archive.root), cluster, self.pipeline, folder, self.runner)
            request = DrillRequest(
                sample=options.sample or settings.sample,
                seed=options.seed,
                prefix=settings.prefix,
                topic_config=settings.topic_config,
                max_age_days=settings.max_age_days,
            )
            with self._engines:
                result = run_drill(
                    archive,
                    cluster,
                    self._engines,
                    request,
                    run=str(context.get("run_id")),
                    clock=utc_now,
                    signer=evidence_signer(self.pipeline),
                )
        if result.verdict == "passed":
            return result.content()
        text = f"drill {result.drill} failed: {result.problems[0].detail}"
        if all(problem.transient for problem in result.problems):
            raise DeliveryError(text)
        raise AirflowFailException(text)

    def on_kill(self) -> None:
        """Stop the senders; the next drill removes the topics."""
        if self._engines is not None:
            self._engines.stop()
        super().on_kill()


class DrillCheckOperator(PipelineOperator):
    """Fail if a pipeline's newest drill failed, or none has passed for ``max_age_days``.

    :param pipeline: the pipeline, or its keys as a dict (templated)
    """

    ui_color = "#e8daef"

    def execute(self, context: Context) -> dict[str, Any]:
        """Judge the drills, and set their metrics.

        Raises:
            AirflowFailException: If they aren't as they should be; says why.
        """
        from kafka_drain.archive.drill_status import DrillState
        from kafka_drain.archive.drills import drill_status
        from kafka_drain.clock import utc_now
        from kafka_drain_airflow.observability.metrics import tell_drills

        with terminal_errors_fail(), archive_access(self.pipeline):
            status = drill_status(self.pipeline, utc_now())
        if status is None:
            return {"state": None}
        tell_drills(self.pipeline.name, status)
        self.log.info("%s", status.words)
        if status.state is not DrillState.OK:
            raise AirflowFailException(status.words)
        return {"state": status.state.value, "detail": status.words}
