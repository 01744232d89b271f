"""Before a drain: is everything there, does it belong together, what is there to do?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from kafka_drain.pipeline import Pipeline
from kafka_drain_airflow.connections import kafka_cluster, listed, terminal_errors_fail

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

__all__ = ["PreflightOperator"]


class PreflightOperator(BaseOperator):
    """Check that a drain can run, and log what it will do. Changes nothing.

    Returns the plan: pipeline, archive, generation, topics, offsets, start, end, warnings.

    :param pipeline: the pipeline
    :param acknowledge_expired: expired offsets that are accepted, as
        ``topic:partition:start-end`` (templated)
    """

    template_fields: Sequence[str] = ("acknowledge_expired",)
    ui_color = "#e8f4f8"

    def __init__(
        self,
        *,
        pipeline: Pipeline,
        acknowledge_expired: Sequence[str] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.acknowledge_expired = acknowledge_expired

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the checks.

        Raises:
            AirflowFailException: When something has to be changed first; says what.
            KafkaUnavailableError: When Kafka doesn't answer; a retry may help.
        """
        from kafka_drain.preflight import preflight

        with terminal_errors_fail():
            plan = preflight(
                self.pipeline,
                kafka_cluster(self.pipeline.kafka_conn_id),
                acknowledge_expired=listed(self.acknowledge_expired),
            )
        for line in plan.lines():
            self.log.info("%s", line)
        return plan.to_dict()
