"""A validation's report as lines of text: for a log, and in parts for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from kafka_drain.proof.report import Report

__all__ = ["SHOWN", "gaps_text", "report_ending", "report_heading", "report_lines"]

#: So many findings are shown; the report file has all.
SHOWN = 20


def report_lines(report: Report) -> list[str]:
    """Return a report as people read it: a line a partition, then what was found."""
    return [
        *report_heading(report),
        *(
            f"  {row['topic']}-{row['partition']}: offsets [{row['start']:,}, {row['end']:,}), "
            f"{row['records']:,} records, gaps: {gaps_text(row['gaps'])}"
            for row in report.partitions()
        ),
        *(f"{f.reason.severity.upper()} {f}" for f in report.findings[:SHOWN]),
        *report_ending(report),
    ]


def report_heading(report: Report) -> list[str]:
    """Return how much there is, how many receipts, and what they can't tell apart."""
    return [
        f"validate {report.pipeline}: {report.records:,} records for {report.offsets:,} offsets in "
        f"{report.files:,} files ({report.bytes / 1e6:,.1f} MB), {report.seconds:.1f} s",
        f"receipts: {report.receipts + report.receipts_written:,}, "
        f"{report.receipts_written:,} of them new"
        + "".join(
            f"; batches {part.first_batch} to {part.last_batch} were proven as one, as Spark "
            "has forgotten where each ended"
            for part in report.segments
            if part.first_batch != part.last_batch
        ),
    ]


def report_ending(report: Report) -> list[str]:
    """Return how many findings aren't shown, and the verdict."""
    more = len(report.findings) - SHOWN
    return [
        *([f"… and {more} more findings"] if more > 0 else ()),
        f"verdict: {'complete' if report.complete else 'findings'}",
    ]


def gaps_text(gaps: Mapping[str, int]) -> str:
    """Return how many offsets are missing by which reason."""
    return ", ".join(f"{number:,} {reason}" for reason, number in gaps.items()) or "none"
