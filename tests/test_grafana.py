"""The dashboard asks for what operators send, by the names that the mapping gives it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from kafka_drain.archive.drill_status import DrillStatus
from kafka_drain_airflow.observability import metrics
from tests.kafka_drain.archive.test_drill_status import NOW, drill

GRAFANA = Path(__file__).resolve().parents[1] / "docs" / "grafana"
DASHBOARD = json.loads((GRAFANA / "kafka-drain.json").read_text())
PAGE = (GRAFANA.parent / "airflow-ui.md").read_text()
ALERTS = yaml.safe_load((GRAFANA / "alerts.yml").read_text())
MAPPINGS = yaml.safe_load((GRAFANA / "statsd-mapping.yml").read_text())["mappings"]


def prometheus_name(statsd_name: str) -> tuple[str, dict[str, str]]:
    """Return name and labels by the first mapping that fits, as statsd_exporter does.

    A `*` stands for anything but a dot.
    """
    for mapping in MAPPINGS:
        pattern = re.escape(mapping["match"]).replace(r"\*", r"([^.]*)")
        if found := re.fullmatch(pattern, statsd_name):

            def fill(text: str, parts: re.Match[str] = found) -> str:
                return re.sub(r"\$\{?(\d)\}?", lambda m: parts[int(m[1])], text)

            labels = {name: fill(value) for name, value in mapping["labels"].items()}
            return fill(mapping["name"]), labels
    raise AssertionError(statsd_name)


def by_opentelemetry(name: str) -> str:
    """Return Prometheus' name of a metric of OpenTelemetry, relabelled as the page says."""
    [rule] = re.findall(r"regex: '(.*)'", PAGE)
    found = re.fullmatch(rule, name.replace(".", "_"))
    assert found, name
    return found[1]


def told() -> list[tuple[str, dict[str, str]]]:
    """Return what operators send: names with Airflow's prefix, and tags."""
    sent: list[tuple[str, dict[str, str]]] = []

    class Gauges:
        def gauge(self, name: str, value: float, *, tags: dict[str, str]) -> None:
            sent.append((f"airflow.{name}", tags))

    overview: dict[str, Any] = dict.fromkeys(
        ("records", "offsets", "files", "bytes", "lag", "unsealed_segments"), 1
    )
    overview |= {"verdict": "complete", "gaps": {"lost": 1}, "findings": {"file_missing": 1}}
    overview["drained_until"] = overview["validated_at"] = "2026-11-22T11:00:00+00:00"
    overview["expires_at"] = "2026-11-22T12:00:00+00:00"
    before = metrics.Stats
    metrics.Stats = Gauges()  # type: ignore[assignment, misc]
    try:
        metrics.tell_overview("orders", overview, 1.0)
        metrics.tell_ready("orders", is_ready=True)
        metrics.tell_drain("orders", dict.fromkeys(metrics._DRAIN, 1))
        metrics.tell_republish("orders", dict.fromkeys(metrics._REPUBLISH, 1))
        metrics.tell_drills("orders", DrillStatus.of([drill(1)], None, NOW))
    finally:
        metrics.Stats = before  # type: ignore[misc]
    return sent


def sent() -> dict[str, dict[str, str]]:
    """Return what operators send by StatsD, by Prometheus' name, with its labels."""
    names = [name for name, _ in told() if name.startswith("airflow.kafka_drain.orders.")]
    return dict(prometheus_name(name) for name in names)


def test_opentelemetry_is_the_same() -> None:
    """With OpenTelemetry, the dashboard finds the same metrics, with the same labels."""
    constant = [(n, tags) for n, tags in told() if ".orders." not in n]

    assert {by_opentelemetry(name): tags for name, tags in constant} == sent()


def test_mapping_labels() -> None:
    """Each gauge has its pipeline as a label, and those by reason have that too."""
    found = sent()

    assert {labels["pipeline"] for labels in found.values()} == {"orders"}
    assert found["kafka_drain_archive_gaps"]["reason"] == "lost"
    assert found["kafka_drain_archive_findings"]["reason"] == "file_missing"
    assert found["kafka_drain_drain_offsets_per_second"] == {"pipeline": "orders"}


def test_dashboard_asks_for_what_is_sent() -> None:
    """No panel waits for a metric that nobody sends."""
    asked = set(re.findall(r"kafka_drain_\w+", json.dumps(DASHBOARD)))

    assert len(DASHBOARD["panels"]) == 16
    assert asked <= sent().keys()
    # Everything but what other figures say as well.
    assert sent().keys() - asked == {"kafka_drain_drain_records", "kafka_drain_archive_offsets"}


def test_alerts_ask_for_what_is_sent() -> None:
    """No rule waits for a metric that nobody sends, and each says where to read on."""
    rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]

    for rule in rules:
        asked = set(re.findall(r"kafka_drain_\w+", rule["expr"]))
        assert asked
        assert asked <= sent().keys()
        assert (GRAFANA.parents[1] / rule["annotations"]["runbook"]).is_file()
        assert "{{ $labels.pipeline }}" in rule["annotations"]["summary"]
    assert [rule["alert"] for rule in rules] == ["KafkaDrainNotReady", "KafkaDrainNotProven"]


def test_dashboard_panels_apart() -> None:
    """No panel lies over another, and each says what it shows."""
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not own & cells, panel["title"]
        assert max(x for x, _ in own) < 24
        cells |= own
        assert panel["description"]
