"""What a backfill with force may replace, and what readers find before and after it."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from kafka_drain import windows
from kafka_drain.archive_files import archive_files
from kafka_drain.backfill_planning import BackfillPlan, plan_backfill
from kafka_drain.backfilling import finish_backfill, open_backfill
from kafka_drain.errors import DataLossError
from kafka_drain.intervals import Interval
from kafka_drain.job_spec import write_private
from kafka_drain.kafka_cluster import KafkaCluster
from kafka_drain.offsets import OffsetRange, TopicPartition
from kafka_drain.pipeline import Pipeline
from kafka_drain.receipts import Receipt
from kafka_drain.window import range_rows
from kafka_drain.windows import WindowJob
from tests.kafka_drain.fake_cluster import FakeCluster, Log, fake_application
from tests.kafka_drain.made_archive import Batch, MadeArchive, dense

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
HOUR = Interval(NOON, NOON.replace(hour=13))
#: What the interval's window holds.
ROWS: Batch = {P0: dense(0, 10), P1: dense(0, 10)}


class Backfilled:
    """An archive with the window of one interval, and the Kafka that it was drained from."""

    def __init__(self, folder: Path) -> None:
        self.made = MadeArchive(folder / "archive", {"flights": "id-1"})
        self.pipeline = Pipeline(name="made", topics=["flights"], archive=str(self.made.root))
        self.cluster: KafkaCluster = FakeCluster(
            {P0: Log(end=100), P1: Log(end=100)}, topic_ids=self.made.topic_ids
        )  # type: ignore[assignment]
        self.old = [file.path for file in self.made.seal_window(HOUR.key, ROWS, **self.in_plan())]
        self._folder = folder

    def in_plan(self) -> dict[str, object]:
        """Return what the plan of a window of the interval says."""
        ranges = {tp: [OffsetRange(min(rows), max(rows) + 1)] for tp, rows in ROWS.items()}
        return {
            "ranges": range_rows(ranges),
            "interval": [HOUR.start.isoformat(), HOUR.end.isoformat()],
            "topics": self.made.topic_ids,
            "partition_by": ["topic"],
        }

    def plan(self) -> BackfillPlan:
        """Plan to drain the interval's window again."""
        return plan_backfill(self.pipeline, self.cluster, HOUR, force=True)

    def drained(self, plan: BackfillPlan, rows: Batch) -> WindowJob:
        """Freeze a plan, and write some rows as Spark does."""
        folder = self._folder / "run"
        folder.mkdir(mode=0o700, exist_ok=True)
        job = open_backfill(plan, self.pipeline, self.cluster, folder)
        write_private(job.result_path, {"fingerprint": None})
        self.made.write(f"{plan.window.data_name}/{job.attempt}", rows)
        return job

    def finish(self, plan: BackfillPlan, job: WindowJob) -> Receipt:
        """Prove and seal what was written."""
        return finish_backfill(plan, job, self.cluster, run="test", say=print)

    def read(self) -> list[tuple[TopicPartition, int, int]]:
        """Return what readers take: partition, first and last offset of each file."""
        return sorted(
            (content.tp, content.first, content.last)
            for file in archive_files(self.made.archive)
            if file.sealed is not None
            for content in file.sealed.contents
        )


@pytest.fixture
def backfilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Backfilled:
    """An interval's window with twenty records in two files."""
    monkeypatch.setattr(windows, "prepare_application", fake_application)
    return Backfilled(tmp_path)


def test_finish_backfill_fewer_records(backfilled: Backfilled) -> None:
    """With force, a window with fewer records than the one that it would replace isn't sealed."""
    before, plan = backfilled.read(), backfilled.plan()
    fewer: Batch = {P0: dense(0, 10), P1: dense(0, 4)}
    job = backfilled.drained(plan, fewer)
    # As if Kafka had said of the others that they are compacted.
    job.ranges[P1][:] = [OffsetRange(0, 4)]

    with pytest.raises(DataLossError, match=r"flights-1 4 instead of 10.*only copy"):
        backfilled.finish(plan, job)

    assert backfilled.read() == before
    assert all((backfilled.made.root / path).is_file() for path in backfilled.old)


def test_finish_backfill_force(backfilled: Backfilled) -> None:
    """With force the new window takes the place of the old one, which is removed."""
    before, plan = backfilled.read(), backfilled.plan()

    receipt = backfilled.finish(plan, backfilled.drained(plan, ROWS))

    assert receipt.replaces == tuple(sorted(backfilled.old))
    assert backfilled.read() == before
    assert [w.key for w in backfilled.made.archive.windows() if w.is_sealed] == [plan.window.key]
