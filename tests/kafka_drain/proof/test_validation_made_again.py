"""A topic that was made again under its name: what Kafka compacted before explains nothing."""

from __future__ import annotations

from collections.abc import Iterable
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
from tests.kafka_drain.golden import END, add_batch, golden_cluster, golden_pipeline, row


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_validate_hole_made_again(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """The topic was compacted, deleted and made again: only what the new one is now explains."""
    monkeypatch.setattr("kafka_drain.drain.drain.prepare_application", fake_application)
    pipeline = golden_pipeline(archive, partition_by=["topic"])

    def drain(cluster: Any) -> None:
        cluster.config = KafkaConfig({"bootstrap.servers": "broker:9092"})
        with open_drain(pipeline, cluster, tmp_path, run="r"):
            pass

    before: Any = golden_cluster()
    before.configs = {"flights": {"cleanup.policy": "compact"}}
    # The golden archive was moved.
    roll(plan_roll(archive, before))
    drain(before)
    add_batch(archive.generation(2), 0, END, 50)
    assert validate_archive(archive, before).receipts_written == 1
    cluster: Any = golden_cluster(end=12)
    cluster.topic_ids = {"flights": "made-again"}
    cluster.configs = {"flights": {"cleanup.policy": policy}}
    cluster.contents = lambda tp, span: [row(tp, at) for at in range(8) if at in span]
    roll(plan_roll(archive, cluster))
    drain(cluster)
    generation = archive.generation(3)
    add_batch(generation, 0, 0, 8)
    checkpoint = Path(str(generation.checkpoint)) / "offsets" / "0"
    checkpoint.write_text('v1\n{}\n{"flights":{"0":12,"1":12}}')
    is_compacted = policy == "compact"
    absent = GapReason.COMPACTED if is_compacted else GapReason.UNEXPLAINED

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        return [Gap(tp, r, absent) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)

    report = validate_archive(archive, cluster)

    assert summary(errors(report.findings)) == ({} if is_compacted else {"offset_unexplained": 2})
    assert report.receipts_written == int(is_compacted)
