"""Drain archived offsets again and replace the old files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_drain.windows.reprocess.options import ReprocessOptions
from kafka_drain_airflow.connections import spark_engine, terminal_errors_fail
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.observability.archive_events import tell_replaced
from kafka_drain_airflow.operators.apply import ApplyOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class ReprocessOperator(ApplyOperator):
    """Drain archived records again, from a batch, time or offset, with the pipeline's settings.

    A dry run unless told to apply: it logs offsets, files and bytes, and is refused if Kafka no
    longer holds all of the records. With apply, it closes the generation, drains into windows, each
    of which is proven to hold every record of the files it replaces, and then removes these files.
    It can be killed at any point: a retry, or another run with the same settings, resumes it.

    Returns archive, since, windows, waiting, offsets, records, files and bytes (of the replaced
    files), removed_files and removed_bytes; if the plan was frozen, also plan_id, expires_at and
    approval.

    With ``abandon``, it ends a reprocess that was started and can't finish: windows that aren't
    sealed are removed, archived files stay. Returns archive, since, and the number of sealed and of
    unsealed windows.

    :param pipeline: the pipeline, or its keys as a dict (templated); its format and partition_by
        apply to the new files
    :param from_batch: the first batch, such as ``7``, or ``1:7`` in generation 1 (templated)
    :param from_time: start at the batch with the first record of this time or later, ISO 8601
        (templated)
    :param from_offsets: start at the batch with the first of these offsets,
        ``topic:partition:offset`` (templated)
    :param abandon: whether to end a reprocess that was started (templated)
    :param apply: whether to apply the plan; otherwise it is only logged (templated)
    """

    template_fields: Sequence[str] = (
        *ApplyOperator.template_fields,
        *ReprocessOptions.model_fields,
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
        given = locals()
        super().__init__(**kwargs)
        self.set_options(ReprocessOptions, given)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the reprocess and log its progress.

        Raises:
            AirflowFailException: If the user has to change something first; the message says what.
            SparkJobError: If Spark failed; a retry drains what isn't sealed.
            LockedError: If a drain holds the archive's lease; a retry may help.
            KafkaUnavailableError: If Kafka doesn't answer; a retry may help.
        """
        from kafka_drain.archive.archive import Archive
        from kafka_drain.clock import utc_now
        from kafka_drain.windows.reprocess.approved import freeze_reprocess
        from kafka_drain.windows.reprocess.plan import parse_cut
        from kafka_drain.windows.reprocess.run import plan_reprocess, run_reprocess
        from kafka_drain.windows.reprocess.state import newest_generation

        with terminal_errors_fail(), archive_access(self.pipeline), spark_engine(self.pipeline):
            options = self.options(ReprocessOptions)
            if options.abandon:
                return self._abandon(context)
            if (plan_id := self.approved_plan()) is not None:
                return self._approved(context, plan_id)
            cut = parse_cut(
                options,
                newest_generation=lambda: newest_generation(Archive.at(self.pipeline.archive)),
            )
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            applies, within = self.applies(), self.frozen_for()
            if within is not None and not applies:
                plan, frozen = freeze_reprocess(
                    self.pipeline, cluster, cut, now=utc_now(), lifetime=within
                )
                self.say_plan(plan.lines())
                self.say_dry_run(frozen)
                return plan.to_dict() | frozen.summary()
            plan = plan_reprocess(self.pipeline, cluster, cut)
            self.say_plan(plan.lines())
            if not applies:
                self.say_dry_run()
                return plan.to_dict()
            removed = run_reprocess(
                plan, self.pipeline, cluster, self.runner, run=context["run_id"]
            )
        return self._replaced(context, plan.to_dict() | removed)

    def _approved(self, context: Context, plan_id: str) -> dict[str, Any]:
        """Carry out a plan that was frozen, or check that it could be."""
        from kafka_drain.clock import utc_now
        from kafka_drain.windows.reprocess.approved import plan_approved, run_approved

        cluster = kafka_cluster(self.pipeline.kafka_conn_id)
        plan, frozen, decision = plan_approved(self.pipeline, cluster, plan_id, now=utc_now())
        self.say_plan(plan.lines())
        if not self.carries_out(frozen, decision):
            return plan.to_dict() | {"removed_files": 0, "removed_bytes": 0}
        removed = run_approved(
            plan, self.pipeline, cluster, self.runner, frozen, run=context["run_id"]
        )
        return self._replaced(context, plan.to_dict() | removed)

    def _replaced(self, context: Context, figures: dict[str, Any]) -> dict[str, Any]:
        """Publish that files were replaced, and return the figures."""
        if figures["removed_files"]:
            tell_replaced(self.outlets, context, self.pipeline, figures)
        return figures

    def _abandon(self, context: Context) -> dict[str, Any]:
        from kafka_drain.archive.archive import Archive
        from kafka_drain.windows.reprocess.abandon import abandon_reprocess, plan_abandon

        plan = plan_abandon(Archive.at(self.pipeline.archive))
        self.say_plan(plan.lines())
        if self.applies():
            abandon_reprocess(plan, run=context["run_id"])
        else:
            self.say_dry_run()
        return plan.to_dict()
