"""Kafka's offsets per partition as seen by the last runs, the basis for STALLED and EXPIRING.

Kept in the archive's `observed.json`. Runs without new data leave no receipt, yet exactly these
runs show whether a partition is stalled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timezone

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ObservedDocument, ObservedRow
from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import duration_text

#: How long a partition may wait behind an ongoing transaction: the longest timeout that a producer
#: can request (the brokers' transaction.max.timeout.ms, 15 minutes by default).
STALL_SECONDS = 15 * 60.0


@dataclass(frozen=True, slots=True)
class Observation:
    """A run's observation of one partition.

    Attributes:
        run: Name of the run; a retry isn't another run.
        at: Time of the run, in seconds since 1970.
        earliest: First offset that Kafka still had.
        last_stable: Last stable offset.
        high_watermark: High watermark.
        waiting_since: When the partition was first seen at this last stable offset with records
            behind it, in seconds since 1970; None if nothing is waiting.
        waiting_run: The run that saw that first.
    """

    run: str
    at: float
    earliest: int
    last_stable: int
    high_watermark: int
    waiting_since: float | None = None
    waiting_run: str = ""

    @property
    def hidden(self) -> int:
        """Last stable offset lag: number of offsets behind an open transaction."""
        return self.high_watermark - self.last_stable

    @property
    def is_stalled(self) -> bool:
        """Whether an earlier run already saw the partition at this offset, too long ago."""
        return self.waiting_run != self.run and self.stands_still_at(self.last_stable, self.at)

    def stands_still_at(self, last_stable: int, now: float) -> bool:
        """Return whether a partition has been waiting at an offset for too long.

        Args:
            last_stable: Its current last stable offset, with records behind it.
            now: Current time, in seconds since 1970.
        """
        return (
            self.waiting_since is not None
            and self.last_stable == last_stable
            and now - self.waiting_since >= STALL_SECONDS
        )


Observations = Mapping[TopicPartition, Observation]


def observe(
    before: Observations, bounds: Mapping[TopicPartition, KafkaBounds], run: str, at: float
) -> dict[TopicPartition, Observation]:
    """Combine a run's observations with those of earlier runs."""
    return {tp: _observe(before.get(tp), held, run, at) for tp, held in bounds.items()}


def _observe(before: Observation | None, held: KafkaBounds, run: str, at: float) -> Observation:
    since, first = None, ""
    if held.high_watermark > held.last_stable:
        since, first = at, run
        if before and before.waiting_since and before.last_stable == held.last_stable:
            since, first = before.waiting_since, before.waiting_run
    return Observation(run, at, held.earliest, held.last_stable, held.high_watermark, since, first)


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
    before: Observations,
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    interval: float,
    now: float,
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
    return {
        TopicPartition(row.topic, row.partition): Observation(
            **{each.name: getattr(row, each.name) for each in fields(Observation)}
        )
        for row in (document.partitions if document else ())
    }


def write_observations(archive: Archive, observed: Observations) -> None:
    """Write a run's observations."""
    rows = [
        ObservedRow(topic=tp.topic, partition=tp.partition, **asdict(seen))
        for tp, seen in sorted(observed.items())
    ]
    ObservedDocument(partitions=rows).write(archive.root / "observed.json")
