"""Prove from the file sink's manifest that every drained offset arrived."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from logging import INFO, WARNING
from typing import TYPE_CHECKING, Any

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.options import ValidateOptions
from kafka_drain.user_code import held
from kafka_drain_airflow.connections import kept_registry, spark_engine, terminal_errors_fail
from kafka_drain_airflow.data_intervals import window_interval
from kafka_drain_airflow.evidence_connection import evidence_signer
from kafka_drain_airflow.kafka_connection import kafka_cluster
from kafka_drain_airflow.observability.archive_events import tell_validated
from kafka_drain_airflow.observability.report_link import REPORT_KEY, ReportLink
from kafka_drain_airflow.operators.pipeline import PipelineOperator
from kafka_drain_airflow.operators.spark_job import SparkJobOperator
from kafka_drain_airflow.store_connection import archive_access

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

    from kafka_drain.archive.archive import Archive
    from kafka_drain.archive.drill_status import DrillStatus
    from kafka_drain.evidence.signing import Signer
    from kafka_drain.intervals import Interval
    from kafka_drain.kafka.cluster import KafkaCluster
    from kafka_drain.pages.commands import Reach
    from kafka_drain.proof.report import Report

SCOPES = ("open", "all")

#: XCom of the validation: what the run has sealed.
SEALED_KEY = "sealed"

#: A notifier or a function, called in the same way as Airflow's callbacks for failed tasks.
AlertCallback = Callable[[Any], Any]


class ValidateManifestOperator(SparkJobOperator):
    """Validate a pipeline's archive, seal what is proven, and write a report into the archive.

    Collects all findings, then fails once. The asset events of its outlets carry the summary and,
    for each sealed segment that wasn't published yet, its offsets, files, records, and the receipt
    with its hash.

    If there are more than 10,000 new files, a Spark application reads them; otherwise this process
    does.

    In a run that drains a window, it proves that nothing in the window is left to drain and that
    the window's files are those that were sealed; the rest is left to the scheduled drains.

    Returns the summary: verdict, files, bytes, records, offsets, reasons, report; for a window:
    archive, window, start, end, offsets, to_drain, ahead, covered_by.

    The XCom ``sealed`` says what the run has sealed, for the tasks after it: archive, segments,
    records, offsets, files, bytes; ``topics``, with partitions, offsets and records of each;
    ``paths``, the first hundred files; ``receipts``, which name all of them.
    ``kafka_drain.reading.sealed_paths`` returns the paths of all.

    :param pipeline: the pipeline, or its keys as a dict (templated)
    :param scope: ``open`` checks the generation that drains append to, ``all`` every generation
        (templated)
    :param on_alert_callback: one or more notifiers or functions, called with the task's context
        plus ``alerts`` when something needs attention. Each alert has a ``kind`` (``LOST``,
        ``DAMAGED``, ``STALLED``, ``EXPIRING`` or ``DRILL``) and a ``message``
    :param acknowledge_expired: expired offsets to accept, as ``topic:partition:start-end``
        (templated)
    :param mode: ``window`` to validate a window in a run that isn't a backfill run (templated)
    :param window_start: start of the window, ISO 8601; None for the run's data interval (templated)
    :param window_end: exclusive end of the window (templated)
    """

    template_fields: Sequence[str] = (
        *PipelineOperator.template_fields,
        "scope",
        *ValidateOptions.model_fields,
    )
    ui_color = "#d5f5e3"
    operator_extra_links = (ReportLink(), *SparkJobOperator.operator_extra_links)

    def __init__(
        self,
        *,
        pipeline: Pipeline | Mapping[str, Any],
        scope: str = "open",
        on_alert_callback: AlertCallback | Sequence[AlertCallback] = (),
        acknowledge_expired: Sequence[str] | str | None = None,
        mode: str | None = None,
        window_start: str | None = None,
        window_end: str | None = None,
        **kwargs: Any,
    ) -> None:
        given = locals()
        super().__init__(pipeline=pipeline, **kwargs)
        self.scope = scope
        self.set_options(ValidateOptions, given)
        self.on_alert_callback: list[AlertCallback]
        if callable(on_alert_callback):
            self.on_alert_callback = [on_alert_callback]
        else:
            self.on_alert_callback = list(on_alert_callback)

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Run the validation.

        Raises:
            AirflowFailException: If the archive isn't complete; names the reasons and the report.
            KafkaUnavailableError: If Kafka doesn't answer; what the files alone prove is logged, as
                it is if Kafka refuses the login, or an ACL is missing.
        """
        from kafka_drain.config.checks import one_of

        with terminal_errors_fail(), archive_access(self.pipeline), spark_engine(self.pipeline):
            one_of(*SCOPES)("scope", self.scope)
            options = self.options(ValidateOptions)
            interval = window_interval(context, options)
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            if interval is None:
                return self._validate(cluster, options, context)
            return self._validate_window(cluster, options, interval, context)

    def _validate(
        self, cluster: KafkaCluster, options: ValidateOptions, context: Context
    ) -> dict[str, Any]:
        from kafka_drain.archive.archive import Archive
        from kafka_drain.archive.status import read_overview
        from kafka_drain.clock import utc_now
        from kafka_drain.errors import KAFKA_ERRORS, KafkaDrainError
        from kafka_drain.events import begin_publication, sealed_summary, segment_events
        from kafka_drain.findings import errors
        from kafka_drain.proof.alerts import alerts_of, last_overview, unread_drills
        from kafka_drain.proof.cluster_capture import describe_with
        from kafka_drain.proof.executor_reading import read_by_spark
        from kafka_drain.proof.report import note_damage, note_overview, write_report
        from kafka_drain.proof.report_text import report_lines
        from kafka_drain.proof.validation import validate_archive, validate_files_alone
        from kafka_drain_airflow.observability.metrics import tell_overview

        archive = Archive.at(self.pipeline.archive)
        signer = evidence_signer(self.pipeline)
        publication = begin_publication(archive, context.get("run_id"))
        how: dict[str, Any] = {
            "scope": "all" if self.scope == "all" else "open",
            "acknowledged": options.acknowledged,
            "run": context.get("run_id"),
            "read_many": read_by_spark(self.pipeline, self.runner),
            "signer": signer,
        }
        try:
            report = validate_archive(
                archive,
                cluster,
                describe=describe_with(cluster.config, self.pipeline.describe_cluster),
                keep_schemas=partial(self._keep_schemas, archive),
                **how,
            )
        except KAFKA_ERRORS as error:
            alone = validate_files_alone(archive, error, **how)
            for line in report_lines(alone):
                self.log.info("%s", line)
            # It may be read-only; what was found is told all the same.
            with suppress(KafkaDrainError):
                note_damage(archive, alone)
            if seen := last_overview(archive):
                found = {"verdict": "findings"} if errors(alone.all_findings) else {}
                tell_overview(self.pipeline.name, {**seen, **found}, alone.seconds)
            # Kafka goes on deleting, also where it lets nobody in.
            drills, unread = self._known_drills()
            known = alerts_of(alone.all_findings, seen, utc_now(), drills)
            self._alert(context, [*known, *unread_drills(unread)])
            raise
        report.kafka = cluster.named()
        try:
            path = write_report(archive, report, context.get("run_id"), self._reach())
        except KafkaDrainError:
            # What was found is told, wherever it can't be kept.
            known = alerts_of(report.all_findings, last_overview(archive), utc_now())
            self._alert(context, known)
            raise
        # A failed task returns nothing, and its report is the one users need most.
        self._push(context, REPORT_KEY, path)
        for line in report_lines(report):
            self.log.info("%s", line)
        self.log.info("report: %s", path)
        before = None
        # A damaged one is a finding.
        with suppress(KafkaDrainError, OSError):
            before = read_overview(archive.root)
        try:
            overview = note_overview(archive, report, path)
        except (KafkaDrainError, OSError):
            known = alerts_of(report.all_findings, last_overview(archive), utc_now())
            self._alert(context, known)
            raise
        tell_overview(self.pipeline.name, overview, report.seconds, before=before)
        drills, unread = self._known_drills()
        alerts = alerts_of(report.all_findings, overview, utc_now(), drills)
        # What is wrong with the archive comes first.
        self._alert(context, [*alerts, *unread_drills(unread)])
        self._sign(archive, report, path, signer)
        if unread is not None:
            raise unread
        summary = report.summary() | {"report": path}
        # Includes segments sealed by an attempt that failed afterwards, or by the command line.
        sealed = list(publication.receipts(report.sealed))
        extra = summary | {"segments": segment_events(sealed)}
        tell_validated(self.outlets, context, self.pipeline, extra)
        self._push(context, SEALED_KEY, sealed_summary(self.pipeline.archive, sealed))
        # Last: an attempt that fails has published nothing.
        publication.note(sealed)
        return summary

    def _reach(self) -> Reach:
        """Return the connection settings for the commands in the report."""
        from kafka_drain_airflow.command_reach import reach_of

        pipeline = self.pipeline
        return reach_of(
            pipeline.archive,
            store=pipeline.archive_conn_id or "",
            kafka=pipeline.kafka_conn_id,
            spark=pipeline.spark_conn_id,
            registry=pipeline.schemas_conn_id or "",
        )

    def _known_drills(self) -> tuple[DrillStatus | None, Exception | None]:
        """Return the status of the pipeline's drills, or why it can't be read."""
        from kafka_drain.errors import KafkaDrainError

        try:
            return self._drills(), None
        except (KafkaDrainError, OSError) as error:
            return None, error

    def _drills(self) -> DrillStatus | None:
        """Return the status of the pipeline's drills, and publish their metrics."""
        from kafka_drain.archive.drills import drill_status
        from kafka_drain.clock import utc_now
        from kafka_drain_airflow.observability.metrics import tell_drills

        drills = drill_status(self.pipeline, utc_now())
        if drills is not None:
            tell_drills(self.pipeline.name, drills)
        return drills

    def _sign(self, archive: Archive, report: Report, path: str, signer: Signer | None) -> None:
        """Sign the report, and fail if the archive isn't complete.

        Raises:
            KafkaDrainError: Names the findings; or what is wrong with the witness, if only that is.
        """
        from kafka_drain.clock import utc_now
        from kafka_drain.proof.report import raise_findings, sign_report

        try:
            if signer is not None:
                self.log.info("evidence: %s", sign_report(archive, report, path, signer, utc_now()))
        finally:
            # What is wrong with the archive comes before what is wrong with its witness.
            raise_findings(report, path, self._reach())

    def _keep_schemas(self, archive: Archive) -> None:
        """Keep the schemas of newly drained records; a failure never stops the validation.

        What couldn't be read is noted in the archive, and asked for again by the next run.
        """
        from kafka_drain.clock import utc_now
        from kafka_drain.errors import KafkaDrainError
        from kafka_drain.schemas.capture import capture_schemas

        try:
            registry = kept_registry(self.pipeline)
            if registry is None:
                return
            found = capture_schemas(archive, registry, now=utc_now())
        except (KafkaDrainError, OSError) as error:
            self.log.warning("schemas weren't kept: %s", error)
            return
        except Exception:
            # Such as an answer that isn't a Schema Registry's: records are sealed all the same.
            self.log.exception("schemas weren't kept")
            return
        for line in found.lines(archive.root):
            self.log.log(WARNING if line.startswith("WARNING ") else INFO, "%s", line)

    def _alert(self, context: Context, alerts: list[dict[str, str]]) -> None:
        """Call the alert callbacks; a callback that fails doesn't stop the validation."""
        for callback in self.on_alert_callback if alerts else ():
            try:
                with held():
                    callback({**context, "alerts": alerts})
            except Exception:
                self.log.exception("%r failed; undelivered alerts: %s", callback, alerts)

    def _validate_window(
        self, cluster: KafkaCluster, options: ValidateOptions, interval: Interval, context: Context
    ) -> dict[str, Any]:
        from kafka_drain.events import (
            note_windows,
            sealed_summary,
            segment_events,
            unpublished_windows,
        )
        from kafka_drain.windows.backfill import refuse_incomplete, sealed_windows
        from kafka_drain.windows.backfill_plan import plan_backfill

        # Planned anew: what is left to drain says whether the interval is whole.
        plan = plan_backfill(self.pipeline, cluster, interval, acknowledged=options.acknowledged)
        refuse_incomplete(plan)
        for line in plan.lines():
            self.log.info("%s", line)
        summary = plan.to_dict()
        run = context.get("run_id")
        sealed = unpublished_windows(plan.archive, sealed_windows(plan), run)
        extra = summary | {"segments": segment_events(sealed)}
        tell_validated(self.outlets, context, self.pipeline, extra)
        self._push(context, SEALED_KEY, sealed_summary(self.pipeline.archive, sealed))
        note_windows(plan.archive, sealed, run)
        return summary

    def _push(self, context: Context, key: str, value: object) -> None:
        if "ti" in context:
            context["ti"].xcom_push(key=key, value=value)
