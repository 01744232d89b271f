"""The answer of the commands that end with a validation: its report."""

from __future__ import annotations

import argparse

from rich.console import Console

from kafka_drain.archive import Archive
from kafka_drain.exit_codes import FAILED, OK
from kafka_drain.findings import errors
from kafka_drain.report import Report, note_overview, write_report
from kafka_drain.terminal import answer

__all__ = ["answer_report"]


def answer_report(options: argparse.Namespace, archive: Archive, report: Report) -> int:
    """Write the report beside the archive, print it and return the exit code."""
    path = write_report(archive, report)
    note_overview(archive, report, path)
    document = report.to_dict() | {"report": path}

    def show(console: Console) -> None:
        for line in report.lines():
            console.print(line, markup=False)
        console.print(f"report: {document['report']}", markup=False)

    answer(options, document, show)
    return FAILED if errors(report.findings) else OK
