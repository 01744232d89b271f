"""FAILS (not mended): compaction switched on between two drains explains what the first one read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.topic_settings import write_topic_settings
from kafka_drain.findings import errors, summary
from kafka_drain.gaps import Gap, GapReason
from kafka_drain.kafka.topics import TopicSettings
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.proof import gap_explanation
from kafka_drain.proof.validation import validate_archive
from tests.kafka_drain.golden import END, add_batch, golden_cluster


def test_validate_hole_compacted_and_drained_later(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hole of a batch read before compaction was on stays unexplained after the next drain."""
    generation = archive.generation(1)
    cluster: Any = golden_cluster()
    policy = "delete"

    def drain(batch: int, start: int, end: int, hole: int = 0) -> None:
        settings = TopicSettings(2, 1, compacted=policy == "compact")
        write_topic_settings(archive.root, {"flights": settings}, cluster.topic_ids)
        add_batch(generation, batch, start, end)
        checkpoint = Path(str(generation.checkpoint)) / "offsets" / str(batch)
        checkpoint.write_text(f'v1\n{{}}\n{{"flights":{{"0":{end + hole},"1":{end + hole}}}}}')

    def classify(_: object, asked: dict[TopicPartition, list[OffsetRange]]) -> Iterable[Gap]:
        absent = GapReason.COMPACTED if policy == "compact" else GapReason.UNEXPLAINED
        return [Gap(tp, r, absent) for tp, ranges in asked.items() for r in ranges]

    monkeypatch.setattr(gap_explanation, "classify_gaps", classify)
    drain(14, END, 50, hole=4)
    report = validate_archive(archive, cluster)
    assert summary(errors(report.findings)) == {"offset_unexplained": 2}

    policy = "compact"
    assert not validate_archive(archive, cluster).complete
    drain(15, 54, 60)

    report = validate_archive(archive, cluster)

    assert summary(errors(report.findings)) == {"offset_unexplained": 2}
    assert report.receipts_written == 0
