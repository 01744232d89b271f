"""Which files are too old: by their newest record's time, where they have one."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from kafka_drain.offsets import TopicPartition
from kafka_drain.retention import plan_deletions
from tests.kafka_drain.made_archive import EPOCH, NOW, MadeArchive

TP = TopicPartition("t", 0)
OLD = int((NOW - timedelta(days=31) - EPOCH).total_seconds() * 1000)


@pytest.mark.parametrize(
    ("times", "goes"),
    [
        ([OLD, OLD], True),
        ([OLD, OLD + 2 * 86_400_000], False),
        # A record that its producer has given no time.
        ([-1, -1], False),
        ([-1, OLD], True),
        # The start of 1970 is a time.
        ([0, 0], True),
        ([None, None], False),
    ],
)
def test_plan_deletions(tmp_path: Path, times: list[int | None], goes: bool) -> None:
    """A file goes when its newest record is too old; one whose records have no time stays."""
    made = MadeArchive(tmp_path / "archive", {"t": "id"})
    [file] = made.seal({TP: dict(enumerate(times))})

    found = plan_deletions(made.archive, made.archive.generations(), 30, NOW)

    assert [f.path for deletion in found for f in deletion.files] == [file.path] * goes
