"""An archive's status in one small document, for lists of many archives.

Each validation rewrites `overview.json`; reading it costs the same regardless of the archive's age
and size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

from upath import UPath

from kafka_drain.archive.documents import OverviewDocument
from kafka_drain.archive.receipts import Receipt
from kafka_drain.archive.watermarks import Observations
from kafka_drain.findings import Reason
from kafka_drain.gaps import GapReason, is_harmless
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import Offsets, TopicPartition

NAME = "overview.json"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
# Kafka's timestamps may be any number; this is the limit for calendar times.
_HIGHEST = int(datetime(9000, 1, 1, tzinfo=timezone.utc).timestamp() * 1000)


def make_overview(
    report: Mapping[str, Any],
    receipt: Receipt | None,
    observed: Observations,
    settings: Mapping[str, TopicSettings],
    name: str,
    cursor: Offsets | None = None,
    last: Receipt | None = None,
) -> dict[str, Any]:
    """Build an overview.

    Args:
        report: Result of a validation's `Report.to_dict`.
        receipt: The open generation's newest receipt.
        observed: Kafka's offsets at that validation.
        settings: Settings of the source topics.
        name: Name of the report's JSON document.
        cursor: Starting offsets of the next batch, which before the first batch may differ from
            the start of a partition; None for the ends in the report.
        last: The newest receipt of any generation, if the open one has none.

    Returns:
        pipeline, verdict, validated_at, report, files, bytes, records, offsets, partitions,
        generations, windows, unsealed_segments (drained but not proven), findings and gaps (by
        reason), sealed_at, newest_record (ISO, from the newest receipt), lag (offsets in Kafka
        beyond what was drained; None if Kafka wasn't asked), expires_at (the earliest time at
        which Kafka may delete some of these; None if there is no lag, or the topic has no
        retention), missing (offsets that findings are about, by the finding's reason),
        drained_until (the time from which on Kafka's undrained records are: that of the validation
        if there are none; None if it can't be told).
    """
    rows = report["partitions"]
    ends: dict[TopicPartition, int] = {}
    gaps: Counter[str] = Counter()
    for row in rows:
        # A recreated topic has several rows; the newest one counts.
        ends[TopicPartition(row["topic"], row["partition"])] = row["end"]
        gaps.update(row["gaps"])
    # What an earlier generation drained of a partition may be another topic's, made again since.
    start = cursor or ends
    lag = {tp: seen.high_watermark - start.get(tp, seen.earliest) for tp, seen in observed.items()}
    newest, oldest = _newest(receipt), _oldest_waiting(observed, receipt or last)
    keys = ("pipeline", "verdict", "validated_at", "files", "bytes", "records", "offsets")
    return {
        **{key: report[key] for key in keys},
        "report": f"reports/{name}",
        "partitions": len(ends),
        "generations": len(report["generations"]),
        "windows": len(report["windows"]),
        "unsealed_segments": report["receipts"]["unsealed"],
        "findings": dict(report["reasons"]),
        "gaps": dict(gaps),
        "sealed_at": receipt.sealed_at if receipt else None,
        "newest_record": _iso(max(newest.values(), default=None)),
        "lag": sum(max(waiting, 0) for waiting in lag.values()) if observed else None,
        "expires_at": _iso(_expiry(lag, oldest, settings)),
        "missing": dict(_missing(report["gaps"])),
        "drained_until": _iso(_drained_until(lag, oldest, report["validated_at"])),
    }


def _missing(gaps: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """Count the offsets of gaps that have a finding, by its reason."""
    found: Counter[str] = Counter()
    for gap in gaps:
        if gap["acknowledged"]:
            found[Reason.OFFSET_EXPIRED.value] += gap["end"] - gap["start"]
        elif not is_harmless(gap["reason"]):
            is_unexplained = gap["reason"] == GapReason.UNEXPLAINED
            reason = Reason.OFFSET_UNEXPLAINED if is_unexplained else Reason.OFFSET_MISSING
            found[reason.value] += gap["end"] - gap["start"]
    return found


def _newest(receipt: Receipt | None) -> dict[TopicPartition, int]:
    """Return the highest timestamp of each partition in a receipt, where known."""
    return {
        part.tp: part.last_timestamp
        for part in (receipt.partitions if receipt else ())
        if part.last_timestamp is not None
    }


def _oldest_waiting(observed: Observations, receipt: Receipt | None) -> dict[TopicPartition, int]:
    """Return a time of each partition from which on its undrained records are, if one is known.

    That is the newest drained record's; without one in the newest segment, the time since when
    records wait behind an open transaction, or the segment's seal: what came before was drained.
    """
    if receipt is None:
        return {}
    sealed_at = datetime.fromisoformat(receipt.sealed_at).timestamp()
    newest = _newest(receipt)
    # A record may be dated ahead; those behind it aren't.
    return {
        tp: min(
            newest[tp] if tp in newest else int(1000 * (seen.waiting_since or sealed_at)),
            int(1000 * sealed_at),
        )
        for tp, seen in observed.items()
    }


def _expiry(lag: Offsets, oldest: Offsets, settings: Mapping[str, TopicSettings]) -> int | None:
    """Return the earliest deletion of an undrained record, in milliseconds since 1970.

    Args:
        oldest: The time from which on they are.
    """
    kept = {name: age for name, each in settings.items() if (age := _retention(each)) >= 0}
    waiting = [tp for tp in oldest if lag[tp] > 0 and tp.topic in kept]
    return min((oldest[tp] + kept[tp.topic] for tp in waiting), default=None)


def _drained_until(lag: Offsets, oldest: Offsets, validated_at: str) -> int | None:
    """Return the time from which on undrained records are, at most that of the validation."""
    waiting = {tp for tp, offsets in lag.items() if offsets > 0}
    if not lag or not waiting <= oldest.keys():
        return None
    now = int(1000 * datetime.fromisoformat(validated_at).timestamp())
    return min([now, *(oldest[tp] for tp in waiting)])


def _retention(settings: TopicSettings) -> int:
    """Return the age in milliseconds at which Kafka deletes a topic's records; -1 for none."""
    if settings.retention_ms is not None:
        return settings.retention_ms
    # A note of an older release has only what is set on the topic itself.
    is_by_age = "delete" in settings.config.get("cleanup.policy", "delete")
    return int(settings.config.get("retention.ms", -1)) if is_by_age else -1


def _iso(milliseconds: int | None) -> str | None:
    """Return a time in ISO 8601; None if it is outside the calendar."""
    if milliseconds is None or not 0 <= milliseconds < _HIGHEST:
        return None
    return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")


def write_overview(root: UPath, overview: Mapping[str, Any]) -> None:
    """Write an archive's overview.

    Raises:
        ArchiveError: When the folder can't be written.
    """
    OverviewDocument.model_validate(overview).write(root / NAME)


def read_overview(root: UPath) -> dict[str, Any] | None:
    """Read an archive's overview; None if no validation of this release has run.

    Raises:
        ArchiveError: When it is damaged.
    """
    try:
        return OverviewDocument.read(root / NAME).content()
    except (FileNotFoundError, NotADirectoryError):
        return None
