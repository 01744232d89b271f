"""Kafka's offsets per partition as seen by the last runs, the basis for STALLED and EXPIRING.

Kept in the archive's `observed.json`. Runs without new data leave no receipt, yet exactly these
runs show whether a partition is stalled.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import Observation, ObservedDocument
from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import Offsets, TopicPartition
from kafka_drain.progress import duration_text

Observations = Mapping[TopicPartition, Observation]


def observe(
    before: Observations, bounds: Mapping[TopicPartition, KafkaBounds], run: str, at: float
) -> dict[TopicPartition, Observation]:
    """Combine a run's observations with those of earlier runs."""
    return {tp: _observe(tp, before.get(tp), held, run, at) for tp, held in bounds.items()}


def _observe(
    tp: TopicPartition, before: Observation | None, held: KafkaBounds, run: str, at: float
) -> Observation:
    since, first = None, ""
    if held.high_watermark > held.last_stable:
        since, first = at, run
        if before and before.waiting_since and before.last_stable == held.last_stable:
            since, first = before.waiting_since, before.waiting_run
    return Observation(
        topic=tp.topic,
        partition=tp.partition,
        run=run,
        at=at,
        earliest=held.earliest,
        last_stable=held.last_stable,
        high_watermark=held.high_watermark,
        waiting_since=since,
        waiting_run=first,
    )


def stalled_findings(observed: Observations) -> list[Finding]:
    """Return a finding for each partition that has been stalled since an earlier run."""
    findings = []
    for tp, seen in sorted(observed.items()):
        if seen.is_stalled and seen.waiting_since is not None:
            since = datetime.fromtimestamp(seen.waiting_since, timezone.utc)
            detail = (
                f"last stable offset {seen.last_stable} unchanged since {since:%Y-%m-%d %H:%M:%S} "
                f"UTC or earlier; {seen.hidden:,} offsets wait behind an open transaction"
            )
            findings.append(Finding(Reason.STALLED, tp, detail))
    return findings


def expiry_warnings(
    before: Observations, first: Offsets, end: Offsets, interval: float, now: float
) -> list[str]:
    """Warn about partitions whose new records Kafka will delete before the next drain starts.

    Assumes that Kafka's first offset advances at the same rate as since the last run. If it passes
    this drain's end before the next drain, the records in between are lost.

    Args:
        before: Observations of the last run.
        first: Kafka's current first offset.
        end: End offset of this drain.
        interval: Seconds until the next run.
        now: Current time, in seconds since 1970.
    """
    warnings = []
    for tp in sorted(first):
        seen = before.get(tp)
        if seen is None or now <= seen.at or first[tp] <= seen.earliest:
            continue
        rate = (first[tp] - seen.earliest) / (now - seen.at)
        left = (end[tp] - first[tp]) / rate
        if left < interval:
            warnings.append(
                f"EXPIRING: Kafka deletes {rate:,.1f} offsets/s of {tp} and will reach offset "
                f"{end[tp]:,}, where this drain ends, in {duration_text(left)}; the next drain "
                f"starts in {duration_text(interval)}. Drain more often, or raise the topic's "
                "retention"
            )
    return warnings


def read_observations(archive: Archive) -> dict[TopicPartition, Observation]:
    """Read the last run's observations; empty if there are none, or they are unreadable."""
    document = ObservedDocument.read_note(archive.root / "observed.json")
    rows = document.partitions if document else ()
    return {TopicPartition(row.topic, row.partition): row for row in rows}


def write_observations(archive: Archive, observed: Observations) -> None:
    """Write a run's observations."""
    rows = [seen for _, seen in sorted(observed.items())]
    ObservedDocument(partitions=rows).write(archive.root / "observed.json")
