"""A sink that is no longer the one its checkpoint refers to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kafka_drain.config.pipeline import Pipeline
from kafka_drain.drain.preflight import preflight
from kafka_drain.errors import CheckpointError
from kafka_drain.kafka.cluster import KafkaCluster
from tests.conftest import Drain
from tests.faults.injection import generation, held, records
from tests.integration.command_line import listing

pytestmark = pytest.mark.integration


def test_drain_sink_moved(
    archive_folder: str, drain: Drain, cluster: KafkaCluster, make_topic: Any, send: Any
) -> None:
    """Another folder under the same checkpoint is refused, whether it is missing or empty."""
    topic = make_topic(partitions=1)
    send(topic, records(5))
    pipeline = Pipeline(name="p", topics=[topic], archive=archive_folder)
    drain(pipeline)
    send(topic, records(5))
    data = generation(archive_folder) / "data"

    moved = data.rename(data.with_name("elsewhere"))
    for _ in ("missing", "empty"):
        before = listing(Path(archive_folder))
        with pytest.raises(CheckpointError, match="manifest_missing"):
            preflight(pipeline, cluster)
        assert listing(Path(archive_folder)) == before
        data.mkdir(exist_ok=True)
    data.rmdir()
    moved.rename(data)
    drain(pipeline)

    assert held(archive_folder) == {0: list(range(10))}
