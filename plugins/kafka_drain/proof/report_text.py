"""A validation's report as text lines: whole for a log, in parts for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kafka_drain.gaps import gaps_text
from kafka_drain.kafka.identity import cluster_text
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.output import Level, Line
from kafka_drain.proof.report import Report

#: Number of findings shown; the report file has all of them.
SHOWN = 20


def report_lines(report: Report) -> list[str]:
    """Return a report as text lines: one per partition, then the findings."""
    return [
        *report_heading(report),
        *(
            f"  {row['topic']}-{row['partition']}: offsets [{row['start']:,}, {row['end']:,}), "
            f"{row['records']:,} records, gaps: {gaps_text(row['gaps'])}"
            for row in report.partitions()
        ),
        *(
            Line(f"{f.reason.severity.upper()} {f}", Level(f.reason.severity))
            for f in report.all_findings[:SHOWN]
        ),
        *report_ending(report),
    ]


def report_heading(report: Report) -> list[str]:
    """Return the totals, the number of receipts, and the batches that were proven as one."""
    return [
        f"validate {report.pipeline}: {report.records:,} records for {report.offsets:,} offsets in "
        f"{report.files:,} files ({report.bytes / 1e6:,.1f} MB), {report.seconds:.1f} s",
        *([f"Kafka: {cluster_text(report.kafka)}"] if report.kafka else ()),
        f"receipts: {report.receipts + report.receipts_written:,}, "
        f"{report.receipts_written:,} of them new"
        + "".join(
            f"; batches {part.first_batch} to {part.last_batch} were proven as one, because Spark "
            "no longer records where each ended"
            for part in report.segments
            if part.first_batch != part.last_batch
        ),
    ]


def report_ending(report: Report) -> list[str]:
    """Return the number of findings not shown, and the verdict."""
    more = len(report.all_findings) - SHOWN
    return [
        *([f"… and {more} more findings"] if more > 0 else ()),
        *(
            Line(
                f"not archived: {', '.join(map(str, between[:3]))} of {tp}{_others(between)}, "
                "between what was drained and what was backfilled; backfill the hours between, or "
                "leave them out on purpose",
                Level.WARNING,
            )
            for tp, between in list(_between(report))[:SHOWN]
        ),
        Line("verdict: complete", Level.GOOD)
        if report.complete
        else Line("verdict: findings", Level.ERROR),
    ]


def _between(report: Report) -> Iterator[tuple[TopicPartition, list[OffsetRange]]]:
    for (tp, _), row in sorted(report.rows.items(), key=lambda item: item[0]):
        if row.not_archived:
            yield tp, row.not_archived


def _others(ranges: Sequence[OffsetRange]) -> str:
    return f" and {len(ranges) - 3:,} more ranges" if len(ranges) > 3 else ""
