"""Print the answer of commands that end with a validation: its report."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.scrubs import note_all_read
from kafka_drain.cli.console import answer, fits_screen, new_table, print_lines, print_table
from kafka_drain.cli.exit_codes import FAILED, OK
from kafka_drain.clock import utc_now
from kafka_drain.errors import NotWritableError
from kafka_drain.findings import errors
from kafka_drain.gaps import gaps_text
from kafka_drain.pages.commands import Reach
from kafka_drain.pages.finding_values import values_of
from kafka_drain.pages.remedies import what_to_do
from kafka_drain.proof.report import Report, note_overview, sign_report, write_report
from kafka_drain.proof.report_text import SHOWN, report_ending, report_heading, report_lines

if TYPE_CHECKING:
    from kafka_drain.evidence.signing import Signer

_COLOURS = {"error": "red", "warning": "yellow"}


def answer_report(
    options: argparse.Namespace,
    archive: Archive,
    report: Report,
    *,
    writes: bool = True,
    unwritten: str = "",
    unasked: str = "",
    signer: Signer | None = None,
) -> int:
    """Write the report into the archive if `writes`, print it and return the exit code.

    With a signer, the report is signed as well, and the witness told. If the archive can't be
    written (`unwritten` says why), that is said with the verdict, which decides the exit code; a
    report without the signature that was asked for is a failure. JSON also has why Kafka wasn't
    asked (`unasked`).
    """
    path = evidence = None
    reach = _reach(options, archive)
    if writes and not unwritten:
        try:
            path = write_report(archive, report, reach=reach)
            note_overview(archive, report, path)
            if report.deep and report.complete:
                note_all_read(archive.root, report.validated_at)
            if signer is not None:
                evidence = sign_report(archive, report, path, signer, utc_now())
        except NotWritableError as error:
            unwritten = str(error)
    is_unsigned = signer is not None and evidence is None
    left = ["report"] * (path is None) + ["evidence"] * is_unsigned or ["overview"]

    def show(console: Console) -> None:
        if fits_screen(console):
            _show_tables(console, report, reach)
        else:
            print_lines(console, report_lines(report))
        if path is not None:
            print_lines(console, [f"report: {path}"])
        if unwritten:
            print_lines(console, [f"{' and '.join(left)}: not written: {unwritten}"])
        if evidence is not None:
            print_lines(console, [f"evidence: {evidence}"])

    more = {"report": path}
    more |= {"not_written": unwritten} if unwritten else {}
    more |= {"kafka_unavailable": unasked} if unasked else {}
    more |= {"evidence": evidence} if evidence is not None else {}
    answer(options, report.to_dict() | more, show)
    is_left_unsigned = path is not None and is_unsigned
    return FAILED if errors(report.all_findings) or is_left_unsigned else OK


def _reach(options: argparse.Namespace, archive: Archive) -> Reach:
    """Return this command's connection settings, for the commands in the report."""
    return Reach(
        str(archive.root),
        options.bootstrap_servers or "",
        options.kafka_config or "",
        options.master,
        options.deploy_mode,
    )


def _show_tables(console: Console, report: Report, reach: Reach) -> None:
    print_lines(console, report_heading(report))
    partitions = new_table(
        console,
        *("topic", "partition", "start", "end", "records", "gaps"),
        numbers=("partition", "start", "end", "records"),
    )
    for row in report.partitions():
        numbers = (f"{row[name]:,}" for name in ("partition", "start", "end", "records"))
        partitions.add_row(Text(row["topic"]), *numbers, gaps_text(row["gaps"]))
    if partitions.rows:
        print_table(console, partitions)
    shown = report.all_findings[:SHOWN]
    if shown:
        findings = new_table(console, "finding", "where", "what was seen")
        for finding in shown:
            code = Text(str(finding.reason), _COLOURS[finding.reason.severity])
            findings.add_row(code, Text(finding.where), Text(finding.detail))
        print_table(console, findings)
    values = values_of(report.to_dict())
    for reason in dict.fromkeys(finding.reason for finding in shown):
        said = Text(str(reason), _COLOURS[reason.severity])
        said.append(f": {what_to_do(reason, reach, values)}", "")
        # A command that is broken into lines can't be pasted.
        console.print(said, soft_wrap=True)
    print_lines(console, report_ending(report))
