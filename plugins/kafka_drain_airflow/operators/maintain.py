"""After a drain: close a generation whose manifest has grown too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from kafka_drain.pipeline import Pipeline
from kafka_drain_airflow.connections import kafka_cluster, terminal_errors_fail
from kafka_drain_airflow.data_intervals import drains_window

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

__all__ = ["MaintainOperator"]


class MaintainOperator(BaseOperator):
    """Roll the archive's generation when its manifest has more lines than the pipeline allows.

    A run that drains a window leaves the generation as it is.

    Spark rewrites the whole manifest every tenth batch, for ever; a new generation starts with
    an empty one, at the exact offsets where the old one ends. Deletes nothing.

    Returns rolled, and what a roll did: closed, opened, reason, starting_offsets.

    :param pipeline: the pipeline
    :param mode: ``window`` for a window in a run that isn't a backfill's (templated)
    """

    template_fields: Sequence[str] = ("mode",)
    ui_color = "#eeeeee"

    def __init__(self, *, pipeline: Pipeline, mode: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline
        self.mode = mode

    def execute(self, context: Context) -> dict[str, Any]:
        """Roll, or say why not.

        Raises:
            AirflowFailException: When something has to be changed first; says what.
            LockedError: When a drain holds the archive's lease; a retry may help.
            KafkaUnavailableError: When Kafka doesn't answer; a retry may help.
        """
        from kafka_drain.archive import Archive
        from kafka_drain.rolling import roll_when_long

        if drains_window(context, self.mode):
            self._say("this run drained a window, which leaves the generation as it is")
            return {"rolled": False}
        with terminal_errors_fail():
            plan = roll_when_long(
                Archive.at(self.pipeline.archive),
                kafka_cluster(self.pipeline.kafka_conn_id),
                self.pipeline.max_manifest_lines,
                run=context["run_id"],
                say=self._say,
            )
        return {"rolled": plan is not None, **(plan.to_dict() if plan else {})}

    def _say(self, line: str) -> None:
        self.log.info("%s", line)
