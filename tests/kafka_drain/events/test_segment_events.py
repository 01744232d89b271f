"""What an asset's event says of the segments that a validation sealed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kafka_drain.archive.receipts import Receipt, SealedPartition
from kafka_drain.events import segment_events as module
from kafka_drain.events.segment_events import segment_events
from kafka_drain.offsets import OffsetRange, TopicPartition
from tests.kafka_drain.golden import END, golden_copy, seal


def part_of(receipt: Receipt, tp: TopicPartition, found: OffsetRange) -> SealedPartition:
    """Return a receipt's first partition as another one, with other offsets."""
    part = receipt.partitions[0]
    where = {"topic": tp.topic, "partition": tp.partition}
    return replace(part, **where, start=found.start, end=found.end)


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


@pytest.mark.parametrize(("partitions", "own"), [(3, module.SEGMENTS), (2_000, 50)])
def test_segment_events_bounded(tmp_path: Path, partitions: int, own: int) -> None:
    """However much was sealed, an event stays small, and has all; of partitions those with news."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    older = 5
    tps = [TopicPartition("t", n) for n in range(partitions)]

    def batch(number: int) -> Receipt:
        start = 5 + 4 * number
        news, none = OffsetRange(start, start + 4), OffsetRange(start, start)
        parts = [part_of(receipt, tp, news) for tp in tps]
        quiet = part_of(receipt, TopicPartition("quiet", 0), none)
        return replace(receipt, first_batch=number, last_batch=number, partitions=(quiet, *parts))

    events = segment_events(map(batch, range(older + own)))

    assert len(events) == own + 1
    oldest, following, *_, newest = events
    assert [event["receipts"] for event in events] == [older, *[1] * own]
    assert (oldest["first_batch"], oldest["last_batch"]) == (0, older - 1)
    assert oldest["receipt"].endswith(f"/{older - 1:012d}.json")
    assert oldest["offsets"]["t-0"] == [[5, 5 + 4 * older]]
    assert following["offsets"]["t-0"] == [[5 + 4 * older, 9 + 4 * older]]
    last = 4 * (older + own)
    assert newest["offsets"]["t-2"] == [[1 + last, 5 + last]]
    assert [event["partitions"] for event in events] == [partitions] * len(events)
    assert "quiet-0" not in oldest["offsets"]
    files = sum(event["files"] for event in events)
    assert files == (older + own) * len(receipt.files)


def test_segment_events_bounded_generations(tmp_path: Path) -> None:
    """What is put together is of one generation, and windows stay by themselves."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    of = [1] * 3 + [2] * 2 + [None] + [3] * module.SEGMENTS

    events = segment_events(
        replace(receipt, generation=number, window="" if number else "20260110T000000Z")
        for number in of
    )

    assert [event["generation"] for event in events] == [1, 2, None] + [3] * module.SEGMENTS
    assert [event["receipts"] for event in events[:4]] == [3, 2, 1, 1]


def test_segment_events_window(tmp_path: Path) -> None:
    """A window has as many ranges of a partition as were missing between what was archived."""
    archive = golden_copy(tmp_path / "archive")
    [*_, receipt] = seal(archive).sealed
    parts = tuple(
        part_of(receipt, TopicPartition("t", n), OffsetRange(start, start + 2))
        for n, start in [(0, 3), (0, 9), (1, 5)]
    )

    [event] = segment_events(
        [replace(receipt, generation=None, window="20260110T000000Z", partitions=parts)]
    )

    assert (event["generation"], event["window"]) == (None, "20260110T000000Z")
    assert event["offsets"] == {"t-0": [[3, 5], [9, 11]], "t-1": [[5, 7]]}
    assert event["partitions"] == 2
