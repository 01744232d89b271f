"""What earlier runs saw: whether a partition stands still, and when Kafka overtakes the drain."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import STALL_SECONDS
from kafka_drain.archive.receipts import KafkaBounds
from kafka_drain.archive.watermarks import (
    expiry_warnings,
    observe,
    read_observations,
    stalled_findings,
    write_observations,
)
from kafka_drain.config.schedules import interval_seconds
from kafka_drain.offsets import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
HOUR = 3600.0


def held(last_stable: int, high_watermark: int) -> dict[TopicPartition, KafkaBounds]:
    return {A: KafkaBounds(0, last_stable, high_watermark)}


def test_observe_stalled_at_second_run() -> None:
    """A partition stands still when a later run finds it where an earlier one did."""
    first = observe({}, held(10, 15), "run 1", 100.0)
    second = observe(first, held(10, 18), "run 2", 100.0 + HOUR)

    assert stalled_findings(first) == []
    [finding] = stalled_findings(second)
    assert "offset 10 unchanged since 1970-01-01 00:01:40 UTC" in finding.detail
    assert "8 offsets wait" in finding.detail


def test_observe_transaction_in_progress() -> None:
    """Runs within the time that a transaction may last, as a repair's, find no standstill."""
    first = observe({}, held(10, 15), "run 1", 100.0)
    soon = observe(first, held(10, 15), "run 2", 99.0 + STALL_SECONDS)
    late = observe(soon, held(10, 15), "run 3", 100.0 + STALL_SECONDS)

    assert stalled_findings(soon) == []
    assert len(stalled_findings(late)) == 1


def test_observe_retry() -> None:
    """A retry of the same run isn't another run."""
    first = observe({}, held(10, 15), "run 1", 100.0)

    assert stalled_findings(observe(first, held(10, 15), "run 1", 100.0 + HOUR)) == []


def test_observe_idle_before() -> None:
    """A partition without new records before a transaction stands still since the transaction."""
    idle = observe({}, held(10, 10), "run 0", 50.0)
    first = observe(idle, held(10, 15), "run 1", 100.0)
    second = observe(first, held(10, 18), "run 2", 100.0 + HOUR)

    assert [first[A].waiting_since, second[A].waiting_since] == [100.0, 100.0]
    assert [len(stalled_findings(seen)) for seen in (idle, first, second)] == [0, 0, 1]


@pytest.mark.parametrize("now", [held(12, 18), held(15, 15)])
def test_observe_moved(now: dict[TopicPartition, KafkaBounds]) -> None:
    """A long transaction after another, or none, is no standstill."""
    first = observe({}, held(10, 15), "run 1", 100.0)

    assert stalled_findings(observe(first, now, "run 2", 100.0 + HOUR)) == []


def test_observations_kept(tmp_path: Path) -> None:
    """What was seen is read again; where nothing was, nothing is."""
    archive = Archive.at(str(tmp_path / "archive"))
    seen = observe({}, held(10, 15), "run 1", 100.0)

    assert read_observations(archive) == {}
    write_observations(archive, seen)
    assert read_observations(archive) == seen


@pytest.mark.parametrize(
    ("first", "end", "warns"),
    [
        # 1,000 offsets an hour are deleted: what is 999 away is gone before the next run.
        (1000, 1999, True),
        (1000, 2000, False),
        (1000, 2001, False),
        # Nothing was deleted since.
        (0, 5, False),
    ],
)
def test_expiry_warnings(first: int, end: int, warns: bool) -> None:
    """Kafka overtakes the drain when it deletes up to its end before the next run."""
    before = observe({}, held(500, 500), "run 1", 0.0)

    warnings = expiry_warnings(before, {A: first}, {A: end}, HOUR, HOUR)

    assert bool(warnings) is warns
    assert all(f"where this drain ends, in {59 * 60 // 60} min" in text for text in warnings)


def test_expiry_warnings_figures() -> None:
    """A warning says how fast Kafka deletes, when it gets where, and when the next drain starts."""
    at = 1_767_000_000.0
    before = observe({}, {A: KafkaBounds(5_000, 9_000, 9_000)}, "run 1", at)

    [warning] = expiry_warnings(before, {A: 5_500}, {A: 5_600}, 2 * HOUR, at + HOUR / 2)

    for figure in ("0.3 offsets/s of t-0", "offset 5,600", "in 6 min 0 s", "in 2 h"):
        assert figure in warning


def test_expiry_warnings_first_run() -> None:
    """Without an earlier run there is no rate; other partitions are looked at all the same."""
    seen = {B: KafkaBounds(0, 10, 10)}
    before = observe({}, seen, "run 1", 0.0)

    assert expiry_warnings({}, {A: 10}, {A: 11}, HOUR, HOUR) == []
    [warning] = expiry_warnings(before, {A: 10, B: 10}, {A: 11, B: 11}, HOUR, HOUR)
    assert "offsets/s of t-1 and" in warning


@pytest.mark.parametrize("now", [0.0, -HOUR])
def test_expiry_warnings_clock_set_back(now: float) -> None:
    """Without time since the earlier run there is no rate."""
    before = observe({}, held(500, 500), "run 1", 0.0)

    assert expiry_warnings(before, {A: 1000}, {A: 1001}, HOUR, now) == []


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("@hourly", 3600.0),
        ("@daily", 86400.0),
        ("@quarterly", 91 * 86400.0),
        ("*/15 * * * *", 900.0),
        ("@once", None),
        ("@continuous", None),
        (None, None),
    ],
)
def test_interval_seconds(schedule: str | None, expected: float | None) -> None:
    """The time between two runs, for presets and cron expressions; none for what isn't regular."""
    assert expected == interval_seconds(schedule, datetime(2026, 1, 1, tzinfo=timezone.utc))
