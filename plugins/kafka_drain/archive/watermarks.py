"""What Kafka held of each partition at the last runs: the memory behind STALLED and EXPIRING.

Kept in `observed.json` of the archive. A run with nothing new leaves no receipt, and it is such
runs that tell whether a partition stands still.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.format_version import known_fields
from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.findings import Finding, Reason
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import duration_text
from kafka_drain.storage.json_files import read_note, write_document

__all__ = [
    "STALL_SECONDS",
    "Observation",
    "expiry_warnings",
    "observe",
    "read_observations",
    "stalled_findings",
    "write_observations",
]

#: So long a partition may wait behind a transaction that is in progress: no producer may ask for a
#: longer one (the brokers' transaction.max.timeout.ms, 15 minutes unless somebody has raised it).
STALL_SECONDS = 15 * 60.0


@dataclass(frozen=True, slots=True)
class Observation:
    """What a run saw of one partition.

    Attributes:
        run: The run's name; a retry of it isn't another run.
        at: When, in seconds since 1970.
        earliest: First offset that Kafka still held.
        last_stable: Last stable offset.
        high_watermark: High watermark.
        waiting_since: When the partition was first seen to stand at this last stable offset with
            records behind it, in seconds since 1970; None when nothing waits.
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
        """Offsets that wait behind an open transaction."""
        return self.high_watermark - self.last_stable

    @property
    def is_stalled(self) -> bool:
        """Whether an earlier run found the partition standing there, too long ago."""
        return self.waiting_run != self.run and self.stands_still_at(self.last_stable, self.at)

    def stands_still_at(self, last_stable: int, now: float) -> bool:
        """Whether a partition that is found at an offset waits there for too long.

        Args:
            last_stable: Its last stable offset, with records behind it.
            now: The time, in seconds since 1970.
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
    """Return what a run sees, with what earlier runs have seen."""
    return {tp: _observe(before.get(tp), held, run, at) for tp, held in bounds.items()}


def _observe(before: Observation | None, held: KafkaBounds, run: str, at: float) -> Observation:
    since, first = None, ""
    if held.high_watermark > held.last_stable:
        since, first = at, run
        if before and before.waiting_since and before.last_stable == held.last_stable:
            since, first = before.waiting_since, before.waiting_run
    return Observation(run, at, held.earliest, held.last_stable, held.high_watermark, since, first)


def stalled_findings(observed: Observations) -> list[Finding]:
    """Return a finding for each partition that has stood still since an earlier run."""
    findings = []
    for tp, seen in sorted(observed.items()):
        if seen.is_stalled and seen.waiting_since is not None:
            since = datetime.fromtimestamp(seen.waiting_since, timezone.utc)
            detail = (
                f"stands at offset {seen.last_stable} since {since:%Y-%m-%d %H:%M:%S} UTC or "
                f"longer; {seen.hidden:,} offsets wait behind an open transaction"
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
    """Say where Kafka will have deleted what comes after this drain before the next one starts.

    The first offset that Kafka holds moves on as fast as it did since the last run. Where that
    takes it beyond this drain's end, records in between live and die unseen.

    Args:
        before: What the last run saw.
        first: First offset that Kafka holds now.
        end: Where this drain ends.
        interval: Seconds until the next run.
        now: The time, in seconds since 1970.
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
                f"EXPIRING: Kafka deletes {rate:,.1f} offsets/s of {tp} and reaches offset "
                f"{end[tp]:,}, where this drain ends, in {duration_text(left)}; the next drain "
                f"starts in {duration_text(interval)}. Drain more often, or raise the topic's "
                "retention"
            )
    return warnings


def read_observations(archive: Archive) -> dict[TopicPartition, Observation]:
    """Read what the last run saw; nothing where there was none, or its note can't be read."""
    document = read_note(archive.root / "observed.json", "partitions")
    if document is None:
        return {}
    return {
        TopicPartition(row.pop("topic"), row.pop("partition")): known_fields(Observation, row)
        for row in document["partitions"]
    }


def write_observations(archive: Archive, observed: Observations) -> None:
    """Keep what a run saw."""
    rows: Iterable[dict[str, Any]] = [
        {"topic": tp.topic, "partition": tp.partition, **asdict(seen)}
        for tp, seen in sorted(observed.items())
    ]
    write_document(archive.root / "observed.json", {"partitions": list(rows)})
