"""Prove from the file sink's manifest that every drained offset arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from kafka_drain.pipeline import Pipeline
from kafka_drain_airflow.connections import kafka_cluster, terminal_errors_fail

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

__all__ = ["ValidateManifestOperator"]


class ValidateManifestOperator(BaseOperator):
    """Validate a pipeline's archive and write a report into it.

    Collects all findings, then fails once. Its outlets' asset events carry the summary.

    Returns the summary: verdict, files, bytes, records, offsets, reasons, report.

    :param pipeline: the pipeline
    """

    ui_color = "#d5f5e3"

    def __init__(self, *, pipeline: Pipeline, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.pipeline = pipeline

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the validation.

        Raises:
            AirflowFailException: When the archive is not complete; names reasons and report.
            KafkaUnavailableError: When a gap has to be explained and Kafka doesn't answer.
        """
        from kafka_drain.archive import Archive
        from kafka_drain.report import raise_findings, write_report
        from kafka_drain.validation import validate_archive

        with terminal_errors_fail():
            archive = Archive.at(self.pipeline.archive)
            cluster = kafka_cluster(self.pipeline.kafka_conn_id)
            report = validate_archive(archive, cluster, self._say)
            path = write_report(archive, report, context.get("run_id"))
            for line in report.lines():
                self.log.info("%s", line)
            self.log.info("report: %s", path)
            raise_findings(report, path)
        summary = report.summary() | {"report": path}
        for asset in self.outlets if "outlet_events" in context else ():
            context["outlet_events"][asset].extra = summary
        return summary

    def _say(self, line: str) -> None:
        self.log.info("%s", line)
