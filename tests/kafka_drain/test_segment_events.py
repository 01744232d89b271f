"""What an asset's event says of the segments that a validation sealed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from kafka_drain import segment_events as module
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.segment_events import segment_events
from tests.kafka_drain.golden import END, golden_copy, seal


def test_segment_events(tmp_path: Path) -> None:
    """Each segment is told once, when it is sealed, with what its receipt says."""
    archive = golden_copy(tmp_path / "archive")

    events = segment_events(seal(archive).sealed)

    receipts = list(archive.generation(1).receipts())
    assert [event["sha256"] for event in events] == [receipt.sha256 for receipt in receipts]
    assert [(archive.root / event["receipt"]).is_file() for event in events] == [True] * 3
    assert sum(event["files"] for event in events) == receipts[-1].files_so_far.files
    assert sum(event["records"] for event in events) == sum(r.records for r in receipts)
    covered = [event["offsets"]["flights-0"][0] for event in events]
    assert [start for start, _ in covered] == [0, *(end for _, end in covered[:-1])]
    assert covered[-1][1] == END
    assert segment_events(seal(archive).sealed) == []


def test_segment_events_bounded(tmp_path: Path) -> None:
    """However much was sealed, an event stays small; partitions without news aren't in it."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    part = receipt.partitions[0]
    parts = [
        replace(part, tp=TopicPartition("t", n), range=OffsetRange(5, 5 if n % 2 else 9))
        for n in range(4 * module.PARTITIONS)
    ]
    large = replace(receipt, partitions=tuple(parts))

    events = segment_events([large] * 1_000)

    assert len(events) == module.SEGMENTS
    assert events[0]["partitions"] == 2 * module.PARTITIONS
    assert len(events[0]["offsets"]) == module.PARTITIONS
    assert events[0]["offsets"]["t-0"] == [[5, 9]]
    assert "t-1" not in events[0]["offsets"]


def test_segment_events_window(tmp_path: Path) -> None:
    """A window has as many ranges of a partition as were missing between what was archived."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    part = receipt.partitions[0]
    parts = tuple(
        replace(part, tp=TopicPartition("t", n), range=OffsetRange(start, start + 2))
        for n, start in [(0, 3), (0, 9), (1, 5)]
    )

    [event] = segment_events(
        [replace(receipt, generation=None, window="20260110T000000Z", partitions=parts)]
    )

    assert (event["generation"], event["window"]) == (None, "20260110T000000Z")
    assert event["offsets"] == {"t-0": [[3, 5], [9, 11]], "t-1": [[5, 7]]}
    assert event["partitions"] == 2
