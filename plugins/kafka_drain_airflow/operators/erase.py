"""Erase records on request, and prove that all others are as they were."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kafka_drain.maintenance.erase_options import EraseOptions
from kafka_drain_airflow.connections import spark_engine, terminal_errors_fail
from kafka_drain_airflow.erase_connection import erased_names
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.observability.archive_events import tell_replaced
from kafka_drain_airflow.observability.lineage import erase_lineage
from kafka_drain_airflow.operators.apply import ApplyOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.maintenance.erasure_request import ErasureRequest


class EraseOperator(ApplyOperator):
    """Erase records from an archive's files, and keep them from coming back.

    Which keys or headers the records have is read from the pipeline's ``erase_conn_id``, and never
    logged, returned or shown: the archive keeps salted hashes. A dry run unless told to apply: it
    logs the number of records and files, and which copies can't be reached. With apply, files with
    such records are rewritten without them, all others are proven to be as they were, and the old
    files are deleted, which can't be undone. It can be killed at any point: a retry, or the same
    request again, finishes it.

    Without a request, it carries out what was asked for before on records that were drained since.

    Returns archive, windows (the ones it sealed), erased (number of records), and of the old files
    that the store still locks locked_files and locked_until; in a dry run, the plan's figures, and
    if it was frozen, also plan_id, expires_at and approval.

    :param pipeline: the pipeline, or its keys as a dict (templated)
    :param request: id of the request, kept in the archive; no personal data (templated)
    :param by: the requester, kept in the archive; no personal data (templated)
    :param topics: only of these topics; empty for all (templated)
    :param from_time: lowest timestamp of the records, ISO 8601 (templated)
    :param to_time: end of the timestamps, exclusive, ISO 8601 (templated)
    :param all_records: whether all records of the topics and times are erased; the connection must
        then name no keys and headers (templated)
    :param for_ever: whether such records that are written to Kafka after the request are erased too
        (templated)
    :param apply: whether to apply the plan; otherwise it is only logged (templated)
    """

    template_fields: Sequence[str] = (
        *ApplyOperator.template_fields,
        *EraseOptions.model_fields,
    )
    ui_color = "#f5c6c6"

    def __init__(
        self,
        *,
        request: str | None = None,
        by: str | None = None,
        topics: Sequence[str] | str | None = None,
        from_time: str | None = None,
        to_time: str | None = None,
        all_records: bool | str = False,
        for_ever: bool | str = False,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(**kwargs)
        self.set_options(EraseOptions, given)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Erase, and log the progress.

        Raises:
            AirflowFailException: If the user has to change something first; the message says what.
            SparkJobError: If Spark failed; a retry starts again.
            LockedError: If other maintenance or a drain is running; a retry may help.
            KafkaUnavailableError: If Kafka doesn't answer; a retry may help.
        """
        with terminal_errors_fail(), archive_access(self.pipeline), spark_engine(self.pipeline):
            figures = self._erase(context)
            # A plan's windows are their number.
            is_done = bool(figures.get("windows")) and "erased" in figures
            if is_done:
                self._lineage = erase_lineage(self.pipeline.archive, self._kept(figures["windows"]))
        if is_done:
            tell_replaced(self.outlets, context, self.pipeline, figures)
        return figures

    def _kept(self, windows: Sequence[str]) -> int:
        """Return the number of records in the files that were written."""
        from kafka_drain.archive.archive import Archive

        receipts = Archive.at(self.pipeline.archive).snapshot().fold.only(windows).receipts
        return sum(receipt.records for receipt in receipts)

    def _erase(self, context: Context) -> dict[str, Any]:
        from kafka_drain.clock import utc_now
        from kafka_drain.maintenance.approved_erasure import freeze_erasure
        from kafka_drain.maintenance.erase import plan_erasure, run_erasure

        if (plan_id := self.approved_plan()) is not None:
            return self._approved(context, plan_id)
        within, request = self.frozen_for(), self._request()
        cluster = kafka_cluster(self.pipeline.kafka_conn_id)
        if self.applies():
            erased = run_erasure(
                self.pipeline, cluster, self.runner, request, run=context["run_id"]
            )
            return {"archive": self.pipeline.archive} | erased
        if within is None:
            plan, frozen = plan_erasure(self.pipeline, cluster, request), None
        else:
            plan, frozen = freeze_erasure(
                self.pipeline, cluster, request, now=utc_now(), lifetime=within
            )
        self.say_plan(plan.lines())
        self.say_dry_run(frozen)
        return plan.to_dict() | (frozen.summary() if frozen else {})

    def _approved(self, context: Context, plan_id: str) -> dict[str, Any]:
        """Carry out a plan that was frozen, or check that it could be; needs no keys."""
        from kafka_drain.clock import utc_now
        from kafka_drain.maintenance.approved_erasure import plan_approved, run_approved

        plan, frozen, decision = plan_approved(self.pipeline, plan_id, now=utc_now())
        self.say_plan(plan.lines())
        if not self.carries_out(frozen, decision):
            return plan.to_dict()
        erased = run_approved(
            self.pipeline,
            kafka_cluster(self.pipeline.kafka_conn_id),
            self.runner,
            frozen,
            run=context["run_id"],
        )
        return {"archive": self.pipeline.archive} | erased

    def _request(self) -> ErasureRequest | None:
        """Return the request; None without one: then the erasures in force go on."""
        from kafka_drain.errors import ConfigError
        from kafka_drain.maintenance.erasure_request import ErasureRequest, refuse_names

        options = self.options(EraseOptions)
        if not options.request:
            if options != EraseOptions():
                raise ConfigError(
                    "give the request's id (request); without one, what was asked for before is "
                    "carried out, and nothing else may be set"
                )
            return None
        if self.pipeline.erase_conn_id is None:
            raise ConfigError("set the pipeline's erase_conn_id, which names what is erased")
        keys, headers, who = erased_names(self.pipeline, options.request)
        refuse_names(
            all_records=options.all_records,
            has_keys=bool(keys),
            has_headers=bool(headers),
            where=who,
        )
        return ErasureRequest.of(options, keys, headers)
