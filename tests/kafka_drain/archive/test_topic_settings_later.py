"""Compaction that is switched on or off between two drains explains only what it can have removed.

It has removed nothing that was read before it was on, or written after it was off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.drain.drain import open_drain
from kafka_drain.findings import errors, summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.client_config import KafkaConfig
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.validation import validate_archive
from kafka_drain.windows.roll import plan_roll, roll
from tests.kafka_drain.fake_cluster import fake_application
from tests.kafka_drain.golden import END, add_batch, golden_cluster, golden_pipeline

HOLE = 4


def explain_by_setting(monkeypatch: pytest.MonkeyPatch, cluster: Any) -> None:
    """Let Kafka's log lack each offset that is asked for, as the topic's setting says by now."""

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        is_compacted = cluster.configs["flights"]["cleanup.policy"] == "compact"
        absent = GapReason.COMPACTED if is_compacted else GapReason.UNEXPLAINED
        return [Gap(tp, r, absent) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)


@pytest.mark.parametrize("is_pending", [False, True])
@pytest.mark.parametrize("hole_at", [50, 60])
def test_validate_hole_compacted_and_drained_later(
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hole_at: int,
    is_pending: bool,
) -> None:
    """Only a hole of a batch that was read while compaction was on is explained by it.

    Args:
        is_pending: Whether Spark was killed before it committed the first batch.
    """
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    pipeline = golden_pipeline(archive, partition_by=["topic"])
    cluster: Any = golden_cluster()
    cluster.config = KafkaConfig({"bootstrap.servers": "broker:9092"})
    # The golden archive was moved.
    roll(plan_roll(archive, cluster))
    generation = archive.generation(2)
    checkpoint = Path(str(generation.checkpoint))

    def drain(batch: int, policy: str, start: int, end: int) -> int:
        """Drain a batch, with a hole at its end if it is there; return where the next begins."""
        cluster.configs = {"flights": {"cleanup.policy": policy}}
        with open_drain(pipeline, cluster, tmp_path, run="r"):
            pass
        add_batch(generation, batch, start, end)
        after = end + (HOLE if end == hole_at else 0)
        ends = json.dumps({"flights": {"0": after, "1": after}})
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{ends}")
        return after

    explain_by_setting(monkeypatch, cluster)
    after = drain(0, "delete", END, 50)
    if is_pending:
        (checkpoint / "commits" / "0").unlink()
    drain(1, "compact", after, 60)
    if is_pending:
        (checkpoint / "commits" / "0").write_text("v1\n{}")

    report = validate_archive(archive, cluster)

    expected = {"offset_unexplained": 2} if hole_at == 50 else {}
    assert summary(errors(report.findings)) == expected
    assert bool(report.receipts_written) == (not expected)


@pytest.mark.parametrize("hole_at", [50, 60])
@pytest.mark.parametrize(("again", "is_compacted"), [("delete", False), ("compact", True)])
def test_validate_hole_no_longer_compacted(
    archive: Archive,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hole_at: int,
    again: str,
    is_compacted: bool,
) -> None:
    """A hole of what was written after compaction was switched off isn't explained by it.

    Args:
        again: The setting when the last batch is drained.
        is_compacted: Whether that explains a hole in it.
    """
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    pipeline = golden_pipeline(archive, partition_by=["topic"])
    cluster: Any = golden_cluster()
    cluster.config = KafkaConfig({"bootstrap.servers": "broker:9092"})
    # The golden archive was moved.
    roll(plan_roll(archive, cluster))
    generation = archive.generation(2)
    checkpoint = Path(str(generation.checkpoint))

    def drain(batch: int, policy: str, start: int, end: int) -> int:
        """Drain a batch up to the log's end, with a hole at its end if it is there."""
        after = end + (HOLE if end == hole_at else 0)
        cluster.logs = {tp: replace(log, end=after) for tp, log in cluster.logs.items()}
        cluster.configs = {"flights": {"cleanup.policy": policy}}
        with open_drain(pipeline, cluster, tmp_path, run="r"):
            pass
        add_batch(generation, batch, start, end)
        ends = json.dumps({"flights": {"0": after, "1": after}})
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{ends}")
        return after

    explain_by_setting(monkeypatch, cluster)
    after = drain(0, "compact", END, 46)
    after = drain(1, "delete", after, 50)
    drain(2, again, after, 60)

    report = validate_archive(archive, cluster)

    expected = {} if hole_at == 50 or is_compacted else {"offset_unexplained": 2}
    assert summary(errors(report.findings)) == expected
