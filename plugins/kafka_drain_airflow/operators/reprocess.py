"""Drain archived offsets again, and replace the old files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_drain_airflow.connections import (
    archive_access,
    is_true,
    kafka_cluster,
    listed,
    terminal_errors_fail,
)
from kafka_drain_airflow.observability.archive_events import tell_replaced
from kafka_drain_airflow.operators.apply import ApplyOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

__all__ = ["ReprocessOperator"]


class ReprocessOperator(ApplyOperator):
    """Drain what is archived from a batch, a time or an offset on again, as the pipeline says now.

    A dry run unless it is told to apply: it shows offsets, files and bytes, and whether Kafka holds
    all of them, without which it is refused. Otherwise it closes the generation, drains into
    windows, each proven to hold every record of the files that it stands for, and removes these
    files. It can be killed at any point: a retry, or the same run again, goes on.

    Returns archive, since, windows, waiting, offsets, records, files and bytes (of what is
    replaced), removed_files and removed_bytes.

    With ``abandon``, it ends a reprocess that was begun and can't end: what that hasn't sealed
    goes, archived files stay. Returns archive, since, and the number of sealed and of unsealed
    windows.

    :param pipeline: the pipeline; its format and partition_by are those of the new files
    :param from_batch: the first batch, such as ``7``, or ``1:7`` of generation 1 (templated)
    :param from_time: the batch with the first record of this time or later, ISO 8601 (templated)
    :param from_offsets: the batch with the first of these, ``topic:partition:offset`` (templated)
    :param abandon: whether to end a reprocess that was begun (templated)
    :param apply: whether to do it; otherwise only the plan is logged (templated)
    """

    template_fields: Sequence[str] = (
        *ApplyOperator.template_fields,
        *("from_batch", "from_time", "from_offsets", "abandon"),
    )
    ui_color = "#fdebd0"

    def __init__(
        self,
        *,
        from_batch: str | int | None = None,
        from_time: str | None = None,
        from_offsets: Sequence[str] | str | None = None,
        abandon: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.from_batch = from_batch
        self.from_time = from_time
        self.from_offsets = from_offsets
        self.abandon = abandon

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the reprocess; its progress goes to the task's log.

        Raises:
            AirflowFailException: When something has to be changed first; says what.
            SparkJobError: When Spark failed; a retry drains what isn't sealed.
            LockedError: When a drain holds the archive's lease; a retry may help.
            KafkaUnavailableError: When Kafka doesn't answer; a retry may help.
        """
        from kafka_drain.archive.archive import Archive
        from kafka_drain.windows.reprocess.plan import parse_cut
        from kafka_drain.windows.reprocess.run import plan_reprocess, run_reprocess
        from kafka_drain.windows.reprocess.state import newest_generation

        with terminal_errors_fail(), archive_access(self.pipeline):
            if is_true("abandon", self.abandon):
                return self._abandon(context)
            cut = parse_cut(
                self.from_batch,
                self.from_time,
                listed(self.from_offsets),
                newest_generation=lambda: newest_generation(Archive.at(self.pipeline.archive)),
            )
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            plan = plan_reprocess(self.pipeline, cluster, cut)
            self.say_plan(plan.lines())
            if not self.applies():
                self.say_dry_run()
                return plan.to_dict()
            removed = run_reprocess(
                plan,
                self.pipeline,
                cluster,
                self.run_application,
                run=context["run_id"],
                say=self.say,
            )
        figures = plan.to_dict() | removed
        if figures["removed_files"]:
            tell_replaced(self.outlets, context, self.pipeline, figures)
        return figures

    def _abandon(self, context: Context) -> dict[str, Any]:
        from kafka_drain.archive.archive import Archive
        from kafka_drain.errors import ConfigError
        from kafka_drain.windows.reprocess.abandon import abandon_reprocess, plan_abandon

        if self.from_batch or self.from_time or listed(self.from_offsets):
            raise ConfigError("abandon ends the reprocess that was begun; leave its start out")
        plan = plan_abandon(Archive.at(self.pipeline.archive))
        self.say_plan(plan.lines())
        if self.applies():
            abandon_reprocess(plan, run=context["run_id"], say=self.say)
        else:
            self.say_dry_run()
        return plan.to_dict()
