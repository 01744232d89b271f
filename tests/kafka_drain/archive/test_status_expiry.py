"""When Kafka may delete what isn't drained, as the overview of a real validation says it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka.admin import ConfigEntry, ConfigSource

from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.proof.report import note_overview
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import golden_cluster, open_next, sealed_copy
from tests.tables import each_of

OWN, BROKER, DEFAULT = (
    ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ConfigSource.STATIC_BROKER_CONFIG,
    ConfigSource.DEFAULT_CONFIG,
)


def settings_of(monkeypatch: pytest.MonkeyPatch, **config: tuple[str, ConfigSource]) -> Any:
    """Return the settings of a topic, of which Kafka says who has set them."""
    said = {"max.message.bytes": ("1048588", DEFAULT)}
    said |= {name.replace("_", "."): entry for name, entry in config.items()}
    entries = {
        name: ConfigEntry(name, value, source.value) for name, (value, source) in said.items()
    }
    cluster = KafkaCluster(KafkaConfig({"bootstrap.servers": "nobody:1"}))
    partitions = [SimpleNamespace(id=number, replicas=[1]) for number in range(2)]
    described = SimpleNamespace(partitions=partitions)
    monkeypatch.setattr(KafkaCluster, "_topic_config", lambda *_: entries)
    monkeypatch.setattr(cluster, "admin", SimpleNamespace(ask=lambda _: described))
    return cluster.topic_settings("flights")


@each_of(
    ("retention", "policy", "expires"),
    [
        (("3600000", OWN), ("delete", DEFAULT), True),
        # Nearly all topics: a week, by Kafka's default.
        (("604800000", DEFAULT), ("delete", DEFAULT), True),
        (("3600000", BROKER), ("delete", BROKER), True),
        (("3600000", BROKER), ("compact,delete", OWN), True),
        (("-1", BROKER), ("delete", DEFAULT), False),
        (("-1", OWN), ("delete", DEFAULT), False),
        (("604800000", DEFAULT), ("compact", OWN), False),
    ],
)
def test_overview_expires_by_effective_retention(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    retention: tuple[str, ConfigSource],
    policy: tuple[str, ConfigSource],
    expires: bool,
) -> None:
    """A retention that a topic inherits deletes records as one does that is set on it."""
    archive = sealed_copy(tmp_path_factory.mktemp("archive") / "a")
    with monkeypatch.context() as patched:
        settings = settings_of(patched, retention_ms=retention, cleanup_policy=policy)
    write_topic_settings(archive.root, {"flights": settings})

    overview = note_overview(archive, validate_archive(archive, golden_cluster()), "reports/r.json")

    assert overview["lag"] > 0
    assert (overview["expires_at"] is not None) is expires


def test_overview_expires_in_a_new_generation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A generation that has sealed nothing yet doesn't make Kafka keep records longer."""
    archive = sealed_copy(tmp_path / "archive")
    settings = settings_of(monkeypatch, retention_ms=("3600000", OWN))
    write_topic_settings(archive.root, {"flights": settings})
    monkeypatch.undo()
    open_next(archive, "parquet", ["topic"])

    overview = note_overview(archive, validate_archive(archive, golden_cluster()), "reports/r.json")

    assert overview["lag"] > 0
    assert overview["expires_at"] is not None
