"""Gauges that operators send to Airflow's metrics."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from kafka_drain.archive.drill_status import DrillStatus
from kafka_drain_airflow.observability import metrics
from tests.kafka_drain.archive.test_drill_status import NOW as DRILLED
from tests.kafka_drain.archive.test_drill_status import drill

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


class Gauges:
    """A fake StatsD that keeps only the last values: those with a pipeline in their name apart.

    Attributes:
        values: By name, of names with a pipeline in them.
        tags: The tags of each of these.
        tagged: By constant name and tags.
    """

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.tags: list[dict[str, str]] = []
        self.tagged: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def gauge(self, name: str, value: float, *, tags: dict[str, str]) -> None:
        if name.split(".")[1] in ("archive", "drain", "drill", "republish", "validate"):
            self.tagged[name, tuple(sorted(tags.items()))] = value
        else:
            self.values[name] = value
            self.tags.append(tags)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Gauges:
    gauges = Gauges()
    monkeypatch.setattr(metrics, "Stats", gauges)
    return gauges


def overview(**keys: Any) -> dict[str, Any]:
    known = {"records": 95, "offsets": 100, "files": 3, "bytes": 7, "lag": 5}
    known["unsealed_segments"] = 1
    return {**known, "verdict": "complete", "gaps": {}, "findings": {}, "expires_at": None} | keys


def test_tell_overview(told: Gauges) -> None:
    """A validation reports the archive's state under stable names."""
    metrics.tell_overview("orders", overview(gaps={"control": 5}), 1.5)

    assert told.values == {
        "kafka_drain.orders.archive.records": 95,
        "kafka_drain.orders.archive.offsets": 100,
        "kafka_drain.orders.archive.files": 3,
        "kafka_drain.orders.archive.bytes": 7,
        "kafka_drain.orders.archive.lag": 5,
        "kafka_drain.orders.archive.unsealed_segments": 1,
        "kafka_drain.orders.archive.complete": 1,
        "kafka_drain.orders.archive.gaps.control": 5,
        "kafka_drain.orders.validate.seconds": 1.5,
    }
    assert told.tags == [{"pipeline": "orders"}] * len(told.values)


def test_tell_overview_findings(told: Gauges) -> None:
    """Findings are reported by reason, along with the hours to expiry; unknown values aren't."""
    seen = overview(
        verdict="findings",
        findings={"file_missing": 2},
        lag=None,
        expires_at="2026-11-22T13:30:00.000+00:00",
    )

    metrics.tell_overview("orders", seen, 1, NOW)

    assert told.values["kafka_drain.orders.archive.complete"] == 0
    assert told.values["kafka_drain.orders.archive.findings.file_missing"] == 2
    assert told.values["kafka_drain.orders.archive.hours_to_expiry"] == 1.5
    assert "kafka_drain.orders.archive.lag" not in told.values


def test_tell_overview_times(told: Gauges) -> None:
    """Times are seconds since 1970: a gauge that nobody sets again grows old."""
    times = {"validated_at": "2026-11-22T12:00:00+00:00", "drained_until": None}
    metrics.tell_overview("orders", overview(**times), 1)
    assert told.values["kafka_drain.orders.archive.validated_at"] == NOW.timestamp()
    assert "kafka_drain.orders.archive.drained_until" not in told.values

    until = "2026-11-22T11:00:00.000+00:00"
    metrics.tell_overview("orders", overview(**times | {"drained_until": until}), 1)
    assert told.values["kafka_drain.orders.archive.drained_until"] == NOW.timestamp() - 3600


def test_tell_ready(told: Gauges) -> None:
    """Whether an archive could be restored is 1 or 0."""
    metrics.tell_ready("orders", is_ready=True)
    assert told.values == {"kafka_drain.orders.archive.ready": 1}
    metrics.tell_ready("orders", is_ready=False)
    assert told.values == {"kafka_drain.orders.archive.ready": 0}


def test_tell_constant_names(told: Gauges) -> None:
    """Each gauge is also sent under a name without pipeline or reason: those are tags."""
    seen = overview(verdict="findings", gaps={"control": 5, "lost": 1}, findings={"torn": 2})

    metrics.tell_overview("eu.orders", seen, 1.5)

    plain = (("pipeline", "eu.orders"),)
    assert told.tagged["kafka_drain.archive.lag", plain] == 5
    assert told.tagged["kafka_drain.validate.seconds", plain] == 1.5
    by_reason = {
        (name, dict(tags).get("reason")): value
        for (name, tags), value in told.tagged.items()
        if name.endswith(("gaps", "findings"))
    }
    assert by_reason == {
        ("kafka_drain.archive.gaps", "control"): 5,
        ("kafka_drain.archive.gaps", "lost"): 1,
        ("kafka_drain.archive.findings", "torn"): 2,
    }
    # Nothing is told under one kind of name only.
    assert sorted(told.tagged.values()) == sorted(told.values.values())


def test_tell_drain(told: Gauges) -> None:
    """A drain reports its figures; a pipeline's name is a single level of the metric's name."""
    result = {"offsets": 10, "records": 9, "seconds": 2.0, "offsets_per_second": 5, "start": "{}"}

    metrics.tell_drain("eu.orders", result)

    assert told.values == {
        "kafka_drain.eu_orders.drain.offsets": 10,
        "kafka_drain.eu_orders.drain.records": 9,
        "kafka_drain.eu_orders.drain.seconds": 2.0,
        "kafka_drain.eu_orders.drain.offsets_per_second": 5,
    }
    assert told.tags[0] == {"pipeline": "eu.orders"}


def test_tell_republish(told: Gauges) -> None:
    """A republish reports the number of records sent and the rate."""
    metrics.tell_republish("orders", {"records": 9, "seconds": 2.0, "records_per_second": 4})

    assert told.values == {
        "kafka_drain.orders.republish.records": 9,
        "kafka_drain.orders.republish.seconds": 2.0,
        "kafka_drain.orders.republish.records_per_second": 4,
    }


def test_tell_drills(told: Gauges) -> None:
    """Drills report whether they are as they should be, and the last one that passed."""
    drills = [drill(2), drill(1, "failed")]
    metrics.tell_drills("orders", DrillStatus.of(drills, timedelta(days=7), DRILLED))

    assert told.values == {
        "kafka_drain.orders.drill.ok": 0,
        "kafka_drain.orders.drill.hours_since": 48,
        "kafka_drain.orders.drill.rto_seconds": 1.5,
        "kafka_drain.orders.drill.rpo_seconds": 60,
        "kafka_drain.orders.drill.records": 5,
    }
    metrics.tell_drills("eu", DrillStatus.of(drills[:1], timedelta(days=7), DRILLED))
    metrics.tell_drills("us", DrillStatus.of([], None, DRILLED))
    assert told.values["kafka_drain.eu.drill.ok"] == 1
    assert [name for name in told.values if ".us." in name] == ["kafka_drain.us.drill.ok"]


def test_tell_overview_mended(told: Gauges) -> None:
    """What was found before and isn't any more is told as 0; when it was looked at, too."""
    before = overview(findings={"file_missing": 2})
    seen = overview(validated_at="2026-11-22T12:00:00+00:00")

    metrics.tell_overview("orders", seen, 1, NOW, before)

    assert told.values["kafka_drain.orders.archive.findings.file_missing"] == 0
    assert told.values["kafka_drain.orders.archive.validated_at"] == NOW.timestamp()
