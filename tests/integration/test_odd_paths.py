"""Real Spark and a real broker with archives in folders whose names look like something else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.clock import utc_now
from kafka_drain.config.pipeline import Pipeline
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.maintenance.erase import run_erasure
from kafka_drain.maintenance.erasure_request import ErasureRequest
from kafka_drain.maintenance.maintain import run_maintenance
from kafka_drain.proof.validation import validate_archive
from kafka_drain.spark.engine import SparkRunner

pytestmark = pytest.mark.integration

NOON = 1_768_046_400_000  # 2026-01-10 12:00 UTC, in milliseconds
BATCHES, KEYS = 2, 5
#: The hardest ones of `tests/odd_paths.py`, together.
NAMES = {
    "signs": '[prod] {eu,us} st*r? b\\s p%20q # größe 🚀 "q" it\'s $H;co:lon\nnew\ttab',
    "folders of columns": "topic=other/date=2020-01-01/_under/.hidden/ spaced /trailing.",
    "long": f"{'x' * 255}/{'日' * 85}",
}


@pytest.mark.parametrize("name", NAMES)
def test_odd_path(
    name: str,
    make_topic: Callable[..., str],
    send: Callable[..., None],
    tmp_path: Path,
    drain: Any,
    cluster: KafkaCluster,
    runner: SparkRunner,
    republish: Callable[..., dict[str, Any]],
) -> None:
    """It is drained, proven, compacted, erased from and sent back, each record once."""
    # A pattern lists its parent, in which this one is no URI.
    (tmp_path / "co:lon").mkdir()
    topic = make_topic(1)
    pipeline = Pipeline(name="odd", topics=[topic], archive=str(tmp_path / NAMES[name] / "archive"))
    archive = Archive.at(pipeline.archive)
    for batch in range(BATCHES):
        send(topic, [(b"key %d" % n, b"v", None, NOON + batch + n) for n in range(KEYS)])
        drain(pipeline)
        assert validate_archive(archive, cluster).complete

    maintained = run_maintenance(
        pipeline,
        cluster,
        runner,
        run="tests",
        say=print,
        clock=lambda: utc_now() + timedelta(days=10),
    )
    assert (maintained["files_before"], maintained["files_after"]) == (BATCHES, 1)
    request = ErasureRequest("r", "by", keys=frozenset({b"key 1"}))
    erased = run_erasure(pipeline, cluster, runner, request, run="tests", say=print, wait_seconds=0)
    assert erased["erased"] == BATCHES

    report = validate_archive(archive, cluster, deep=True)
    assert (report.complete, report.records) == (True, BATCHES * (KEYS - 1))
    receipt = republish(archive, make_topic(1))
    assert receipt["records"] == BATCHES * (KEYS - 1)
    assert receipt["verification"]["is_exact"]
